"""What the demo shows, as plain values: read from the API alone, as any client could."""

from __future__ import annotations

import time
from collections import Counter, deque
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from rte import nrt
from rte.model import bits
from rte.nrt import group_inventory
from rte.placement.groups import allocation
from rte.placement.groups.allocation import parse_record
from rte.sim.controllers.controller import has_ended
from rte.sim.demo.cluster import NAMESPACE

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from rte.model.node import NodeState
    from rte.placement.groups.allocation import Record
    from rte.sim.apiserver import API
    from rte.sim.demo.cluster import DemoCluster

_EVENTS = 200


@dataclass(frozen=True, slots=True)
class DemoEvent:
    """One line for the user."""

    time: str
    kind: str
    reason: str
    pod: str
    text: str


@dataclass(frozen=True, slots=True)
class PodLine:
    """One pod: what it is called, where it runs, what it holds (``devices``: of DRA)."""

    name: str
    uid: str
    phase: str
    node: str
    zones: str
    cpus: str
    devices: str
    reason: str


@dataclass(frozen=True, kw_only=True)
class NodeView:
    """One node: its NRT decoded, and the ``notes`` (annotations) of that.

    ``owners``: CPU -> pod UID of exclusive CPUs.
    """

    name: str
    shape: str
    topology: nrt.NRT | None
    owners: Mapping[int, str] = field(default_factory=dict)
    notes: Mapping[str, str] = field(default_factory=dict)

    @property
    def state(self) -> NodeState | None:
        """What the kubelet holds, as published."""
        return self.topology.state if self.topology else None

    def cpus_of(self, zone: int | None) -> str:
        """Free CPUs of a zone, of those for pods: no container and no processing group has them."""
        if self.state is None or zone is None:
            return "-"
        mine = self.state.topology.zone_cpus.get(zone, 0) & ~self.state.reserved
        # A kubelet that assigns no CPUs has no shared pool of its own.
        shared = self.state.shared or self.state.topology.all_cpus
        free = mine & shared & ~bits.of(self.owners)
        return f"{free.bit_count()}/{mine.bit_count()}" if mine else "-"

    @property
    def has_groups(self) -> bool:
        """Whether it is for processing groups."""
        return group_inventory.ANNOTATION in self.notes

    @property
    def has_pci(self) -> bool:
        """Whether it has PCI devices, which DRA serves in the demo."""
        told = self.topology.device_zones if self.topology else None
        return told is not None and bool(told.pci.roots)


@dataclass(frozen=True, kw_only=True)
class Beside:
    """What became of the same pods under plain rules.

    Attributes:
        undecided: pods that are not yet admitted or refused, nor known to wait.
        refusals: name of a pod -> node whose kubelet refused it, and the reason.
    """

    created: int
    bound: int
    running: int
    waiting: int
    undecided: int
    refusals: Mapping[str, tuple[str, str]]

    @property
    def refused(self) -> int:
        """Pods that a kubelet refused."""
        return len(self.refusals)

    @property
    def counts(self) -> str:
        """What has become of them, with the reasons of refusals."""
        reasons = Counter(reason for _, reason in self.refusals.values())
        told = ", ".join(f"{count} {reason}" for reason, count in sorted(reasons.items()))
        return (
            f"{self.running} running, {self.waiting} waiting, {self.refused} refused by a kubelet"
            + (f" ({told})" if told else "")
        )


@dataclass(frozen=True, kw_only=True)
class DemoSnapshot:
    """Everything at one moment."""

    nodes: tuple[NodeView, ...]
    pods: tuple[PodLine, ...]
    events: tuple[DemoEvent, ...]
    created: int
    bound: int
    refused: int
    beside: Beside | None = None

    @property
    def waiting(self) -> int:
        """Pods without a node."""
        return sum(line.phase == "Pending" and not line.node for line in self.pods)

    def count(self, phase: str) -> int:
        """Pods in a phase."""
        return sum(line.phase == phase for line in self.pods)


