"""All nodes as columns: which can possibly take a pod, and which are the better ones.

A screen is a *necessary* condition, evaluated over all nodes at once: a node that it drops would
be refused by :meth:`rte.scheduler.framework.profile.Profile.check` too, by a rule that is named;
what it lets through is checked there, best candidates first. The conditions and the order are the
rules' own (``rules_out`` and ``ranks``): nothing here knows any of them.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace
from itertools import chain
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from rte.scheduler.framework.columns import NodeAmounts

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from numpy.typing import NDArray

    from rte.scheduler.framework.columns import Column, Columns, Rows
    from rte.scheduler.framework.plugin import RowRefusal
    from rte.scheduler.framework.profile import Profile
    from rte.scheduler.framework.shape import Shape

#: So many best rows are sorted first; hardly ever more are needed.
_SORTED = 64


@dataclass(frozen=True, slots=True)
class Screened:
    """Rows that may take a pod, and who ruled others out.

    Attributes:
        rows: their numbers.
        keys: of each, the smaller the better.
        dropped: names of plugins that ruled others out.
    """

    rows: Rows
    keys: Column
    dropped: frozenset[str]

    def among(self, rows: Sequence[int]) -> Screened:
        """What is left of these rows."""
        chosen = np.isin(self.rows, rows)
        return replace(self, rows=self.rows[chosen], keys=self.keys[chosen])

    def best_first(self, preference: NDArray[np.float64] | None = None) -> Iterator[int]:
        """The rows in order; ``preference`` (of each, the higher the better) goes before the keys.

        Only the first ones are sorted at once.
        """
        return chain.from_iterable(self._in_parts(preference))

    def _in_parts(self, preference: NDArray[np.float64] | None) -> Iterator[list[int]]:
        ranks = self.keys
        if preference is not None:
            order = np.lexsort((self.keys, -preference))
            ranks = np.empty(len(order), dtype=np.int64)
            ranks[order] = np.arange(len(order))
        rows = self.rows
        if len(rows) > 4 * _SORTED:
            last = np.partition(ranks, _SORTED - 1)[_SORTED - 1]
            before = np.flatnonzero(ranks < last)
            # Of equal ones the first rows: what was found out of them is remembered.
            top = np.append(before, np.flatnonzero(ranks == last)[: _SORTED - len(before)])
            top = top[np.argsort(ranks[top], kind="stable")]
            yield rows[top].tolist()
            rest = np.ones(len(rows), dtype=np.bool_)
            rest[top] = False
            rows, ranks = rows[rest], ranks[rest]
        yield rows[np.argsort(ranks, kind="stable")].tolist()


class RefusalTally(NamedTuple):
    """Refusals by reason, rows still to be asked, and those counted whose zones lack room."""

    counts: Counter[str]
    rest: Rows
    short: Rows


class Table(NodeAmounts):
    """The columns, and what the rules say of all nodes by them.

    Args:
        columns: labels and taints; its rows are the table's.
        profile: the rules.
    """

    def __init__(self, columns: Columns, profile: Profile) -> None:
        super().__init__(columns)
        self._profile = profile

    def screen(self, shape: Shape, around: Iterable[tuple[str, RowRefusal]] = ()) -> Screened:
        """What is left of all nodes, and which rules dropped the others.

        ``around``: name of a plugin that looks around, and what it refuses.
        """
        ok = self.columns.present.copy()
        left = int(np.count_nonzero(ok))
        dropped: set[str] = set()
        told = ((rule.name, refusal) for rule, refusal in self._profile.ruled_out(shape, self))
        for name, refusal in chain(told, around):
            ok &= ~refusal.rows
            now = int(np.count_nonzero(ok))
            if now < left:
                dropped.add(name)
                left = now
            if not now:
                break
        rows = np.flatnonzero(ok)
        return Screened(rows, self._profile.ranks(shape, self, rows), frozenset(dropped))

    def roomy(self, shape: Shape, rows: Sequence[int]) -> Screened:
        """Which of these rows do not refuse a pod for want of room; they are in no order."""
        some, dropped = np.array(rows, dtype=np.intp), set()
        ok = np.ones(len(some), dtype=np.bool_)
        for rule, refusal in self._profile.ruled_out(shape, self, some, about_room=True):
            if np.any(ok & refusal.rows):
                dropped.add(rule.name)
                ok &= ~refusal.rows
        left = some[ok]
        return Screened(left, np.zeros(len(left), dtype=np.int64), frozenset(dropped))

    def left_of(self, name: str) -> Column:
        """What is left of a resource on each node."""
        return self.of(name, np.flatnonzero(self.columns.present[: self.rows]))

    def tally(
        self, shape: Shape, around: Iterable[RowRefusal], exact: Sequence[int]
    ) -> RefusalTally:
        """Why nodes refuse a pod, as far as the columns tell in the words of the exact check.

        Args:
            shape: of the pod.
            around: what rules that look around refuse; they count where no other rule is known to
                refuse the pod.
            exact: rows to be asked one by one in any case.
        """
        left, rest = self.columns.present.copy(), np.zeros(self.rows, dtype=np.bool_)
        rest[list(exact)] = left[list(exact)]
        left &= ~rest
        counts: Counter[str] = Counter()
        short = np.zeros(self.rows, dtype=np.bool_)
        for _, refusal in self._profile.ruled_out(shape, self):
            refused = left & refusal.rows
            left &= ~refusal.rows
            if not refusal.reason:
                rest |= refused
                continue
            if number := int(np.count_nonzero(refused)):
                counts[refusal.reason] += number
            if refusal.by_zones:
                short |= refused
        rest |= left
        for refusal in around:
            refused = rest & refusal.rows
            refused[list(exact)] = False
            if number := int(np.count_nonzero(refused)):
                counts[refusal.reason] += number
                rest &= ~refused
        return RefusalTally(counts, np.flatnonzero(rest), np.flatnonzero(short))
