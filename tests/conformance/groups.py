"""Processing groups: requests, placements, NHD's files and Koordinator's annotations."""

from __future__ import annotations

import json
from typing import Any

from rte.placement.groups.parsing import RequestError, parse_request
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
