"""What kubelets make of our decisions: confirmed, refused, or otherwise than predicted.

A refusal is evidence. A node with a report is read afresh, and until then nothing that needs a zone
goes there, for longer after each refusal. A node without one cannot be read: what asks for as much
as the refused pod stays away, for longer after each refusal, and comes back as a last resort.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from rte.scheduler.framework.node import Evidence, demand_of
from rte.scheduler.loop.messages import Due, NoteDrift
from rte.telemetry.effects import Measured, Said

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from rte.scheduler.cache.cluster import Cluster
    from rte.scheduler.framework.objects import PodView
    from rte.scheduler.loop.messages import Effect, Timers
    from rte.scheduler.report.predictions import Judged, Predictions


#: Between a refusal and the next try on a node that is read afresh (doubling within a minute).
_FIRST_S, _MOST_S = 1.0, 60.0

#: Likewise where nothing can be read: nobody tells what has changed.
_FIRST_BARE_S, _MOST_BARE_S = 15.0, 3600.0

#: Refusals by the managers; others are by totals, labels, taints or ports.
_ZONE_REASONS = frozenset({"TopologyAffinityError", "UnexpectedAdmissionError"})

HELD_OFF = "node(s) being read afresh after a rejection"


@dataclass(slots=True)
class _Held:
    until: float
    wait: float


class Rejections:
    """How long each node that has refused a pod is left alone."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._held: dict[str, _Held] = {}

    def refused(self, pod: PodView, now: float) -> tuple[float, bool]:
        """The node has refused one of our pods.

        Returns: when it is looked at again, and whether it can be read afresh then.
        """
        entry = self._cluster.nodes.get(pod.node)
        if entry is not None and entry.report is None:
            return self._without_report(pod, now), False
        known = self._held.get(pod.node)
        wait = _FIRST_S
        if known is not None and now - known.until < _MOST_S:
            wait = min(_MOST_S, 2 * known.wait)
        self._held[pod.node] = _Held(now + wait, wait)
        self._cluster.hold_off(pod.node, HELD_OFF)
        return now + wait, True

    def _without_report(self, pod: PodView, now: float) -> float:
        if pod.reason not in _ZONE_REASONS and not pod.reason.endswith("Error"):
            return now
        entry = self._cluster.nodes[pod.node]
        demand, count = demand_of(pod.shape), 1
        if entry.evidence is not None:
            demand = tuple(map(min, demand, entry.evidence.demand))  # type: ignore[assignment]
            count = entry.evidence.count + 1
        self._cluster.set_evidence(pod.node, Evidence(demand=demand, count=count))
        wait = min(_MOST_BARE_S, _FIRST_BARE_S * float(1 << min(count - 1, 16)))
        self._held[pod.node] = _Held(now + wait, wait)
        return now + wait

    def due(self, name: str, now: float) -> None:
        """The time is over: the node may be tried again, if no later refusal says otherwise."""
        known = self._held.get(name)
        if known is not None and known.until > now:
            return
        self._cluster.hold_off(name, "")
        entry = self._cluster.nodes.get(name)
        if entry is None:
            self._held.pop(name, None)
        elif entry.evidence is not None:
            self._cluster.set_evidence(name, replace(entry.evidence, fresh=False))

    def tidy(self, now: float) -> None:
        """Forget what is long over."""
        self._held = {n: held for n, held in self._held.items() if now - held.until < _MOST_BARE_S}


class KubeletWitness:
    """Holds what they say against what was expected.

    Args:
        cluster: what is known.
        predictions: what is expected.
        timers: deadlines.
        names: ``spec.schedulerName`` of our pods.
    """

    def __init__(
        self,
        cluster: Cluster,
        predictions: Predictions,
        timers: Timers,
        names: Collection[str],
    ) -> None:
        self._cluster, self._predictions = cluster, predictions
        self._timers, self._names = timers, names
        self.rejections = Rejections(cluster)

    def reported(self, name: str, now: float) -> list[Effect]:
        """The node has a new report."""
        entry = self._cluster.nodes.get(name)
        if entry is None:
            return []
        effects = _compare(name, self._predictions.reported(entry))
        reported = entry.report.state if entry.report else None
        if reported is None:
            return effects
        for uid in entry.awaited.keys() & reported.admitted:
            seconds = now - entry.awaited.pop(uid)
            effects.append(Measured("confirm_seconds", seconds, how="observe"))
        return effects

    def refused(self, pod: PodView, now: float) -> list[Effect]:
        """A kubelet refused a pod: count it, and draw conclusions."""
        ours = self._predictions.refused(pod) or pod.scheduler in self._names
        effects: list[Effect] = [
            Measured("rejections", labels=(pod.reason, "ours" if ours else "foreign"))
        ]
        if ours:
            text = f"the kubelet of {pod.node} refused {pod.key}: {pod.reason}: {pod.message}"
            effects.append(Said("warning", text))
            until, readable = self.rejections.refused(pod, now)
            self._timers.at(until, Due.REREAD if readable else Due.EVIDENCE, pod.node)
        return effects

    def reread(self, name: str, now: float) -> list[Effect]:
        """A node that has refused a pod was read afresh."""
        effects = _compare(name, self._predictions.judge_refusals(self._cluster.entry(name)))
        self.rejections.due(name, now)
        return effects


def _compare(node: str, judged: Sequence[Judged]) -> list[Effect]:
    return [NoteDrift(node, tuple(judged))] if judged else []
