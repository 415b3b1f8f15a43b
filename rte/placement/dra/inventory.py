"""All devices of a cluster, indexed by node and pool; a change costs what it touches."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rte.placement.dra.features import Features
from rte.placement.dra.structured.pools import DeviceID, KnownSlice, Pool, PoolID, gather

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from rte.placement.dra.nodes import ClaimNode
    from rte.placement.dra.objects import DeviceTaint, DeviceTaintRule, ResourceSlice


class DeviceInventory:
    """The ResourceSlices of a cluster and the taints that rules add to their devices.

    What a node sees is put together when it is asked for and kept until a slice changes that the
    node sees or might see.
    """

    def __init__(self, features: Features | None = None) -> None:
        self.features = features or Features()
        self._slices: dict[str, KnownSlice] = {}
        self._of_node: dict[str, dict[str, KnownSlice]] = {}
        self._of_no_node: dict[str, KnownSlice] = {}
        self._of_pool: dict[PoolID, dict[str, KnownSlice]] = {}
        self._rules: dict[str, DeviceTaintRule] = {}
        self._seen: dict[str, tuple[ClaimNode, tuple[Pool, ...]]] = {}
        self._viewers: dict[PoolID, set[str]] = {}

    def put_slice(self, value: ResourceSlice) -> frozenset[str] | None:
        """Add a slice, or replace the one of its name; returns nodes that see it, None: any may."""
        known = KnownSlice.of(value, self._taints)
        if value.name in self._slices:
            known.inherit(self._slices[value.name])
        replaced = self.remove_slice(value.name)
        self._slices[value.name] = known
        for table in self._tables(known):
            table[value.name] = known
        concerned = self._forget(known)
        return None if replaced is None or concerned is None else replaced | concerned

    def remove_slice(self, name: str) -> frozenset[str] | None:
        """Remove a slice, if it is there; returns nodes that saw it, None: any may have."""
        known = self._slices.pop(name, None)
        if known is None:
            return frozenset()
        for table in self._tables(known):
            del table[name]
        return self._forget(known)

    def put_rule(self, rule: DeviceTaintRule) -> frozenset[str] | None:
        """Add a rule that taints devices, or replace the one of its name; returns as above."""
        old = self._rules.get(rule.name)
        self._rules[rule.name] = rule
        return self._taint_anew([rule] if old is None else [rule, old])

    def remove_rule(self, name: str) -> frozenset[str] | None:
        """Remove a rule, if it is there; returns as above."""
        rule = self._rules.pop(name, None)
        return frozenset() if rule is None else self._taint_anew([rule])

    def pools(self, node: ClaimNode) -> tuple[Pool, ...]:
        """The pools that a node sees, in the order of allocation.

        The same object as long as nothing of it has changed: it can tell that a result still holds.
        """
        seen = self._seen.get(node.name)
        if seen is not None and seen[0] == node:
            return seen[1]
        concerning = (*self._of_node.get(node.name, {}).values(), *self._of_no_node.values())
        pools = gather(
            node, concerning, lambda pool: self._of_pool.get(pool, {}).values(), self.features
        )
        self._seen[node.name] = (node, pools)
        for known in concerning:
            self._viewers.setdefault(known.pool, set()).add(node.name)
        return pools

    def forget_node(self, name: str) -> None:
        """Drop what was kept for a node that is gone."""
        self._seen.pop(name, None)

    def viewers(self, pool: PoolID) -> frozenset[str]:
        """Nodes that have looked at a pool: a change of what is allocated of it concerns them."""
        return frozenset(self._viewers.get(pool, ()))

    def _tables(self, known: KnownSlice) -> Iterator[dict[str, KnownSlice]]:
        node = known.slice.spec.node_name
        yield self._of_node.setdefault(node, {}) if node else self._of_no_node
        yield self._of_pool.setdefault(known.pool, {})

    def _forget(self, known: KnownSlice) -> frozenset[str] | None:
        node = known.slice.spec.node_name
        if not node:
            self._seen.clear()
            self._viewers.clear()
            return None
        concerned = frozenset((node, *self._viewers.pop(known.pool, ())))
        for viewer in concerned:
            self._seen.pop(viewer, None)
        return concerned

    def _taints(self, device: DeviceID) -> Iterator[DeviceTaint]:
        for _, rule in sorted(self._rules.items()):
            if _concerns(rule, device):
                yield rule.spec.taint

    def _taint_anew(self, rules: Iterable[DeviceTaintRule]) -> frozenset[str] | None:
        rules = tuple(rules)
        changed = [
            known.slice
            for known in self._slices.values()
            if any(_concerns(rule, device.id) for rule in rules for device in known.devices)
        ]
        found = [self.put_slice(value) for value in changed]
        return None if None in found else frozenset().union(*filter(None, found))


def _concerns(rule: DeviceTaintRule, device: DeviceID) -> bool:
    selector = rule.spec.device_selector
    return selector is not None and all(
        wanted is None or wanted == name
        for wanted, name in (
            (selector.driver, device.driver),
            (selector.pool, device.pool),
            (selector.device, device.device),
        )
    )
