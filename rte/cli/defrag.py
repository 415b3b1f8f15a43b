"""``rte defrag``: the smallest set of moves that opens a place for pods that wait."""

from __future__ import annotations

import asyncio
import json
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from rte import errors
from rte.cli import evictions, inputs, live, machines
from rte.cli.fit import add_sources
from rte.cli.simulate import draw
from rte.library import manifests
from rte.model.words import counted
from rte.placement import execute, remove, start
from rte.placement.joint import defrag, gang
from rte.reader import files
from rte.scheduler.loop.cycle import Cycle
from rte.scheduler.loop.gangs.ground import member_of, snapshot
from rte.scheduler.loop.room import moves

if TYPE_CHECKING:
    import argparse
    from collections.abc import Mapping, Sequence

    from rte.kube.client import Client
    from rte.model.node import NodeState
    from rte.placement.joint.node import JointNode, Member
    from rte.reader.json import JsonObject
    from rte.scheduler.cache.cluster import Cluster
    from rte.scheduler.framework.objects import PodView


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    add = parser.add_argument
    add("pod", nargs="?", metavar="POD", help="a pod that waits: NAME or NAMESPACE/NAME")
    add(
        "-f",
        "--file",
        type=Path,
        metavar="F",
        help="open a place for all pods of this manifest instead. Without either: for the waiting "
        "pod of the highest priority that fits nowhere",
    )
    add("-n", "--namespace", default="default", metavar="NS", help="namespace of POD")
    add(
        "-l",
        "--selector",
        metavar="K=V",
        help="move only pods with this label (what runs on a --machine has none)",
    )
    add(
        "--bare-pods",
        action="store_true",
        help="move pods without a controller too (offline: nothing creates them again)",
    )
    add("--most", type=int, metavar="N", help="no plan with more moves than this")
    add(
        "--apply",
        action="store_true",
        help="evict, one pod at a time, by a plan made anew for each",
    )
    add(
        "--timeout",
        type=float,
        default=300.0,
        metavar="S",
        help="with --apply: seconds for each evicted pod to run again (default %(default)g)",
    )
    add_sources(parser, "defrag")
    add("--steps", type=int, default=200_000, metavar="N", help="admissions that may be predicted")
    add("-o", "--output", choices=("text", "json"), default="text")


def run(args: argparse.Namespace) -> int:
    """Plan (and move); 0 when the pods fit, now or after the moves, 1 when not."""
    if args.pod and args.file:
        raise errors.UsageError("name a pod, or give its manifest with -f (one of the two)")
    offline = bool(args.sources or args.machine)
    if args.apply and (offline or args.bare_pods):
        raise errors.UsageError(
            "--apply is for a cluster, and for pods that a controller recreates"
        )
    if args.apply:
        return asyncio.run(_apply(args))
    named = machines.read(args)
    items = files.load_objects(args.sources) if offline else asyncio.run(live.read_cluster(args))
    situation = Situation.of(items, args, named)
    plan = situation.plan()
    if args.output == "json":
        print(json.dumps({**_document(plan), "problems": situation.problems}, indent=2))
    else:
        print("\n".join(situation.describe(plan)))
    return 0 if plan.verdict is gang.GangVerdict.FITS else 1


async def _apply(args: argparse.Namespace) -> int:
    """Evict one pod after the other; each step is planned with the cluster as it is then."""
    async with live.connect(args) as client:

        async def look() -> Situation:
            return Situation.of(await live.read_objects(client), args)

        situation = await look()
        plan = situation.plan()
        print("\n".join(situation.describe(plan)))
        left = len(plan.moves)
        while plan.moves:
            if left == 0:
                await _withdraw(client, situation)
                print(
                    "the cluster has changed meanwhile, and the pods still do not fit: run it again"
                )
                return 1
            left -= 1
            move = plan.moves[0]
            pod = situation.names[move.pod]
            for target in situation.waiting:
                await evictions.nominate(client, target, plan.places[target.kubelet_uid])
            print(f"evicting {pod.key} from {move.source}", flush=True)
            await evictions.evict(client, pod, pod.controller, timeout_s=args.timeout)
            situation = await look()
            if situation.done or not situation.members:
                break
            plan = situation.plan()
            if plan.verdict is not gang.GangVerdict.FITS:
                await _withdraw(client, situation)
                print(f"no plan is left now ({plan.verdict}): run it again later")
                return 1
    print("the pods have their places" if plan.verdict is gang.GangVerdict.FITS else "no plan")
    return 0 if plan.verdict is gang.GangVerdict.FITS else 1


