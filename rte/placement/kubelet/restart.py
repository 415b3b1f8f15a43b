"""A kubelet that ends and starts again on its own files: what becomes of its pods.

It reads back who holds what, checks that against the machine, and admits the pods that run as if
they were new, except that containers keep what the files give them. Not so: memory of finished
ordinary init containers, which was free and is taken again, and what a pod holds as a whole (gate
PodLevelResourceManagers), which nobody looks up. The device plugins count as back.

Sources: ``validateState`` in policy_static.go of the CPU and the memory manager.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from itertools import chain, combinations, permutations
from typing import TYPE_CHECKING

from rte.model import bits
from rte.model.node import Holding
from rte.model.pod import ContainerKind
from rte.placement.kubelet import devices, memory, outcome
from rte.placement.kubelet.admission import remove, settle, uncertain
from rte.placement.kubelet.managers import AdmissionManagers
from rte.placement.kubelet.rules import StartError, rules_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from rte.model.bits import CPUSet, ZoneSet
    from rte.model.node import MemoryBlock, NodeState, ZoneMemory
    from rte.model.pod import Container, Pod
    from rte.placement.kubelet.outcome import Admission
    from rte.placement.kubelet.rules import KubeletRules

_NOTHING = Holding()
_OTHER_MEMORY = (
    "memorymanager: [memorymanager] the expected machine state is different from the real one"
)
#: Containers up to which all orders are tried; with more of them the start is doubtful.
_MOST_ORDERED = 4


@dataclass(frozen=True, kw_only=True)
class PredictedRestart:
    """What a restart of the kubelet would do.

    Attributes:
        start_error: why it would not start at all, in its own words; empty when it would.
        start_doubtful: whether it would start is left to chance. The memory manager goes through
            the blocks of its file in a random order, and where single zones and groups of zones
            overlap the order decides whether it finds its own file in order.
        started: the node right after the start, no pod admitted yet; unchanged on an error.
        admissions: UID -> answer, in the order in which the pods were admitted. What a refused pod
            holds stays held until the kubelet has heard of all its pods.
        state: the node when that has happened.
        doubtful: UIDs of admitted pods with devices that a real kubelet may refuse, because it
            admits its pods before the device plugins are back: a container that does not run then
            cannot have its devices. Ordinary init containers do not run any more; and up to 1.34.7
            a container that was restarted may count as dead (``any-container-runs``).
    """

    start_error: str = ""
    start_doubtful: bool = False
    started: NodeState
    admissions: Mapping[str, Admission] = field(default_factory=dict)
    state: NodeState
    doubtful: frozenset[str] = frozenset()

    @property
    def is_harmless(self) -> bool:
        """Whether the kubelet starts and surely keeps every pod."""
        return (
            not self.start_error
            and not self.start_doubtful
            and not self.doubtful
            and all(answer.admitted for answer in self.admissions.values())
        )

    @property
    def unsure(self) -> frozenset[str]:
        """UIDs of the pods that it refuses or may refuse."""
        refused = {uid for uid, answer in self.admissions.items() if not answer.admitted}
        return self.doubtful | refused


def restart(state: NodeState, pods: Iterable[Pod]) -> PredictedRestart:
    """What the kubelet would do with its running pods if it ended now and started again.

    ``pods`` are those that run, in the order of their creation. What the state holds of others
    stays held while they are admitted: the device manager's file may list pods that are gone. An
    answer is ``uncertain`` where one for a new pod would be.
    """
    pods = tuple(pods)
    try:
        rules = rules_of(state.config, state.kubelet_version)
        _check_cpus(state, rules)
        memory_fits, start_doubtful = _check_memory(state, rules)
    except outcome.Unpredictable as unknown:
        answers = {pod.uid: uncertain(state, unknown.reason, unknown.message) for pod in pods}
        return PredictedRestart(started=state, admissions=answers, state=state)
    except StartError as error:
        return PredictedRestart(start_error=str(error), started=state, state=state)
    if not memory_fits:
        return PredictedRestart(
            start_error=_OTHER_MEMORY, start_doubtful=start_doubtful, started=state, state=state
        )
    started = now = replace(
        state, shared=state.shared or _initial_shared(state, rules), admitted=frozenset()
    )
    answers = {}
    for pod in pods:
        try:
            answer = AdmissionManagers(now, pod, rules, devices.Choices()).admit()
        except outcome.Unpredictable as unknown:
            answer = uncertain(now, unknown.reason, unknown.message)
        answers[pod.uid] = answer
        now = answer.state
    kept = frozenset(uid for uid, answer in answers.items() if answer.admitted)
    return PredictedRestart(
        start_doubtful=start_doubtful,
        started=started,
        admissions=answers,
        state=settle(now, kept),
        doubtful=frozenset(
            pod.uid
            for pod in pods
            if pod.uid in kept
            and _holds_devices(now, pod.uid)
            and not (rules.any_container_runs and all(map(_runs_on, pod.containers)))
        ),
    )


def in_its_way(state: NodeState, pods: Iterable[Pod]) -> tuple[Pod, ...] | None:
    """The pods that have to leave before a restart, so that it does no harm to the others.

    Of those that are named none could stay; that no fewer would do is not proven. Earlier ones of
    ``pods`` rather stay. None: it would do harm even without all of them.
    """
    pods = tuple(pods)

    def without(going: frozenset[str]) -> PredictedRestart:
        left = state
        for uid in sorted(going):
            left = remove(left, uid)
        return restart(left, [pod for pod in pods if pod.uid not in going])

    going: frozenset[str] = frozenset()
    everybody = frozenset(pod.uid for pod in pods)
    while not (answer := without(going)).is_harmless:
        more = answer.unsure or everybody - going
        if not more:
            return None
        going |= more
    for pod in pods:
        if pod.uid in going and without(going - {pod.uid}).is_harmless:
            going -= {pod.uid}
    return tuple(pod for pod in pods if pod.uid in going)


def _runs_on(container: Container) -> bool:
    return container.kind is not ContainerKind.INIT


def _initial_shared(state: NodeState, rules: KubeletRules) -> CPUSet:
    if rules.cpu is None:
        return state.shared
    return _assignable(state, rules)


def _assignable(state: NodeState, rules: KubeletRules) -> CPUSet:
    """The CPUs that belong to the shared pool or to somebody."""
    strict = rules.cpu is not None and rules.cpu.strict_reservation
    return state.topology.all_cpus & ~(state.reserved if strict else 0)


def _check_cpus(state: NodeState, rules: KubeletRules) -> None:
    if rules.cpu is None:
        return
    assigned = [
        (uid, container, holding.cpus)
        for uid, held in sorted(state.holdings.items())
        for container, holding in sorted(held.items())
        if holding.cpus
    ]
    if not state.shared:
        if assigned:
            raise StartError("cpumanager: default cpuset cannot be empty")
        return
    pool = bits.format_list(state.shared)
    reserved_shared = state.reserved & state.shared
    if rules.cpu.strict_reservation and reserved_shared:
        raise StartError(
            f'cpumanager: some of strictly reserved cpus: "{bits.format_list(reserved_shared)}" '
            f'are present in defaultCpuSet: "{pool}"'
        )
    if not rules.cpu.strict_reservation and reserved_shared != state.reserved:
        raise StartError(
            f'cpumanager: not all reserved cpus: "{bits.format_list(state.reserved)}" are present '
            f'in defaultCpuSet: "{pool}"'
        )
    known = state.shared
    for uid, container, cpus in assigned:
        if cpus & state.shared:
            raise StartError(
                f'cpumanager: pod: {uid}, container: {container} cpuset: "{bits.format_list(cpus)}"'
                f' overlaps with default cpuset "{pool}"'
            )
        known |= cpus
    if rules.pod_level_managers:
        for whole in state.pod_holdings.values():
            known |= whole.cpus
    expected = _assignable(state, rules)
    if known != expected:
        raise StartError(
            f'cpumanager: current set of available CPUs "{bits.format_list(expected)}" doesn\'t '
            f'match with CPUs in state "{bits.format_list(known)}"'
        )


def _check_memory(state: NodeState, rules: KubeletRules) -> tuple[bool, bool]:
    """Whether the rows are what the blocks make of an empty machine, and whether that is chance.

    What one container holds stays together, all else comes in a random order. The order matters
    among blocks whose zones overlap without being the same: the last one is a zone's group.
    """
    if not rules.memory:
        return True, False
    held = list(_assigned_blocks(state, rules))
    contested = _contested({block.zones for block in chain.from_iterable(held)})
    rows = memory.initial_rows(state.topology, state.config)
    bound = []
    for blocks in held:
        if any(block.zones & contested for block in blocks):
            bound.append(blocks)
        else:
            _fill(rows, blocks)

    def fits(order: Iterable[tuple[MemoryBlock, ...]]) -> bool:
        expected = dict(rows)
        for blocks in order:
            _fill(expected, blocks)
        return _are_equal(state.memory, expected)

    by_name = fits(bound)
    doubtful = len(bound) > _MOST_ORDERED or any(
        fits(order) != by_name for order in permutations(bound)
    )
    return by_name, doubtful


def _fill(rows: dict[int, ZoneMemory], blocks: Iterable[MemoryBlock]) -> None:
    for block in blocks:
        memory.fill(rows, block.zones, block.resource, block.size)


def _contested(masks: Iterable[ZoneSet]) -> ZoneSet:
    """The zones of masks that overlap without being the same."""
    found = 0
    for one, other in combinations(masks, 2):
        if one & other:
            found |= one | other
    return found


def _assigned_blocks(state: NodeState, rules: KubeletRules) -> Iterator[tuple[MemoryBlock, ...]]:
    """What each container (or pod as a whole) holds, by their names."""
    for uid, held in sorted(state.holdings.items()):
        whole = state.pod_holdings.get(uid, _NOTHING).memory if rules.pod_level_managers else ()
        if whole and any(holding.memory for holding in held.values()):
            yield tuple(whole)
            continue
        for _, holding in sorted(held.items()):
            yield tuple(holding.memory)


def _are_equal(real: Mapping[int, ZoneMemory], expected: Mapping[int, ZoneMemory]) -> bool:
    """areMachineStatesEqual: what is free and reserved is compared by the sum over a group."""
    if real.keys() != expected.keys():
        return False
    for zone, row in real.items():
        other = expected[zone]
        if (row.assignments, row.group) != (other.assignments, other.group):
            return False
        if row.amounts.keys() != other.amounts.keys():
            return False
        for name, amounts in row.amounts.items():
            also = other.amounts[name]
            if (amounts.total, amounts.system_reserved, amounts.allocatable) != (
                also.total,
                also.system_reserved,
                also.allocatable,
            ):
                return False
            if _sums(real, row.group, name) != _sums(expected, row.group, name):
                return False
    return True


def _sums(rows: Mapping[int, ZoneMemory], group: int, name: str) -> tuple[int, int]:
    members = [rows[zone] for zone in bits.members(group) if zone in rows]
    parts = [row.amounts[name] for row in members if name in row.amounts]
    return sum(part.free for part in parts), sum(part.reserved for part in parts)


def _holds_devices(state: NodeState, uid: str) -> bool:
    return any(holding.devices for holding in state.holdings.get(uid, {}).values())
