"""Many nodes: what pods with groups hold on each, and which node takes the next one.

State comes from the pods' records alone, so that after a restart it is what it was before. The
caller tells the time; nothing here reads a clock.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from rte.placement.groups import holdings
from rte.placement.groups.answers import GroupGround, KnownPlaces
from rte.placement.groups.place import unfit

if TYPE_CHECKING:
    from collections.abc import Mapping

    from rte.placement.groups.allocation import GroupsAllocation, Record
    from rte.placement.groups.inventory import GroupInventory, GroupNodeFacts, Policy, Used
    from rte.placement.groups.place import GroupDecision
    from rte.placement.groups.request import GroupsRequest


@dataclass(frozen=True, slots=True)
class Choice:
    """Where a pod goes.

    Attributes:
        node: name of the node, None where none takes it.
        decision: the answer of that node.
        refusals: node -> why not, of all nodes that were asked before.
    """

    node: str | None = None
    decision: GroupDecision | None = None
    refusals: Mapping[str, tuple[str, ...]] = field(default_factory=dict)


@dataclass(slots=True)
class _GroupNode:
    name: str
    facts: GroupNodeFacts
    ground: GroupGround
    changed_at: float | None = None


class GroupNodes:
    """The nodes and the pods with groups on them."""

    def __init__(self) -> None:
        self._nodes: dict[str, _GroupNode] = {}
        #: Node -> pod -> what it holds there, whether the node is known (yet) or not.
        self._held: dict[str, dict[str, GroupsAllocation]] = {}
        self._node_of: dict[str, str] = {}
        self._answers = KnownPlaces()

    def set_node(
        self, name: str, inventory: GroupInventory, facts: GroupNodeFacts, policy: Policy
    ) -> None:
        """A node is there, or something about it has changed."""
        old = self._nodes.get(name)
        used = holdings.used_by(self._held.get(name, {}))
        self._nodes[name] = _GroupNode(
            name=name,
            facts=facts,
            ground=self._answers.ground(inventory, policy, used),
            changed_at=None if old is None else old.changed_at,
        )

    def remove_node(self, name: str) -> None:
        """A node is gone; what its pods hold is kept in case that it comes back."""
        self._nodes.pop(name, None)

    def hold(self, uid: str, node: str, record: Record, at: float | None = None) -> bool:
        """A pod on a node (or on its way there) has a record; False = the record is not its own.

        Args:
            uid: of the pod.
            node: its ``spec.nodeName``, or the node that it is being bound to.
            record: from its annotation.
            at: when it started there, in the caller's time; None = not known.
        """
        if not record.holds_for(uid, node):
            return False
        if self._node_of.get(uid, node) != node:
            self.release(uid)
        self._node_of[uid] = node
        held = self._held.setdefault(node, {})
        if held.get(uid) != record.allocation:
            held[uid] = record.allocation
            self._count(node)
        self._change(node, at)
        return True

    def release(self, uid: str, at: float | None = None) -> None:
        """A pod is gone or over, or its bind has failed: all that it held is free again."""
        node = self._node_of.pop(uid, None)
        if node is None:
            return
        del self._held[node][uid]
        if not self._held[node]:
            del self._held[node]
        self._count(node)
        self._change(node, at)

    def used(self, node: str) -> Used:
        """What pods hold on a node."""
        return self._nodes[node].ground.used

    def inventory(self, node: str) -> GroupInventory:
        """The hardware of a node."""
        return self._nodes[node].ground.inventory

    def rank(self, request: GroupsRequest, node: str) -> tuple[bool, int]:
        """The place of a node in the order for a pod, smallest first."""
        return preference(request, self._nodes[node].ground)

    def conflicts(self, node: str) -> tuple[str, ...]:
        """What two pods hold there that only one can; both keep it, nobody else gets it."""
        return tuple(line for line, _ in holdings.conflicts(self._held.get(node, {})))

    def choose(self, request: GroupsRequest, now: float) -> Choice:
        """The node for a pod.

        Pods without GPUs go to nodes without any if they can; then the fullest node comes first
        (strategy ``pack``) or the emptiest (``spread``), then the name decides.
        """
        refusals: dict[str, tuple[str, ...]] = {}
        wish = self._answers.wish(request)
        self._answers.begin()
        for node in sorted(self._nodes.values(), key=lambda it: _rank(request, it)):
            reasons = unfit(request, _facts_at(node, now), node.ground.policy)
            if not reasons:
                decision = self._answers.place(wish, node.ground)
                if decision.allocation is not None:
                    return Choice(node.name, decision, refusals)
                reasons = decision.reasons
            refusals[node.name] = reasons
        return Choice(refusals=refusals)

    def _count(self, name: str) -> None:
        """Sum up what is held on a node."""
        node = self._nodes.get(name)
        if node is not None:
            ground, used = node.ground, holdings.used_by(self._held.get(name, {}))
            node.ground = self._answers.ground(ground.inventory, ground.policy, used)

    def _change(self, name: str, at: float | None) -> None:
        node = self._nodes.get(name)
        if node is not None and at is not None:
            node.changed_at = at if node.changed_at is None else max(node.changed_at, at)


def _facts_at(node: _GroupNode, now: float) -> GroupNodeFacts:
    if node.changed_at is None:
        return node.facts
    return replace(node.facts, seconds_since_change=max(now - node.changed_at, 0.0))


def _rank(request: GroupsRequest, node: _GroupNode) -> tuple[bool, int, str]:
    return (*preference(request, node.ground), node.name)


def preference(request: GroupsRequest, ground: GroupGround) -> tuple[bool, int]:
    """Smallest first: pods without GPUs avoid nodes with any, then the strategy decides."""
    avoided = bool(ground.inventory.gpus) and not request.wants_gpus
    sign = -1 if ground.policy.strategy == "spread" else 1
    return avoided, sign * ground.free_cores
