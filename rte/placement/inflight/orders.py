"""Pods that arrive on one node in an unknown order: every state they may leave, exactly.

The one engine behind "admitted whatever comes first": :func:`rte.placement.fit_together` asks it
for pods in flight, :mod:`rte.placement.joint` for gangs. Walked are the states that can be reached
when

* the pods arrive in any order,
* the kubelet picks any devices that it may pick,
* a pod that was admitted starts at any moment, or not at all: its ordinary init containers then
  give their memory back, and later pods may find other zones.

States are remembered by the *set* of pods that have arrived, so that n different pods cost 2^n sets
and not n! orders; pods of one kind are counted, not told apart; of several states that no later
admission can tell apart one is kept.
"""

from __future__ import annotations

from collections import Counter
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, TypeAlias

from rte.model.pod import ContainerKind
from rte.placement.kubelet import devices, outcome
from rte.placement.kubelet.admission import admit, possible_states, start
from rte.placement.kubelet.outcome import Verdict

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterable, Iterator, Sequence

    from rte.model.node import MemoryBlock, NodeState
    from rte.model.pod import Pod

#: Pods by the number of their kind, ascending; a number stands once for each pod of that kind.
Bundle: TypeAlias = tuple[int, ...]


class CutOff(Exception):  # noqa: N818 - ends a search, which is an answer
    """The budget of a search is used up: what it looked for may exist or not."""


class StepBudget:
    """Steps that a search may still take; a step is about 0.1 ms: one admission by prediction on a
    node of up to four zones. More zones cost more, because hints are combinations of zones.

    Attributes:
        spent: steps taken so far.
    """

    def __init__(self, steps: int) -> None:
        self.steps = steps
        self.spent = 0

    def spend(self, steps: int = 1) -> None:
        """Take steps.

        Raises:
            CutOff: there are not so many left.
        """
        if self.spent + steps > self.steps:
            raise CutOff
        self.spent += steps

    @contextmanager
    def part(self, steps: int) -> Iterator[None]:
        """No more than so many of them meanwhile."""
        total = self.steps
        self.steps = min(total, self.spent + steps)
        try:
            yield
        finally:
            self.steps = total


@dataclass(frozen=True, kw_only=True)
class OrderRefusal:
    """Why a set of pods is not admitted in every order.

    Attributes:
        kind: number of the kind that finds no place, behind the pods of ``ahead``.
        ahead: pods that have arrived before it.
        verdict: refused; uncertain where a pick of devices decides, or nobody can know.
        reason: the kubelet's, or the prediction's; ``message`` its text.
    """

    kind: int
    ahead: Bundle
    verdict: Verdict
    reason: str
    message: str


@dataclass(frozen=True)
class _Reached:
    """A state, and which of the pods that led to it may still start: (UID, number of its kind)."""

    state: NodeState
    unstarted: tuple[tuple[str, int], ...] = ()


