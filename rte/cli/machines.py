"""Nodes that exist nowhere: machines by name, with the kubelets found there, or as configured.

Beside what the library names (:mod:`rte.library.machines`) a node of the cluster is a machine here.
"""

from __future__ import annotations

import asyncio
import re
from collections import Counter
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from rte import errors
from rte.cli import inputs, live
from rte.cli.parsing import MACHINE
from rte.kube import resources
from rte.library import kubelets, machines
from rte.library.kubelets import POLICY, SCOPE, KubeletChoice
from rte.model.node import PodRef
from rte.placement.kubelet import releases
from rte.scheduler.framework import objects
from rte.scheduler.framework.node import Report
from rte.scheduler.framework.objects import NodeInfo
from rte.scheduler.loop.cycle import Cycle
from rte.view import hardware

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterable, Mapping

    from rte.library.machines import NamedMachine
    from rte.model.node import NodeReading, NodeState
    from rte.reader.json import JsonObject
    from rte.scheduler.cache.cluster import Cluster

#: What parts of a kubelet are called on the command line.
_FLAGS = {
    "policy": "--policy",
    "scope": "--scope",
    "devices": "--device",
    "configuration": "--kubelet-config-file",
    "version": "--kubelet-version",
}


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

    def _holder(self, uid: str, node: str) -> JsonObject:
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
                    for container, least in kubelets.asked_by(self.state, uid).items()
                    for amounts in [{name: str(amount) for name, amount in least.items()}]
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
        help=f"topology-manager policy of these nodes (default: the file's, else {POLICY})",
    )
    add(
        "--scope",
        choices=("container", "pod"),
        help=f"topology-manager scope (default: the file's, else {SCOPE})",
    )
    add("--kubelet-version", metavar="V", help=f"of these nodes (default: {releases.NEWEST})")


def read(args: argparse.Namespace) -> list[Machines]:
    """The nodes that the arguments name; no two have the same name.

    Raises:
        errors.RteError: one of the machines does not exist, or its kubelet would not start.
    """
    chosen = KubeletChoice(
        policy=args.policy or "",
        scope=args.scope or "",
        configuration=args.kubelet_config_file,
        version=args.kubelet_version or "",
        devices=dict(kubelets.parse_devices(text, "--device") for text in args.device),
        names=_FLAGS,
    )
    wanted = [
        (each, chosen.state(each), count)
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


def _find(text: str, args: argparse.Namespace) -> tuple[list[NamedMachine], int]:
    where, star, count = text.rpartition("*")
    if not star:
        return find(text, args), 1
    if not (count.isascii() and count.isdigit() and 0 < int(count[:9]) < 100_000):
        raise errors.UsageError(f"--machine {text}: what follows * is no number of nodes")
    return find(where, args), int(count)


def find(text: str, args: argparse.Namespace) -> list[NamedMachine]:
    """The machine of that name, here or on a node of the cluster; several where a file holds
    several NodeResourceTopologies.

    Raises:
        errors.RteError: there is none of that name, or what there is cannot be read.
    """
    found = machines.find(text)
    if found:
        return found
    report, items = asyncio.run(_objects_of(text, args))
    return [_reported(report, items)]


def node_of_cluster(name: str, args: argparse.Namespace) -> NodeReading:
    """A node of the cluster as the page has it: with what processing groups hold there.

    Raises:
        errors.RteError: as :func:`find`.
    """
    return read_objects(*asyncio.run(_objects_of(name, args)))


def read_objects(report: JsonObject, items: Iterable[JsonObject]) -> NodeReading:
    """The same of these objects: the node's report, the Node and its pods."""
    cluster, _ = inputs.build_cluster([report, *items])
    entry = cluster.nodes.get(report["metadata"]["name"])
    reading = hardware.reading_of(entry, Cycle(cluster)) if entry and entry.info else None
    return reading or _reported(report, items).reading


def _reported(report: JsonObject, items: Iterable[JsonObject]) -> NamedMachine:
    from rte.accounting import liveness

    there = [liveness.node_pod(item) for item in items if item["kind"] == "Pod"]
    return machines.from_report(report, [PodRef(pod.uid, pod.namespace, pod.name) for pod in there])


async def _objects_of(name: str, args: argparse.Namespace) -> tuple[JsonObject, list[JsonObject]]:
    """The node's report; the Node and its pods, as far as they may be read."""
    if not re.fullmatch(r"[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?", name):
        raise errors.UsageError(f"{name!r} names no machine; a machine is {MACHINE}")
    selectors = {"nodes": f"metadata.name={name}", "pods": f"spec.nodeName={name}"}
    try:
        async with live.connect(args) as client:
            report = await client.get(resources.NRTS.path(name))
            try:
                return report, await live.read_objects(client, selectors, selectors)
            except errors.KubeError as error:
                if error.status != 403:  # the report names those that hold CPUs
                    raise
                return report, []
    except errors.KubeError as error:
        raise errors.UsageError(
            f"{name} is no shape, no fixture, folder or file{machines.near(name)}; "
            f"and as a node of the cluster: {error}"
        ) from error


def _node(name: str, state: NodeState) -> NodeInfo:
    """The Node as the kubelet would register it."""
    return NodeInfo(
        name=name,
        uid="",
        labels={"kubernetes.io/hostname": name},
        taints=(),
        unschedulable=False,
        allocatable=kubelets.allocatable(state),
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
