"""What was predicted of pods that we bound, until a report or a refusal tells what became of them.

Pure but for its memory. A prediction is made with the decision; the state before it is replaced by
each later report that does not have the pod yet, so that few other things may have happened between
the state and the admission.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from rte import placement
from rte.placement import drift
from rte.scheduler.framework import outlook

if TYPE_CHECKING:
    from rte.model.node import NodeState
    from rte.scheduler.framework.node import NodeEntry
    from rte.scheduler.framework.objects import PodView
    from rte.scheduler.framework.status import Status


@dataclass
class _Waiting:
    """A prediction whose pod is on its way.

    ``ended``: kubelet UIDs of exacting pods that have ended since its ``before``; ``reason``: the
    kubelet's, once it has refused the pod.
    """

    prediction: drift.Prediction
    view: PodView
    ended: set[str] = field(default_factory=set)
    reason: str = ""


@dataclass(frozen=True, kw_only=True)
class Judged:
    """A pod that we bound, and how its prediction came out."""

    pod: PodView
    case: drift.Case


class Predictions:
    """One prediction for each pod that was bound by us and is not confirmed."""

    def __init__(self) -> None:
        self._waiting: dict[str, dict[str, _Waiting]] = {}

    def expect(self, entry: NodeEntry, pod: PodView, check: Status) -> None:
        """The pod is about to be bound to the node; it is not among its pods yet."""
        reported = entry.report.state if entry.report else None
        if reported is None:
            return
        verdict = check.verdict
        expected: drift.AdmissionOutcome | None = drift.AdmissionOutcome()
        if verdict is not None:
            # The check was made for all pods of its shape, so the pod has no UID there.
            after = verdict.after
            expected = drift.AdmissionOutcome(parts=drift.parts_of(after, "")) if after else None
        prediction = drift.Prediction(
            before=_active(entry, reported),
            pod=replace(pod.shape.as_pod(pod.kubelet_uid), namespace=pod.namespace, name=pod.name),
            expected=expected,
        )
        self._waiting.setdefault(entry.name, {})[pod.kubelet_uid] = _Waiting(prediction, pod)

    def forget(self, node: str, uid: str) -> None:
        """The pod (by the kubelet's UID) does not come to the node."""
        waiting = self._waiting.get(node, {})
        waiting.pop(uid, None)
        if not waiting:
            self._waiting.pop(node, None)

    def ended(self, pod: PodView) -> None:
        """A pod of the node is terminal, or gone."""
        for uid, waiting in self._waiting.get(pod.node, {}).items():
            as_pod = pod.shape.as_pod(pod.kubelet_uid)
            if uid != pod.kubelet_uid and outlook.is_exacting(as_pod, waiting.prediction.before):
                waiting.ended.add(pod.kubelet_uid)
        if not pod.rejected:
            self.forget(pod.node, pod.kubelet_uid)

    def refused(self, pod: PodView) -> bool:
        """The kubelet refused the pod; True when we had bound it.

        :meth:`judge_refusals` has the last word. A refusal by others than the resource managers
        says nothing about a prediction.
        """
        waiting = self._waiting.get(pod.node, {}).get(pod.kubelet_uid)
        if waiting is None:
            return False
        if pod.reason in drift.MANAGERS_REASONS:
            waiting.reason = pod.reason
        else:
            self.forget(pod.node, pod.kubelet_uid)
        return True

    def reported(self, entry: NodeEntry) -> list[Judged]:
        """The node has a new report: judge the pods that it confirms."""
        reported = entry.report.state if entry.report else None
        waiting = self._waiting.get(entry.name)
        if not waiting or reported is None or not reported.synced:
            return []
        judged = [
            self._judge(
                entry,
                reported,
                waiting[uid],
                drift.AdmissionOutcome(parts=drift.parts_of(reported, uid)),
            )
            for uid in list(waiting)
            if uid in reported.admitted
        ]
        before = _active(entry, reported)
        for record in waiting.values():
            if not record.reason:
                record.prediction = replace(record.prediction, before=before)
                record.ended.clear()
        return judged

    def judge_refusals(self, entry: NodeEntry) -> list[Judged]:
        """The node was read afresh after a refusal: judge the pods that were refused."""
        reported = entry.report.state if entry.report else None
        refused = [w for w in self._waiting.get(entry.name, {}).values() if w.reason]
        if reported is None or not reported.synced:
            for waiting in refused:
                self.forget(entry.name, waiting.prediction.pod.uid)
            return []
        return [
            self._judge(entry, reported, waiting, drift.AdmissionOutcome(reason=waiting.reason))
            for waiting in refused
        ]

    def _judge(
        self, entry: NodeEntry, reported: NodeState, waiting: _Waiting, got: drift.AdmissionOutcome
    ) -> Judged:
        before, uid = waiting.prediction.before, waiting.prediction.pod.uid

        def meanwhile() -> drift.Meanwhile:
            known = {p.kubelet_uid: p.shape.as_pod(p.kubelet_uid) for p in entry.pods.values()}
            return drift.meanwhile(before, reported, uid, known, waiting.ended)

        self.forget(entry.name, uid)
        return Judged(pod=waiting.view, case=drift.judge(waiting.prediction, got, meanwhile))


def _active(entry: NodeEntry, reported: NodeState) -> NodeState:
    """The report, without what is held for pods that the kubelet has not admitted (yet).

    What a pod holds that the API shows terminal or gone stays, though the pod is not active: one
    that was bound before the other was deleted comes to the kubelet before that deletion, so it may
    find these CPUs taken, whatever the API shows by then.
    """
    state = placement.settle(reported, reported.admitted.union(entry.gone))
    return replace(state, admitted=state.admitted.difference(entry.gone))
