"""Recorded state files of the kubelet's managers: parsed, and accounted for on their machine."""

from __future__ import annotations

from rte import accounting
from rte.kubelet import statefiles
from rte.model import bits
from rte.model.kubelet import StateFiles, combine
from rte.model.machine import CPU, Machine, Zone
from tests.conformance import kubelet

CASE_FIELDS = kubelet.CASE_FIELDS | {"files", "state"}
STATE_FIELDS = {
    "cpu_policy", "default_set", "cpus", "pod_cpus", "mem_policy", "mem", "pod_mem", "zones",
}  # fmt: skip
PARSERS = {
    "cpu_manager_state": ("cpu", statefiles.parse_cpu_state),
    "memory_manager_state": ("memory", statefiles.parse_memory_state),
}


def check_kubelet_state_files(case: dict) -> list[str]:
    """What the managers hold, as :func:`rte.accounting.build_reading` makes it of their files."""
    found = kubelet.Differences()
    found.known("case", case, CASE_FIELDS)
    found.known("files", case["files"], set(PARSERS))
    recorded = case["state"]
    found.known("state", recorded, STATE_FIELDS)
    files = {}
    for name, text in case["files"].items():
        part, parse = PARSERS[name]
        files[part] = parse(text, name)
    view = combine(
        StateFiles(**files),
        config=kubelet.config_of(case["config"]),
        version=case.get("version", kubelet.VERSION),
    )
    state = accounting.build_reading("node", machine_of(case["machine"]), view).state
    ours = {
        "cpu_policy": state.config.cpu_policy,
        "default_set": bits.format_list(state.shared),
        "cpus": per_container(state.holdings, cpus),
        "pod_cpus": per_item(state.pod_holdings, cpus),
        "mem_policy": state.config.memory_policy,
        "mem": per_container(state.holdings, blocks),
        "pod_mem": per_item(state.pod_holdings, blocks),
        "zones": {str(zone): zone_row(row) for zone, row in state.memory.items()},
    }
    for name, value in ours.items():
        if name in recorded:
            told = recorded[name]
            if name in ("cpus", "mem"):
                told = {uid: filled for uid, held in told.items() if (filled := present(held))}
            found.compare(name, value, told)
    return found


def cpus(holding):
    return bits.format_list(holding.cpus)


def blocks(holding):
    return [
        [block.resource, list(bits.members(block.zones)), block.size] for block in holding.memory
    ]


def per_item(holdings, held):
    return present({name: held(holding) for name, holding in holdings.items()})


def per_container(holdings, held):
    return present({uid: per_item(containers, held) for uid, containers in holdings.items()})


def present(table):
    """A container without CPUs has an entry in the file or has none; both mean the same."""
    return {name: value for name, value in table.items() if value}


def zone_row(row):
    return {
        "assignments": row.assignments,
        "group": list(bits.members(row.group)),
        "memory": {
            resource: {
                "allocatable": amounts.allocatable,
                "free": amounts.free,
                "reserved": amounts.reserved,
                "reserved_system": amounts.system_reserved,
                "total": amounts.total,
            }
            for resource, amounts in row.amounts.items()
        },
    }


def machine_of(machine: dict) -> Machine:
    rows = machine["cpus"]
    cores: dict[int, int] = {}
    for cpu, core, *_ in rows:
        cores[core] = cores.get(core, 0) | 1 << cpu
    return Machine(
        cpus=tuple(
            CPU(
                id=cpu,
                core=core,
                die=0,
                socket=socket,
                zone=zone,
                l3=uncore if machine["uncore_reported"] else None,
                siblings=cores[core],
            )
            for cpu, core, socket, zone, uncore in rows
        ),
        zones=tuple(
            Zone(
                id=zone["id"],
                cpus=bits.of(row[0] for row in rows if row[3] == zone["id"]),
                memory_bytes=zone["mem"],
                hugepages={int(kib) * 1024: count for kib, count in zone["hp"].items()},
                distances=dict(zip(ids_of(machine), zone["dist"], strict=True)),
            )
            for zone in machine["numa"]
        ),
        memory_bytes=sum(zone["mem"] for zone in machine["numa"]),
    )


def ids_of(machine: dict) -> list[int]:
    return [zone["id"] for zone in machine["numa"]]
