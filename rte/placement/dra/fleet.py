"""Where in a cluster claims can be allocated: each node is asked once, and when it changes."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from rte.placement.dra import decode, nodes
from rte.placement.dra.cel.expressions import CEL
from rte.placement.dra.inventory import DeviceInventory
from rte.placement.dra.structured.allocator import DeviceSupply, allocate
from rte.placement.dra.structured.pools import PoolID
from rte.placement.dra.structured.usage import Usage

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from rte.placement.dra.features import Features
    from rte.placement.dra.nodes import ClaimNode
    from rte.placement.dra.objects import (
        AllocationResult,
        DeviceClass,
        DeviceTaintRule,
        ResourceClaim,
        ResourceSlice,
    )
    from rte.placement.dra.verdict import ClaimVerdict

#: Shapes of claims that are remembered; the one that was asked for longest ago goes first.
MAX_SHAPES = 256


class DeviceFleet:
    """Nodes, slices, classes and allocations of a cluster, and who fits where.

    Claims of one shape (equal specifications) are tried once per node. A change of a slice or an
    allocation has the nodes tried again that see the pool, and no others.
    """

    def __init__(self, features: Features | None = None) -> None:
        self.inventory = DeviceInventory(features)
        self.usage = Usage(shares=self.inventory.features.consumable_capacity)
        self._classes: dict[str, DeviceClass] = {}
        self._expressions = CEL()
        self._nodes: dict[str, ClaimNode] = {}
        self._shapes: dict[bytes, _Shape] = {}
        self._versions: Counter[str] = Counter()
        self._version_of_all = 0

    def put_node(self, node: ClaimNode) -> None:
        """Add a node, or replace the one of its name."""
        if self._nodes.get(node.name) != node:
            self._nodes[node.name] = node
            self._stale((node.name,))

    def remove_node(self, name: str) -> None:
        """Remove a node, if it is there."""
        if self._nodes.pop(name, None) is not None:
            self.inventory.forget_node(name)
            for shape in self._shapes.values():
                shape.fitting.pop(name, None)
                shape.stale.discard(name)

    def put_slice(self, value: ResourceSlice) -> None:
        """Add a slice, or replace the one of its name."""
        self._stale(self.inventory.put_slice(value))

    def remove_slice(self, name: str) -> None:
        """Remove a slice, if it is there."""
        self._stale(self.inventory.remove_slice(name))

    def put_rule(self, rule: DeviceTaintRule) -> None:
        """Add a rule that taints devices, or replace the one of its name."""
        self._stale(self.inventory.put_rule(rule))

    def remove_rule(self, name: str) -> None:
        """Remove a rule, if it is there."""
        self._stale(self.inventory.remove_rule(name))

    def put_class(self, value: DeviceClass) -> None:
        """Add a class, or replace the one of its name."""
        self._classes[value.name] = value
        self._shapes.clear()
        self._version_of_all += 1

    def remove_class(self, name: str) -> None:
        """Remove a class, if it is there."""
        if self._classes.pop(name, None) is not None:
            self._shapes.clear()
            self._version_of_all += 1

    def add(self, allocation: AllocationResult) -> None:
        """Count an allocation in, a pending one too."""
        self.usage.add(allocation)
        self._stale(self._viewers(allocation))

    def remove(self, allocation: AllocationResult) -> None:
        """Take out an allocation that was added."""
        self.usage.remove(allocation)
        self._stale(self._viewers(allocation))

    def version(self, name: str) -> int:
        """Grows whenever what the node has for claims may have changed."""
        return self._versions[name] + self._version_of_all

    def supply(self, node: ClaimNode) -> DeviceSupply:
        """What the node has."""
        return DeviceSupply(
            pools=self.inventory.pools(node),
            classes=self._classes,
            usage=self.usage,
            expressions=self._expressions,
            features=self.inventory.features,
        )

    def fitting(self, claims: Sequence[ResourceClaim]) -> Mapping[str, ClaimVerdict]:
        """Nodes that can take the claims, with an allocation for a pod of the shape.

        The allocation is right for the shape, but bears the names of the claims that were asked
        for first, and its shares have placeholders: :func:`allocate` makes the one to write.
        """
        todo = [claim for claim in claims if claim.status.allocation is None]
        given = [one.node_selector for claim in claims if (one := claim.status.allocation)]
        shape = self._shape(todo)
        for name in shape.stale:
            node = self._nodes[name]
            verdict = allocate(node, shape.claims, self.supply(node))
            if verdict.fits:
                shape.fitting[name] = verdict
            else:
                shape.fitting.pop(name, None)
        shape.stale.clear()
        selectors = [selector for selector in given if selector is not None]
        if not selectors:
            return shape.fitting
        return {
            name: verdict
            for name, verdict in shape.fitting.items()
            if all(nodes.selects(selector, self._nodes[name]) for selector in selectors)
        }

    def _shape(self, claims: list[ResourceClaim]) -> _Shape:
        key = decode.key_of([claim.spec for claim in claims])
        shape = self._shapes.pop(key, None)
        if shape is None:
            shape = _Shape(claims, self._nodes)
            if len(self._shapes) >= MAX_SHAPES:
                del self._shapes[next(iter(self._shapes))]
        self._shapes[key] = shape
        return shape

    def _viewers(self, allocation: AllocationResult) -> set[str]:
        pools = {PoolID(one.driver, one.pool) for one in allocation.devices.results}
        return {name for pool in pools for name in self.inventory.viewers(pool)}

    def _stale(self, names: Iterable[str] | None) -> None:
        """Nodes to try again; None: all."""
        if names is None:
            self._version_of_all += 1
        else:
            names = set(names)
            self._versions.update(names)
        known = self._nodes.keys() if names is None else self._nodes.keys() & names
        for shape in self._shapes.values():
            shape.stale |= known


class _Shape:
    """Claims of one shape: nodes that take them, and nodes that have to be asked (again)."""

    def __init__(self, claims: Sequence[ResourceClaim], names: Iterable[str]) -> None:
        self.claims = claims
        self.fitting: dict[str, ClaimVerdict] = {}
        self.stale: set[str] = set(names)
