"""Nodes that exist nowhere: machines by name, with the kubelets found there, or as configured."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rte import accounting, errors, placement
from rte.cli import naming
from rte.cli.parsing import MACHINE
from rte.kubelet import config as kubelet_config
from rte.model import bits
from rte.model.node import DevicePool, NodeState
from rte.placement.kubelet import releases
from rte.scheduler.framework import objects
from rte.scheduler.framework.node import Report
from rte.scheduler.framework.objects import NodeInfo
from rte.sim.kubelet_document import kubelet_document
from rte.view.drawing.words import format_page

if TYPE_CHECKING:
    import argparse
    from collections.abc import Mapping

    from rte.cli.naming import Named
    from rte.model.machine import Machine
    from rte.model.node import KubeletConfig
    from rte.scheduler.cache.cluster import Cluster

_EXAMPLE = "e.g. example.com/gpu=0/0/1/0+1/none"
_POLICY, _SCOPE = "single-numa-node", "container"


@dataclass(frozen=True)
class Machines:
    """Some nodes of one machine.

    Attributes:
        names: of the nodes.
        state: of each one's kubelet.
        pods: UID -> namespace and name of those that the state says hold something.
    """

    names: tuple[str, ...]
    state: NodeState
    pods: Mapping[str, tuple[str, str]]

    def add_to(self, cluster: Cluster) -> None:
        """Add the nodes, and the pods that are on them, to a cluster."""
        for name in self.names:
            prefix = f"{name}/" if len(self.names) > 1 else ""
            state = _with_uids(self.state, prefix)
            cluster.set_node(_node(name, state))
            cluster.set_report(name, Report(state=state), 0.0)
            for uid in self.state.admitted & self.state.holdings.keys():
                pod = objects.read_pod(self._holder(uid, name), cluster.shapes)
                cluster.set_pod(replace(pod, kubelet_uid=prefix + uid), 0.0)

    def _holder(self, uid: str, node: str) -> dict[str, Any]:
        """A running pod that asks for what the state says it holds; each node has its own."""
        namespace, name = self.pods.get(uid, ("default", uid))
        if len(self.names) > 1:
            name = f"{name}.{node}"
        return {
            "metadata": {"name": name, "namespace": namespace, "uid": f"{node}/{uid}"},
            "spec": {
                "nodeName": node,
                "containers": [
                    {"name": container, "resources": {"limits": amounts, "requests": amounts}}
                    for container, amounts in _amounts(self.state, uid).items()
                ],
            },
            "status": {"phase": "Running"},
        }


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments that name machines and configure their kubelets."""
    add = parser.add_argument
    add(
        "--machine",
        action="append",
        default=[],
        metavar="NAME[*N]",
        help=f"add N nodes of this machine: {MACHINE}",
    )
    add(
        "--device",
        action="append",
        default=[],
        metavar="RESOURCE=ZONES",
        help="devices of each of these nodes, by their zones: example.com/gpu=0/0/1/0+1/none",
    )
    add(
        "--kubelet-config-file",
        type=Path,
        metavar="F",
        help="configuration of these nodes' kubelets (default: static CPU manager, Static memory "
        "manager (on up to 16 zones), one CPU and 512 MiB reserved)",
    )
    add(
        "--policy",
        metavar="P",
        choices=("none", "best-effort", "restricted", "single-numa-node"),
        help=f"topology-manager policy of these nodes, without a file (default: {_POLICY})",
    )
    add(
        "--scope",
        choices=("container", "pod"),
        help=f"topology-manager scope, without a file (default: {_SCOPE})",
    )
    add("--kubelet-version", metavar="V", help=f"of these nodes (default: {releases.NEWEST})")


def read(args: argparse.Namespace) -> list[Machines]:
    """The nodes that the arguments name; no two have the same name.

    Raises:
        errors.RteError: one of the machines does not exist, or its kubelet would not start.
    """
    devices = dict(_parse_devices(text) for text in args.device)
    wanted = [
        (each, _state(each, args, devices), count)
        for text in args.machine
        for found, count in [_find(text, args)]
        for each in found
    ]
    totals, given = Counter[str](), Counter[str]()
    for each, _, count in wanted:
        totals[each.name] += count
    out = []
    for each, state, count in wanted:
        names = tuple(
            each.name if totals[each.name] == 1 else f"{each.name}-{given[each.name] + number}"
            for number in range(count)
        )
        given[each.name] += count
        pods = {pod.uid: (pod.namespace, pod.name) for pod in each.reading.pods}
        out.append(Machines(names, state, pods))
    return out


def _find(text: str, args: argparse.Namespace) -> tuple[list[Named], int]:
    where, star, count = text.rpartition("*")
    if not star:
        return naming.find(text, args), 1
    if not (count.isascii() and count.isdigit() and 0 < int(count[:9]) < 100_000):
        raise errors.UsageError(f"--machine {text}: what follows * is no number of nodes")
    return naming.find(where, args), int(count)


