"""The state of a node as a pure function of its report, the API's pods and our own binds.

* **base**: the report, less the holdings of UIDs that the kubelet has not admitted (partial or
  refused) and of UIDs that the API shows terminal or gone: what the kubelet sees at its next
  admission.
* **overlay**: every pod bound to the node (by us or anyone) that is not terminal and whose UID the
  report does not list as admitted, in the order of binding; each is admitted by prediction.

The kubelet may be *freer* than we know: a pod has ended there and the API does not show it yet. It
may also have been *fuller* when it admitted a pod in flight: another has ended since. Either way
that pod may be in another zone than predicted. So a further pod goes to the node only if **every
pod in flight fits whatever zones the others take, in any order** (:func:`fits_beside`).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import islice, permutations
from typing import TYPE_CHECKING

from rte import placement
from rte.model import bits
from rte.model.node import Holding, MemoryAmounts, ZoneMemory
from rte.model.pod import QOS

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from rte.model.bits import CPUSet
    from rte.model.node import NodeState
    from rte.model.pod import Pod

#: More pods than this are not in flight on one node at a time: each costs an admission.
MOST_IN_FLIGHT = 8
_MOST_PERMUTED = 3


@dataclass(frozen=True, kw_only=True)
class Outlook:
    """What we know of the managers of one node.

    Attributes:
        base: what the kubelet has confirmed and still holds.
        in_flight: exacting pods bound and not confirmed, in the order of binding.
        predicted: ``base`` after their admission.
        doubtful: one of them is not certain to be admitted, so nothing can be built on it.
        steady: nothing on the node has ended since the first of them was bound, and nothing can
            end: only the order of their admissions is open.
    """

    base: NodeState
    in_flight: tuple[Pod, ...] = ()
    predicted: NodeState
    doubtful: bool = False
    steady: bool = False


@dataclass(frozen=True, kw_only=True)
class Verdict:
    """Whether the managers of a node admit a pod: ``reason`` and ``message`` say why not.

    ``waits`` is True when only a pod in flight stands in the way: its confirmation may help.
    ``uncertain``: the rules of this kubelet cannot be known.
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
) -> Outlook:
    """The outlook of a node.

    Args:
        reported: the report's state.
        bound: pods bound to the node and not terminal, in the order of binding.
        gone: kubelet UIDs that the API shows terminal or gone.
        ended_since: UIDs of ``bound`` after whose binding some pod of the node has ended.
    """
    base = placement.settle(reported, reported.admitted - gone)
    in_flight = tuple(
        pod for pod in bound if pod.uid not in reported.admitted and is_exacting(pod, reported)
    )
    predicted, doubtful = base, False
    for pod in in_flight:
        admission = placement.admit(predicted, pod)
        doubtful = doubtful or admission.verdict != "admitted"
        if admission.verdict == "admitted":
            predicted = admission.state
    steady = not base.holdings and not any(pod.uid in ended_since for pod in in_flight)
    return Outlook(
        base=base, in_flight=in_flight, predicted=predicted, doubtful=doubtful, steady=steady
    )


def judge(outlook: Outlook, pod: Pod) -> Verdict:
    """Whether the node's managers are sure to admit the pod, behind the pods in flight."""
    if not is_exacting(pod, outlook.base):
        return Verdict(admitted=True, after=outlook.predicted, holdings={})
    if outlook.doubtful:
        return _wait("the fate of a pod bound before is not known yet")
    admission = placement.admit(outlook.predicted, pod)
    if admission.verdict == "refused":
        # A pod in flight may be about to leave room (as a residue does), or stand in the way.
        return Verdict(admitted=False, reason=admission.reason, message=admission.message)
    if admission.verdict == "uncertain":
        if outlook.in_flight:
            return _wait("which devices a pod in flight gets is not known yet")
        return Verdict(
            admitted=False, reason=admission.reason, message=admission.message, uncertain=True
        )
    if outlook.in_flight and not fits_beside(outlook, pod):
        return _wait("a pod in flight may take its zone")
    return Verdict(admitted=True, after=admission.state, holdings=admission.holdings)


