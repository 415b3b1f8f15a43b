"""The agent's own drift alarm: each admission against its prediction from the state before it.

It sees what every scheduler's pods get, so it also serves where none of ours runs. Two readings and
what the API tells of the pods are all that it needs; where several things happened between two
readings it compares what is certain whatever their order (:mod:`rte.placement.drift`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from rte import placement
from rte.placement import drift

if TYPE_CHECKING:
    from rte.agent.observer.pods import PodTable
    from rte.model.node import NodeState
    from rte.telemetry.cases import CaseBook
    from rte.telemetry.metrics import AgentMetrics


#: Admissions of pods that the API has not shown yet; of more at a time the rest is not compared.
_MOST_EARLY = 64


class DriftCheck:
    """Looks at every state in turn.

    Args:
        node_name: for the log.
        pods: the API's pods of this node.
        cases: where differences go.
    """

    def __init__(
        self, node_name: str, pods: PodTable, metrics: AgentMetrics, cases: CaseBook
    ) -> None:
        self._node_name = node_name
        self._pods = pods
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
        newcomers, endings = self._pods.newcomers, self._pods.endings
        if last is None or not (last.synced and state.synced):
            self._pods.settled([*endings, *(newcomers.keys() & state.admitted)])
            self._early.clear()
            return
        for uid in state.admitted - last.admitted:
            if len(self._early) < _MOST_EARLY:
                self._early[uid] = (last, state)
        known = sorted(newcomers.keys() & self._early.keys())
        for uid in known:
            before, after = self._early[uid]
            self._judge(uid, before, after, drift.Outcome(parts=drift.parts_of(after, uid)))
        for uid, reason in endings.items():
            if reason in drift.MANAGERS_REASONS:
                before = self._came_at.get(uid, last)
                self._judge(uid, before, state, drift.Outcome(reason=reason))
        self._pods.settled([*endings, *(newcomers.keys() & state.admitted)])
        for uid in known:
            del self._early[uid]
        if self._early:
            self._early = {uid: at for uid, at in self._early.items() if uid in state.admitted}
        self._came_at = {uid: self._came_at.get(uid, last) for uid in newcomers}

    def _judge(self, uid: str, last: NodeState, state: NodeState, got: drift.Outcome) -> None:
        newcomers = self._pods.newcomers
        # What pods hold that the API shows gone: the kubelet may let go of it before or after.
        gone = last.holdings.keys() - state.admitted - newcomers.keys()
        before = placement.settle(last, last.admitted | gone)

        def meanwhile() -> drift.Meanwhile:
            return drift.meanwhile(before, state, uid, newcomers, self._pods.endings.keys() - {uid})

        case = drift.judge(drift.predict(before, newcomers[uid]), got, meanwhile)
        self._metrics.predictions.inc()
        if case.result.is_difference:
            self._metrics.prediction_differences.labels(case.result).inc()
            self._cases.tell(case, self._node_name)
