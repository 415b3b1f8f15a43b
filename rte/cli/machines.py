"""Nodes that exist nowhere: machines from fixtures and snapshots, with kubelets as configured."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from rte import accounting, errors, placement
from rte.kubelet import config as kubelet_config
from rte.model.quantity import format_bytes
from rte.placement.kubelet import releases
from rte.scheduler.framework.node import Report
from rte.scheduler.framework.objects import NodeInfo
from rte.sysfs import read_machine

if TYPE_CHECKING:
    import argparse

    from rte.model.machine import Machine
    from rte.model.node import KubeletConfig, NodeState
    from rte.scheduler.cache.cluster import Cluster

FIXTURES = Path("fixtures/sysfs")


@dataclass(frozen=True)
class Machines:
    """Some nodes of one machine, with an idle kubelet each."""

    name: str
    machine: Machine
    state: NodeState
    count: int

    def add_to(self, cluster: Cluster) -> None:
        """Add the nodes to a cluster."""
        for number in range(self.count):
            name = self.name if self.count == 1 else f"{self.name}-{number}"
            _add_node(cluster, name, self.machine, self.state)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments that name machines and configure their kubelets."""
    add = parser.add_argument
    add(
        "--machine",
        action="append",
        default=[],
        metavar="DIR[*N]",
        help="add N nodes of this machine: a folder with sys/ and proc/, or a fixture's name",
    )
    add(
        "--kubelet-config-file",
        type=Path,
        metavar="F",
        help="configuration of these nodes' kubelets (default: static CPU manager, Static memory "
        "manager, one CPU and 512 MiB reserved)",
    )
    add(
        "--policy",
        default="single-numa-node",
        metavar="P",
        choices=("none", "best-effort", "restricted", "single-numa-node"),
        help="topology-manager policy of these nodes, without a file (default %(default)s)",
    )
    add("--scope", default="container", choices=("container", "pod"))
    add("--kubelet-version", default=releases.NEWEST, metavar="V", help="default %(default)s")


def read(args: argparse.Namespace) -> list[Machines]:
    """The machines that the arguments name.

    Raises:
        errors.UsageError: one of them does not exist.
    """
    out = []
    for text in args.machine:
        name, machine, count = _machine(text)
        out.append(Machines(name, machine, _state(machine, args), count))
    return out


def _machine(text: str) -> tuple[str, Machine, int]:
    where, star, count = text.partition("*")
    if star and not (count.isascii() and count.isdigit() and 0 < int(count) < 100_000):
        raise errors.UsageError(f"--machine {text}: what follows * is no number of nodes")
    folder = Path(where)
    if not folder.is_dir():
        folder = FIXTURES / where
    if not (folder / "sys").is_dir():
        raise errors.UsageError(f"--machine {text}: neither {where} nor {folder} has a sys/ folder")
    name = re.sub(r"[^a-z0-9-]+", "-", folder.name.lower())
    return name, read_machine(folder / "sys", folder / "proc"), int(count or 1)


def _state(machine: Machine, args: argparse.Namespace) -> NodeState:
    topology = accounting.kubelet_topology(machine)
    config: KubeletConfig
    if args.kubelet_config_file is not None:
        config = kubelet_config.from_files(
            args.kubelet_config_file, memory_bytes=machine.memory_bytes
        )
    else:
        zone = next((zone.id for zone in machine.zones if zone.memory_bytes), 0)
        config = kubelet_config.effective(
            {
                "topologyManagerPolicy": args.policy,
                "topologyManagerScope": args.scope,
                "cpuManagerPolicy": "static",
                "reservedSystemCPUs": str(topology.cpus[0].cpu),
                "memoryManagerPolicy": "Static",
                "systemReserved": {"memory": "412Mi"},
                "evictionHard": {"memory.available": "100Mi"},
                "reservedMemory": [{"numaNode": zone, "limits": {"memory": "512Mi"}}],
            },
            memory_bytes=machine.memory_bytes,
            where="--machine",
        )
    return placement.initial_state(topology, config, {}, args.kubelet_version)


def _add_node(cluster: Cluster, name: str, machine: Machine, state: NodeState) -> None:
    huge = {
        f"hugepages-{format_bytes(size).replace(' ', '').removesuffix('B')}": size * count
        for zone in machine.zones
        for size, count in zone.hugepages.items()
    }
    memory = sum(zone.memory_bytes for zone in machine.zones) - sum(huge.values())
    allocatable = {
        "cpu": 1000 * len(state.topology.cpus) - state.config.cpu_reservation_milli,
        "memory": memory - state.config.node_reserved.get("memory", 0),
        "pods": state.config.max_pods,
        "ephemeral-storage": 1 << 40,
    }
    cluster.set_node(
        NodeInfo(
            name=name,
            uid="",
            labels={"kubernetes.io/hostname": name},
            taints=(),
            unschedulable=False,
            allocatable=allocatable,
        )
    )
    cluster.set_report(name, Report(state=state), 0.0)