class SnapshotCollector:
    """Collects snapshots; decodes an NRT only when it changed."""

    def __init__(self, cluster: DemoCluster, beside: DemoCluster | None = None) -> None:
        self._cluster = cluster
        self._beside = _Counter(beside) if beside else None
        self._api: API = cluster.api
        self._decoded: dict[str, tuple[str, NodeView]] = {}
        self._events: deque[DemoEvent] = deque(maxlen=_EVENTS)
        self._event_watch = self._api.watch("events")
        self._told_beside = 0
        self._pods = _Counter(cluster)

    def close(self) -> None:
        """Stop following events and pods."""
        self._event_watch.stop()
        for counter in (self._pods, self._beside):
            if counter is not None:
                counter.close()

    def new_events(self) -> list[DemoEvent]:
        """Events since the last call; of a cluster beside, the refusals."""
        fresh = [_event(obj) for kind, obj in self._event_watch.pending() if kind != "DELETED"]
        if self._beside:
            told = list(self._beside.refusals().items())
            now = time.strftime("%H:%M:%S", time.gmtime())
            fresh += [
                DemoEvent(now, "Warning", "Refused", pod, f"under plain rules, by {node}: {reason}")
                for pod, (node, reason) in told[self._told_beside :]
            ]
            self._told_beside = len(told)
        self._events.extend(fresh)
        return fresh

    def look(self) -> DemoSnapshot:
        """The present moment."""
        self.new_events()
        self._pods.count()
        pods = self._api.list("pods").items
        given = _given(pods)
        nodes = tuple(
            replace(node, owners={**node.owners, **_owners(given, node.name)})
            for node in map(self._node, self._cluster.nodes)
        )
        views = {view.name: view for view in nodes}
        lines = [
            _pod(obj, views.get(obj["spec"].get("nodeName", "")), given.get(obj["metadata"]["uid"]))
            for obj in pods
        ]
        return DemoSnapshot(
            nodes=nodes,
            pods=tuple(lines),
            events=tuple(self._events),
            created=self._pods.created,
            bound=len(self._pods.bound),
            refused=len(self._pods.refusals()),
            beside=self.beside(),
        )

    def beside(self) -> Beside | None:
        """The cluster with plain rules, if there is one."""
        return self._beside.beside() if self._beside else None

    def _node(self, name: str) -> NodeView:
        shape = self._cluster.nodes[name].shape
        stored = self._api.store.get("noderesourcetopologies.topology.node.k8s.io", ("", name))
        if stored is None:
            return NodeView(name=name, shape=shape, topology=None)
        version = stored["metadata"]["resourceVersion"]
        known = self._decoded.get(name)
        if known is not None and known[0] == version:
            return known[1]
        decoded = nrt.decode(stored)
        owners = {}
        if decoded.state is not None:
            for uid, containers in decoded.state.holdings.items():
                for holding in containers.values():
                    owners.update(dict.fromkeys(bits.members(holding.cpus), uid))
        view = NodeView(
            name=name,
            shape=shape,
            topology=decoded,
            owners=owners,
            notes=stored["metadata"].get("annotations") or {},
        )
        self._decoded[name] = (version, view)
        return view


