"""What koordlet reports of a node, by its own code."""

from __future__ import annotations

import json

from rte.accounting.koordlet import koordlet_pod
from rte.model import bits
from rte.model.machine import CPU, CPUBasics, Machine
from rte.model.node import (
    CPUInfo,
    Holding,
    KoordletNode,
    KubeletConfig,
    NodeReading,
    NodeState,
    PodRef,
    Topology,
    ZoneInfo,
)
from rte.nrt import koordinator


def reading(case: dict) -> NodeReading:
    """The node of a case as the agent has it."""
    rows = [(cpu["id"], cpu["core"], cpu["socket"], cpu["node"]) for cpu in case["cpus"]]
    topology = Topology(
        cpus=tuple(CPUInfo(cpu, core, socket, zone, zone) for cpu, core, socket, zone in rows),
        zones=tuple(ZoneInfo(id=zone, memory_bytes=0) for zone in sorted({row[3] for row in rows})),
        sockets=len({row[2] for row in rows}),
    )
    said = case["basic"]
    machine = Machine(
        cpus=tuple(
            CPU(id=cpu, core=core, die=0, socket=socket, zone=zone)
            for cpu, core, socket, zone in rows
        ),
        zones=(),
        basics=CPUBasics(
            name=said["cpuModel"],
            vendor=said["vendorID"],
            turbo=said.get("turboEnabled", False),
            l3_ways=said.get("catL3CbmMask", ""),
        ),
    )
    static = case["policy"] == "static"
    entries = case["state"].get("entries", {})
    state = NodeState(
        topology=topology,
        config=KubeletConfig(cpu_policy=case["policy"], cpu_options=case["options"]),
        reserved=bits.parse_list(case["reserved"]) if static else 0,
        holdings={
            uid: {name: Holding(cpus=bits.parse_list(cpus)) for name, cpus in held.items()}
            for uid, held in entries.items()
        }
        if static
        else {},
    )
    said_of = {
        pod["uid"]: koordlet_pod({"labels": pod["labels"], "annotations": pod["annotations"]})
        for pod in case["pods"]
    }
    return NodeReading(
        node_name="n",
        machine=machine,
        state=state,
        pods=tuple(PodRef(pod["uid"], pod["namespace"], pod["name"]) for pod in case["pods"]),
        koordlet=KoordletNode(
            pods={uid: pod for uid, pod in said_of.items() if pod}, annotations=case["node"]
        ),
    )


def check_koordlet_report(case: dict) -> list[str]:
    ours = koordinator.encode(reading(case))
    theirs = case["annotations"]
    wrong = [f"{key}: not koordlet's" for key in sorted(ours.keys() ^ theirs.keys())]
    return wrong + [
        f"{key}: {ours[key]}, koordlet: {theirs[key]}"
        for key in sorted(ours.keys() & theirs.keys())
        if json.loads(ours[key]) != json.loads(theirs[key])
    ]
