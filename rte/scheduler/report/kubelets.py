"""The kubelets of the cluster: how well their rules are known, what a restart would do to them."""

from __future__ import annotations

import logging
from collections import Counter
from typing import TYPE_CHECKING

from rte import placement
from rte.placement.kubelet import releases
from rte.scheduler.framework.outlook import is_exacting

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from rte.model.node import NodeState
    from rte.placement import PredictedRestart
    from rte.scheduler.framework.node import NodeEntry
    from rte.scheduler.framework.objects import PodView
    from rte.scheduler.report.metrics import SchedulerMetrics

logger = logging.getLogger(__name__)

#: Time that restarts may be predicted for at one look: half a per cent of a core.
LOOK_S = 0.005
#: Values of metric labels: what a restart would do, and how well the rules of a kubelet are known.
EFFECTS = ("start_error", "refusals")
KNOWN = ("exact", "assumed", "unknown")


def holders(entry: NodeEntry) -> tuple[NodeState, dict[str, PodView]] | None:
    """What the kubelet has, and those of its pods that its managers give anything, by the kubelet's
    UID, in the order of their creation; None where no agent of ours tells, or where what it tells
    is not to be trusted.
    """
    reported = entry.report.state if entry.report else None
    if reported is None or entry.distrust():
        return None
    return reported, {
        pod.kubelet_uid: pod
        for pod in sorted(
            entry.pods.values(), key=lambda pod: (not pod.mirror, pod.created, pod.key)
        )
        if pod.kubelet_uid in reported.admitted
        and is_exacting(pod.shape.as_pod(pod.kubelet_uid), reported)
    }


def restarted(entry: NodeEntry) -> tuple[PredictedRestart, dict[str, PodView]] | None:
    """What a restart of this kubelet would do to its :func:`holders`, and these."""
    found = holders(entry)
    if found is None:
        return None
    reported, views = found
    pods = [pod.shape.as_pod(uid) for uid, pod in views.items()]
    return placement.restart(reported, pods), views


class KubeletWatch:
    """Looks at all nodes, once a second; restarts are predicted for a few nodes at a time."""

    def __init__(self, metrics: SchedulerMetrics, clock: Callable[[], float]) -> None:
        self._metrics = metrics
        self._clock = clock
        #: Node -> (the report that was looked at, what a restart would do); the latest one last.
        self._seen: dict[str, tuple[NodeState, str]] = {}
        self._told: set[str] = set()

    def look(self, entries: Iterable[NodeEntry]) -> None:
        """Count the nodes anew."""
        reports = {
            entry.name: (entry, entry.report.state)
            for entry in entries
            if entry.report is not None and entry.report.state is not None
        }
        known: Counter[str] = Counter()
        versions = Counter(state.kubelet_version for _, state in reports.values())
        for version, number in versions.items():
            known[self._how_known(version)] += number
        for label in KNOWN:
            self._metrics.kubelets.labels(label).set(known[label])
        self._predict(reports)
        effects = Counter(effect for _, effect in self._seen.values())
        for label in EFFECTS:
            self._metrics.broken_by_restart.labels(label).set(effects[label])

    def _how_known(self, version: str) -> str:
        if releases.known(version) is not None:
            return "assumed" if releases.is_assumed(version) else "exact"
        if version not in self._told:
            self._told.add(version)
            logger.warning("%s; its nodes are a last resort", releases.why_unknown(version))
        return "unknown"

    def _predict(self, reports: dict[str, tuple[NodeEntry, NodeState]]) -> None:
        until = self._clock() + LOOK_S
        self._seen = {name: seen for name, seen in self._seen.items() if name in reports}
        new = [name for name in reports if name not in self._seen]
        for name in (*new, *tuple(self._seen)):
            entry, state = reports[name]
            if name in self._seen and self._seen[name][0] is state:
                continue
            if self._clock() >= until:
                return
            self._seen.pop(name, None)
            answer = restarted(entry)
            self._seen[name] = (state, _effect(answer[0]) if answer else "")


def _effect(answer: PredictedRestart) -> str:
    """One of :data:`EFFECTS`, or empty; an error or a refusal that cannot be ruled out is one."""
    if answer.start_error or answer.start_doubtful:
        return "start_error"
    return "" if answer.is_harmless else "refusals"
