"""What the pods of one node hold, from what the API shows of them and nothing else.

So the state is the same after a restart, and nothing can leak: what the API does not show any more
is not held.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import dataclass, field
from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple, Protocol

from rte import errors
from rte.model import bits
from rte.placement.groups.allocation import NO_ZONE, parse_record
from rte.placement.groups.check import answers
from rte.placement.groups.inventory import NICUse, Used

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from rte.placement.groups.allocation import GroupsAllocation, Record
    from rte.placement.groups.inventory import GroupInventory
    from rte.placement.groups.request import GroupsRequest


def used_by(allocations: Mapping[str, GroupsAllocation]) -> Used:
    """All that is held, by whom does not matter: what two hold is offered to nobody."""
    held = 0
    gpus: set[str] = set()
    rx: Counter[str] = Counter()
    tx: Counter[str] = Counter()
    exclusive: dict[str, bool] = {}
    pages: defaultdict[int, Counter[str]] = defaultdict(Counter)
    for allocation in allocations.values():
        held |= allocation.cpu_mask()
        for group in allocation.groups:
            gpus.update(group.gpus)
            for nic in group.nics:
                for address in nic.addresses():
                    rx[address] += nic.rx
                    tx[address] += nic.tx
                    exclusive[address] = exclusive.get(address, False) or nic.exclusive
        for size, zone, count in allocation.all_pages():
            pages[zone][size] += count
    return Used(
        cpus=held,
        gpus=frozenset(gpus),
        nics={
            address: NICUse(rx[address], tx[address], alone)
            for address, alone in sorted(exclusive.items())
        },
        pages={zone: dict(counts) for zone, counts in sorted(pages.items()) if zone != NO_ZONE},
        pages_anywhere=dict(pages.get(NO_ZONE, {})),
    )


def conflicts(allocations: Mapping[str, GroupsAllocation]) -> Iterator[tuple[str, frozenset[str]]]:
    """What two pods hold that only one can: a line for each such thing, and the pods."""
    for holders, what in _exclusively_held(allocations):
        if len(holders) > 1:
            yield f"{what} is held by pods {', '.join(sorted(holders))}", frozenset(holders)


def _exclusively_held(
    allocations: Mapping[str, GroupsAllocation],
) -> Iterator[tuple[set[str], str]]:
    threads: defaultdict[int, set[str]] = defaultdict(set)
    gpus: defaultdict[str, set[str]] = defaultdict(set)
    nics: defaultdict[str, set[str]] = defaultdict(set)
    alone: set[str] = set()
    for uid, allocation in allocations.items():
        for cpu in bits.members(allocation.cpu_mask()):
            threads[cpu].add(uid)
        for group in allocation.groups:
            for gpu in group.gpus:
                gpus[gpu].add(uid)
            for nic in group.nics:
                for address in nic.addresses():
                    nics[address].add(uid)
                    alone.update({address} if nic.exclusive else ())
    yield from ((holders, f"CPU {cpu}") for cpu, holders in sorted(threads.items()))
    yield from ((holders, f"GPU {gpu}") for gpu, holders in sorted(gpus.items()))
    yield from ((nics[address], f"NIC {address}") for address in sorted(alone))


_record = lru_cache(maxsize=16_384)(parse_record)


class GroupHolder(NamedTuple):
    """A pod on a node, or on its way there.

    Attributes:
        recorded: what the scheduler has recorded in its status; ``""`` = nothing.
        annotation: with its allocation, which its author may have written; ``""`` = none.
        request: what it asks for, None where that is nothing or invalid.
        adopts: tells what it holds of an inventory; of pods that another scheduler has placed.
    """

    uid: str
    node: str
    recorded: str = ""
    annotation: str = ""
    request: GroupsRequest | None = None
    adopts: Callable[[GroupInventory], GroupsAllocation] | None = None


@dataclass(frozen=True, slots=True)
class GroupHoldings:
    """What pods hold.

    Attributes:
        allocations: UID -> what the pod holds.
        unreadable: UID -> what is wrong with its record; nobody knows what it holds.
        unrecorded: pods whose annotation says what nobody has given them; it holds nothing.
    """

    allocations: dict[str, GroupsAllocation] = field(default_factory=dict)
    unreadable: dict[str, str] = field(default_factory=dict)
    unrecorded: list[str] = field(default_factory=list)


def held_by(pods: Iterable[GroupHolder], inventory: GroupInventory) -> GroupHoldings:
    """What the pods of a node hold.

    A record counts for the pod and the node that it names; a copied one holds nothing. A pod that
    another scheduler has placed holds what that one says. What only the annotation says counts
    where it can be true: pods that an earlier release has bound have no other record.
    """
    held = GroupHoldings()
    said: list[GroupHolder] = []
    for pod in pods:
        try:
            if pod.recorded:
                record = _record(pod.recorded)
                if record.holds_for(pod.uid, pod.node):
                    held.allocations[pod.uid] = record.allocation
            elif pod.annotation:
                said.append(pod)
            elif pod.adopts is not None:
                held.allocations[pod.uid] = pod.adopts(inventory)
        except errors.RteError as error:
            held.unreadable[pod.uid] = str(error)
    held.allocations.update(_believed(said, held.allocations))
    held.unrecorded.extend(pod.uid for pod in said if pod.uid not in held.allocations)
    return held


def _believed(
    pods: Iterable[GroupHolder], known: dict[str, GroupsAllocation]
) -> Iterator[tuple[str, GroupsAllocation]]:
    """Of those that only say what they hold: whoever holds just what it asks for, and nothing that
    is recorded for somebody else. It might have got that by asking.
    """
    for pod in pods:
        if pod.request is None:
            continue
        try:
            record = _record(pod.annotation)
        except errors.RteError:
            continue
        if (
            record.holds_for(pod.uid, pod.node)
            and answers(pod.request, record.allocation)
            and not any(conflicts({**known, pod.uid: record.allocation}))
        ):
            yield pod.uid, record.allocation


class Dialect(Protocol):
    """How another scheduler says what groups pods ask for and hold.

    Attributes:
        ANNOTATION: of a pod, in which the other scheduler writes what the pod holds.
    """

    ANNOTATION: str

    def is_placed(self, scheduler: str, labels: Mapping[str, str]) -> bool:
        """Whether the other one places pods of a scheduler's name on a node with these labels."""

    def held(self, text: str, inventory: GroupInventory) -> GroupsAllocation:
        """What the annotation of such a pod says that it holds.

        Raises:
            errors.RteError: it cannot be read, or names what the node does not have.
        """

    def filler(self, request: str) -> Callable[[Record], str] | None:
        """Makes that annotation for pods of ours that go on reading it; None: these do not.

        Raises:
            RequestError: the request carries something else than the other scheduler's file.
        """
