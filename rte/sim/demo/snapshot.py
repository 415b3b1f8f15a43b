"""What the demo shows, as plain values: read from the API alone, as any client could."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from rte import nrt
from rte.model import bits

if TYPE_CHECKING:
    from collections.abc import Mapping

    from rte.model.node import NodeState
    from rte.sim.apiserver import API
    from rte.sim.demo.cluster import Cluster

_EVENTS = 200


@dataclass(frozen=True, slots=True)
class Event:
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
    phase: str
    node: str
    zones: str
    cpus: str
    devices: str
    reason: str


@dataclass(frozen=True, kw_only=True)
class NodeView:
    """One node: its NRT decoded. ``owners``: CPU -> pod UID of exclusive CPUs."""

    name: str
    shape: str
    topology: nrt.NRT | None
    owners: Mapping[int, str] = field(default_factory=dict)

    @property
    def state(self) -> NodeState | None:
        """What the kubelet holds, as published."""
        return self.topology.state if self.topology else None

    @property
    def has_pci(self) -> bool:
        """Whether it has PCI devices, which DRA serves in the demo."""
        told = self.topology.device_zones if self.topology else None
        return told is not None and bool(told.pci.roots)


@dataclass(frozen=True, kw_only=True)
class Snapshot:
    """Everything at one moment."""

    nodes: tuple[NodeView, ...]
    pods: tuple[PodLine, ...]
    events: tuple[Event, ...]
    created: int
    bound: int
    refused: int

    def count(self, phase: str) -> int:
        """Pods in a phase."""
        return sum(line.phase == phase for line in self.pods)


class Observer:
    """Collects snapshots; decodes an NRT only when it changed."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._api: API = cluster.api
        self._decoded: dict[str, tuple[str, NodeView]] = {}
        self._events: deque[Event] = deque(maxlen=_EVENTS)
        self._event_watch = self._api.watch("events")
        self._pod_watch = self._api.watch("pods")
        self._created = 0
        self._bound: set[str] = set()

    def close(self) -> None:
        """Stop following events and pods."""
        self._event_watch.stop()
        self._pod_watch.stop()

    def new_events(self) -> list[Event]:
        """Events since the last call."""
        fresh = [_event(obj) for kind, obj in self._event_watch.pending() if kind != "DELETED"]
        self._events.extend(fresh)
        return fresh

    def look(self) -> Snapshot:
        """The present moment."""
        self.new_events()
        for kind, obj in self._pod_watch.pending():
            self._created += kind == "ADDED"
            if obj["spec"].get("nodeName"):
                self._bound.add(obj["metadata"]["uid"])
        nodes = tuple(self._node(name) for name in self._cluster.nodes)
        views = {view.name: view for view in nodes}
        pods = [
            _pod(obj, views.get(obj["spec"].get("nodeName", "")))
            for obj in self._api.list("pods").items
        ]
        return Snapshot(
            nodes=nodes,
            pods=tuple(pods),
            events=tuple(self._events),
            created=self._created,
            bound=len(self._bound),
            refused=sum(len(node.kubelet.refusals) for node in self._cluster.nodes.values()),
        )

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
        view = NodeView(name=name, shape=shape, topology=decoded, owners=owners)
        self._decoded[name] = (version, view)
        return view


def _event(obj: Mapping[str, Any]) -> Event:
    target = obj.get("involvedObject") or {}
    text = " ".join(str(obj.get("message") or "").split())
    if obj.get("reason") == "Scheduled":
        text = f"to {text.rpartition(' ')[2]}"
    moment = str(obj.get("lastTimestamp") or obj.get("eventTime") or "")
    return Event(
        time=moment[11:19],
        kind=str(obj.get("type") or "Normal"),
        reason=str(obj.get("reason") or ""),
        pod=str(target.get("name") or ""),
        text=text,
    )


def _pod(obj: Mapping[str, Any], node: NodeView | None) -> PodLine:
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
    return PodLine(
        name=metadata["name"],
        phase=str(shown.get("phase") or ""),
        node=str(obj["spec"].get("nodeName") or ""),
        zones=bits.format_list(zones),
        cpus=bits.format_list(cpus),
        devices=", ".join(one.device for each in claimed.values() for one in each),
        reason=str(shown.get("reason") or why),
    )
