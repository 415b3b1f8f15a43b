"""What the pods of a node hold, from what the API shows of them and nothing else.

So the state is the same after a restart, and nothing can leak: what the API does not show any more
is not held.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple

from rte import errors
from rte.placement.groups import holdings
from rte.placement.groups.check import answers
from rte.placement.groups.record import parse_record

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from rte.placement.groups.allocation import GroupsAllocation
    from rte.placement.groups.inventory import GroupInventory
    from rte.placement.groups.request import GroupsRequest

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
            and not any(holdings.conflicts({**known, pod.uid: record.allocation}))
        ):
            yield pod.uid, record.allocation
