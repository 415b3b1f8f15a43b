"""Whether a report is what its kubelet has: zones, who is admitted, who holds what, devices."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import orjson

from rte import placement
from rte.model import bits

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rte.model.node import NodeState
    from tests.world.nodes import Node

_ANNOTATION = "topology.rte.dev/node-state"


def differences(node: Node, report: Any) -> Iterator[str]:
    """What a report says that is not so, one line each; ``report``: as the API has it."""
    kubelet = node.kubelet
    active = kubelet._active()
    state = placement.settle(kubelet.state, active)
    truth, shown = _true_zones(state, active), _shown_zones(report)
    for resource, free in truth.items():
        if shown.get(resource) != free:
            yield f"free {resource} by zone {shown.get(resource)}, its kubelet has {free}"
    text = (report["metadata"].get("annotations") or {}).get(_ANNOTATION)
    if not text:
        yield "no state"
        return
    told = orjson.loads(text)
    if not told["synced"]:
        yield "it is not synced"
    if set(told["admitted"]) != active:
        yield f"admitted are {sorted(told['admitted'])}, its kubelet runs {sorted(active)}"
    for uid in sorted(active):
        containers = told["holdings"].get(uid, {}).values()
        listed = bits.parse_list(",".join(one["cpus"] for one in containers if one.get("cpus")))
        if listed != state.held_cpus(uid):
            held = bits.format_list(state.held_cpus(uid))
            yield f"{uid} holds CPUs {bits.format_list(listed)}, its kubelet has given it {held}"


def _shown_zones(report: Any) -> dict[str, dict[str, int]]:
    found: dict[str, dict[str, int]] = {}
    for zone in report.get("zones") or ():
        for resource in zone.get("resources") or ():
            found.setdefault(resource["name"], {})[zone["name"]] = int(resource["available"])
    return found


def _true_zones(state: NodeState, active: frozenset[str]) -> dict[str, dict[str, int]]:
    held = 0
    devices: dict[str, int] = {}
    for uid in active:
        held |= state.held_cpus(uid)
        for container in state.holdings.get(uid, {}).values():
            for name, mask in container.devices.items():
                devices[name] = devices.get(name, 0) | mask
    zones = state.topology.zone_cpus
    found = {
        "cpu": {
            f"node-{zone}": len(list(bits.members(cpus & ~state.reserved & ~held)))
            for zone, cpus in zones.items()
        }
    }
    if state.memory:
        found["memory"] = {
            f"node-{zone}": row.amounts["memory"].free for zone, row in state.memory.items()
        }
    for name, pool in state.devices.items():
        free = list(bits.members(pool.healthy & ~devices.get(name, 0)))
        found[name] = {
            f"node-{zone}": sum(pool.zones[one] == 1 << zone for one in free) for zone in zones
        }
    return found
