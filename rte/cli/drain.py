"""``rte drain``: move the pods first that a restart of their kubelet would refuse."""

from __future__ import annotations

import asyncio
import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from rte import errors
from rte.cli import evictions, inputs, live
from rte.cli.fit import STEPS, add_sources, is_applied, read_sources
from rte.kube.resources import NODES
from rte.model.totals import totals_of
from rte.placement import in_its_way
from rte.placement.joint import gang
from rte.scheduler.loop.cycle import Cycle
from rte.scheduler.loop.gangs.ground import member_of, snapshot
from rte.scheduler.loop.room.moves import may_leave
from rte.scheduler.report.kubelets import holders

if TYPE_CHECKING:
    import argparse
    from collections.abc import Mapping, Sequence

    from rte.kube.client import Client
    from rte.reader.json import JsonObject
    from rte.scheduler.cache.cluster import Cluster
    from rte.scheduler.framework.objects import PodView


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    add = parser.add_argument
    add("node", metavar="NODE", help="the node whose kubelet is to be restarted")
    add(
        "--apply",
        action="store_true",
        help="cordon the node and evict these pods, one at a time, by a plan made anew for each",
    )
    add(
        "--timeout",
        type=float,
        default=300.0,
        metavar="S",
        help="with --apply: seconds for each evicted pod to run again (default %(default)g)",
    )
    add_sources(parser, "drain")
    add("-o", "--output", choices=("text", "json"), default="text")


def run(args: argparse.Namespace) -> int:
    """Plan (and move); 0 when a restart does no harm then, 1 when it would or nobody can say."""
    if is_applied(args):
        return asyncio.run(_apply(args))
    plan = DrainPlan.of(read_sources(args)[0], args.node)
    print(json.dumps(plan.document(), indent=2) if args.output == "json" else plan.text())
    return 0 if plan.is_complete else 1


@dataclass(frozen=True, kw_only=True)
class DrainPlan:
    """What has to leave a node before its kubelet is restarted.

    Attributes:
        node: its name.
        leaving: the pods, in the order in which they are to be moved.
        places: kubelet UID -> node where it has a place; together they have these places in
            whatever order they arrive there.
        stuck: kubelet UID -> why the pod cannot be moved now.
        unknown: why nothing can be said.
    """

    node: str
    leaving: Sequence[PodView] = ()
    places: Mapping[str, str] = field(default_factory=dict)
    stuck: Mapping[str, str] = field(default_factory=dict)
    unknown: str = ""

    @classmethod
    def of(cls, cluster: Cluster, name: str) -> DrainPlan:
        """The plan for a node of this cluster.

        Raises:
            errors.UsageError: there is no such node.
        """
        entry = cluster.nodes.get(name)
        if entry is None or entry.info is None:
            raise errors.UsageError(f"node {name} not found")
        found = holders(entry)
        if found is None:
            why = entry.distrust() or "no agent of ours publishes this node's state"
            return cls(node=name, unknown=why)
        reported, views = found
        # Those that cannot leave rather stay.
        ordered = sorted(views, key=lambda uid: not _why_not(views[uid]))
        going = in_its_way(reported, [views[uid].shape.as_pod(uid) for uid in ordered])
        if going is None:
            return cls(
                node=name,
                unknown="a restart does harm with no pod there, too: see rte explain --restart",
            )
        # The largest first: it has the fewest places.
        sizes = {pod.uid: totals_of(pod).get("cpu", 0) for pod in going}
        leaving = [views[uid] for uid in sorted(sizes, key=lambda uid: -sizes[uid])]
        stuck = {pod.kubelet_uid: why for pod in leaving if (why := _why_not(pod))}
        cycle = Cycle(cluster)
        answer = gang.place_together(
            [node for node in snapshot(cluster)[0] if node.name != name],
            [member_of(cluster, cycle, pod) for pod in leaving if pod.kubelet_uid not in stuck],
            steps=STEPS,
            maximize=True,
        )
        for pod in leaving:
            if pod.kubelet_uid not in answer.places:
                stuck.setdefault(pod.kubelet_uid, "no other node has a place for it now")
        return cls(node=name, leaving=leaving, places=answer.places, stuck=stuck)

    @property
    def is_complete(self) -> bool:
        """Whether a restart does no harm once the plan is carried out."""
        return not self.unknown and not self.stuck

    def text(self) -> str:
        """The plan as people read it."""
        if self.unknown:
            return f"? {self.node}: {self.unknown}"
        if not self.leaving:
            return f"+ {self.node}: no pod has to be moved before its kubelet is restarted"
        lines = [f"- {self.node}: to be moved before its kubelet is restarted"]
        for number, pod in enumerate(self.leaving, start=1):
            uid = pod.kubelet_uid
            lines.append(
                f"  {number}. {pod.key}: {self.stuck.get(uid) or f'-> {self.places[uid]}'}"
            )
        return "\n".join(lines)

    def document(self) -> JsonObject:
        """The same for programs."""
        return {
            "node": self.node,
            "complete": self.is_complete,
            "unknown": self.unknown,
            "moves": [
                {
                    "pod": pod.key,
                    "target": self.places.get(pod.kubelet_uid, ""),
                    "stuck": self.stuck.get(pod.kubelet_uid, ""),
                }
                for pod in self.leaving
            ],
        }


def _why_not(pod: PodView) -> str:
    """Why a pod is not moved; empty: it may be."""
    if pod.deleting:
        return "it is being deleted: wait until it is gone"
    if not may_leave(pod):
        return "it belongs to its node, or says that it stays"
    return "" if pod.controller else "nothing creates it again: delete it yourself"


async def _apply(args: argparse.Namespace) -> int:
    """Evict one pod after the other; each step is planned with the cluster as it is then."""
    async with live.connect(args) as client:
        plan = await _look(client, args.node)
        print(plan.text(), flush=True)
        if plan.leaving and plan.is_complete:
            # Else a pod that leaves may come back.
            await client.patch(NODES.path(args.node), {"spec": {"unschedulable": True}})
        for _ in range(len(plan.leaving)):
            if not plan.leaving or not plan.is_complete:
                break
            pod = plan.leaving[0]
            print(f"evicting {pod.key}", flush=True)
            await evictions.evict(client, pod, pod.controller, timeout_s=args.timeout)
            plan = await _look(client, args.node)
        if plan.is_complete and not plan.leaving:
            print("a restart does no harm now")
            return 0
        print(f"{plan.text()}\nthe plan cannot be carried out now: run it again later")
        return 1


async def _look(client: Client, node: str) -> DrainPlan:
    return DrainPlan.of(inputs.build_cluster(await live.read_objects(client))[0], node)
