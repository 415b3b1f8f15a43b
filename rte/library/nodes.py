"""Machines and nodes as values to ask about."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

from rte import accounting, errors, nrt, sysfs
from rte.kubelet.config import TOPOLOGY_POLICIES, TOPOLOGY_SCOPES
from rte.library import kubelets, machines
from rte.library.cpusets import CPUSet
from rte.library.kubelets import KubeletChoice
from rte.library.machines import NamedMachine
from rte.model import node as model
from rte.model import quantity
from rte.model.machine import Machine
from rte.model.node import NodeReading, PodRef
from rte.model.totals import totals_of
from rte.model.words import MACHINE, counted
from rte.placement.kubelet.demand import free_of
from rte.view import drawing

if TYPE_CHECKING:
    from typing import TypeAlias

    from rte.model.pod import Pod
    from rte.placement.joint.node import JointNode
    from rte.reader.json import Json, JsonObject

    MachineLike: TypeAlias = NamedMachine | Machine | str | Path
    NodeLike: TypeAlias = MachineLike | model.NodeState | Json


class NodeStates(model.NodeState):
    """All that prediction needs of one node."""

    @staticmethod
    def from_nrt(obj: Json) -> model.NodeState:
        """Read the state that rte's agent publishes in a NodeResourceTopology.

        Raises:
            errors.ParseError: it is none, or another exporter's, which tells zones only.
        """
        report = nrt.decode(obj)
        if report.state is None:
            why = "; ".join(report.problems) or f"no annotation {nrt.NODE_STATE_ANNOTATION}"
            raise errors.ParseError("NodeResourceTopology", report.name, why)
        return report.state


@dataclass(frozen=True)
class Node:
    """A node with its kubelet; a notebook shows it as a picture. Asking changes nothing.

    Attributes:
        name: of the node.
        reading: the hardware, the kubelet's state, and the pods that it names.
        placed: UID -> pod, of those that were admitted by :func:`rte.library.admit`.
    """

    name: str
    reading: NodeReading
    placed: Mapping[str, Pod] = field(default_factory=dict)

    @property
    def state(self) -> model.NodeState:
        """What prediction needs, as :mod:`rte.placement` takes it."""
        assert self.reading.state is not None  # noqa: S101 - :func:`node` makes none without
        return self.reading.state

    @property
    def cpus(self) -> CPUSet:
        """All CPUs that the kubelet knows."""
        return CPUSet.of_mask(self.state.topology.all_cpus)

    @property
    def free(self) -> CPUSet:
        """CPUs that a container can still get for its own."""
        return CPUSet.of_mask(self.state.shared & ~self.state.reserved)

    def rows(self) -> list[JsonObject]:
        """One flat row for each zone: its CPUs, those that are free, and what else is free there
        (bytes of memory and huge pages, devices).
        """
        return [
            {
                "node": self.name,
                "zone": zone,
                "cpus": CPUSet.of_mask(self.state.topology.zone_cpus[zone]),
                "free": CPUSet.of_mask(self.state.topology.zone_cpus[zone]) & self.free,
                **{name: amount for name, amount in free.items() if name != "cpu"},
            }
            for zone, free in free_of(self.state).zones.items()
        ]

    def after(self, state: model.NodeState, pod: Pod | None = None) -> Node:
        """The node in another state; ``pod``: with this one on it."""
        reading = replace(self.reading, state=state)
        if pod is None:
            return replace(self, reading=reading)
        named = (*self.reading.pods, PodRef(pod.uid, pod.namespace, pod.name))
        reading = replace(reading, pods=named)
        return replace(self, reading=reading, placed={**self.placed, pod.uid: pod})

    def counted(self) -> JointNode:
        """As the joint solver takes it, with what its pods count for on node level."""
        # Here: the solver asks for NumPy, which only an extra brings.
        from rte.placement.joint.node import JointNode

        used: Counter[str] = Counter()
        for uid in self.state.admitted | self.placed.keys():
            pod = self.placed.get(uid)
            if pod is not None:
                used.update(totals_of(pod))
                continue
            used["pods"] += 1
            for amounts in kubelets.asked_by(self.state, uid).values():
                used.update(amounts | {"cpu": 1000 * amounts.get("cpu", 0)})
        return JointNode(
            name=self.name,
            state=self.state,
            allocatable=kubelets.allocatable(self.state),
            used={name: quantity.capped(amount) for name, amount in used.items()},
        )

    def __repr__(self) -> str:
        return (
            f"<node {self.name}: {len(self.free)} of {counted(len(self.cpus), 'CPU')} free, "
            f"{self.state.config.topology_policy}>"
        )

    def _repr_svg_(self) -> str:
        return drawing.draw(self.reading.machine, self.reading)


def machine(machine: str | Path) -> NamedMachine:
    """The machine of that name.

    Args:
        machine: a shape (``"2x32"``), the name of a fixture, a folder with ``sys/`` and ``proc/``,
            an archive of ``rte snapshot``, or a file of one NodeResourceTopology.

    Raises:
        errors.RteError: there is none of that name, or what there is cannot be read.
    """
    if not isinstance(machine, str | Path):
        raise errors.UsageError(
            f"machine: expected a name, not {type(machine).__name__}: {MACHINE}"
        )
    found = machines.find(str(machine))
    if not found:
        raise errors.UsageError(f"machine: {str(machine)!r} names none; a machine is {MACHINE}")
    return machines.only(found, f"machine: {machine}")


def node(
    machine: NodeLike,
    *,
    name: str = "",
    policy: str = "",
    scope: str = "",
    kubelet: Json | str | Path | None = None,
    devices: Mapping[str, str] | None = None,
    version: str = "",
) -> Node:
    """A node: a machine, with the kubelet that was found there, else an idle one.

    Args:
        machine: a machine or the name of one; or a NodeResourceTopology of rte's agent, or a
            NodeState, which bring their kubelet.
        name: of the node; empty: the machine's.
        policy: topology-manager policy, ``single-numa-node`` if nothing else is said.
        scope: topology-manager scope, ``container`` if nothing else is said.
        kubelet: a KubeletConfiguration, or its file; without it: static CPU manager, Static memory
            manager (on up to 16 zones), one CPU and 512 MiB reserved.
        devices: resource -> zones of its devices: ``{"example.com/gpu": "0/0/1/0+1/none"}``.
        version: of the kubelet, such as ``v1.37.1``; empty: the newest.

    Raises:
        errors.RteError: an argument is wrong (the message begins with its name), or such a kubelet
            would not start there.
    """
    for argument, given, allowed in (
        ("policy", policy, TOPOLOGY_POLICIES),
        ("scope", scope, TOPOLOGY_SCOPES),
    ):
        if given and given not in allowed:
            known = f"{', '.join(allowed)}{errors.meant(given, allowed)}"
            raise errors.UsageError(f"{argument}: {given!r} is none of {known}")
    found = _found(machine)
    chosen = KubeletChoice(
        policy=policy,
        scope=scope,
        configuration=Path(kubelet) if isinstance(kubelet, str) else kubelet,
        version=version,
        devices={
            resource: kubelets.device_pool(f"devices: {resource}", zones)
            for resource, zones in (devices or {}).items()
        },
        names={"configuration": "kubelet"},
    )
    state = chosen.state(found)
    named = name or found.name
    return Node(named, replace(found.reading, node_name=named, state=state))


def _found(given: NodeLike) -> NamedMachine:
    match given:
        case NamedMachine():
            return given
        case Machine():
            return NamedMachine(given.model or "machine", NodeReading(node_name="", machine=given))
        case model.NodeState():
            hardware = accounting.machine_of(given.topology)
            return NamedMachine("node", NodeReading(node_name="", machine=hardware, state=given))
        case Mapping():
            return machines.from_report(given)
    return machine(given)


def read_machine(root: str | Path = "/") -> Machine:
    """Read the hardware below ``root/sys`` and ``root/proc``: this host's, or a capture's.

    Raises:
        errors.SysfsError: there is no machine to be read.
    """
    return sysfs.read_machine(Path(root) / "sys", Path(root) / "proc")