async def _withdraw(client: Client, situation: Situation) -> None:
    """No more room is made: what was kept for the pods is free for others."""
    for target in situation.waiting:
        await evictions.nominate(client, target, None)


@dataclass(frozen=True)
class Situation:
    """A cluster, the pods that want a place, and those that may be moved for it.

    Attributes:
        waiting: pods of the cluster among those that want a place.
        names: kubelet UID -> pod.
        done: the pod that was named and has a node, if it has one; the pods of a file that have.
    """

    nodes: list[JointNode]
    members: Sequence[Member]
    waiting: Sequence[PodView]
    movable: Sequence[defrag.Movable]
    budgets: Sequence[defrag.Disruptions]
    names: Mapping[str, PodView]
    problems: list[str]
    args: argparse.Namespace
    done: str = ""

    @classmethod
    def of(
        cls,
        items: list[JsonObject],
        args: argparse.Namespace,
        named: Sequence[machines.Machines] = (),
    ) -> Situation:
        """Read the objects; the arguments say who wants a place and who may move.

        Of pods on machines that are ``named`` nobody knows who made them: they may move.
        """
        cluster, problems = inputs.build_cluster(items, time.monotonic())
        for each in named:
            each.add_to(cluster)
        nodes, left_out = snapshot(cluster)
        problems += [f"{name} is left out: {why}" for name, why in left_out.items()]
        cycle = Cycle(cluster)
        wanted, done = _wanted(cluster, cycle, nodes, args)
        known = {node.name for node in nodes}
        # Of objects alone is it known who made them.
        listed = {
            (item["metadata"].get("namespace") or "default", item["metadata"].get("name"))
            for item in items
            if item.get("kind") == "Pod" and isinstance(item.get("metadata"), dict)
        }
        unlisted = bool(named) and not args.selector
        moving = [
            pod
            for pod in cluster.pods.values()
            if pod.node in known
            and ((unlisted and (pod.namespace, pod.name) not in listed) or _may_move(pod, args))
        ]
        return cls(
            nodes=nodes,
            members=[member_of(cluster, cycle, pod) for pod in wanted],
            waiting=[pod for pod in wanted if pod.uid in cluster.pods],
            movable=moves.movables(cluster, cycle, moving),
            budgets=moves.disruptions(cluster, moving),
            names={pod.kubelet_uid: pod for pod in [*cluster.pods.values(), *wanted]},
            problems=problems,
            args=args,
            done=done,
        )

    def plan(self) -> defrag.DefragPlan:
        """The smallest plan that is found."""
        return defrag.plan_moves(
            self.nodes,
            self.members,
            self.movable,
            budgets=self.budgets,
            most_moves=self.args.most,
            steps=self.args.steps,
        )

    def describe(self, plan: defrag.DefragPlan) -> list[str]:
        """The plan as people read it, with the nodes that it changes before and after."""
        if not self.members:
            return [f"{self.done} has its place already" if self.done else "no pod waits"]
        who = ", ".join(self.names[each.pod.uid].key for each in self.members)
        notes = [f"note: {line}" for line in self.problems]
        if plan.verdict is gang.GangVerdict.DOES_NOT_FIT:
            stuck = {uid for each in self.budgets if not each.allowed for uid in each.pods}
            held = f" ({len(stuck)} held by disruption budgets)" if stuck else ""
            if not self.movable:
                return [f"{who}: no pod may be moved", *notes]
            tried = counted(len(self.movable), "pod")
            return [f"{who}: no place can be opened with {tried} that may be moved{held}", *notes]
        if plan.verdict is gang.GangVerdict.CUT_OFF:
            text = (
                f"no plan found within {plan.steps} steps; there may be one (--steps allows more)"
            )
            return [f"{who}: {text}", *notes]
        places = [f"{self.names[uid].key} -> {name}" for uid, name in sorted(plan.places.items())]
        if not plan.moves:
            return ["fits as it is: " + ", ".join(places), *notes]
        verb = "opens" if len(plan.moves) == 1 else "open"
        fewer = "" if plan.minimal else " (fewer may)"
        lines = [f"{counted(len(plan.moves), 'move')} {verb} a place{fewer}"]
        lines += [
            f"  {number}. {self.names[move.pod].key}: {move.source} -> {move.target}"
            for number, move in enumerate(plan.moves, start=1)
        ]
        lines += [f"  then {place}" for place in places]
        names = {uid: pod.key for uid, pod in self.names.items()}
        before, after = self._played(plan)
        for title, states in (("before", before), ("after", after)):
            for name, state in states.items():
                lines += ["", *draw(f"{title}: {name}", state, names)]
        return [*lines, *notes]

    def _played(self, plan: defrag.DefragPlan) -> tuple[dict[str, NodeState], dict[str, NodeState]]:
        """The states of the nodes that the plan changes, before and after it."""
        pods = {each.pod.uid: each.pod for each in self.movable}
        pods |= {each.pod.uid: each.pod for each in self.members}
        states = {node.name: node.state for node in self.nodes}
        before = dict(states)
        for move in plan.moves:
            states[move.source] = remove(states[move.source], move.pod)
            admitted = execute(states[move.target], pods[move.pod])
            states[move.target] = start(admitted.state, pods[move.pod])
        for uid, name in plan.places.items():
            states[name] = execute(states[name], pods[uid]).state
        changed = [name for name in states if states[name] is not before[name]]
        return {name: before[name] for name in changed}, {name: states[name] for name in changed}


