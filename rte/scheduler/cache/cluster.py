"""The cluster as we know it: fed by watches and by our own decisions, read by the cycle.

Everything here can be rebuilt from the API server. No I/O, no clock: times come as arguments.
"""

from __future__ import annotations

from collections import Counter, OrderedDict
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from rte.placement.groups import allocation
from rte.scheduler.cache.gangs import GangBook
from rte.scheduler.framework import node
from rte.scheduler.framework.claims.devices import Devices
from rte.scheduler.framework.claims.storage import Storage
from rte.scheduler.framework.columns import Columns
from rte.scheduler.framework.events import ClusterEvent, Kind
from rte.scheduler.framework.matches import MatchIndex
from rte.scheduler.framework.shape import Shapes

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from rte.k8s.selectors import NodeTerm
    from rte.placement.dra.objects import DeviceClass
    from rte.scheduler.framework.objects import DisruptionBudget, NodeInfo, PodView


class Cluster:
    """Nodes, pods and reports; every change gets a sequence number and leaves an event.

    Args:
        pool: labels of the nodes on which we place, None: all.

    Attributes:
        sequence: number of the latest change of any node, of storage or of devices.
        nodes: by name. An entry without ``info`` stands for a node that does not exist (any more).
        rows: the entries by their row in the columns.
        columns: labels and taints of all nodes.
        matches: how many pods on each node match inter-pod terms.
        pods: API UID -> view, of all pods that are not terminal.
        assumed: API UID -> node, for our binds that the API has not shown yet.
        promises: API UID -> room promised to the pod.
        namespaces: name -> labels.
        budgets: ``namespace/name`` -> PodDisruptionBudget.
        priorities: number of pods on nodes by priority.
        storage: claims, volumes, classes and drivers.
        devices: devices of DRA and their claims.
        gangs: who belongs together.
        events: what has changed since somebody took them (see :meth:`drain`).
    """

    def __init__(self, pool: NodeTerm | None = None, *, images: bool = False) -> None:
        self.sequence = 0
        self.nodes: dict[str, node.NodeEntry] = {}
        self.rows: list[node.NodeEntry] = []
        self.columns = Columns(pool)
        self.pods: dict[str, PodView] = {}
        self.assumed: dict[str, str] = {}
        self.promises: dict[str, node.Promise] = {}
        self.shapes = Shapes(images=images)
        self.namespaces: dict[str, Mapping[str, str]] = {}
        self.matches = MatchIndex(self.namespaces)
        self.budgets: dict[str, DisruptionBudget] = {}
        self.priorities: Counter[int] = Counter()
        self.storage = Storage()
        self.devices = Devices()
        self.gangs = GangBook()
        self.events: list[ClusterEvent] = []
        self._changed: OrderedDict[str, int] = OrderedDict()
        self._free_rows: list[int] = []
        #: What our binds write on the pods that are assumed.
        self._written: dict[str, Mapping[str, str]] = {}

    @property
    def nominations(self) -> Mapping[str, str]:
        """API UID -> node that makes room for the pod."""
        return {uid: promise.places[uid] for uid, promise in self.promises.items()}

    def drain(self) -> list[ClusterEvent]:
        """Take the events so far."""
        events, self.events = self.events, []
        return events

    def _tell(self, kind: Kind, name: str = "", pod: PodView | None = None, **more: Any) -> None:
        self.events.append(ClusterEvent(kind, name, pod, **more))

    def told(self, event: ClusterEvent) -> None:
        """What belongs to no node alone has changed: storage, or devices."""
        self.sequence += 1
        self.storage.version += bool(event.kind & Kind.STORAGE)
        self.events.append(event)

    def entry(self, name: str) -> node.NodeEntry:
        """The entry of a node, made when it is not there."""
        found = self.nodes.get(name)
        if found is None:
            row = self._free_rows.pop() if self._free_rows else len(self.rows)
            found = self.nodes[name] = node.NodeEntry(name, row)
            found.served = self.devices.serving.keys()
            if row == len(self.rows):
                self.rows.append(found)
                self.columns.grow(len(self.rows))
            else:
                self.rows[row] = found
        return found

    def touch(self, entry: node.NodeEntry) -> None:
        """Something about the node has changed."""
        self.sequence += 1
        entry.touch(self.sequence)
        self._changed[entry.name] = self.sequence
        self._changed.move_to_end(entry.name)

    def changed_since(self, sequence: int) -> list[node.NodeEntry]:
        """Nodes that changed after that number, latest first."""
        out = []
        for name, at in reversed(self._changed.items()):
            if at <= sequence:
                break
            if name in self.nodes:
                out.append(self.nodes[name])
        return out

    # --- nodes and reports -----------------------------------------------------------------------

    def is_outside(self, info: NodeInfo | None) -> bool:
        """Whether the node is of another pool."""
        pool = self.columns.pool
        return info is not None and pool is not None and not pool.matches(info.name, info.labels)

    def set_node(self, info: NodeInfo) -> None:
        """A Node was added or changed."""
        entry = self.entry(info.name)
        old = entry.info
        if old == info:
            return
        kinds = Kind.NODE_ADDED
        if old is not None:
            kinds = Kind(0)
            if (old.labels, old.declared_features) != (info.labels, info.declared_features):
                kinds |= Kind.NODE_LABELS
            if (old.taints, old.unschedulable) != (info.taints, info.unschedulable):
                kinds |= Kind.NODE_TAINTS
            if old.allocatable != info.allocatable or old.uid != info.uid:
                kinds |= Kind.NODE_ALLOCATABLE
        entry.info, entry.standing = info, {}
        self.columns.load(entry.row, info)
        # Images alone decide nothing about who fits.
        if kinds:
            self.touch(entry)
            self._tell(kinds, info.name)

    def remove_node(self, name: str) -> None:
        """A Node is gone. Its pods stay until the API deletes them."""
        entry = self.nodes.get(name)
        if entry is not None and entry.info is not None:
            entry.info, entry.standing = None, {}
            self.columns.load(entry.row, None)
            self.devices.forget_node(name)
            self.touch(entry)
            self._tell(Kind.NODE_GONE, name)
            self._discard(entry)

    def set_report(self, name: str, report: node.Report | None, now: float) -> None:
        """An NRT was added, changed, or is gone (None)."""
        entry = self.entry(name)
        entry.report = report
        entry.forget_buried(now)
        if report is not None:
            entry.evidence = None
        if report is not None and report.table is not None:
            # Another exporter says nothing of whom it counts; what runs is taken as counted.
            entry.unseen = {uid for uid in entry.unseen if not entry.pods[uid].started}
        self._known_anew(entry)
        self._discard(entry)

    def set_koordinator_devices(self, name: str, devices: Mapping[str, Any] | None) -> None:
        """Koordinator's Device object of a node was added, changed, or is gone (None)."""
        entry = self.entry(name)
        entry.koordinator_devices = devices
        self._known_anew(entry)
        self._discard(entry)

    def set_alive(self, name: str, alive: bool | None) -> None:
        """The agent's Lease is being renewed, or is not any more; None: it has none."""
        entry = self.nodes.get(name)
        if entry is not None and entry.alive != alive:
            entry.alive = alive
            self._known_anew(entry)

    def hold_off(self, name: str, why: str) -> None:
        """Place nothing that needs a zone there for the time being; empty: go on."""
        entry = self.nodes.get(name)
        if entry is not None and entry.held_off != why:
            entry.held_off = why
            self._known_anew(entry)

    def set_evidence(self, name: str, evidence: node.Evidence | None) -> None:
        """What refusals tell of a node whose zones are not known."""
        entry = self.nodes.get(name)
        if entry is not None and entry.evidence != evidence:
            entry.evidence = evidence
            self._known_anew(entry)

    def _known_anew(self, entry: node.NodeEntry) -> None:
        self.touch(entry)
        self._tell(Kind.REPORT, entry.name)

    def set_namespace(self, name: str, labels: Mapping[str, str] | None) -> None:
        """A Namespace was added, changed, or is gone (None)."""
        if labels is None:
            if self.namespaces.pop(name, None) is not None:
                self.matches.namespaces_changed()
        elif self.namespaces.get(name) != labels:
            self.namespaces[name] = labels
            self.matches.namespaces_changed()
            self._tell(Kind.NAMESPACE)

    def set_device_class(self, name: str, value: DeviceClass | None) -> None:
        """A DeviceClass was added, changed, or is gone (None)."""
        if self.devices.set_class(name, value):
            for entry in self.nodes.values():
                self.touch(entry)
                self._tell(Kind.NODE_ALLOCATABLE, entry.name)
        self.told(ClusterEvent(Kind.DEVICE_SUPPLY, name=name))

    def set_budget(self, key: str, budget: DisruptionBudget | None) -> None:
        """A PodDisruptionBudget was added, changed, or is gone (None).

        What we have evicted stays counted until the API no longer shows it: then the status,
        which follows the pods, has it.
        """
        old = self.budgets.pop(key, None)
        if budget is not None:
            taken = frozenset(
                uid
                for uid in (old.taken if old else ())
                if uid in self.pods and self.pods[uid].name not in budget.disrupted
            )
            self.budgets[key] = replace(budget, taken=taken)

    def evicting(self, uid: str) -> None:
        """We evict the pod: its budgets allow one less, before their status says so."""
        pod = self.pods.get(uid)
        for key, budget in self.budgets.items():
            if pod is not None and budget.covers(pod):
                self.budgets[key] = replace(budget, taken=budget.taken | {uid})

    def _discard(self, entry: node.NodeEntry) -> None:
        """Drop the entry when nothing speaks of the node any more."""
        if not (
            entry.info or entry.report or entry.pods or entry.nominated or entry.koordinator_devices
        ):
            del self.nodes[entry.name]
            self._changed.pop(entry.name, None)
            self._free_rows.append(entry.row)

    # --- pods ------------------------------------------------------------------------------------

    def set_pod(self, pod: PodView, now: float, as_of: int = 0) -> bool:
        """A pod was added or changed; False: nothing that is older than what is known counts.

        ``as_of``: version of the list that it was in. One that is newer than what is known shows
        an older state, or one who has ended, where an etcd was restored and its versions go on.
        """
        old, version = self.pods.get(pod.uid), max(pod.version, as_of)
        if old is not None and version < old.version:
            return False
        if old is None and self._has_ended(pod, version):
            return False
        if pod.terminal:
            self._end(pod, now, version)
        elif pod.node:
            self._bound(pod, old)
        else:
            self.pods[pod.uid] = pod
            if old is not None and old.node:  # its bind is lost: an etcd was restored
                self._lift(pod.uid, old.node)
            if pod.uid in self.assumed:
                # The API has not shown our bind yet: the decision stays in force.
                where = self.assumed[pod.uid]
                self._place(self._as_decided(pod, where), where)
        return True

    def remove_pod(self, uid: str, now: float, as_of: int = 0) -> None:
        """A pod is gone from the API."""
        old = self.pods.get(uid)
        if old is not None:
            self._end(old, now, as_of)

    def expunge(self, uid: str) -> None:
        """Nothing is known of the pod any more, however far a change of it has come."""
        for table in (self.pods, self.assumed, self._written):
            table.pop(uid, None)
        self.unnominate(uid)
        self.gangs.expunge(uid)
        for name in [name for name, entry in self.nodes.items() if uid in entry.pods]:
            self._lift(uid, name)

    def straighten(self, uid: str) -> None:
        """The pod is on no node but its own, however far a change of it has come."""
        pod = self.pods.get(uid)
        own = {self.assumed.get(uid, ""), pod.node if pod is not None else ""}
        for name in [name for name, entry in self.nodes.items() if uid in entry.pods]:
            if name not in own:
                self._lift(uid, name)

    def _has_ended(self, pod: PodView, version: int) -> bool:
        """Whether the pod is known to be over: a list may be older than what a watch has told."""
        entry = self.nodes.get(pod.node)
        stone = entry.gone.get(pod.kubelet_uid) if entry is not None and not pod.mirror else None
        if entry is None or stone is None:
            return False
        if pod.terminal or not 0 < stone.version < version:
            return True
        del entry.gone[pod.kubelet_uid]  # it lives again: an etcd was restored
        return False

    def _end(self, pod: PodView, now: float, version: int) -> None:
        self.pods.pop(pod.uid, None)
        self.unnominate(pod.uid)
        self._written.pop(pod.uid, None)
        where = self.assumed.pop(pod.uid, "") or pod.node
        for name in {where, pod.node} - {""}:
            entry = self.entry(name)
            used, held = dict(entry.used), entry.drop(pod.uid)
            entry.bury(pod, now, version)
            self.touch(entry)
            if held is not None:
                self._count(held, entry, -1)
                self._tell(Kind.POD_GONE, name, held, used=used)
            self._discard(entry)

    def _bound(self, pod: PodView, old: PodView | None) -> None:
        decided = self.assumed.pop(pod.uid, "")
        self._written.pop(pod.uid, None)
        self.pods[pod.uid] = pod
        for name in {decided, old.node if old else ""} - {"", pod.node}:
            self._lift(pod.uid, name)
        self.unnominate(pod.uid)
        self._place(pod, pod.node)

    def _place(self, pod: PodView, name: str) -> None:
        entry = self.entry(name)
        before = entry.pods.get(pod.uid)
        if before is not None and _counted(before) == _counted(pod):
            entry.add(pod)
            return
        # What may raise comes first: a pod is counted and on its node, or neither.
        if before is None:
            self._count(pod, entry, 1)
        else:
            self._recount(before, pod, entry)
        used = dict(entry.used)
        entry.add(pod)
        if before is None:
            self._tell(Kind.POD_PLACED, name, pod)
        else:
            self._tell(Kind.POD_CHANGED, name, pod, old=before, used=used)
        self.touch(entry)

    def _lift(self, uid: str, name: str) -> None:
        """The pod is not on that node after all."""
        entry = self.entry(name)
        used, pod = dict(entry.used), entry.drop(uid)
        self.touch(entry)
        if pod is not None:
            self._count(pod, entry, -1)
            self._tell(Kind.POD_GONE | Kind.UNDONE, name, pod, used=used)
        self._discard(entry)

    def _recount(self, before: PodView, after: PodView, entry: node.NodeEntry) -> None:
        self._count(before, entry, -1)
        try:
            self._count(after, entry, 1)
        except Exception:
            self._count(before, entry, 1)
            raise

    def _count(self, pod: PodView, entry: node.NodeEntry, change: int) -> None:
        self.matches.count(pod, entry.row, change)
        self.priorities[pod.priority] += change
        if not self.priorities[pod.priority]:
            del self.priorities[pod.priority]

    # --- our own decisions -----------------------------------------------------------------------

    def assume(self, uid: str, name: str, written: Mapping[str, str] | None = None) -> None:
        """We decide that the pod goes there; it counts from now on, and nowhere else.

        ``written``: annotations that its bind writes.
        """
        before = self.assumed.get(uid)
        if before is not None and before != name:
            self._lift(uid, before)
        self.assumed[uid] = name
        self._written[uid] = written or {}
        self.unnominate(uid)
        self._place(self._as_decided(self.pods[uid], name), name)

    def _as_decided(self, pod: PodView, name: str) -> PodView:
        """The pod as it will be when our bind has come through."""
        written = self._written.get(pod.uid, {})
        annotations = {**pod.annotations, **written} if written else pod.annotations
        recorded = written.get(allocation.ANNOTATION, "")
        return replace(pod, node=name, annotations=annotations, recorded=recorded)

    def rested(self, name: str) -> None:
        """The node takes pods again that it refused for the time since a start or stop."""
        entry = self.nodes.get(name)
        if entry is not None:
            self.touch(entry)
            self._tell(Kind.RESTED, name)

    def forget(self, uid: str) -> None:
        """The decision is not in force any more (the API has refused the bind)."""
        name = self.assumed.pop(uid, "")
        self._written.pop(uid, None)
        if name:
            self._lift(uid, name)

    def nominate(self, promise: node.Promise, uids: Iterable[str] | None = None) -> None:
        """Pods wait for room on nodes, which others must leave to them.

        ``uids``: of these pods of the promise, None: of all; who has a node by now waits no more.
        """
        for uid in promise.places if uids is None else uids:
            self.unnominate(uid)
            pod = self.pods.get(uid)
            if pod is not None and not pod.node and uid not in self.assumed:
                entry = self.entry(promise.places[uid])
                entry.nominated[uid] = pod, promise
                self.promises[uid] = promise
                self.touch(entry)

    def unnominate(self, uid: str) -> None:
        """The pod waits for no node in particular."""
        promise = self.promises.pop(uid, None)
        entry = self.nodes.get(promise.places[uid]) if promise is not None else None
        if entry is not None and entry.nominated.pop(uid, None) is not None:
            self.touch(entry)
            self._tell(Kind.NOMINATION, entry.name)
            self._discard(entry)

    # --- thought ---------------------------------------------------------------------------------

    @contextmanager
    def what_if(self) -> Iterator[ExitStack]:
        """Changes meanwhile are thought only: nobody hears of them, and the stack undoes them."""
        events, self.events = self.events, []
        try:
            # Whatever raises, while trying or while taking back: all of it is taken back.
            with ExitStack() as undo:
                yield undo
        finally:
            self.events = events

    # --- reading ---------------------------------------------------------------------------------

    def pending(self, scheduler: str) -> Iterator[PodView]:
        """Pods that wait for that scheduler."""
        return (
            pod
            for pod in self.pods.values()
            if not pod.node and pod.scheduler == scheduler and pod.uid not in self.assumed
        )

    def has_lower(self, priority: int) -> bool:
        """Whether some pod on a node has a lower priority."""
        return any(other < priority for other in self.priorities)

    def settle_budgets(self) -> None:
        """Forget evictions of ours whose pods are gone: the status of their budgets follows."""
        for key, budget in self.budgets.items():
            if any(uid not in self.pods for uid in budget.taken):
                taken = frozenset(uid for uid in budget.taken if uid in self.pods)
                self.budgets[key] = replace(budget, taken=taken)

    def forget_versions(self) -> None:
        """The API is as it was before: any state of a pod counts, and who has ended may live."""
        for uid, pod in self.pods.items():
            self.pods[uid] = replace(pod, version=0)
        for entry in self.nodes.values():
            if entry.gone:
                entry.gone.clear()
                self.touch(entry)

    def collect(self, now: float) -> None:
        """Drop shapes that no pod has, and tombstones that nobody needs."""
        self.shapes.keep(frozenset(pod.shape.key for pod in self.pods.values()))
        for entry in self.nodes.values():
            entry.forget_buried(now)


def _counted(pod: PodView) -> tuple[object, ...]:
    """What of a placed pod others are told of."""
    return (id(pod.shape), pod.labels, pod.annotations, pod.recorded, pod.owner, pod.deleting)
