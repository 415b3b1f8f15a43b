"""NHD as another scheduler that places pods with groups: a ``Dialect``.

Pods may go on reading the annotation in which NHD gave them their configuration. Such a request
carries NHD's file along (``render.triad``): the bind fills it in and writes it where NHD wrote it,
so the pod's own specification stays as it was.
"""

from __future__ import annotations

from functools import lru_cache, partial
from typing import TYPE_CHECKING

from rte.placement.groups.document import RequestError
from rte.placement.groups.nhd import triad
from rte.placement.groups.nhd.adopt import ANNOTATION, adopt
from rte.placement.groups.nhd.export import write_back
from rte.placement.groups.nhd.labels import is_nhds
from rte.placement.groups.nhd.triadset import FIELD, NHD_SCHEDULER
from rte.reader import jsontext

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from rte.placement.groups.allocation import GroupsAllocation, Record
    from rte.placement.groups.inventory import GroupInventory

__all__ = ["ANNOTATION", "filled", "filler", "held", "is_placed"]

_placed = lru_cache(maxsize=1024)(triad.read)


def is_placed(scheduler: str, labels: Mapping[str, str]) -> bool:
    """Whether NHD places pods of a scheduler's name on a node with these labels."""
    return scheduler == NHD_SCHEDULER and is_nhds(labels)


def held(text: str, inventory: GroupInventory) -> GroupsAllocation:
    """What a pod holds by the file that NHD wrote for it.

    Raises:
        RequestError: the file has a fault.
        AdoptionError: it names what the node does not have.
    """
    return adopt(_placed(text), inventory)


def filled(file: str, record: Record) -> str:
    """NHD's file with what a pod was given.

    Raises:
        RequestError: the file has a fault.
        ExportError: the record is not of its pod.
    """
    return write_back(triad.read(file), record)


def filler(request: str) -> Callable[[Record], str] | None:
    """Fills in NHD's file in a request that has been found valid; None: it carries none.

    Raises:
        RequestError: the file has a fault; the path begins with ``render.triad``.
    """
    render = jsontext.exact(request, FIELD, dict).get("render")
    if not isinstance(render, dict) or FIELD not in render:
        return None
    where = f"render.{FIELD}"
    text = render[FIELD]
    if not isinstance(text, str):
        raise RequestError("type", where, "must be a string")
    try:
        return partial(write_back, triad.read(text))
    except RequestError as error:
        raise RequestError(error.code, f"{where}: {error.path}", error.message) from error
