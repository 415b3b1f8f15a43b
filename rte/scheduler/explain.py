"""Why a pod goes where it goes, node by node: what ``rte explain`` and ``/explain`` answer."""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any

from rte.placement import explain
from rte.scheduler import surroundings

if TYPE_CHECKING:
    from rte.placement.explain import ZoneAnswer
    from rte.scheduler.cluster import Cluster
    from rte.scheduler.cycle import Cycle
    from rte.scheduler.node import NodeEntry
    from rte.scheduler.objects import PodView


@dataclass(frozen=True, kw_only=True)
class NodeAnswer:
    """One node's answer.

    Attributes:
        node: its name.
        fits: the pod may be bound there now.
        reason: why not, in kube-scheduler's or the kubelet's words.
        message: more of it.
        waits: only a pod in flight, or a reservation, stands in the way.
        container: what the zones are measured against, ``*`` for the whole pod.
        zones: per zone what is wanted, free, and short.
        lands: container -> zones where the kubelet will put it.
        would_help: namespace/name of pods whose end would let it in.
    """

    node: str
    fits: bool
    reason: str = ""
    message: str = ""
    waits: bool = False
    container: str = ""
    zones: tuple[ZoneAnswer, ...] = ()
    lands: dict[str, tuple[int, ...]]
    would_help: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class PodAnswer:
    """All nodes' answers: those that take the pod first, then by name. ``chosen`` is the best."""

    pod: str
    bound: str = ""
    chosen: str | None = None
    unsupported: str = ""
    nodes: tuple[NodeAnswer, ...] = ()

    def as_json(self) -> dict[str, Any]:
        """Plain values for a JSON answer."""
        document = asdict(self)
        for node, answer in zip(document["nodes"], self.nodes, strict=True):
            for zone, value in zip(node["zones"], answer.zones, strict=True):
                zone["short"] = value.short
        return document


def explain_pod(cluster: Cluster, cycle: Cycle, pod: PodView) -> PodAnswer:
    """Explain a pod that waits, or one that exists nowhere yet, against the cluster as it is."""
    around = None
    if surroundings.needed(pod, cluster):
        around = surroundings.Surroundings(pod, cluster)
    names = {each.kubelet_uid: each.key for each in cluster.pods.values()}
    answers = [
        _answer(cycle, entry, pod, around, names)
        for entry in cluster.nodes.values()
        if entry.info is not None
    ]
    return PodAnswer(
        pod=pod.key,
        bound=pod.node,
        chosen=None if pod.node else cycle.decide(pod).node,
        unsupported=pod.shape.unsupported,
        nodes=tuple(sorted(answers, key=lambda answer: (not answer.fits, answer.node))),
    )


def _answer(
    cycle: Cycle,
    entry: NodeEntry,
    pod: PodView,
    around: surroundings.Surroundings | None,
    names: dict[str, str],
) -> NodeAnswer:
    check = cycle.check(entry, pod, around)
    outlook = entry.outlook()
    if outlook is None or not pod.shape.may_need_zone or entry.distrust():
        return NodeAnswer(
            node=entry.name,
            fits=not check.reason,
            reason=check.reason,
            message=check.message,
            waits=check.waits,
            lands={},
        )
    told = explain.explain(outlook.predicted, replace(pod.shape.pod, uid=pod.kubelet_uid))
    return NodeAnswer(
        node=entry.name,
        fits=not check.reason,
        reason=check.reason,
        message=check.message,
        waits=check.waits,
        container=told.container,
        zones=told.zones,
        lands=dict(told.lands) if not check.reason else {},
        would_help=tuple(names.get(uid, uid) for uid in told.would_help),
    )
