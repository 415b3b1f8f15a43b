"""GPU wishes to GPU types: whether all can be had at once, and with how many on the NICs' side."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rte.model import bits

if TYPE_CHECKING:
    from collections.abc import Sequence


class Matching:
    """Wishes matched to types; wishes come and go one at a time, the latest goes first.

    A wish that comes may move earlier ones to other types.

    Attributes:
        types: type of each wish, in the order they came.
    """

    def __init__(self, counts: Sequence[int]) -> None:
        self._counts = counts
        self._holders: list[list[int]] = [[] for _ in counts]
        self._allowed: list[int] = []
        self.types: list[int] = []

    def add(self, allowed: int) -> bool:
        """Add a wish for one of the types in a mask; False (and nothing added) without room."""
        self._allowed.append(allowed)
        self.types.append(-1)
        if self._place(len(self.types) - 1, set()):
            return True
        self._allowed.pop()
        self.types.pop()
        return False

    def pop(self) -> None:
        """Take back the latest wish."""
        self._allowed.pop()
        self._holders[self.types.pop()].remove(len(self.types))

    def _place(self, wish: int, tried: set[int]) -> bool:
        for kind in bits.members(self._allowed[wish]):
            if kind in tried:
                continue
            tried.add(kind)
            holders = self._holders[kind]
            if len(holders) >= self._counts[kind]:
                moved = next((other for other in holders if self._place(other, tried)), None)
                if moved is None:
                    continue
                holders.remove(moved)
            holders.append(wish)
            self.types[wish] = kind
            return True
        return False


def cheapest(
    counts: Sequence[int], allowed: Sequence[int], preferred: Sequence[int]
) -> tuple[list[int], int] | None:
    """Match every wish, as many as can be to a preferred type.

    Args:
        counts: how many there are of each type.
        allowed: for each wish, the types that it may have (mask).
        preferred: for each wish, the types that cost nothing (mask); all others cost 1.

    Returns:
        The type of each wish and the cost; None where not all can be matched.
    """
    types = [-1] * len(allowed)
    holders: list[list[int]] = [[] for _ in counts]
    for wish in range(len(allowed)):
        path = _cheapest_path(wish, counts, allowed, preferred, holders)
        if path is None:
            return None
        for mover, kind in path:
            if types[mover] >= 0:
                holders[types[mover]].remove(mover)
            holders[kind].append(mover)
            types[mover] = kind
    return types, sum(not preferred[wish] >> kind & 1 for wish, kind in enumerate(types))


def _cheapest_path(
    wish: int,
    counts: Sequence[int],
    allowed: Sequence[int],
    preferred: Sequence[int],
    holders: list[list[int]],
) -> list[tuple[int, int]] | None:
    """Moves (wish, type), last one first, that make room for a wish at the least cost.

    Bellman and Ford's shortest path: costs of moves back may be negative, cycles never are.
    """
    best: dict[int, tuple[int, int, int]] = {}  # type -> (cost, who comes, from which type)
    for kind in bits.members(allowed[wish]):
        best[kind] = (not preferred[wish] >> kind & 1, wish, -1)
    changed = True
    while changed:
        changed = False
        for kind, (cost, _, _) in list(best.items()):
            if len(holders[kind]) < counts[kind]:
                continue
            for other in holders[kind]:
                back = preferred[other] >> kind & 1
                for target in bits.members(allowed[other] & ~(1 << kind)):
                    total = cost + back - (preferred[other] >> target & 1)
                    if target not in best or total < best[target][0]:
                        best[target] = (total, other, kind)
                        changed = True
    ends = [
        (cost, kind) for kind, (cost, _, _) in best.items() if len(holders[kind]) < counts[kind]
    ]
    if not ends:
        return None
    kind = min(ends)[1]
    path = []
    while kind >= 0:
        _, mover, previous = best[kind]
        path.append((mover, kind))
        kind = previous
    return path
