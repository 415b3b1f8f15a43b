"""``rte balloon``: pods that make an autoscaler add the machines that waiting pods need.

Autoscalers know node totals and no zones: a pod that fits some node's totals is never scaled for,
though no zone takes it. A balloon is a pod of lower priority that runs on no node where pods are,
so autoscalers add a machine for it; the pod that waits takes the balloon's place there.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import time
from collections import Counter
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from rte.cli import inputs, live
from rte.cli.fit import STEPS, add_sources, build_sources, is_applied, read_items
from rte.kube.resources import PODS
from rte.model import quantity
from rte.model.totals import totals_of
from rte.model.words import counted
from rte.placement.joint import gang
from rte.reader.json import as_object
from rte.scheduler.loop.cycle import Cycle
from rte.scheduler.loop.gangs.ground import member_of, node_of, problem_of, snapshot

if TYPE_CHECKING:
    import argparse
    from collections.abc import Collection, Iterable, Mapping, Sequence

    from rte.placement.joint.node import JointNode, Member
    from rte.reader.json import Json, JsonObject
    from rte.scheduler.cache.cluster import Cluster
    from rte.scheduler.framework.objects import PodView

#: Label of all balloons; annotation: the UIDs of the pods that one stands for.
LABEL, STANDS_FOR = "topology.rte.dev/balloon", "topology.rte.dev/balloon-for"
PRIORITY_CLASS = "rte-balloon"
#: Kubernetes' label of the kind of a machine, which autoscalers know of machines to come.
MACHINE_KIND = "node.kubernetes.io/instance-type"
#: The DaemonSet controller's label of all its pods, which are on empty machines too.
_DAEMON = "pod-template-generation"
#: Balloons of one look, and how many waiting pods are looked at.
MOST, MOST_WAITING = 50, 500
#: Fields of a pod that say to which machines it may go.
_BINDING = ("nodeSelector", "tolerations", "runtimeClassName")


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    add = parser.add_argument
    add(
        "--apply",
        action="store_true",
        help="create these balloons, and delete those whose pods wait no more",
    )
    add(
        "--balloon-namespace",
        default="rte-system",
        metavar="NS",
        help="namespace of the balloons (default %(default)s)",
    )
    add(
        "--image",
        default="registry.k8s.io/pause:3.10",
        metavar="I",
        help="what a balloon runs (default %(default)s)",
    )
    add_sources(parser, "balloon")
    add("-o", "--output", choices=("text", "json"), default="text")


def run(args: argparse.Namespace) -> int:
    """Plan (and create); 0 when every pod that waits for a zone would get one, 1 when not."""
    if is_applied(args):
        return asyncio.run(_apply(args))
    items = read_items(args)
    plan = BalloonPlan.of(build_sources(args, items)[0], items)
    if args.output == "json":
        pods = [each.manifest(args.balloon_namespace, args.image) for each in plan.balloons]
        print(json.dumps({"apiVersion": "v1", "kind": "List", "items": pods}, indent=2))
    else:
        print(plan.text())
    return 1 if plan.hopeless else 0


@dataclass(frozen=True, kw_only=True)
class Balloon:
    """One machine more, and the pods that have their places there together.

    Attributes:
        pods: in the order of their importance.
        like: the node that is such a machine.
        kinds: values of :data:`MACHINE_KIND` of machines that will do; none: the label is not set.
        asks: resource -> amount (millicores, bytes, units), what all the pods count for.
        spec: fields that say to which machines the pods may go.
    """

    pods: Sequence[PodView]
    like: str
    kinds: Sequence[str]
    asks: Mapping[str, int]
    spec: Json

    @property
    def name(self) -> str:
        """The same for the same pods: one that is there is not made twice."""
        uids = " ".join(sorted(pod.uid for pod in self.pods))
        return f"rte-balloon-{hashlib.sha256(uids.encode()).hexdigest()[:12]}"

    def manifest(self, namespace: str, image: str) -> JsonObject:
        """The pod: Burstable, so it holds no CPUs of its own where it runs."""
        requests = {
            name: f"{amount}m" if name == "cpu" else str(amount)
            for name, amount in sorted(self.asks.items())
        }
        # Extended resources and huge pages must be limited to what is asked for.
        limits = {name: asked for name, asked in requests.items() if name not in ("cpu", "memory")}
        affinity: JsonObject = {"podAntiAffinity": _alone()}
        terms = _terms(self.spec)
        if self.kinds:
            among = {"key": MACHINE_KIND, "operator": "In", "values": list(self.kinds)}
            terms = [
                {**term, "matchExpressions": [*(term.get("matchExpressions") or ()), among]}
                for term in terms or [{}]
            ]
        if terms:
            required = {"nodeSelectorTerms": terms}
            affinity["nodeAffinity"] = {"requiredDuringSchedulingIgnoredDuringExecution": required}
        return {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {
                "name": self.name,
                "namespace": namespace,
                "labels": {LABEL: "true"},
                "annotations": {STANDS_FOR: ",".join(pod.uid for pod in self.pods)},
            },
            "spec": {
                **{key: self.spec[key] for key in _BINDING if key in self.spec},
                "affinity": affinity,
                "automountServiceAccountToken": False,
                "containers": [
                    {
                        "name": "balloon",
                        "image": image,
                        "resources": {"requests": requests, "limits": limits},
                        "securityContext": {
                            "allowPrivilegeEscalation": False,
                            "capabilities": {"drop": ["ALL"]},
                        },
                    }
                ],
                "priorityClassName": PRIORITY_CLASS,
                "securityContext": {
                    "runAsNonRoot": True,
                    "runAsUser": 65532,
                    "seccompProfile": {"type": "RuntimeDefault"},
                },
                "terminationGracePeriodSeconds": 0,
            },
        }


@dataclass(frozen=True, kw_only=True)
class BalloonPlan:
    """The machines that waiting pods need, and that no autoscaler adds for them.

    Attributes:
        balloons: one for each machine.
        seen: pods for which node totals are short: autoscalers see them by themselves.
        hopeless: pods that not even an empty machine of a kind that is here takes.
    """

    balloons: Sequence[Balloon] = ()
    seen: Sequence[PodView] = ()
    hopeless: Sequence[PodView] = ()

    @classmethod
    def of(
        cls,
        cluster: Cluster,
        items: Iterable[JsonObject],
        covered: Collection[str] = (),
    ) -> BalloonPlan:
        """The plan for all pods that wait, the most important of them first.

        Args:
            cluster: built of ``items``.
            items: objects as the API has them.
            covered: UIDs of pods that have a balloon; what fits beside them needs no other one.
        """
        objects = {
            str(item["metadata"].get("uid")): item for item in items if item.get("kind") == "Pod"
        }
        cycle = Cycle(cluster)
        waiting = [
            pod
            for pod in cluster.pods.values()
            if not (pod.node or pod.gated or pod.deleting or pod.terminal or pod.nominated)
            and LABEL not in pod.labels
            and not problem_of(cycle, pod)
        ]
        waiting.sort(key=lambda pod: (pod.uid not in covered, -pod.priority, pod.created, pod.key))
        waiting = waiting[:MOST_WAITING]
        members = [member_of(cluster, cycle, pod) for pod in waiting]
        room = _Room(snapshot(cluster)[0])
        places = gang.place_together(
            room.nodes, members, min_count=0, maximize=True, steps=STEPS
        ).places
        for member in members:
            if member.pod.uid in places:
                room.take(places[member.pod.uid], member)
        machines = _machines(cluster, objects)
        seen, hopeless, growing = [], [], list[_Growing]()
        for pod, member in zip(waiting, members, strict=True):
            if member.pod.uid in places:
                continue
            by_totals = room.by_totals(member)
            if not by_totals:
                seen.append(pod)
                continue
            room.take(by_totals, member)
            spec = as_object(as_object(objects.get(pod.uid)).get("spec"))
            if not any(each.takes(pod, member, spec) for each in growing):
                started = _Growing.start(machines, pod, member, spec)
                if started is None:
                    hopeless.append(pod)
                elif len(growing) < MOST:
                    growing.append(started)
        missing = [each for each in growing if not any(pod.uid in covered for pod in each.pods)]
        return cls(balloons=[each.balloon() for each in missing], seen=seen, hopeless=hopeless)

    def text(self) -> str:
        """The plan as people read it."""
        lines = []
        for number, each in enumerate(self.balloons, start=1):
            pods = ", ".join(pod.key for pod in each.pods)
            lines.append(f"{number}. a machine like {each.like} for {pods}")
        if self.balloons:
            more = counted(len(self.balloons), "machine")
            lines.insert(0, f"{more} more, which autoscalers do not see to be needed:")
        else:
            lines.append("no pod waits for a zone that an autoscaler's machine would bring")
        lines += [f"node totals are short for {pod.key}: autoscalers see that" for pod in self.seen]
        lines += [
            f"no machine like those that are here takes {pod.key}, not even an empty one"
            for pod in self.hopeless
        ]
        return "\n".join(lines)


class _Room:
    """Node totals as autoscalers fill them in their mind."""

    def __init__(self, nodes: Sequence[JointNode]) -> None:
        self.nodes = nodes
        self._left = {node.name: Counter(node.room) for node in nodes}

    def take(self, name: str, member: Member) -> None:
        """The pod is counted there."""
        self._left[name].subtract(totals_of(member.pod))

    def by_totals(self, member: Member) -> str:
        """A node that its totals alone would allow; empty: none does."""
        wanted = totals_of(member.pod)
        for name, left in self._left.items():
            allowed = member.nodes is None or name in member.nodes
            if allowed and all(left[key] >= amount for key, amount in wanted.items()):
                return name
        return ""


@dataclass
class _Growing:
    """A machine to which pods are added as long as they fit."""

    machine: JointNode
    kinds: Sequence[str]
    spec: Json
    pods: list[PodView] = field(default_factory=list)
    members: list[Member] = field(default_factory=list)

    @classmethod
    def start(
        cls, machines: Sequence[JointNode], pod: PodView, member: Member, spec: Json
    ) -> _Growing | None:
        """The smallest machine that takes the pod when nobody else is there; None: none does."""
        able = [
            each
            for each in machines
            if (member.nodes is None or each.name in member.nodes) and _fits(each, [member])
        ]
        if not able:
            return None
        chosen = able[0]
        own = chosen.labels.get(MACHINE_KIND)
        return cls(chosen, [own] if own else [], spec, [pod], [member])

    def takes(self, pod: PodView, member: Member, spec: Json) -> bool:
        """Add a pod that may go to the same machines, if it fits beside the others."""
        if _bound_to(spec) != _bound_to(self.spec) or not _fits(
            self.machine, [*self.members, member]
        ):
            return False
        self.pods.append(pod)
        self.members.append(member)
        return True

    def balloon(self) -> Balloon:
        asks: dict[str, int] = {}
        for member in self.members:
            quantity.add(asks, totals_of(member.pod))
        del asks["pods"]
        return Balloon(
            pods=self.pods, like=self.machine.name, kinds=self.kinds, asks=asks, spec=self.spec
        )


def _fits(machine: JointNode, members: Sequence[Member]) -> bool:
    asked = [replace(member, nodes=None) for member in members]
    answer = gang.place_together([machine], asked, steps=STEPS // 10, explains=False)
    return answer.verdict is gang.GangVerdict.FITS


def _machines(cluster: Cluster, objects: Mapping[str, JsonObject]) -> list[JointNode]:
    """Each node as it was when it came, with pods of DaemonSets alone; the smallest first, and of
    those that are alike in totals, kubelet and kind one.
    """
    found: dict[object, JointNode] = {}
    for _, entry in sorted(cluster.nodes.items()):
        going = frozenset(uid for uid in entry.pods if not _is_daemon(objects.get(uid)))
        node = node_of(entry.without(going))
        if node is not None:
            amounts = tuple(sorted(node.allocatable.items()))
            machine = repr((node.state.config, node.state.topology))
            found.setdefault((amounts, machine, _pool(node)), node)
    return sorted(found.values(), key=lambda node: (node.allocatable.get("cpu", 0), node.name))


def _pool(node: JointNode) -> tuple[tuple[str, str], ...]:
    """Labels by which pods tell pools of machines apart: all but the node's own name."""
    return tuple(sorted(i for i in node.labels.items() if i[0] != "kubernetes.io/hostname"))