class _Counter:
    """How many pods a cluster has seen, placed and refused."""

    def __init__(self, cluster: DemoCluster) -> None:
        self._cluster = cluster
        self._watch = cluster.api.watch("pods")
        self.created = 0
        self.bound: set[str] = set()
        self._refusals: dict[str, tuple[str, str]] = {}

    def close(self) -> None:
        """Stop counting."""
        self._watch.stop()

    def count(self) -> None:
        """Take note of what has happened since the last call."""
        for kind, obj in self._watch.pending():
            self.created += kind == "ADDED"
            if obj["spec"].get("nodeName"):
                self.bound.add(obj["metadata"]["uid"])

    def refusals(self) -> dict[str, tuple[str, str]]:
        """Name of a pod -> node and reason, of all kubelets' refusals; the latest last."""
        for node in self._cluster.nodes.values():
            for pod, reason in node.kubelet.refusals:
                self._refusals.setdefault(pod, (node.name, reason))
        return self._refusals

    def beside(self) -> Beside:
        """The present moment of a cluster with plain rules."""
        self.count()
        pods = self._cluster.api.list("pods").items
        waiting = self._cluster.by_totals.waiting
        pending = [pod for pod in pods if pod["status"].get("phase") == "Pending"]
        return Beside(
            created=self.created,
            bound=len(self.bound),
            running=sum(pod["status"].get("phase") == "Running" for pod in pods),
            waiting=sum(not pod["spec"].get("nodeName") for pod in pending),
            undecided=sum(pod["metadata"]["uid"] not in waiting for pod in pending),
            refusals=dict(self.refusals()),
        )


def _given(pods: Sequence[Mapping[str, Any]]) -> dict[str, Record]:
    """UID -> what its processing groups were given, of pods that run or are about to."""
    out = {}
    for obj in pods:
        metadata, node = obj["metadata"], obj["spec"].get("nodeName", "")
        text = (metadata.get("annotations") or {}).get(allocation.ANNOTATION)
        if not text or has_ended(dict(obj)):
            continue
        told = parse_record(text)
        if told.holds_for(metadata["uid"], node):
            out[metadata["uid"]] = told
    return out


def _owners(given: Mapping[str, Record], node: str) -> dict[int, str]:
    return {cpu: uid for uid, told in given.items() if told.node == node for cpu in _cpus_of(told)}


def _cpus_of(told: Record) -> list[int]:
    groups = [cpu for group in told.allocation.groups for cpu in group.cpus.all()]
    return [*groups, *told.allocation.misc.cpus]


def _event(obj: Mapping[str, Any]) -> DemoEvent:
    target = obj.get("involvedObject") or {}
    text = " ".join(str(obj.get("message") or "").split())
    if obj.get("reason") == "Scheduled":
        text = f"to {text.rpartition(' ')[2]}"
    moment = str(obj.get("lastTimestamp") or obj.get("eventTime") or "")
    return DemoEvent(
        time=moment[11:19],
        kind=str(obj.get("type") or "Normal"),
        reason=str(obj.get("reason") or ""),
        pod=str(target.get("name") or ""),
        text=text,
    )


def _pod(obj: Mapping[str, Any], node: NodeView | None, given: Record | None) -> PodLine:
    metadata, shown = obj["metadata"], obj["status"]
    state = node.state if node else None
    told = node.topology.device_zones if node and node.topology else None
    claimed = told.claimed.get(metadata["uid"], {}) if told else {}
    cpus = zones = 0
    held = state.holdings.get(metadata["uid"], {}) if state else {}
    for holding in held.values():
        cpus |= holding.cpus
        for block in holding.memory:
            zones |= block.zones
    if given is not None:
        cpus |= bits.of(_cpus_of(given))
    if state is not None:
        for zone, mine in state.topology.zone_cpus.items():
            zones |= (1 << zone) * bool(mine & cpus)
    why = next(
        (
            str(item.get("message") or item.get("reason") or "")
            for item in shown.get("conditions") or ()
            if item["type"] == "PodScheduled" and item["status"] == "False"
        ),
        "",
    )
    name, namespace = metadata["name"], metadata["namespace"]
    return PodLine(
        name=name if namespace == NAMESPACE else f"{namespace}/{name}",
        uid=metadata["uid"],
        phase=str(shown.get("phase") or ""),
        node=str(obj["spec"].get("nodeName") or ""),
        zones=bits.format_list(zones),
        cpus=bits.format_list(cpus),
        devices=", ".join(one.device for each in claimed.values() for one in each),
        reason=str(shown.get("reason") or why),
    )
