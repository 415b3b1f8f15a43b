"""What the pods of a node hold, from what the API shows of them and nothing else.

So the state is the same after a restart, and nothing can leak: what the API does not show any more
is not held.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple, TypeVar

from rte import errors
from rte.placement.groups.nhd.adopt import adopt, read_placed
from rte.placement.groups.record import parse_record

if TYPE_CHECKING:
    from collections.abc import Iterable

    from rte.placement.groups.allocation import Allocation
    from rte.placement.groups.inventory import Inventory
    from rte.placement.groups.nhd.adopt import Placed
    from rte.placement.groups.record import Record

_T = TypeVar("_T")


class Holder(NamedTuple):
    """A pod on a node, or on its way there.

    Attributes:
        record: the annotation with its allocation; ``""`` = none.
        nhd: the file that NHD wrote for it; only for pods that NHD places.
    """

    uid: str
    node: str
    record: str = ""
    nhd: str = ""


@dataclass(frozen=True, slots=True)
class Held:
    """What pods hold.

    Attributes:
        allocations: UID -> what the pod holds.
        unreadable: UID -> what is wrong with its record; nobody knows what it holds.
    """

    allocations: dict[str, Allocation] = field(default_factory=dict)
    unreadable: dict[str, str] = field(default_factory=dict)


def held_by(pods: Iterable[Holder], inventory: Inventory) -> Held:
    """What the pods of a node hold.

    A record counts for the pod and the node that it names; a copied one holds nothing. A pod that
    NHD has placed holds what NHD wrote into its file.
    """
    held = Held()
    for pod in pods:
        try:
            if pod.record:
                record = _sound(_record(pod.record))
                if record.holds_for(pod.uid, pod.node):
                    held.allocations[pod.uid] = record.allocation
            elif pod.nhd:
                held.allocations[pod.uid] = adopt(_sound(_placed(pod.nhd)), inventory)
        except errors.RteError as error:
            held.unreadable[pod.uid] = str(error)
    return held


def _sound(read: _T | errors.RteError) -> _T:
    if isinstance(read, errors.RteError):
        raise read
    return read


@lru_cache(maxsize=16_384)
def _record(text: str) -> Record | errors.RteError:
    try:
        return parse_record(text)
    except errors.RteError as error:
        return error


@lru_cache(maxsize=1_024)
def _placed(text: str) -> Placed | errors.RteError:
    try:
        return read_placed(text)
    except errors.RteError as error:
        return error
