"""``matchAttribute`` and ``distinctAttribute`` of a claim, device by device (``constraint.go``)."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Hashable

    from rte.placement.dra.objects import Attribute, Constraint
    from rte.placement.dra.structured.pools import PoolDevice

#: An attribute's type and its values; a scalar has one.
Values: TypeAlias = tuple[str, "frozenset[Hashable]", bool]


def look_up(device: PoolDevice, name: str) -> Attribute | None:
    """The attribute of a full name: under that, else without domain where that is the driver."""
    attributes = device.device.attributes
    if name in attributes:
        return attributes[name]
    domain, slash, bare = name.partition("/")
    return attributes.get(bare) if slash and domain == device.id.driver else None


def values(attribute: Attribute | None) -> Values | None:
    """Type, values, and whether it is a list; None where there is nothing that is known."""
    if attribute is None:
        return None
    for kind, many, one in (
        ("int", attribute.integers, attribute.integer),
        ("bool", attribute.booleans, attribute.boolean),
        ("string", attribute.strings, attribute.string),
        ("version", attribute.versions, attribute.version),
    ):
        if many:
            return kind, frozenset(many), True
        if one is not None:
            return kind, frozenset((one,)), False
    return None


class Check:
    """One constraint while devices are tried. What was added is taken back in reverse order.

    Versions are compared as text, build metadata included. Where ``lists`` is off (gate
    DRAListTypeAttributes) a list stands only alone.
    """

    def __init__(self, constraint: Constraint, *, lists: bool) -> None:
        self.attribute = constraint.match_attribute or constraint.distinct_attribute or ""
        self._requests = frozenset(constraint.requests)
        self._distinct = constraint.match_attribute is None
        self._lists = lists
        self._added: list[Values] = []

    def concerns(self, request: str, parent: str) -> bool:
        """Whether it holds for a request (``parent`` is empty) or for an alternative of one."""
        if not self._requests:
            return True
        names = {parent, f"{parent}/{request}"} if parent else {request}
        return not self._requests.isdisjoint(names)

    def add(self, found: Values | None) -> bool:
        """Add a device with these values; False where the constraint would not hold."""
        if found is None:
            return False
        merged = self._distinct_from(found) if self._distinct else self._matching(found)
        if merged is None:
            return False
        self._added.append(merged)
        return True

    def remove(self) -> None:
        """Take back the device that was added last."""
        self._added.pop()

    def state(self) -> Hashable:
        """Equal where the same devices can still be added."""
        return frozenset(self._added) if self._distinct else tuple(self._added[-1:])

    def _matching(self, found: Values) -> Values | None:
        if not self._added:
            return found
        kind, common, is_list = self._added[-1]
        if kind != found[0] or (not self._lists and (is_list or found[2])):
            return None
        common &= found[1]
        return (kind, common, is_list) if common else None

    def _distinct_from(self, found: Values) -> Values | None:
        for kind, members, is_list in self._added:
            if not self._lists and found[2]:
                return None
            if kind == found[0] and (self._lists or not is_list) and members & found[1]:
                return None
        return found
