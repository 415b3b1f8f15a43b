"""The cluster as the joint solver sees it (:mod:`rte.placement.joint`)."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from rte.placement.joint.node import JointNode, Member
from rte.scheduler.framework.plugin import PodChange
from rte.scheduler.plugins.gang_scheduling import GangScheduling

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Sequence

    from rte.scheduler.cache.cluster import Cluster
    from rte.scheduler.framework.node import NodeEntry
    from rte.scheduler.framework.objects import PodView
    from rte.scheduler.loop.cycle import Cycle


def snapshot(cluster: Cluster) -> tuple[list[JointNode], dict[str, str]]:
    """The nodes whose zones are known exactly, and why the others are left out, by name.

    Pods in flight are on their node, in an order that nobody knows.
    """
    nodes: list[JointNode] = []
    left_out: dict[str, str] = {}
    for name, entry in sorted(cluster.nodes.items()):
        if entry.info is None:
            continue
        node = node_of(entry)
        if node is None:
            left_out[name] = entry.distrust() or "node(s) without a report of rte's agent"
        else:
            nodes.append(node)
    return nodes, left_out


def node_of(entry: NodeEntry) -> JointNode | None:
    """One node, None where its zones are not known exactly."""
    outlook = entry.outlook()
    if entry.info is None or outlook is None or entry.distrust():
        return None
    return JointNode(
        name=entry.name,
        state=outlook.base,
        allocatable=entry.info.allocatable,
        used=dict(entry.used),
        labels=entry.info.labels,
        arriving=outlook.in_flight,
    )


class GangGround:
    """The nodes on which gangs may be placed, kept from one decision to the next.

    What runs there may end before the kubelet meets the pods, so places must stand whatever ends.
    """

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._known: dict[str, tuple[int, JointNode | None]] = {}

    def node(
        self,
        entry: NodeEntry,
        pods: Sequence[PodView],
        ended: frozenset[str] = frozenset(),
    ) -> JointNode | None:
        """One node, with what was promised there to others that are not less important; None: it is
        no place for them.

        Args:
            entry: of the node.
            pods: that are placed together; what was promised to them is in nobody's way.
            ended: UIDs of pods of the node that are looked at as if they had ended.
        """
        if entry.held_off:
            return None
        own = {pod.uid for pod in pods} if entry.nominated else frozenset()
        ahead = [pod for pod in entry.ahead_of(pods[0]) if pod.uid not in own]
        if not ahead and not ended:
            known = self._known.get(entry.name)
            if known is None or known[0] != entry.changed:
                known = self._known[entry.name] = entry.changed, _with_endings(entry)
            return known[1]
        twin = entry.without(ended) if ended else entry
        return _with_endings(twin.beside(ahead) if ahead else twin)

    def is_exact(self) -> bool:
        """Whether the zones of all nodes are known exactly."""
        known = (e.knowledge() for e in self._cluster.nodes.values() if e.info is not None)
        return all(each in ("exact", "distrusted") for each in known)

    def entries(self, pods: Iterable[PodView]) -> list[NodeEntry]:
        """The nodes on which pods may be placed without the solver.

        Where some nodes publish their zones, those that do not are no place for a gang that needs
        zones: they may just not have done so yet, and one refusal would leave it in part.
        """
        entries = [entry for entry in self._cluster.nodes.values() if entry.info is not None]
        if not any(pod.shape.may_need_zone for pod in pods):
            return entries
        known = [entry for entry in entries if entry.report is not None]
        return known or entries

    def forget(self) -> None:
        """Drop nodes that are gone."""
        self._known = {n: known for n, known in self._known.items() if n in self._cluster.nodes}


def _with_endings(entry: NodeEntry) -> JointNode | None:
    node, outlook = node_of(entry), entry.outlook()
    if node is None or outlook is None or outlook.doubtful:
        return None
    return replace(node, lasting=outlook.steady, overtaken=outlook.overtaken, ending=outlook.ending)


def problem_of(cycle: Cycle, pod: PodView) -> str:
    """Why the pod can go nowhere, whatever the node; gangs are what the solver is for."""
    found = cycle.problem(pod)
    return "" if found.plugin == GangScheduling.name else found.reason


def allowed_nodes(cluster: Cluster, cycle: Cycle, pod: PodView) -> frozenset[str]:
    """Names of the nodes that all rules but zones and totals allow, if only as second best.

    Rules between pods (affinity, spread, host ports) are those against the pods that run now.
    """
    allows = allowance(cycle, pod)
    return frozenset(name for name, entry in cluster.nodes.items() if allows(entry, ()))


def allowance(cycle: Cycle, pod: PodView) -> Callable[[NodeEntry, Collection[PodView]], bool]:
    """Whether all rules but zones and totals allow a node that has not changed since.

    It is told of pods that are looked at as if they had ended.
    """
    if problem_of(cycle, pod):
        return lambda *_: False
    around, profile = cycle.around(pod), cycle.profile

    def allows(entry: NodeEntry, gone: Collection[PodView]) -> bool:
        there = around
        if gone:
            there = profile.changed(around, [PodChange(each, each.node, -1) for each in gone])
            entry = entry.without(frozenset(each.uid for each in gone))
        refusal = profile.refused_around(there, pod, entry)
        return profile.allows(pod.shape, entry) and (not refusal.reason or refusal.second_best)

    return allows


def member_of(cluster: Cluster, cycle: Cycle, pod: PodView) -> Member:
    """A pod that wants a place."""
    return Member(pod=pod.shape.as_pod(pod.kubelet_uid), nodes=allowed_nodes(cluster, cycle, pod))
