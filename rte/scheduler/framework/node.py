"""One node as the scheduler sees it: its Node, its report, its pods, and what follows from them."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass, replace
from enum import Enum, auto
from typing import TYPE_CHECKING, Any, NamedTuple

from rte import errors, nrt, placement
from rte.nrt import group_inventory
from rte.placement.kubelet.demand import free_of
from rte.scheduler.framework import outlook as state
from rte.scheduler.framework.outlook import UNBOUNDED, ZoneBound

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping

    from rte.model.machine import PCIZones
    from rte.model.node import NodeState
    from rte.placement.fleet import scores
    from rte.placement.foreign import zones
    from rte.placement.kubelet.demand import Free
    from rte.scheduler.framework.objects import NodeInfo, PodView
    from rte.scheduler.framework.shape import Shape
    from rte.scheduler.framework.status import Status

#: Seconds for which a pod that has ended is remembered although no report names it: a late
#: report might still.
TOMBSTONE_S = 300.0


class Tombstone(NamedTuple):
    """When a pod had ended: monotonic seconds, and version of the API (0: unknown)."""

    since: float
    version: int


@dataclass(frozen=True, kw_only=True)
class Report:
    """A NodeResourceTopology, decoded once for each of its versions.

    Exactly one of ``state`` (ours) and ``table`` (another exporter's) is set, neither when the
    object is ``broken`` (then that says how). ``owner`` is the UID of the owning Node, if named;
    ``pci`` says where its PCI functions are, if told; ``inventory`` is the hardware for processing
    groups, where the agent publishes it (its text in ``inventory_text``). ``problem`` is what of it
    is left out because it is malformed, while the state stands.
    """

    state: NodeState | None = None
    table: zones.ZoneTable | None = None
    broken: str = ""
    owner: str = ""
    inventory: group_inventory.PublishedInventory | None = None
    inventory_text: str = ""
    pci: PCIZones | None = None
    problem: str = ""


def _inventory(text: str) -> tuple[group_inventory.PublishedInventory | None, str]:
    """The hardware for processing groups; one that cannot be read is none, for the zones stand."""
    try:
        return group_inventory.decode(text) if text else None, ""
    except errors.ParseError as error:
        return None, str(error)


def read_report(obj: Mapping[str, Any], before: Report | None = None) -> Report:
    """Decode an NRT of any exporter; a malformed one is a report that says so.

    ``before``: the node's report till then; an inventory that has not changed is not read again.
    """
    try:
        owners = obj["metadata"].get("ownerReferences") or ()
        owner = next((str(o.get("uid") or "") for o in owners if o.get("kind") == "Node"), "")
        ours = nrt.decode_state(obj)
        if ours is not None:
            state, devices, problems = ours
            text = (obj["metadata"].get("annotations") or {}).get(group_inventory.ANNOTATION) or ""
            inventory, problem = before.inventory if before else None, ""
            if inventory is None or before is None or before.inventory_text != text:
                inventory, problem = _inventory(text)
            return Report(
                state=state,
                owner=owner,
                pci=devices.pci if devices else None,
                inventory=inventory,
                inventory_text=text,
                problem="; ".join((*problems, *filter(None, (problem,))))[:300],
            )
        decoded = nrt.decode(obj)
        if nrt.NODE_STATE_ANNOTATION in (obj["metadata"].get("annotations") or {}):
            return Report(broken="; ".join(decoded.problems)[:300] or "no state", owner=owner)
        return Report(table=nrt.zone_table(decoded), owner=owner)
    except (errors.RteError, AttributeError, KeyError, TypeError, ValueError) as error:
        return Report(broken=" ".join(str(error).split())[:300] or type(error).__name__)


class PromiseKind(Enum):
    """What makes the room that is promised."""

    EVICTION = auto()  #: the end of pods that are evicted, moved or deleted
    RESERVATION = auto()  #: the node drains by itself
    EXTERNAL = auto()  #: somebody else (``rte defrag --apply``; KEP-5278)


@dataclass(kw_only=True, eq=False)
class Promise:
    """Room that nodes keep for pods that wait: for one pod, or for a gang.

    Attributes:
        places: API UID of each -> its node.
        until: the moment after which it is given up.
        kind: what makes the room.
        victims: UIDs of the pods whose end is waited for.
        missing: CPUs that a reserved node still lacked when it last came nearer.
    """

    places: Mapping[str, str]
    until: float = math.inf
    kind: PromiseKind = PromiseKind.EVICTION
    victims: frozenset[str] = frozenset()
    missing: int = 0

    @property
    def reserved(self) -> bool:
        """Whether the nodes drain by themselves."""
        return self.kind is PromiseKind.RESERVATION

    @property
    def external(self) -> bool:
        """Whether somebody else makes the room."""
        return self.kind is PromiseKind.EXTERNAL


@dataclass(frozen=True, kw_only=True, slots=True)
class Evidence:
    """What the refusals of a kubelet whose zones are not known have told.

    Attributes:
        demand: what was refused, the least of it (see :func:`demand_of`).
        count: refusals so far.
        fresh: nothing as demanding is tried; later it is, as a last resort.
    """

    demand: tuple[int, int, int]
    count: int = 1
    fresh: bool = True

    def speaks_of(self, shape: Shape) -> bool:
        """Whether a pod of this shape asks for as much as what was refused."""
        return all(a >= b for a, b in zip(demand_of(shape), self.demand, strict=True))


def demand_of(shape: Shape) -> tuple[int, int, int]:
    """What zones must hold for a pod: CPUs and bytes of its largest containers, devices."""
    memory = (box.requests.get("memory", 0) for box in shape.pod.containers)
    devices = sum(amount for name, amount in shape.totals.items() if "/" in name)
    return max(shape.exclusive_cpus, default=0), max(memory, default=0), devices


class NodeEntry:
    """The record of one node. Whoever changes a field calls :meth:`touch`.

    Attributes:
        name: of the node.
        row: its row in the table of columns.
        info: the Node, None while there is none (then nothing is placed here).
        served: resources that DRA serves where device plugins have none of them.
        report: the NRT, None while there is none (plain Kubernetes rules).
        alive: whether the agent's Lease is being renewed, None where there is none.
        koordinator_devices: Koordinator's Device object, None where there is none.
        pods: API UID -> pod that is bound (or assumed to be) and not terminal, in that order.
        used: node totals of these pods.
        scored: milli-CPU and bytes of these pods that scores count.
        gone: kubelet UID -> when the API showed it terminal or gone.
        endings: number of pods that have ended here.
        bound_at: API UID -> ``endings`` when its binding was learnt.
        unseen: UIDs of pods that another exporter's NRT may not count yet.
        awaited: kubelet UID -> when we decided for this node; no report shows the pod yet.
        nominated: API UID -> a pod that waits for room here, and what is promised to it.
        held_off: why nothing that needs a zone goes here for the time being; empty: it may.
        evidence: what refusals have told while nothing was known of the zones.
        changed: sequence number of the last change.
        remembered: shape -> answer of the rules that depend on this node alone.
        derived: what plugins have made of the node, by their names.
        verdicts: of its managers, by what a kubelet sees of a pod.
        rooms: likewise (empty: as it is), how many of which pods it takes then, how full it is.
    """

    def __init__(self, name: str, row: int) -> None:
        self.name = name
        self.row = row
        self.info: NodeInfo | None = None
        self.served: Collection[str] = ()
        self.report: Report | None = None
        self.alive: bool | None = None
        self.koordinator_devices: Mapping[str, Any] | None = None
        self.pods: dict[str, PodView] = {}
        self.used: Counter[str] = Counter()
        self.scored: Counter[str] = Counter()
        self.gone: dict[str, Tombstone] = {}
        self.endings = 0
        self.bound_at: dict[str, int] = {}
        self._deleting: set[str] = set()
        self.unseen: set[str] = set()
        self.awaited: dict[str, float] = {}
        self.nominated: dict[str, tuple[PodView, Promise]] = {}
        self.held_off = ""
        self.evidence: Evidence | None = None
        self.changed = 0
        self._outlook: state.Outlook | None = None
        self._outlook_before: state.Outlook | None = None
        self._free: Free | None = None
        self._zones: tuple[tuple[int, int, int], ...] | None = None
        self._bound: ZoneBound | None = None
        self.remembered: dict[bytes, Status] = {}
        #: Shape -> answer of the rules that read the Node object alone.
        self.standing: dict[bytes, Status] = {}
        self.derived: dict[str, Any] = {}
        self.verdicts: dict[bytes, state.AdmissionOutlook] = {}
        self.rooms: dict[bytes, tuple[scores.Rooms, scores.Counted, int]] = {}

    def touch(self, sequence: int) -> None:
        """Forget what was derived."""
        self.changed = sequence
        self._outlook = self._free = self._zones = self._bound = None
        self.forget_answers()

    def forget_answers(self) -> None:
        """Forget what was answered; it can be found out again."""
        self.remembered.clear()
        self.verdicts.clear()
        self.rooms.clear()
        self.derived.clear()

    def add(self, pod: PodView) -> None:
        """A pod is bound here, or its view has changed."""
        old = self.pods.get(pod.uid)
        if old is None or old.shape is not pod.shape:
            if old is not None:
                self.used.subtract(old.shape.totals)
                self.scored.subtract(old.shape.scored)
            self.used.update(pod.shape.totals)
            self.scored.update(pod.shape.scored)
        if old is None:
            self.unseen.add(pod.uid)
            self.bound_at[pod.uid] = self.endings
        self.pods[pod.uid] = pod
        if pod.deleting:
            self._deleting.add(pod.uid)

    def drop(self, uid: str) -> PodView | None:
        """A pod is no longer here."""
        pod = self.pods.pop(uid, None)
        if pod is not None:
            self.used.subtract(pod.shape.totals)
            self.scored.subtract(pod.shape.scored)
            self.unseen.discard(uid)
            self._deleting.discard(uid)
            self.awaited.pop(pod.kubelet_uid, None)
            self.bound_at.pop(uid, None)
        return pod

    def bury(self, pod: PodView, now: float, version: int = 0) -> None:
        """The API shows the pod terminal or gone, so the kubelet has let go of it.

        The mirror of a static pod may go while the pod runs on: that says nothing.
        """
        self.endings += 1
        if not pod.mirror:
            self.gone.pop(pod.kubelet_uid, None)
            self.gone[pod.kubelet_uid] = Tombstone(now, version)
            self.forget_buried(now)

    def forget_buried(self, now: float) -> None:
        """Drop tombstones that no report names and that no late one will.

        They are in the order of time, so this costs what it drops.
        """
        if not self.gone or now - next(iter(self.gone.values())).since < TOMBSTONE_S:
            return
        reported = self.report.state if self.report else None
        named = reported.admitted | reported.holdings.keys() if reported else frozenset()
        self.gone = {
            uid: stone
            for uid, stone in self.gone.items()
            if uid in named or now - stone.since < TOMBSTONE_S
        }

    def allocatable(self) -> Mapping[str, int]:
        """What its totals are; what DRA serves there is bounded by its devices alone."""
        if self.info is None:
            return {}
        given = self.info.allocatable
        if not self.served:
            return given
        return {**given, **{name: UNBOUNDED for name in self.served if not given.get(name)}}

    def distrust(self) -> str:
        """Why the report cannot be built on, empty when it can (or none is to be expected)."""
        report = self.report
        if report is None:
            return "node(s) whose rte agent has published nothing" if self.alive else ""
        if report.broken:
            return "node(s) with a malformed NodeResourceTopology"
        if report.owner and self.info and self.info.uid and report.owner != self.info.uid:
            return "node(s) whose NodeResourceTopology belongs to an earlier node of that name"
        if report.state is not None and self.alive is False:
            return "node(s) whose rte agent is not alive"
        if report.state is not None and not report.state.synced:
            return "node(s) whose kubelet is re-admitting its pods"
        return ""

    def knowledge(self) -> str:
        """How the zones are known: ``exact``, ``zones``, ``none`` or ``distrusted``."""
        if self.distrust():
            return "distrusted"
        if self.report is None:
            return "none"
        return "exact" if self.report.state is not None else "zones"

    def outlook(self) -> state.Outlook | None:
        """What we know of the managers; None without a report of ours."""
        reported = self.report.state if self.report else None
        if reported is None:
            return None
        if self._outlook is None:
            unconfirmed = [p for p in self.pods.values() if p.kubelet_uid not in reported.admitted]
            ended_since = {
                p.kubelet_uid for p in unconfirmed if self.bound_at[p.uid] < self.endings
            }
            self._outlook = state.resolve(
                reported,
                [pod.shape.as_pod(pod.kubelet_uid) for pod in unconfirmed],
                frozenset(self.gone),
                frozenset(ended_since),
                frozenset(p.kubelet_uid for p in self.pods.values() if p.deleting),
                self._outlook_before,
            )
            self._outlook_before = self._outlook
        return self._outlook

    def is_confirmed(self, pod: PodView) -> bool:
        """Whether the kubelet is known to have admitted the pod."""
        reported = self.report.state if self.report else None
        return reported is None or pod.kubelet_uid in reported.admitted

    def free(self) -> Free | None:
        """What its managers can still give, pods in flight taken off; None without prediction."""
        outlook = self.outlook()
        if outlook is not None and self._free is None:
            self._free = free_of(outlook.predicted)
        return self._free

    def free_by_zone(self) -> tuple[tuple[int, int, int], ...] | None:
        """Of each zone (id, free exclusive CPUs, free bytes of memory); None without prediction.

        What a manager does not count is :data:`~rte.scheduler.framework.outlook.UNBOUNDED`.
        """
        if self._zones is None and (view := self.outlook()) and (free := self.free()):
            pinned = view.base.config.cpu_policy == "static"
            self._zones = tuple(
                (zone, has["cpu"] if pinned else UNBOUNDED, has.get("memory", UNBOUNDED))
                for zone, has in free.zones.items()
            )
        return self._zones

    def zone_bound(self) -> ZoneBound:
        """Who finds no zones here as things are."""
        if self._bound is None:
            view, zones = self.outlook(), self.free_by_zone()
            self._bound = ZoneBound()
            if view is not None and zones is not None:
                self._bound = zone_bound(view.predicted, [cpus for _, cpus, _ in zones])
        return self._bound

    def broken_up(self) -> float:
        """80 where no zone has a free exclusive CPU, 0 where one is empty; 90 without zones."""
        view, zones = self.outlook(), self.free_by_zone()
        sizes = view.base.topology.zone_cpus.values() if view else ()
        size = max((cpus.bit_count() for cpus in sizes), default=0)
        most = min(size, max((cpus for _, cpus, _ in zones or ()), default=0))
        return 80.0 * (1.0 - most / size) if size else 90.0

    def without(self, uids: frozenset[str]) -> NodeEntry:
        """This node as it will be when these pods have ended."""
        twin = self._twin()
        for uid in uids:
            pod = twin.drop(uid)
            if pod is not None:
                twin.bury(pod, 0.0)
        return twin

    def beside(self, pods: Iterable[PodView]) -> NodeEntry:
        """This node as it would be with these pods bound to it as well."""
        twin = self._twin()
        for pod in pods:
            twin.add(pod)
        return twin

    @property
    def leaving(self) -> frozenset[str]:
        """UIDs of its pods that are being deleted, or evicted for those that are nominated here."""
        return self.preempted | self._deleting

    @property
    def preempted(self) -> frozenset[str]:
        """UIDs of its pods that leave to make room for others."""
        evicted = (told.victims & self.pods.keys() for _, told in self.nominated.values())
        told = (uid for uid in self._deleting if self.pods[uid].preempted)
        return frozenset(told).union(*evicted)

    def ahead_of(self, pod: PodView) -> list[PodView]:
        """Pods not less important than that one for which this node makes room.

        A node that drains towards a pod is kept from those that want the same for themselves.
        """
        return [
            other
            for uid, (other, promise) in self.nominated.items()
            if uid != pod.uid
            and other.priority >= pod.priority
            and (not promise.reserved or pod.shape.competes(other.shape))
        ]

    def reserved_for(self, pod: PodView) -> list[PodView]:
        """Those for whom the node drains, where that pod is let in beside what drains."""
        return [
            other
            for uid, (other, promise) in self.nominated.items()
            if uid != pod.uid
            and promise.reserved
            and other.priority >= pod.priority
            and not pod.shape.competes(other.shape)
        ]

    def _twin(self) -> NodeEntry:
        twin = NodeEntry(self.name, self.row)
        twin.info, twin.report, twin.alive = self.info, self.report, self.alive
        twin.standing, twin.served = self.standing, self.served
        twin.held_off, twin.evidence = self.held_off, self.evidence
        twin.koordinator_devices = self.koordinator_devices
        twin.pods, twin.used = dict(self.pods), Counter(self.used)
        twin.scored = Counter(self.scored)
        twin.gone, twin.unseen = dict(self.gone), set(self.unseen)
        twin._deleting = set(self._deleting)
        twin.endings, twin.bound_at = self.endings, dict(self.bound_at)
        twin._outlook_before = self._outlook_before
        return twin


def predict(entry: NodeEntry, pod: PodView) -> placement.Admission | None:
    """What the kubelet would answer right now, pods in flight included; None without a report."""
    outlook = entry.outlook()
    if outlook is None:
        return None
    return placement.admit(outlook.predicted, replace(pod.shape.pod, uid=pod.kubelet_uid))


def zone_bound(now: NodeState, free: Collection[int]) -> ZoneBound:
    """Who finds no zones on a node in that state, of whose zones so many CPUs are free."""
    config = now.config
    if config.cpu_policy != "static" or not free:
        return ZoneBound()
    by_pod = config.topology_scope == "pod"
    if config.topology_policy == "single-numa-node":
        return ZoneBound(by_pod, max(free))
    # With options of the CPU manager wider hints may be preferred.
    if config.topology_policy != "restricted" or config.cpu_options:
        return ZoneBound()
    size = max(zone.bit_count() for zone in now.topology.zone_cpus.values())
    memory = -1
    if config.memory_policy == "Static":
        amounts = (zone.amounts.get("memory") for zone in now.memory.values())
        memory = max((each.allocatable for each in amounts if each), default=-1)
    return ZoneBound(by_pod, max(free), size, memory)