def _is_daemon(item: Json | None) -> bool:
    owners = as_object(as_object(item).get("metadata")).get("ownerReferences") or ()
    return any(owner.get("kind") in ("DaemonSet", "Node") for owner in owners)


def _alone() -> JsonObject:
    others = {"matchExpressions": [{"key": _DAEMON, "operator": "DoesNotExist"}]}
    term = {
        "labelSelector": others,
        "namespaceSelector": {},
        "topologyKey": "kubernetes.io/hostname",
    }
    return {"requiredDuringSchedulingIgnoredDuringExecution": [term]}


def _terms(spec: Json) -> list[JsonObject]:
    node = as_object(as_object(spec.get("affinity")).get("nodeAffinity"))
    required = as_object(node.get("requiredDuringSchedulingIgnoredDuringExecution"))
    return list(required.get("nodeSelectorTerms") or ())


def _bound_to(spec: Json) -> str:
    said = {key: spec.get(key) for key in _BINDING}
    return json.dumps([said, _terms(spec)], sort_keys=True)


async def _apply(args: argparse.Namespace) -> int:
    """Create the balloons that are not there; delete those whose pods have a node or are gone."""
    async with live.connect(args) as client:
        items = await live.read_objects(client)
        cluster, _ = inputs.build_cluster(items, time.monotonic())
        waiting = {pod.uid for pod in cluster.pods.values() if not (pod.node or pod.terminal)}
        there: set[str] = set()
        for item in items:
            metadata = item["metadata"]
            if item["kind"] != "Pod" or LABEL not in (metadata.get("labels") or {}):
                continue
            if metadata.get("namespace") != args.balloon_namespace:
                continue
            told = str((metadata.get("annotations") or {}).get(STANDS_FOR) or "")
            uids = {uid for uid in told.split(",") if uid}
            if uids & waiting:
                there |= uids
                continue
            print(f"deleting {metadata['name']}: its pods wait no more", flush=True)
            await client.delete(PODS.path(metadata["name"], args.balloon_namespace))
        plan = BalloonPlan.of(cluster, items, there)
        print(plan.text(), flush=True)
        for balloon in plan.balloons:
            manifest = balloon.manifest(args.balloon_namespace, args.image)
            print(f"creating {balloon.name}", flush=True)
            await client.create(PODS.path(namespace=args.balloon_namespace), manifest)
        return 1 if plan.hopeless else 0