def fits_beside(outlook: Outlook, pod: Pod) -> bool:
    """Whether the pod and all in flight are admitted in any order, whatever zones each takes.

    On a steady node only the order is open: all orders are tried. Elsewhere each is tried against a
    node where all the others hold their share in **every** zone: that leaves less than any real
    outcome, and admission is monotone in what is free.
    """
    together = [*outlook.in_flight, pod]
    if outlook.steady and len(together) <= _MOST_PERMUTED:
        return all(_admits_all(outlook.base, order) for order in permutations(together))
    if len(together) > MOST_IN_FLIGHT or not _is_zonewise(outlook.base):
        return False
    shares = []
    for each in together:
        alone = placement.admit(outlook.base, each)
        if alone.verdict != "admitted":
            return False
        shares.append(alone.holdings)
    for index, each in enumerate(together):
        crowded = outlook.base
        for other, share in enumerate(shares):
            if other != index:
                crowded = hold_everywhere(crowded, f"in-flight-{other}", share.values())
        if placement.admit(crowded, each).verdict != "admitted":
            return False
    return True


def hold_everywhere(state: NodeState, uid: str, share: Iterable[Holding]) -> NodeState:
    """The node as if a pod held its share in each zone at once, as far as there is any.

    CPUs are taken whole cores first; memory is taken from every row that has the type.
    """
    held = list(share)
    cpus = sum(holding.cpus.bit_count() for holding in held)
    memory: dict[str, int] = {}
    devices: dict[str, int] = {}
    for holding in held:
        for block in holding.memory:
            memory[block.resource] = memory.get(block.resource, 0) + block.size
        for name, mask in holding.devices.items():
            devices[name] = devices.get(name, 0) + mask.bit_count()
    taken = 0
    for zone in state.topology.zone_cpus.values():
        taken |= _whole_cores_first(state, zone & state.shared & ~state.reserved, cpus)
    ghost = Holding(cpus=taken, devices=_free_devices(state, devices))
    return replace(
        state,
        shared=state.shared & ~taken,
        memory={zone: _drained(zone, row, memory) for zone, row in state.memory.items()},
        admitted=state.admitted | {uid},
        holdings={**state.holdings, uid: {"": ghost}},
    )


def _admits_all(state: NodeState, pods: Iterable[Pod]) -> bool:
    for pod in pods:
        admission = placement.admit(state, pod)
        if admission.verdict != "admitted":
            return False
        state = admission.state
    return True


def _wait(why: str) -> Verdict:
    reason = "node(s) where a pod in flight is not confirmed yet"
    return Verdict(admitted=False, reason=reason, message=why, waits=True)


def _is_zonewise(state: NodeState) -> bool:
    """Whether outcomes differ by zone only: a memory manager that may bind zones into groups makes
    outcomes that "every zone" does not cover.
    """
    return (
        state.config.memory_policy != "Static"
        or state.config.topology_policy == "single-numa-node"
        or len(state.topology.zones) == 1
    )


def _whole_cores_first(state: NodeState, free: CPUSet, count: int) -> CPUSet:
    """``count`` free CPUs (all where there are less), those of wholly free cores first.

    They are what a kubelet with ``full-pcpus-only`` needs.
    """
    cores: dict[int, CPUSet] = {}
    for info in state.topology.cpus:
        if free >> info.cpu & 1:
            cores[info.core] = cores.get(info.core, 0) | 1 << info.cpu
    ordered = sorted(cores.values(), key=lambda core: -core.bit_count())
    return bits.of(islice((cpu for core in ordered for cpu in bits.members(core)), count))


def _free_devices(state: NodeState, wanted: Mapping[str, int]) -> dict[str, int]:
    """For each resource, that many free devices of each exact zone set, as far as there are."""
    out: dict[str, int] = {}
    for name, count in wanted.items():
        pool = state.devices[name]
        held = 0
        for containers in state.holdings.values():
            for holding in containers.values():
                held |= holding.devices.get(name, 0)
        by_zones: dict[int | None, int] = {}
        for position in bits.members(pool.healthy & ~held):
            zones = pool.zones[position]
            if by_zones.get(zones, 0) < count:
                by_zones[zones] = by_zones.get(zones, 0) + 1
                out[name] = out.get(name, 0) | 1 << position
    return out


def _drained(zone: int, row: ZoneMemory, wanted: Mapping[str, int]) -> ZoneMemory:
    """The row with the amounts reserved, as far as they are free."""
    touched = {name: wanted[name] for name in wanted if name in row.amounts}
    if not touched:
        return row
    amounts = dict(row.amounts)
    for name, size in touched.items():
        old = amounts[name]
        part = min(size, old.free)
        amounts[name] = MemoryAmounts(
            total=old.total,
            system_reserved=old.system_reserved,
            allocatable=old.allocatable,
            reserved=old.reserved + part,
            free=old.free - part,
        )
    return ZoneMemory(
        assignments=row.assignments + 1, group=row.group or 1 << zone, amounts=amounts
    )
