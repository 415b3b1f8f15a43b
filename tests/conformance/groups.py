"""Processing groups: requests, placements, NHD's files and Koordinator's annotations."""

from __future__ import annotations

import json
from operator import itemgetter
from typing import Any

from rte.model import bits
from rte.placement.groups.inventory import GPU, NIC, Core, Inventory, NICUse, NodeFacts, Policy, Used
from rte.placement.groups.parsing import RequestError, parse_request
from rte.placement.groups.place import Decision, place
from rte.placement.groups.request import Group, Request, SMTByKind


def written_out(request: Request, text_mapping: dict[str, Any]) -> dict[str, Any]:
    """The document with every default filled in, as the recorded cases have it."""
    return {
        "version": 1,
        "mapping": text_mapping.get("mapping", "numa"),
        "pcieScope": text_mapping.get("pcieScope", "switch"),
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


def group_written_out(group: Group) -> dict[str, Any]:
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


def inventory_of(case: dict) -> Inventory:
    """The inventory of a recorded case."""
    rows: dict[int, list[list[int]]] = {}
    for row in case["cpus"]:
        rows.setdefault(row[1], []).append(row)
    return Inventory(
        pages={int(zone): told["hugepages"] for zone, told in case["zones"].items()},
        cores=tuple(
            Core(tuple(sorted(row[0] for row in core)), core[0][2]) for _, core in sorted(rows.items())
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


def node_of(case: dict | None) -> NodeFacts:
    told = dict(case or {})
    facts = NodeFacts(
        cordoned=told.pop("cordoned", False),
        maintenance=told.pop("maintenance", False),
        groups=tuple(told.pop("groups", ["default"])),
        cpu_arch=told.pop("cpuArch", ""),
        seconds_since_change=told.pop("secondsSinceChange", None),
    )
    if told:
        raise ValueError(f"unknown node facts {sorted(told)}")
    return facts


def decide(case: dict) -> Decision:
    return place(
        parse_request(json.dumps(case["request"])),
        inventory_of(case["inventory"]),
        used_of(case["used"]),
        policy_of(case.get("policy")),
        node_of(case.get("node")),
    )


def check_groups_small(case: dict) -> list[str]:
    got = decide(case)
    if (got.allocation is not None) != case["feasible"] or list(got.reasons) != case["reasons"]:
        return [f"reasons {got.reasons}, want {case['reasons']}"]
    if got.allocation is None:
        return []
    if list(got.cost) != case["best"]:
        return [f"preference {got.cost}, want {case['best']}"]
    return []


def check_groups_large(case: dict) -> list[str]:
    got = decide(case)
    if got.reasons == ("search-limit",):
        return ["search-limit"]
    if (got.allocation is not None) != case["feasible"] or list(got.reasons) != case["reasons"]:
        return [f"reasons {got.reasons}, want {case['reasons']}"]
    return []
