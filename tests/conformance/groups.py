"""Processing groups: requests, placements, NHD's files and Koordinator's annotations."""

from __future__ import annotations

import json
from operator import itemgetter
from typing import TYPE_CHECKING, Any

from rte.model import bits
from rte.placement.groups.check import preference, violations
from rte.placement.groups.document import RequestError
from rte.placement.groups.inventory import (
    GPU,
    NIC,
    Core,
    GroupInventory,
    GroupNodeFacts,
    NICUse,
    Policy,
    Used,
)
from rte.placement.groups.nhd import triad
from rte.placement.groups.parsing import parse_request
from rte.placement.groups.place import place
from rte.placement.groups.request import GroupsRequest, GroupWish, SMTByKind
from rte.placement.koordinator.devices.allocate import allocate_devices
from rte.placement.koordinator.devices.node import read_node_devices
from rte.placement.koordinator.devices.outcome import DeviceRefusal, KoordinatorDevices
from rte.placement.koordinator.devices.request import DeviceRequestError, read_device_request

if TYPE_CHECKING:
    from collections.abc import Mapping


def written_out(request: GroupsRequest, document: Mapping[str, Any]) -> dict[str, Any]:
    """The document with every default filled in, as the recorded cases have it."""
    return {
        "version": 1,
        "mapping": document.get("mapping", "numa"),
        "pcieScope": document.get("pcieScope", "switch"),
        "nodeGroups": list(request.node_groups),
        "cpuArch": list(request.cpu_arch),
        "hugepages": dict(request.hugepages),
        "hugepagesPlacement": "strict" if request.strict_pages else "prefer",
        "misc": {
            "count": request.misc.count,
            "smt": request.misc.smt,
            "mapping": request.misc.mapping,
        },
        "groups": [group_written_out(group) for group in request.groups],
    }


def group_written_out(group: GroupWish) -> dict[str, Any]:
    smt = group.smt
    if isinstance(smt, SMTByKind):
        smt = {"feeders": smt.feeders, "queues": smt.queues, "workers": smt.workers}
    return {
        "name": group.name,
        "mapping": group.mapping,
        "pcieScope": group.scope,
        "smt": smt,
        "gpus": [
            {
                "feeders": wish.feeders,
                "match": {
                    **({"model": list(wish.models)} if wish.models else {}),
                    **({"memoryGiB": wish.memory_gib} if wish.memory_gib else {}),
                },
            }
            for wish in group.gpus
        ],
        "nics": [
            {
                "rx": wish.rx,
                "tx": wish.tx,
                "exclusive": wish.exclusive,
                "redundant": wish.redundant,
                "min": wish.min_mbps,
                "kind": wish.kind,
                "rdma": wish.rdma,
            }
            for wish in group.nics
        ],
        "queues": [
            {"rx": queue.rx, "tx": queue.tx, "cpus": queue.cpus, "nic": queue.nic}
            for queue in group.queues
        ],
        "workers": group.workers,
        "helpers": {"count": group.helpers.count, "smt": group.helpers.smt},
        "hugepages": dict(group.hugepages),
    }


def check_groups_request(case: dict) -> list[str]:
    try:
        request = parse_request(case["text"])
    except RequestError as error:
        want = case["error"] or {}
        if (error.code, error.path) == (want.get("code"), want.get("path")):
            return []
        return [f"error {error.code} at {error.path!r}, want {want or 'a request'}"]
    if case["error"]:
        return [f"accepted, want {case['error']}"]
    got = written_out(request, json.loads(case["text"]))
    return [
        f"{key} {got[key]}, want {case['request'].get(key)}"
        for key in got
        if got[key] != case["request"].get(key)
    ]


