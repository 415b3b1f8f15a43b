"""The agent's own drift alarm: each admission against its prediction from the state before it.

It sees what every scheduler's pods get, so it also serves where none of ours runs. Two readings and
what the API tells of the pods are all that it needs; where several things happened between two
readings it compares what is certain whatever their order (:mod:`rte.placement.drift`).
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, TypeAlias

from rte import errors, placement
from rte.accounting import liveness
from rte.agent.observer import messages
from rte.k8s import podspec
from rte.placement import drift
from rte.reader.json import JsonObject

if TYPE_CHECKING:
    from collections.abc import Iterable

    from rte.model.node import NodeState
    from rte.model.pod import Pod
    from rte.telemetry.cases import CaseBook
    from rte.telemetry.metrics import AgentMetrics


#: As the API has it.
Object: TypeAlias = JsonObject

#: Admissions of pods that the API has not shown yet; of more at a time the rest is not compared.
_MOST_EARLY = 64


class Newcomers:
    """Pods that the API has shown before their admission, until it is known what became of them.

    Attributes:
        pods: by UID.
        endings: UIDs of those that are over, with the kubelet's reason where it refused them.
    """

    def __init__(self) -> None:
        self.pods: dict[str, Pod] = {}
        self.endings: dict[str, str] = {}

    def told(self, event: messages.PodsEvent) -> None:
        """The API tells of pods."""
        match event:
            case messages.PodsListed():
                shown = {liveness.node_pod(item).uid for item in event.items}
                self._over(self.pods.keys() - shown)
                for item in event.items:
                    self._seen(item)
            case messages.PodSeen():
                self._seen(event.obj)
            case messages.PodGone():
                self._over(self.pods.keys() & {liveness.node_pod(event.obj).uid})

    def settled(self, uids: Iterable[str]) -> None:
        """What became of these is known."""
        for uid in uids:
            self.pods.pop(uid, None)
            self.endings.pop(uid, None)

    def _over(self, uids: Iterable[str]) -> None:
        for uid in uids:
            self.endings.setdefault(uid, "")

    def _seen(self, obj: Object) -> None:
        pod = liveness.node_pod(obj)
        if pod.terminal:
            if pod.uid in self.pods:
                self.endings[pod.uid] = podspec.rejection(obj.get("status") or {}) or ""
        elif not pod.admitted and pod.uid not in self.pods:
            with suppress(errors.ParseError):
                self.pods[pod.uid] = podspec.parse_pod(obj, defaults=False)


class DriftCheck:
    """Looks at every state in turn.

    Args:
        node_name: for the log.
        cases: where differences go.
    """

    def __init__(self, node_name: str, metrics: AgentMetrics, cases: CaseBook) -> None:
        self._node_name = node_name
        self.newcomers = Newcomers()
        self._metrics = metrics
        self._cases = cases
        for result in drift.Result:
            if result.is_difference:
                metrics.prediction_differences.labels(result)
        self._last: NodeState | None = None
        #: Of newcomers that are not admitted: the state in which they were seen first.
        self._came_at: dict[str, NodeState] = {}
        #: Of admitted pods that the API has not shown: the states before and after.
        self._early: dict[str, tuple[NodeState, NodeState]] = {}

    def observe(self, state: NodeState) -> None:
        """The node has this state now: judge what was admitted or refused since the last one."""
        last, self._last = self._last, state
        newcomers, endings = self.newcomers.pods, self.newcomers.endings
        if last is None or not (last.synced and state.synced):
            self.newcomers.settled([*endings, *(newcomers.keys() & state.admitted)])
            self._early.clear()
            return
        for uid in state.admitted - last.admitted:
            if len(self._early) < _MOST_EARLY:
                self._early[uid] = (last, state)
        known = sorted(newcomers.keys() & self._early.keys())
        for uid in known:
            before, after = self._early[uid]
            self._judge(
                uid, before, after, drift.AdmissionOutcome(parts=drift.parts_of(after, uid))
            )
        for uid, reason in endings.items():
            if reason in drift.MANAGERS_REASONS:
                before = self._came_at.get(uid, last)
                self._judge(uid, before, state, drift.AdmissionOutcome(reason=reason))
        self.newcomers.settled([*endings, *(newcomers.keys() & state.admitted)])
        for uid in known:
            del self._early[uid]
        if self._early:
            self._early = {uid: at for uid, at in self._early.items() if uid in state.admitted}
        self._came_at = {uid: self._came_at.get(uid, last) for uid in newcomers}

    def _judge(
        self, uid: str, last: NodeState, state: NodeState, got: drift.AdmissionOutcome
    ) -> None:
        newcomers = self.newcomers.pods
        # What pods hold that the API shows gone: the kubelet may let go of it before or after.
        gone = last.holdings.keys() - state.admitted - newcomers.keys()
        before = placement.settle(last, last.admitted | gone)

        def meanwhile() -> drift.Meanwhile:
            return drift.meanwhile(
                before, state, uid, newcomers, self.newcomers.endings.keys() - {uid}
            )

        case = drift.judge(drift.predict(before, newcomers[uid]), got, meanwhile)
        self._metrics.predictions.inc()
        if case.result.is_difference:
            self._metrics.prediction_differences.labels(case.result).inc()
            self._cases.tell(case, self._node_name)