def _parse_devices(text: str) -> tuple[str, DevicePool]:
    resource, _, zones = text.partition("=")
    if "/" not in resource or not zones:
        raise errors.UsageError(f"--device {text}: expected RESOURCE=ZONES, {_EXAMPLE}")
    sets = tuple(_parse_zones(part, text) for part in zones.split("/"))
    width = len(str(len(sets)))
    return resource, DevicePool(
        ids=tuple(f"dev{number:0{width}}" for number in range(len(sets))),
        zones=sets,
        healthy=(1 << len(sets)) - 1,
    )


def _parse_zones(part: str, text: str) -> int | None:
    if part == "none":
        return None
    numbers = part.split("+")
    if not all(n.isascii() and n.isdigit() and len(n) <= 4 for n in numbers):
        raise errors.UsageError(f"--device {text}: {part!r} is no set of zones, {_EXAMPLE}")
    return bits.of(int(n) for n in numbers)


def _state(named: Named, args: argparse.Namespace, devices: Mapping[str, DevicePool]) -> NodeState:
    """Of the kubelet that was found with the machine, else of an idle one as configured."""
    state = named.reading.state
    if state is None:
        version = args.kubelet_version or releases.NEWEST
        topology = accounting.kubelet_topology(named.reading.machine)
        zones = bits.of(zone.id for zone in topology.zones)
        for resource, pool in devices.items():
            for wanted in pool.by_zones:
                if (wanted or 0) & ~zones:
                    missing = bits.format_list((wanted or 0) & ~zones)
                    raise errors.UsageError(
                        f"--device {resource}: {named.name} has no zone {missing}"
                    )
        config = _config(named.reading.machine, topology.cpus[0].cpu, args)
        return placement.initial_state(topology, config, devices, version)
    given = {"--policy": args.policy, "--scope": args.scope, "--device": args.device}
    given["--kubelet-config-file"] = args.kubelet_config_file
    for flag, value in given.items():
        if value:
            raise errors.UsageError(f"{named.name} has a kubelet of its own: leave {flag} out")
    version = args.kubelet_version or state.kubelet_version or releases.NEWEST
    return replace(state, kubelet_version=version)


def _config(machine: Machine, first_cpu: int, args: argparse.Namespace) -> KubeletConfig:
    if args.kubelet_config_file is not None:
        return kubelet_config.from_files(
            args.kubelet_config_file, memory_bytes=machine.memory_bytes
        )
    document = kubelet_document(
        machine,
        policy=args.policy or _POLICY,
        scope=args.scope or _SCOPE,
        reserved_cpus=str(first_cpu),
    )
    return kubelet_config.effective(document, memory_bytes=machine.memory_bytes, where="--machine")


def _node(name: str, state: NodeState) -> NodeInfo:
    """The Node as the kubelet would register it: totals over all zones, less what is reserved."""
    total: Counter[str] = Counter()
    for zone in state.topology.zones:
        total["memory"] += zone.memory_bytes
        for size, count in zone.hugepages.items():
            total[f"hugepages-{format_page(size)}"] += size * count
            total["memory"] -= size * count
    total["cpu"] = 1000 * len(state.topology.cpus) - state.config.cpu_reservation_milli
    for resource, amount in state.config.node_reserved.items():
        if resource != "cpu":
            total[resource] -= amount
    for resource, pool in state.devices.items():
        total[resource] = pool.healthy.bit_count()
    total["pods"] = state.config.max_pods
    total["ephemeral-storage"] = 1 << 40
    return NodeInfo(
        name=name,
        uid="",
        labels={"kubernetes.io/hostname": name},
        taints=(),
        unschedulable=False,
        allocatable=dict(total),
    )


def _with_uids(state: NodeState, prefix: str) -> NodeState:
    """The state with other UIDs, as each of several nodes has pods of its own."""
    if not prefix:
        return state
    return replace(
        state,
        admitted=frozenset(prefix + uid for uid in state.admitted),
        holdings={prefix + uid: held for uid, held in state.holdings.items()},
        pod_holdings={prefix + uid: held for uid, held in state.pod_holdings.items()},
    )


def _amounts(state: NodeState, uid: str) -> dict[str, dict[str, str]]:
    out = {}
    for container, holding in state.holdings[uid].items():
        total: Counter[str] = Counter()
        if holding.cpus:
            total["cpu"] = holding.cpus.bit_count()
            if state.config.memory_policy == "None":
                # Who has CPUs of its own limits memory too; only how much is not known.
                total["memory"] = 1
        for block in holding.memory:
            total[block.resource] += block.size
        for resource, mask in holding.devices.items():
            total[resource] = mask.bit_count()
        out[container] = {name: str(amount) for name, amount in total.items()}
    return out
