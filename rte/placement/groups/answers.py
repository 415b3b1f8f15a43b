"""Answers that were given before: nodes in one state answer alike, so each is asked once.

A *ground* is a node's hardware, policy and what is held of it. Equal grounds share a number, and so
do equal requests; the numbers are never used again, so what was forgotten is only computed anew.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from typing import TYPE_CHECKING

from rte.placement.groups.place import SEARCH_LIMIT, GroupDecision, place_on
from rte.placement.groups.search.supply import GroupSupply

if TYPE_CHECKING:
    from collections.abc import Hashable

    from rte.placement.groups.inventory import GroupInventory, Policy, Used
    from rte.placement.groups.request import GroupsRequest

#: How much is remembered; when there is more, all of it is forgotten. What is prepared for the
#: search of a node takes 12 to 40 KiB, an answer 1 to 4.
MAX_GROUNDS = 8192
MAX_REQUESTS = 256
MAX_SUPPLIES = 2048
MAX_ANSWERS = 50_000
#: So many searches of one decision may be cut off; the nodes after them get a short one only.
MAX_CUT_OFF = 3
SHORT_SEARCH = 1000


@dataclass(frozen=True, slots=True)
class GroupGround:
    """A node as the search sees it.

    Attributes:
        number: equal for equal grounds.
        free_cores: cores that nobody holds or reserves.
    """

    number: int
    inventory: GroupInventory
    policy: Policy
    used: Used
    free_cores: int


@dataclass(frozen=True, slots=True)
class KnownRequest:
    """A request and its number."""

    number: int
    request: GroupsRequest


class KnownPlaces:
    """Remembers answers; :meth:`begin` is called before each decision over many nodes.

    Attributes:
        cut_off: searches that ran out of steps so far.
    """

    def __init__(self) -> None:
        self.cut_off = 0
        self._cut_off_before = 0
        self._numbers = itertools.count()
        self._shapes: dict[Hashable, int] = {}
        self._grounds: dict[Hashable, int] = {}
        self._wishes: dict[GroupsRequest, KnownRequest] = {}
        self._supplies: dict[int, GroupSupply] = {}
        self._known: dict[tuple[int, int], GroupDecision] = {}

    def ground(self, inventory: GroupInventory, policy: Policy, used: Used) -> GroupGround:
        """A node as the search sees it."""
        if len(self._grounds) >= MAX_GROUNDS:
            self._forget()
        shape = self._shapes.setdefault((inventory.shape, policy), next(self._numbers))
        number = self._grounds.setdefault((shape, used.key), next(self._numbers))
        taken = inventory.reserved_cpus | used.cpus
        free = sum(not mask & taken for mask in inventory.core_masks)
        return GroupGround(number, inventory, policy, used, free)

    def wish(self, request: GroupsRequest) -> KnownRequest:
        """The request with its number."""
        if request not in self._wishes and len(self._wishes) >= MAX_REQUESTS:
            self._wishes.clear()
        return self._wishes.setdefault(request, KnownRequest(next(self._numbers), request))

    def begin(self) -> None:
        """A new decision: its first searches have the whole budget."""
        self._cut_off_before = self.cut_off

    def place(self, wish: KnownRequest, ground: GroupGround) -> GroupDecision:
        """The place of a pod on a node that is fit for it."""
        key = wish.number, ground.number
        decision = self._known.get(key)
        if decision is None:
            short = self.cut_off - self._cut_off_before >= MAX_CUT_OFF
            supply = self.supply(ground)
            decision = place_on(wish.request, supply, SHORT_SEARCH if short else None)
            limited = decision.reasons == (SEARCH_LIMIT,)
            self.cut_off += limited
            if not (short and limited):
                if len(self._known) >= MAX_ANSWERS:
                    self._known.clear()
                self._known[key] = decision
        return decision

    def supply(self, ground: GroupGround) -> GroupSupply:
        """What the node has to give."""
        supply = self._supplies.get(ground.number)
        if supply is None:
            if len(self._supplies) >= MAX_SUPPLIES:
                self._supplies.clear()
            supply = GroupSupply(ground.inventory, ground.used, ground.policy)
            self._supplies[ground.number] = supply
        return supply

    def _forget(self) -> None:
        for table in (self._shapes, self._grounds, self._supplies, self._known):
            table.clear()
