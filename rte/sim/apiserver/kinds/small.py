"""Rules of kinds that have few."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rte.sim.apiserver import status

if TYPE_CHECKING:
    from rte.sim.apiserver.status import Cause
    from rte.sim.apiserver.storage.store import Obj


def validate_lease(lease: Obj) -> list[Cause]:
    """Rules for leases."""
    spec = lease["spec"]
    return [
        status.invalid(f"spec.{name}", spec[name], "must be greater than " + bound)
        for name, low, bound in (
            ("leaseDurationSeconds", 1, "0"),
            ("leaseTransitions", 0, "or equal to 0"),
        )
        if spec.get(name) is not None and spec[name] < low
    ]


def validate_priority_class(item: Obj) -> list[Cause]:
    """Rules for priority classes."""
    name, value = item["metadata"].get("name", ""), item["value"]
    if name.startswith("system-"):
        if name in ("system-cluster-critical", "system-node-critical"):
            return []
        return [
            status.forbidden(
                "metadata.name",
                "priority class names with 'system-' prefix are reserved for system use only",
            )
        ]
    if value > 1_000_000_000:
        return [
            status.forbidden(
                "value", "maximum allowed value of a user defined priority is 1000000000"
            )
        ]
    return []


def default_priority_class(item: Obj) -> None:
    """Defaults of priority classes."""
    item.setdefault("preemptionPolicy", "PreemptLowerPriority")


def default_storage_class(item: Obj) -> None:
    """Defaults of storage classes."""
    item.setdefault("reclaimPolicy", "Delete")
    item.setdefault("volumeBindingMode", "Immediate")


def create_budget(item: Obj) -> None:
    """A new budget allows nothing until its controller has counted."""
    item["status"] = {
        "disruptionsAllowed": 0,
        "currentHealthy": 0,
        "desiredHealthy": 0,
        "expectedPods": 0,
    }
