"""DRA: recorded answers of Kubernetes' allocator and of its CEL environment."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rte.model import quantity
from rte.placement.dra import decode
from rte.placement.dra.cel import expressions
from rte.placement.dra.features import Features
from rte.placement.dra.inventory import DeviceInventory
from rte.placement.dra.nodes import ClaimNode
from rte.placement.dra.structured.allocator import DeviceSupply, allocate
from rte.placement.dra.structured.usage import Usage
from rte.placement.dra.verdict import ClaimRefusal, ClaimVerdict, Reason
from tests.conformance import dra_validity

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rte.placement.dra.objects import Attribute
    from rte.placement.dra.structured.pools import Pool, PoolDevice


class Recorded:
    """Answers expressions from the case, so that allocation is tested without CEL."""

    def __init__(self, case: dict[str, Any]) -> None:
        devices = [
            (s["metadata"]["name"], d["name"])
            for s in case.get("slices", ())
            for d in s["spec"].get("devices", ())
        ]
        # Names can repeat within a slice (an invalid pool): the position tells them apart.
        self._places: dict[tuple[str, str], list[int]] = {}
        for place, name in enumerate(devices):
            self._places.setdefault(name, []).append(place)
        self._match = case.get("match", {})
        self._derived = case.get("derived", {})

    def _place(self, device: PoolDevice) -> int:
        return self._places[device.slice.metadata.name, device.id.device][0]

    def matches(self, expression: str, device: PoolDevice) -> bool:
        answer = self._match[expression][self._place(device)]
        if answer == "e":
            raise ClaimRefusal(Reason.CEL_RUNTIME, "recorded runtime error")
        if answer == "c":
            raise ClaimRefusal(Reason.CEL_COMPILE, "recorded compile error")
        return bool(answer == "1")

    def derive(self, expression: str, device: PoolDevice) -> Attribute:
        answer = self._derived[expression][self._place(device)]
        if answer == "e":
            raise ClaimRefusal(Reason.CEL_RUNTIME, "recorded runtime error")
        return dra_validity.attribute(answer)


def _features(case: dict[str, Any]) -> Features:
    names = {
        "AdminAccess": "admin_access",
        "CompatibilityGroups": "compatibility_groups",
        "ConsumableCapacity": "consumable_capacity",
        "DerivedAttributes": "derived_attributes",
        "DeviceBindingAndStatus": "device_binding_and_status",
        "DeviceTaints": "device_taints",
        "FractionalCapacityRange": "fractional_capacity_range",
        "ListTypeAttributes": "list_type_attributes",
        "OptionalNodeOperations": "optional_node_operations",
        "PartitionableDevices": "partitionable_devices",
        "PrioritizedList": "prioritized_list",
    }
    switches = {own: case["features"].get(name, False) for name, own in names.items()}
    return Features(**switches, repeated_shares=case["k8s"].startswith("1.35"))


def _differences(case: dict[str, Any], *, exactly: bool) -> list[str]:
    features = _features(case)
    inventory = DeviceInventory(features)
    for rule in case.get("rules", ()):
        inventory.put_rule(decode.device_taint_rule(rule))
    for value in case.get("slices", ()):
        inventory.put_slice(decode.resource_slice(value))
    claims = [decode.resource_claim(claim) for claim in case["claims"]]
    usage = Usage(shares=features.consumable_capacity)
    for claim in (*claims, *map(decode.resource_claim, case.get("others", ()))):
        if claim.status.allocation is not None:
            usage.add(claim.status.allocation)
    classes = {c["metadata"]["name"]: decode.device_class(c) for c in case["classes"]}
    recorded = Recorded(case)
    differences = []
    for data in case["nodes"]:
        node = ClaimNode(
            name=data["metadata"]["name"],
            labels=data["metadata"].get("labels", {}),
            declared_features=frozenset(data.get("status", {}).get("declaredFeatures", ())),
        )
        pools = inventory.pools(node)
        verdict = allocate(
            node,
            claims,
            DeviceSupply(
                pools=pools,
                classes=classes,
                usage=usage,
                expressions=recorded,
                features=features,
            ),
        )
        difference = _difference(case, node, pools, verdict, exactly=exactly)
        if difference:
            differences.append(f"{node.name}: {difference}")
    return differences


def _difference(
    case: dict[str, Any],
    node: ClaimNode,
    pools: Sequence[Pool],
    verdict: ClaimVerdict,
    *,
    exactly: bool,
) -> str:
    truth = case["truth"][node.name]
    ours = {name: decode.encode(one) for name, one in verdict.allocations.items()}
    answer = "ok" if verdict.fits else f"{verdict.reason} ({verdict.message})"
    if not truth["ok"]:
        wanted = truth.get("why") or truth["error"]
        if verdict.fits:
            reason = dra_validity.why_not_better(case, node, pools, ours, wanted)
            return f"placed, truth {wanted}: {reason}" if reason else ""
        if wanted == "panic":  # no answer to be equal to
            return ""
        same = verdict.reason is not None and _WORDS.get(verdict.reason, verdict.reason) == wanted
        return "" if same else f"{answer}, truth {wanted}"
    if not verdict.fits:
        return f"{answer}, truth ok"
    if exactly:
        theirs = truth.get("allocations", {})
        return "; ".join(
            f"{name}: {one} for {other}"
            for name in sorted(theirs.keys() | ours.keys())
            if (one := _plain(ours.get(name))) != (other := _plain(theirs.get(name)))
        )
    reason = dra_validity.invalid(case, node, pools, ours, complete=False)
    return f"not a valid allocation: {reason}" if reason else ""


#: Our word for a reason, where it is not the vectors'.
_WORDS = {Reason.INVALID_POOLS: "node_only"}


def _plain(allocation: Any) -> Any:
    """An allocation with comparable quantities and anonymous shares."""
    if isinstance(allocation, dict):
        return {
            key: {n: quantity.parse_nano(q) for n, q in value.items()}
            if key == "consumedCapacity"
            else bool(value)
            if key == "shareID"
            else _plain(value)
            for key, value in allocation.items()
        }
    if isinstance(allocation, list | tuple):
        return [_plain(value) for value in allocation]
    return allocation


def check_dra_alloc(case: dict[str, Any]) -> list[str]:
    return _differences(case, exactly=True)


def check_dra_alloc_gates(case: dict[str, Any]) -> list[str]:
    return _differences(case, exactly=True)


def check_dra_alloc_135(case: dict[str, Any]) -> list[str]:
    """1.35 sorted neither pools nor slices: any valid allocation counts."""
    return _differences(case, exactly=False)


def check_dra_cel(case: dict[str, Any]) -> list[str]:
    """True and false must be equal; where Kubernetes has an error, ours has any."""
    data = case["device"]
    device = decode.device(
        {
            "name": "d",
            **{
                key: data[key]
                for key in ("attributes", "capacity", "allowMultipleAllocations")
                if key in data
            },
        }
    )
    try:
        answer = str(expressions.evaluate(case["expr"], data["driver"], device)).lower()
    except ClaimRefusal as refusal:
        answer = f"error: {refusal}"
    if answer == case["result"] or (
        answer[:5] == "error" and case["result"] not in ("true", "false")
    ):
        return []
    return [f"{case['kind']}: {answer} for {case['result']}: {case['expr']}"]