def _wanted(
    cluster: Cluster, cycle: Cycle, nodes: Sequence[JointNode], args: argparse.Namespace
) -> tuple[list[PodView], str]:
    """The pods that want a place, and who of those that were named has one already."""
    if args.file:
        pods = [inputs.read_pod(cluster, item) for item in manifests.read(args.file)]
        there = {pod.key: pod for pod in cluster.pods.values()}
        pods = [there.get(pod.key, pod) for pod in pods]
        waiting = [pod for pod in pods if not pod.node]
        return waiting, "" if waiting else ", ".join(pod.key for pod in pods)
    if args.pod:
        key = args.pod if "/" in args.pod else f"{args.namespace}/{args.pod}"
        pod = next((each for each in cluster.pods.values() if each.key == key), None)
        if pod is None:
            raise errors.UsageError(f"pod {key} not found among waiting and running pods")
        return ([], pod.key) if pod.node else ([pod], "")
    waiting = [pod for pod in cluster.pods.values() if not (pod.node or pod.gated or pod.deleting)]
    waiting.sort(key=lambda pod: (-pod.priority, pod.created, pod.key))
    for pod in waiting:
        member = member_of(cluster, cycle, pod)
        if gang.place_together(nodes, [member]).verdict is gang.GangVerdict.DOES_NOT_FIT:
            return [pod], ""
    return [], ""


def _may_move(pod: PodView, args: argparse.Namespace) -> bool:
    key, _, value = (args.selector or "").partition("=")
    if key and pod.labels.get(key) != value:
        return False
    return moves.may_leave(pod) and (bool(pod.controller) or args.bare_pods)


def _document(plan: defrag.DefragPlan) -> JsonObject:
    return {
        "verdict": str(plan.verdict),
        "moves": [asdict(move) for move in plan.moves],
        "places": dict(plan.places),
        "priority": plan.priority,
        "minimal": plan.minimal,
    }