def inventory_of(case: dict) -> GroupInventory:
    """The inventory of a recorded case."""
    rows: dict[int, list[list[int]]] = {}
    for row in case["cpus"]:
        rows.setdefault(row[1], []).append(row)
    return GroupInventory(
        pages={int(zone): told["hugepages"] for zone, told in case["zones"].items()},
        cores=tuple(
            Core(tuple(sorted(row[0] for row in core)), core[0][2])
            for _, core in sorted(rows.items())
        ),
        gpus=tuple(
            GPU(
                address=gpu["address"],
                zone=gpu["zone"],
                path=tuple(gpu["path"]),
                model=gpu["model"] or "",
                memory_gib=gpu["memoryGiB"] or 0,
            )
            for gpu in sorted(case["gpus"], key=itemgetter("address"))
        ),
        nics=tuple(
            NIC(
                address=nic["address"],
                zone=nic["zone"],
                path=tuple(nic["path"]),
                name=nic["name"],
                mbps=nic["mbps"],
                link=nic["link"],
                pf=nic["pf"],
                rdma=nic["rdma"],
            )
            for nic in sorted(case["nics"], key=itemgetter("address"))
        ),
        reserved_cpus=bits.parse_list(case["reserved"]["cpus"]),
        reserved_pages=case["reserved"]["hugepages"],
    )


def used_of(case: dict) -> Used:
    return Used(
        cpus=bits.parse_list(case["cpus"]),
        gpus=frozenset(case["gpus"]),
        nics={
            address: NICUse(use["rx"], use["tx"], use["exclusive"])
            for address, use in case["nics"].items()
        },
        pages={int(zone): pages for zone, pages in case["hugepages"].items()},
        pages_anywhere=case["hugepagesAnywhere"],
    )


def policy_of(case: dict | None) -> Policy:
    told = dict(case or {})
    fields: dict[str, Any] = {}
    if "nicHeadroomPercent" in told:
        fields["nic_headroom_percent"] = told.pop("nicHeadroomPercent")
    if "nicMinGbps" in told:
        fields["nic_min_mbps"] = round(told.pop("nicMinGbps") * 1000)
    if "nicSharing" in told:
        fields["nic_sharing"] = told.pop("nicSharing")
    if "settleSeconds" in told:
        fields["settle_seconds"] = told.pop("settleSeconds")
    if "settleFor" in told:
        fields["settle_for"] = tuple(told.pop("settleFor"))
    if told:
        raise ValueError(f"unknown policy {sorted(told)}")
    return Policy(**fields)


def node_of(case: dict | None) -> GroupNodeFacts:
    told = dict(case or {})
    facts = GroupNodeFacts(
        cordoned=told.pop("cordoned", False),
        maintenance=told.pop("maintenance", False),
        groups=tuple(told.pop("groups", ["default"])),
        cpu_arch=told.pop("cpuArch", ""),
        seconds_since_change=told.pop("secondsSinceChange", None),
    )
    if told:
        raise ValueError(f"unknown node facts {sorted(told)}")
    return facts


def check_groups_small(case: dict) -> list[str]:
    return check_place(case, best=True)


def check_groups_large(case: dict) -> list[str]:
    return check_place(case, best=False)


def check_groups_nhd(case: dict) -> list[str]:
    imported = triad.read(case["triad"])
    differences = compare_requests(imported.document, case["request"])
    if case.get("error"):
        return differences + check_error(case["request"], case["error"])
    return differences + check_place(case, best=True)


def check_groups_triad(case: dict) -> list[str]:
    try:
        got = triad.read(case["triad"])
    except RequestError as error:
        want = case["error"] or {}
        if (error.code, error.path) == (want.get("code"), want.get("path")):
            return []
        return [f"error {error.code} at {error.path!r}, want {want or 'a request'}"]
    if case["error"]:
        return [f"accepted, want {case['error']}"]
    differences = compare_requests(got.document, case["request"])
    if got.fields != case["fields"]:
        differences.append(f"fields {got.fields}, want {case['fields']}")
    return differences


def compare_requests(got: Mapping[str, Any], want: Mapping[str, Any]) -> list[str]:
    """Two documents after filling in the defaults; both may be invalid in the same way."""
    outcomes = []
    for document in (got, want):
        try:
            outcomes.append(written_out(parse_request(json.dumps(document)), document))
        except RequestError as error:
            outcomes.append({"error": [error.code, error.path]})
    first, second = outcomes
    return [
        f"{key} {first.get(key)}, want {second.get(key)}"
        for key in first | second
        if first.get(key) != second.get(key)
    ]


