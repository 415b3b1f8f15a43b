"""Places in documents: ``groups[0].cpus.workers[1]``, ``devices["0000:17:00.0"].mac``."""

from __future__ import annotations

import operator
import re
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

_STEP = re.compile(r"(?:^|\.)([^.\[\]]+)|\[(\d{1,6})\]|\[\"([^\"]+)\"\]", re.ASCII)


class PathError(LookupError):
    """A path leads nowhere, or is none.

    Attributes:
        at: how far it leads; empty where it is no path.
    """

    def __init__(self, path: str, at: str = "") -> None:
        self.path, self.at = path, at
        super().__init__(f"{path!r} is not there" if at else f"{path!r} is no path")


def follow(document: Any, path: str, below: Callable[[Any, Any], Any] = operator.getitem) -> Any:
    """The value at a path from the root.

    Args:
        document: dicts and lists.
        path: names behind dots, indexes and quoted names in brackets.
        below: what is below a value under a name or an index.

    Raises:
        PathError: it leads nowhere, or is no path.
    """
    place = document
    end = 0
    for step in _STEP.finditer(path):
        if step.start() != end:
            break
        end = step.end()
        name, index, quoted = step.groups()
        try:
            place = below(place, int(index) if index else name or quoted)
        except (KeyError, IndexError, TypeError) as error:
            raise PathError(path, path[:end]) from error
    if not end or end != len(path):
        raise PathError(path)
    return place
