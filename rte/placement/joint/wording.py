"""What is missing, in words."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rte.model.quantity import format_bytes
from rte.model.words import counted
from rte.placement.kubelet.demand import is_memory

if TYPE_CHECKING:
    from rte.placement.joint.fit import Missing


def missing_words(missing: Missing) -> str:
    """``zone 1 of n2 is short of 3 CPUs (TopologyAffinityError)``."""
    where = missing.node if missing.zone is None else f"zone {missing.zone} of {missing.node}"
    if not missing.short:
        return f"{where} says {missing.reason}"
    in_zone = missing.zone is not None
    parts = [_amount(name, amount, in_zone=in_zone) for name, amount in missing.short.items()]
    return f"{where} is short of {', '.join(parts)} ({missing.reason})"


def _amount(name: str, value: int, *, in_zone: bool) -> str:
    if is_memory(name):
        return f"{format_bytes(value)} of {name}"
    if name == "cpu":
        return counted(value if in_zone else value / 1000, "CPU")
    return f"{value} {name}"
