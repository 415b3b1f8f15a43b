"""Taints and tolerations (k8s.io/api core/v1 ``Toleration.ToleratesTaint``)."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from rte.k8s import wire

if TYPE_CHECKING:
    from collections.abc import Iterable

    from rte.reader.json import Json

#: Effects that keep a pod away; PreferNoSchedule only makes a node less liked.
HARD_EFFECTS = ("NoSchedule", "NoExecute")

_INTEGER = re.compile(r"0|-?[1-9][0-9]*", re.ASCII)


#: The taint that a cordoned node is treated as having.
UNSCHEDULABLE = wire.Taint(key="node.kubernetes.io/unschedulable", effect="NoSchedule")


def taints_of(node: Json) -> tuple[wire.Taint, ...]:
    """The taints of a Node object.

    Raises:
        errors.ParseError: they are malformed.
    """
    return wire.read(node.get("spec") or {}, wire.NodeSpec, "node spec").taints or ()


def tolerates(tolerations: Iterable[wire.Toleration], taint: wire.Taint) -> bool:
    """Whether one of the tolerations matches the taint."""
    return any(_matches(item, taint) for item in tolerations)


def _matches(item: wire.Toleration, taint: wire.Taint) -> bool:
    if item.effect and item.effect != taint.effect:
        return False
    if item.key and item.key != taint.key:
        return False
    match item.operator or "Equal":
        case "Exists":
            return True
        case "Equal":
            # Without a key the API server only takes Exists.
            return bool(item.key) and (item.value or "") == (taint.value or "")
        case "Lt" | "Gt":
            return _compares(item, taint)
    return False


def _compares(item: wire.Toleration, taint: wire.Taint) -> bool:
    """Lt and Gt compare decimal integers of 64 bits (KEP-5471); other values match nothing."""
    bound, value = _integer(item.value or ""), _integer(taint.value or "")
    if bound is None or value is None:
        return False
    return value < bound if item.operator == "Lt" else value > bound


def _integer(text: str) -> int | None:
    if not _INTEGER.fullmatch(text):
        return None
    number = int(text) if len(text) <= 20 else 1 << 64
    return number if -(1 << 63) <= number < 1 << 63 else None
