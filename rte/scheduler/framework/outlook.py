"""The state of a node as a pure function of its report, the API's pods and our own binds.

* **base**: the report, less the holdings of UIDs that the kubelet has not admitted (partial or
  refused) and of UIDs that the API shows terminal or gone: what the kubelet sees at its next
  admission.
* **overlay**: every pod bound to the node (by us or anyone) that is not terminal and whose UID the
  report does not list as admitted, in the order of binding; each is admitted by prediction.

The kubelet may be *freer* than we know: a pod has ended there and the API does not show it yet. It
may also have been *fuller* when it admitted a pod in flight: another has ended since. Either way
that pod may be in another zone than predicted. So a further pod goes to the node only if **every
pod in flight fits whatever zones the others take, in any order**
(:func:`rte.placement.fit_together`).

What a node has left is also told roughly (:class:`Room`), for one pod or columns of them: what that
rules out is refused for certain; what it lets through still has to be predicted. So one report is
held against a thousand waiting shapes at once, and a shape against a node for next to nothing.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Generic, NamedTuple, TypeVar

from rte import placement
from rte.model.pod import QOS
from rte.placement.kubelet.outcome import TOO_MANY_ZONES

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    import numpy as np
    from numpy.typing import NDArray

    from rte.model.node import Holding, NodeState
    from rte.model.pod import Pod

    Column = NDArray[np.int64]
    Mask = NDArray[np.bool_]


T = TypeVar("T")

#: Stands for "nothing counts this", and for what no amount reaches.
UNBOUNDED = 1 << 62


@dataclass(frozen=True, kw_only=True)
class Outlook:
    """What we know of the managers of one node.

    Attributes:
        reported: the report's state.
        active: UIDs that the report lists as admitted and that still hold what they have there.
        base: what the kubelet has confirmed and still holds.
        in_flight: exacting pods bound and not confirmed, in the order of binding.
        predicted: ``base`` after their admission.
        doubtful: one of them is not certain to be admitted, so nothing can be built on it.
        steady: nothing on the node has ended since the first of them was bound, and nothing can
            end: only the order of their admissions is open.
        overtaken: something has ended since the first of them was bound: the node may have been
            fuller when it admitted them.
        ending: UIDs of pods that are being deleted: the kubelet may have let go of them already.
    """

    reported: NodeState
    active: frozenset[str]
    base: NodeState
    in_flight: tuple[Pod, ...] = ()
    predicted: NodeState
    doubtful: bool = False
    steady: bool = False
    overtaken: bool = False
    ending: frozenset[str] = frozenset()


@dataclass(frozen=True, kw_only=True)
class AdmissionOutlook:
    """Whether the managers of a node admit a pod: ``reason`` and ``message`` say why not.

    ``waits`` is True when only a pod in flight stands in the way: its confirmation may help.
    ``uncertain``: the rules of this kubelet cannot be known, so that it may be tried.
    ``after``: the node's state with the pod, None unless it is admitted.
    """

    admitted: bool
    reason: str = ""
    message: str = ""
    waits: bool = False
    uncertain: bool = False
    after: NodeState | None = None
    holdings: Mapping[str, Holding] | None = None


def is_exacting(pod: Pod, state: NodeState) -> bool:
    """Whether this kubelet's managers give the pod anything of its own.

    CPUs: Guaranteed and whole (static CPU manager); memory: Guaranteed (Static memory manager);
    devices: any. Others run in the shared pool and only count against the node's totals.
    """
    config = state.config
    if pod.qos is QOS.GUARANTEED:
        if config.memory_policy == "Static":
            return True
        if config.cpu_policy == "static" and (
            pod.pod_requests is not None
            or any(
                (milli := box.requests.get("cpu", 0)) >= 1000 and milli % 1000 == 0
                for box in pod.containers
            )
        ):
            return True
    return bool(state.devices) and any(
        name in state.devices for box in pod.containers for name in box.requests
    )


def resolve(
    reported: NodeState,
    bound: Iterable[Pod],
    gone: frozenset[str],
    ended_since: frozenset[str] = frozenset(),
    ending: frozenset[str] = frozenset(),
    before: Outlook | None = None,
) -> Outlook:
    """The outlook of a node.

    Args:
        reported: the report's state.
        bound: pods bound to the node and not terminal, in the order of binding.
        gone: kubelet UIDs that the API shows terminal or gone.
        ended_since: UIDs of ``bound`` after whose binding some pod of the node has ended.
        ending: UIDs of pods that are being deleted.
        before: an earlier outlook of the node: where pods were only bound since, what was predicted
            for those before them stands.
    """
    active = reported.admitted - gone
    in_flight = tuple(
        pod for pod in bound if pod.uid not in reported.admitted and is_exacting(pod, reported)
    )
    known = len(before.in_flight) if before is not None else 0
    if (
        before is not None
        and before.reported is reported
        and before.active == active
        and before.in_flight == in_flight[:known]
    ):
        base, predicted, doubtful = before.base, before.predicted, before.doubtful
    else:
        base, known = placement.settle(reported, active), 0
        predicted, doubtful = base, False
    for pod in in_flight[known:]:
        admission = placement.admit(predicted, pod)
        doubtful = doubtful or admission.verdict != "admitted"
        if admission.verdict == "admitted":
            predicted = admission.state
    overtaken = any(pod.uid in ended_since for pod in in_flight)
    return Outlook(
        reported=reported,
        active=active,
        base=base,
        in_flight=in_flight,
        predicted=predicted,
        doubtful=doubtful,
        steady=not base.holdings and not overtaken,
        overtaken=overtaken,
        ending=ending & predicted.holdings.keys(),
    )


def judge(outlook: Outlook, pod: Pod) -> AdmissionOutlook:
    """Whether the node's managers are sure to admit the pod, behind the pods in flight."""
    if not is_exacting(pod, outlook.base):
        return AdmissionOutlook(admitted=True, after=outlook.predicted, holdings={})
    if outlook.doubtful:
        return _wait("the fate of a pod bound before is not known yet")
    admission = placement.admit(outlook.predicted, pod)
    if admission.verdict == "refused":
        # A pod in flight may be about to leave room (as a residue does), or stand in the way.
        return AdmissionOutlook(admitted=False, reason=admission.reason, message=admission.message)
    if admission.verdict == "uncertain":
        if outlook.in_flight:
            return _wait("which devices a pod in flight gets is not known yet")
        return AdmissionOutlook(
            admitted=False,
            reason=admission.reason,
            message=admission.message,
            # A kubelet with so many zones to combine would not answer, and serve nobody meanwhile.
            uncertain=admission.reason != TOO_MANY_ZONES,
        )
    together = [*outlook.in_flight, pod]
    if outlook.in_flight and not placement.fit_together(
        outlook.base, together, steady=outlook.steady, fuller=outlook.overtaken
    ):
        return _wait("a pod in flight may take its zone")
    if outlook.ending and not placement.certain_under_endings(
        outlook.predicted, pod, outlook.ending
    ):
        return AdmissionOutlook(
            admitted=False,
            reason="node(s) where a pod that is being deleted stands in the way",
            message="once it has ended the kubelet may choose other zones, and refuse the pod",
            waits=True,
        )
    return AdmissionOutlook(admitted=True, after=admission.state, holdings=admission.holdings)