def check_error(document: dict, want: dict) -> list[str]:
    try:
        parse_request(json.dumps(document))
    except RequestError as error:
        if (error.code, error.path) == (want.get("code"), want.get("path")):
            return []
        return [f"error {error.code} at {error.path!r}, want {want}"]
    return [f"accepted, want {want}"]


def check_place(case: dict, *, best: bool) -> list[str]:
    """The answer, the reasons, the validity of the allocation, and how good it is."""
    request = parse_request(json.dumps(case["request"]))
    inventory, used = inventory_of(case["inventory"]), used_of(case["used"])
    policy, node = policy_of(case.get("policy")), node_of(case.get("node"))
    got = place(request, inventory, used, policy, node)
    if (got.allocation is not None) != case["feasible"] or list(got.reasons) != case["reasons"]:
        return [f"reasons {got.reasons}, want {case['reasons']}"]
    if got.allocation is None or got.cost is None:
        return []
    differences = violations(request, got.allocation, inventory, used, policy)
    counted = preference(request, got.allocation, inventory)
    if counted != got.cost:
        differences.append(f"said preference {got.cost}, has {counted}")
    if best and list(counted) != case["best"]:
        differences.append(f"preference {counted}, want {case['best']}")
    return differences


def check_groups_koordinator(case: dict) -> list[str]:
    want = case["result"]
    node = read_node_devices(case["device"], case["held"], case["node_labels"])
    try:
        request = read_device_request(case["requests"], case["annotations"])
    except DeviceRequestError as error:
        got = ("request", "UnschedulableAndUnresolvable", [str(error)])
        told = (want["stage"], want.get("code"), want.get("reasons"))
        return [] if got == told else [f"{got}, want {told}"]
    if request is None:
        return ["asks for nothing"]
    zones = None if case["numa"] is None else frozenset(case["numa"])
    try:
        outcome = allocate_devices(request, node, zones=zones, strategy=case["scorer"])
    except DeviceRefusal as refusal:
        code = "Unschedulable" if refusal.resolvable else "UnschedulableAndUnresolvable"
        told = (want["stage"], want.get("code"), want.get("reasons"))
        got = ("allocate", code, [refusal.reason])
        if case["exists"]:
            return [f"{got}, though there is a place"]
        return [] if got == told else [f"{got}, want {told}"]
    if want["stage"] == "ok":
        document = outcome.document()
        return (
            [] if document == want["allocations"] else [f"{document}, want {want['allocations']}"]
        )
    if not case["exists"]:
        return [f"{outcome.document()}, want {want}"]
    return same_switch_faults(case, outcome)


def same_switch_faults(case: dict, outcome: KoordinatorDevices) -> list[str]:
    """Whether a place that Koordinator misses keeps its rules: free devices, the same switches."""
    devices = {
        (device["type"], device["minor"]): device for device in case["device"]["spec"]["devices"]
    }
    held = {
        (kind, record["minor"])
        for allocation in case["held"]
        for kind, records in allocation.items()
        for record in records
    }
    faults = []
    switches: dict[str, set[str]] = {}
    for kind, given in outcome.devices.items():
        if len({device.minor for device in given}) < len(given):
            faults.append(f"a {kind} twice")
        for device in given:
            told = devices[kind, device.minor]
            switches.setdefault(kind, set()).add(told["topology"]["pcieID"])
            if not told["health"]:
                faults.append(f"{kind} {device.minor} is ill")
            if (kind, device.minor) in held and (
                kind == "gpu" or device.amounts["koordinator.sh/rdma"] == 100
            ):
                faults.append(f"{kind} {device.minor} is held")
    if switches["gpu"] != switches["rdma"]:
        faults.append(f"switches {switches}")
    requests = case["requests"]
    gpus = int(requests.get("nvidia.com/gpu", 0)) or int(requests["koordinator.sh/gpu"]) // 100
    nics = max(int(requests["koordinator.sh/rdma"]) // 100, 1, len(switches["gpu"]))
    if (len(outcome.devices["gpu"]), len(outcome.devices["rdma"])) != (gpus, nics):
        faults.append(f"wants {gpus} GPUs and {nics} NICs")
    return faults
