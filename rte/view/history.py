"""What the page showed before: a bounded memory of changed nodes, decisions and samples (pure)."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING

import orjson

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from rte.reader.json import Json, JsonObject


#: Of decisions, and of samples.
_MOST_POINTS = 5000


@dataclass(frozen=True, slots=True)
class _Change:
    at: float
    #: Encoded, which takes a tenth of the memory; None: the node is gone.
    nodes: Mapping[str, bytes | None]
    waiting: bytes


class History:
    """Changes of the last hours, as long as they fit.

    Args:
        most_bytes: of all encoded changes; the oldest are folded into the beginning.
    """

    def __init__(self, *, most_bytes: int = 32 << 20) -> None:
        self._most = most_bytes
        self._bytes = 0
        self._base: dict[str, bytes] = {}
        self._base_waiting = b"[]"
        self._begins: float | None = None
        self._changes: deque[_Change] = deque()
        self.decisions: deque[JsonObject] = deque(maxlen=_MOST_POINTS)
        self.samples: deque[JsonObject] = deque(maxlen=_MOST_POINTS)

    @property
    def begins(self) -> float | None:
        """The earliest time that can be shown, None while there is none."""
        return self._begins

    def record(
        self,
        at: float,
        nodes: Mapping[str, Json | None],
        waiting: Iterable[Json],
    ) -> None:
        """Remember nodes that changed (None: gone) and who waits. ``at`` does not go back."""
        change = _Change(
            at,
            {name: None if each is None else orjson.dumps(each) for name, each in nodes.items()},
            orjson.dumps(list(waiting)),
        )
        if self._begins is None:
            self._begins = at
        self._changes.append(change)
        self._bytes += _size(change)
        while self._bytes > self._most and len(self._changes) > 1:
            self._fold()

    def at(self, moment: float) -> JsonObject:
        """Nodes and waiting pods as they were: after the last change at or before the moment."""
        nodes, waits = dict(self._base), self._base_waiting
        for change in self._changes:
            if change.at > moment:
                break
            _apply(nodes, change)
            waits = change.waiting
        return {
            "nodes": [orjson.loads(nodes[name]) for name in sorted(nodes)],
            "waiting": orjson.loads(waits),
        }

    def _fold(self) -> None:
        oldest = self._changes.popleft()
        self._bytes -= _size(oldest)
        _apply(self._base, oldest)
        self._base_waiting = oldest.waiting
        self._begins = oldest.at


def _apply(nodes: dict[str, bytes], change: _Change) -> None:
    for name, each in change.nodes.items():
        if each is None:
            nodes.pop(name, None)
        else:
            nodes[name] = each


def _size(change: _Change) -> int:
    return 200 + len(change.waiting) + sum(100 + len(each or b"") for each in change.nodes.values())