class Orders:
    """The states that sets of pods may leave on one node.

    Args:
        states: in which the node may be before any of the pods comes; settled.
        kinds: one pod for each kind; its UID does not matter.
        budget: what the search may cost.
    """

    def __init__(
        self, states: Iterable[NodeState], kinds: Sequence[Pod], budget: StepBudget
    ) -> None:
        self._kinds = kinds
        self._budget = budget
        reached = tuple(_Reached(state) for state in states)
        self._known: dict[Bundle, tuple[_Reached, ...] | OrderRefusal] = {(): reached}
        zones = max((len(each.state.topology.zones) for each in reached), default=0)
        self._cost = 1 + (1 << zones) // 32

    def refusal(self, bundle: Bundle) -> OrderRefusal | None:
        """Why the pods are not admitted in every order; None: they are.

        Raises:
            CutOff: the budget does not suffice to tell.
        """
        reached = self._reach(bundle)
        return reached if isinstance(reached, OrderRefusal) else None

    def outcomes(self, bundle: Bundle) -> tuple[NodeState, ...]:
        """Every state that the pods may leave; none where an order exists that is refused.

        States are complete up to what no later admission can tell apart.

        Raises:
            CutOff: the budget does not suffice to tell.
        """
        reached = self._reach(bundle)
        return () if isinstance(reached, OrderRefusal) else tuple(each.state for each in reached)

    def _reach(self, bundle: Bundle) -> tuple[_Reached, ...] | OrderRefusal:
        known = self._known.get(bundle)
        if known is None:
            known = self._known[bundle] = self._walk(bundle)
        return known

    def _walk(self, bundle: Bundle) -> tuple[_Reached, ...] | OrderRefusal:
        before = []
        for kind in dict.fromkeys(bundle):
            ahead = without(bundle, kind)
            states = self._reach(ahead)
            if isinstance(states, OrderRefusal):
                return states
            before.append((kind, ahead, states))
        found: dict[Hashable, _Reached] = {}
        for kind, ahead, states in before:
            pod = replace(self._kinds[kind], uid=_uid(kind, ahead.count(kind)))
            for reached in states:
                self._budget.spend(self._cost)
                after = states_after(reached.state, pod)
                # Each pick of devices is an admission of its own.
                self._budget.spend(self._cost * (len(after) - 1) if after else 0)
                if after is None:
                    return _refused(reached.state, pod, kind, ahead)
                for state in after:
                    unstarted = reached.unstarted
                    if _init_memory(state, pod):
                        unstarted = (*unstarted, (pod.uid, kind))
                    self._add(found, _Reached(state, unstarted))
        return tuple(found.values())

    def _add(self, found: dict[Hashable, _Reached], reached: _Reached) -> None:
        """The state, and all that follow from it by starts."""
        key = self._key(reached)
        if key in found:
            return
        found[key] = reached
        for uid, kind in reached.unstarted:
            self._budget.spend()
            rest = tuple(each for each in reached.unstarted if each[0] != uid)
            state = start(reached.state, replace(self._kinds[kind], uid=uid))
            self._add(found, _Reached(state, rest))

    def _key(self, reached: _Reached) -> Hashable:
        waiting = Counter(
            (kind, _init_memory(reached.state, replace(self._kinds[kind], uid=uid)))
            for uid, kind in reached.unstarted
        )
        return free_key(reached.state), frozenset(waiting.items())


def states_after(state: NodeState, pod: Pod) -> tuple[NodeState, ...] | None:
    """Every state that the kubelet's admission of the pod may leave; None where the pod is not sure
    to be admitted, or the states cannot be listed.
    """
    try:
        return possible_states(state, pod)
    except outcome.Unpredictable:
        return None


def without(bundle: Bundle, kind: int) -> Bundle:
    """The bundle less one pod of a kind that it has."""
    place = bundle.index(kind)
    return bundle[:place] + bundle[place + 1 :]


def plus(bundle: Bundle, kind: int) -> Bundle:
    """The bundle and one pod more."""
    return tuple(sorted((*bundle, kind)))


def free_key(state: NodeState) -> Hashable:
    """All of a node's state that its next admissions depend on, as long as nothing ends.

    Who holds what does not count, nor which of the devices of one zone set are in use. Of one
    machine and configuration: those are not part of the key.
    """
    rows = tuple(
        (zone, row.assignments, row.group, tuple(amounts.free for amounts in row.amounts.values()))
        for zone, row in state.memory.items()
    )
    return state.shared, rows, tuple(_in_use(state, name) for name in state.devices)


def _in_use(state: NodeState, resource: str) -> tuple[int, ...]:
    """Devices held, counted by zone set and health."""
    pool, held = state.devices[resource], devices.held(state, resource)
    return tuple(
        (group & held & health).bit_count()
        for group in pool.by_zones.values()
        for health in (pool.healthy, ~pool.healthy)
    )


def _uid(kind: int, number: int) -> str:
    return f"arriving-{kind}-{number}"


def _refused(state: NodeState, pod: Pod, kind: int, ahead: Bundle) -> OrderRefusal:
    answer = admit(state, pod)
    if answer.admitted:
        return OrderRefusal(
            kind=kind,
            ahead=ahead,
            verdict=Verdict.UNCERTAIN,
            reason=outcome.DEVICE_CHOICE,
            message="which devices the pod gets, or when, cannot be followed",
        )
    return OrderRefusal(
        kind=kind,
        ahead=ahead,
        verdict=answer.verdict,
        reason=answer.reason,
        message=answer.message,
    )


def _init_memory(state: NodeState, pod: Pod) -> tuple[tuple[MemoryBlock, ...], ...]:
    """What the pod's start gives back: the memory of its ordinary init containers."""
    held = state.holdings.get(pod.uid, {})
    blocks = (
        held[container.name].memory
        for container in pod.containers
        if container.kind is ContainerKind.INIT and container.name in held
    )
    return tuple(each for each in blocks if each)
