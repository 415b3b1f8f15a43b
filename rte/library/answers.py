"""What is asked of nodes, and the answers as values, rows and pictures."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields
from functools import cached_property
from typing import TYPE_CHECKING

from rte import errors, placement
from rte.library.cpusets import CPUSet
from rte.library.nodes import Node, node
from rte.library.pods import pod as read_pod
from rte.model import bits
from rte.model.node import NodeState
from rte.model.words import counted
from rte.placement.kubelet.outcome import Admission

if TYPE_CHECKING:
    from rte.library.pods import PodLike
    from rte.model.pod import Pod
    from rte.placement.joint.fit import Fit
    from rte.reader.json import JsonObject

#: Admissions by prediction that one count may cost: some seconds.
STEPS = 50_000


@dataclass(frozen=True, kw_only=True, repr=False)
class AdmitAnswer(Admission):
    """The kubelet's answer to a pod; a notebook shows the node with it.

    Attributes:
        pod: that was asked about.
        before: the node as it was.
    """

    pod: Pod
    before: Node

    @cached_property
    def node(self) -> Node:
        """The node afterwards: for the next pod."""
        return self.before.after(self.state, self.pod if self.admitted else None)

    @property
    def cpus(self) -> CPUSet:
        """CPUs that the pod gets for its own."""
        return CPUSet.of_mask(self.state.held_cpus(self.pod.uid) if self.admitted else 0)

    @property
    def zones(self) -> tuple[int, ...]:
        """Zones of all that it gets for its own."""
        mask = 0
        if self.admitted:
            for holding in filter(None, [*self.holdings.values(), self.pod_holding]):
                mask |= self.state.zones_of(holding)
        return tuple(bits.members(mask))

    def rows(self) -> list[JsonObject]:
        """One flat row for each container: what it gets for its own, and where."""
        out = []
        for container in self.pod.containers:
            held = self.holdings.get(container.name) if self.admitted else None
            row: JsonObject = {
                "pod": self.pod.name,
                "node": self.before.name,
                "admitted": self.admitted,
                "reason": self.reason,
                "container": container.name,
                "cpus": CPUSet.of_mask(held.cpus if held else 0),
                "zones": tuple(bits.members(self.state.zones_of(held))) if held else (),
            }
            for block in held.memory if held else ():
                row[block.resource] = row.get(block.resource, 0) + block.size
            for resource, mask in sorted(held.devices.items()) if held else ():
                row[resource] = mask.bit_count()
            out.append(row)
        return out

    def __repr__(self) -> str:
        told = f"{self.verdict}, {self.reason}: {self.message}"
        if self.admitted:
            told = f"{self.verdict}, CPUs {self.cpus or 'of the shared pool'}"
        return f"<{self.pod.name} on {self.before.name}: {told}>"

    def _repr_svg_(self) -> str:
        return self.node._repr_svg_()


@dataclass(frozen=True)
class Count:
    """How many copies of a pod fit.

    Attributes:
        pod: of which it is asked.
        found: node by node.
    """

    pod: Pod
    found: Fit

    def __repr__(self) -> str:
        nodes = counted(len(self.found.copies), "node")
        return f"<{self.pod.name}: {'' if self.exact else 'at least '}{self.total} on {nodes}>"

    @property
    def total(self) -> int:
        """Copies on all nodes together."""
        return self.found.total

    @property
    def exact(self) -> bool:
        """Whether no more can fit: no pick of devices decides, and nothing was cut off."""
        return not self.found.unsure

    @property
    def missing(self) -> str:
        """What one more copy lacks where it comes nearest; empty: nothing can be said."""
        from rte.placement.joint.wording import missing_words

        return missing_words(self.found.missing) if self.found.missing else ""

    def rows(self) -> list[JsonObject]:
        """One flat row for each node: copies that fit, and that its totals alone would allow."""
        return [
            {
                "node": name,
                "pods": copies,
                "by_totals": self.found.totals[name],
                "exact": name not in self.found.unsure,
            }
            for name, copies in self.found.copies.items()
        ]


def admit(node: Node | NodeState, pod: PodLike) -> AdmitAnswer:
    """What the kubelet will answer to a new pod on the node.

    Raises:
        errors.UsageError: an argument is wrong; the message begins with its name.
    """
    (given,) = _nodes("node", [node])
    wanted = read_pod(pod)
    admission = placement.admit(given.state, wanted)
    told = {each.name: getattr(admission, each.name) for each in fields(Admission)}
    return AdmitAnswer(**told, pod=wanted, before=given)


def fit(nodes: Node | Iterable[Node] | Mapping[str, Node], pod: PodLike) -> Count:
    """How many copies of the pod fit on the nodes, one after the other.

    Raises:
        errors.UsageError: an argument is wrong; the message begins with its name.
    """
    # Here: it asks for NumPy, which only an extra brings.
    from rte.placement.joint.fit import FitTable
    from rte.placement.joint.node import Member

    if isinstance(nodes, Node):
        nodes = [nodes]
    given = _nodes("nodes", nodes.values() if isinstance(nodes, Mapping) else nodes)
    names = [each.name for each in given]
    for name in names:
        if names.count(name) > 1:
            raise errors.UsageError(
                f"nodes: {names.count(name)} have the name {name}: give each its own, node(name=)"
            )
    table = FitTable(each.counted() for each in given)
    wanted = read_pod(pod)
    return Count(wanted, table.count(Member(pod=wanted), steps=STEPS))


def _nodes(argument: str, given: object) -> list[Node]:
    if not isinstance(given, Iterable):
        raise errors.UsageError(f"{argument}: expected nodes, not {type(given).__name__}")
    out = []
    for each in given:
        if not isinstance(each, Node | NodeState):
            raise errors.UsageError(
                f"{argument}: expected what node() makes, not {type(each).__name__}"
            )
        out.append(each if isinstance(each, Node) else node(each))
    return out
