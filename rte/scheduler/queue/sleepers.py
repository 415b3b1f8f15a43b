"""Groups that sleep for the same reasons, and which of them some room on a node may help.

A report of one node can help few of a thousand shapes that wait: those that need no more than the
node has. What a group needs is kept as columns, so that the others are passed over at once.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from rte.scheduler.framework.outlook import NO_ROOM, Needs

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from rte.scheduler.framework.events import ClusterEvent, Kind
    from rte.scheduler.framework.outlook import Room
    from rte.scheduler.queue.waiting import EquivalenceClass, UnitKey

#: Of a slot without a group: no node has that much.
_NEVER = np.iinfo(np.int64).max


class Sleepers:
    """Groups that the same plugins have refused.

    Attributes:
        refused_by: names of these plugins.
        kinds: of events that can end that.
        groups: by their keys.
    """

    def __init__(self, refused_by: frozenset[str], kinds: Kind) -> None:
        self.refused_by = refused_by
        self.kinds = kinds
        self.groups: dict[UnitKey, EquivalenceClass] = {}
        self._slots: dict[UnitKey, int] = {}
        self._by_slot: list[EquivalenceClass | None] = []
        self._free: list[int] = []
        # One line for each part of them.
        self._needs = np.full((len(Needs._fields), 8), _NEVER, dtype=np.int64)
        self._waiting_on: dict[str, dict[UnitKey, EquivalenceClass]] = {}
        self._naming: dict[str, dict[UnitKey, EquivalenceClass]] = {}

    def add(self, group: EquivalenceClass) -> None:
        """The group, which has pods, sleeps."""
        needs = np.array(group.first().shape.needs, dtype=np.int64)  # what may raise comes first
        slot = self._free.pop() if self._free else len(self._by_slot)
        if slot == len(self._by_slot):
            self._by_slot.append(None)
            if slot == self._needs.shape[1]:
                self._needs = np.pad(self._needs, ((0, 0), (0, slot)), constant_values=_NEVER)
        self.groups[group.key], self._slots[group.key] = group, slot
        self._by_slot[slot] = group
        self._needs[:, slot] = needs
        for index, name in self._entries(group):
            index.setdefault(name, {})[group.key] = group

    def discard(self, group: EquivalenceClass) -> None:
        """The group does not sleep any more."""
        if self.groups.pop(group.key, None) is None:
            return
        slot = self._slots.pop(group.key)
        self._by_slot[slot] = None
        self._free.append(slot)
        self._needs[:, slot] = _NEVER
        for index, name in self._entries(group):
            del index[name][group.key]
            if not index[name]:
                del index[name]

    def _entries(
        self, group: EquivalenceClass
    ) -> Iterator[tuple[dict[str, dict[UnitKey, EquivalenceClass]], str]]:
        """Where it is found by a node that it waits on, and by a claim that it names."""
        for node in group.waits_on:
            yield self._waiting_on, node
        for claim in group.names:
            yield self._naming, claim

    def worth_asking(
        self, rooms: Sequence[Room] | None, event: ClusterEvent
    ) -> list[EquivalenceClass]:
        """Groups that all of these hold, that wait for something on the node of the event, or that
        name what it is about.

        ``rooms``: None where room says nothing: all of them.
        """
        if rooms is None:
            return list(self.groups.values())
        meant = dict(self._waiting_on.get(event.node, {}))
        for claim in event.claims:
            meant |= self._naming.get(claim, {})
        if NO_ROOM in rooms:
            return list(meant.values())
        needs = Needs(*self._needs)
        held = np.ones(self._needs.shape[1], dtype=np.bool_)
        for room in rooms:
            held &= room.holds(needs)
        found = {
            group.key: group
            for slot in np.flatnonzero(held).tolist()
            if (group := self._by_slot[slot]) is not None
        }
        return list({**found, **meant}.values())