def _wait(why: str) -> AdmissionOutlook:
    reason = "node(s) where a pod in flight is not confirmed yet"
    return AdmissionOutlook(admitted=False, reason=reason, message=why, waits=True)


class Needs(NamedTuple, Generic[T]):
    """What a pod needs of a node: numbers, or columns of them.

    Attributes:
        milli: CPU in total, in millicores.
        memory: bytes in total.
        cpus: exclusive CPUs of its largest container.
        cpus_memory: bytes of memory that tie that container to few zones; :data:`UNBOUNDED` where
            they may not.
        pod_cpus: exclusive CPUs of the pod at its peak, where they are served as a whole.
        pod_memory: as ``cpus_memory``, of such a pod.
    """

    milli: T
    memory: T
    cpus: T
    cpus_memory: T
    pod_cpus: T
    pod_memory: T


class ZoneBound(NamedTuple):
    """Who finds no zones on a node, by CPUs.

    Under single-numa-node everybody needs one zone. Under restricted those do whose CPUs fit into a
    zone of this machine; of the others those whose memory does: the hints of CPU and memory manager
    then never are as wide as each other (``policy_restricted.go``, ``mergePermutation``).

    Attributes:
        by_pod: pods are served as a whole, not container by container.
        free: CPUs of the zone that has most.
        size: CPUs of the largest zone, :data:`UNBOUNDED` where several zones never do.
        memory: bytes of allocatable memory of the largest zone; -1 where nobody counts it.
    """

    by_pod: bool = False
    free: int = UNBOUNDED
    size: int = UNBOUNDED
    memory: int = -1

    def lets(self, needs: Needs[int] | Needs[Column]) -> bool | Mask:
        """Whether the zones may take such a pod."""
        cpus, memory = needs.cpus, needs.cpus_memory
        if self.by_pod:
            cpus, memory = needs.pod_cpus, needs.pod_memory
        return (cpus <= self.free) | ((cpus > self.size) & (memory > self.memory))


#: Zones that bind nobody.
ANY_ZONES = ZoneBound()


class Room(NamedTuple):
    """What a node has left: CPU in millicores and bytes of memory in total, and in its zones."""

    milli: int
    memory: int
    zones: ZoneBound = ANY_ZONES

    def holds(self, needs: Needs[int] | Needs[Column]) -> bool | Mask:
        """Whether the node may take such a pod."""
        enough = (needs.milli <= self.milli) & (needs.memory <= self.memory)
        return enough & self.zones.lets(needs)


#: Helps nobody.
NO_ROOM = Room(-1, -1)
