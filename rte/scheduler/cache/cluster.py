"""The cluster as we know it: fed by watches and by our own decisions, read by the cycle.

Everything here can be rebuilt from the API server. No I/O, no clock: times come as arguments.
"""

from __future__ import annotations

from collections import Counter, OrderedDict
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from rte.scheduler.cache import terms
from rte.scheduler.cache.volumes import Volumes
from rte.scheduler.framework import node
from rte.scheduler.framework.shape import Shapes

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from rte.scheduler.cache.budgets import Budget
    from rte.scheduler.framework.objects import NodeInfo, PodView


class Cluster:
    """Nodes, pods and reports; every change gets a sequence number.

    Attributes:
        sequence: number of the latest change of any node.
        pod_sequence: number of the latest change that inter-pod rules can see.
        nodes: by name. An entry without ``info`` stands for a node that does not exist (any more).
        pods: API UID -> view, of all pods that are not terminal.
        assumed: API UID -> node, for our binds that the API has not shown yet.
        nominations: API UID -> node that makes room for the pod.
        namespaces: name -> labels.
        budgets: ``namespace/name`` -> PodDisruptionBudget.
        priorities: number of pods on nodes by priority.
        storage: claims, volumes and classes.
    """

    def __init__(self, options: node.Options | None = None) -> None:
        self._options = options or node.Options()
        self.sequence = 0
        self.pod_sequence = 0
        self.nodes: dict[str, node.NodeEntry] = {}
        self.rows: list[node.NodeEntry] = []
        self.pods: dict[str, PodView] = {}
        self.assumed: dict[str, str] = {}
        self.nominations: dict[str, str] = {}
        self.shapes = Shapes()
        self.matches = terms.MatchIndex()
        self.namespaces: dict[str, Mapping[str, str]] = {}
        self.budgets: dict[str, Budget] = {}
        self.priorities: Counter[int] = Counter()
        self.storage = Volumes()
        self._changed: OrderedDict[str, int] = OrderedDict()
        self._free_rows: list[int] = []

    def entry(self, name: str) -> node.NodeEntry:
        """The entry of a node, made when it is not there."""
        found = self.nodes.get(name)
        if found is None:
            row = self._free_rows.pop() if self._free_rows else len(self.rows)
            found = self.nodes[name] = node.NodeEntry(name, row, self._options)
            if row == len(self.rows):
                self.rows.append(found)
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

    def set_node(self, info: NodeInfo) -> None:
        """A Node was added or changed."""
        entry = self.entry(info.name)
        if entry.info == info:
            return
        if entry.info is None or entry.info.labels != info.labels:
            self.pod_sequence += 1
        entry.set_info(info)
        self.touch(entry)

    def remove_node(self, name: str) -> None:
        """A Node is gone. Its pods stay until the API deletes them."""
        entry = self.nodes.get(name)
        if entry is not None:
            entry.set_info(None)
            self.pod_sequence += 1
            self.touch(entry)
            self._discard(entry)

    def set_report(self, name: str, report: node.Report | None, now: float) -> None:
        """An NRT was added, changed, or is gone (None)."""
        entry = self.entry(name)
        entry.report = report
        entry.forget_buried(now)
        if report is not None and report.table is not None:
            # Another exporter says nothing of whom it counts; what runs is taken as counted.
            entry.unseen = {uid for uid in entry.unseen if not entry.pods[uid].started}
        self.touch(entry)
        self._discard(entry)

    def set_alive(self, name: str, alive: bool | None) -> None:
        """The agent's Lease is being renewed, or is not any more; None: it has none."""
        entry = self.nodes.get(name)
        if entry is not None and entry.alive != alive:
            entry.alive = alive
            self.touch(entry)

    def hold_off(self, name: str, why: str) -> None:
        """Place nothing that needs a zone there for the time being; empty: go on."""
        entry = self.nodes.get(name)
        if entry is not None and entry.held_off != why:
            entry.held_off = why
            self.touch(entry)

    def set_namespace(self, name: str, labels: Mapping[str, str] | None) -> None:
        """A Namespace was added, changed, or is gone (None)."""
        if labels is None:
            self.namespaces.pop(name, None)
        elif self.namespaces.get(name) != labels:
            self.namespaces[name] = labels
            self.pod_sequence += 1

    def storage_changed(self) -> None:
        """A claim, a volume or a class was added, changed, or is gone."""
        self.pod_sequence += 1

    def _discard(self, entry: node.NodeEntry) -> None:
        """Drop the entry when nothing speaks of the node any more."""
        if entry.info is None and entry.report is None and not entry.pods:
            del self.nodes[entry.name]
            self._changed.pop(entry.name, None)
            self._free_rows.append(entry.row)

    # --- pods ------------------------------------------------------------------------------------

    def set_pod(self, pod: PodView, now: float) -> None:
        """A pod was added or changed. Versions older than what is known are ignored."""
        old = self.pods.get(pod.uid)
        if old is not None and pod.version < old.version:
            return
        if old is None and self._has_ended(pod):
            return
        if pod.terminal:
            self._end(pod, now)
        elif pod.node:
            self._bound(pod, old)
        else:
            self.pods[pod.uid] = pod
            if pod.uid in self.assumed:
                # The API has not shown our bind yet: the decision stays in force.
                where = self.assumed[pod.uid]
                self._place(replace(pod, node=where), where)

    def remove_pod(self, uid: str, now: float) -> None:
        """A pod is gone from the API."""
        old = self.pods.get(uid)
        if old is not None:
            self._end(old, now)

    def _has_ended(self, pod: PodView) -> bool:
        """Whether the pod is known to be over: a list may be older than what a watch has told."""
        entry = self.nodes.get(pod.node)
        return entry is not None and not pod.mirror and pod.kubelet_uid in entry.gone

    def _end(self, pod: PodView, now: float) -> None:
        self.pods.pop(pod.uid, None)
        self.unnominate(pod.uid)
        where = self.assumed.pop(pod.uid, "") or pod.node
        for name in {where, pod.node} - {""}:
            entry = self.entry(name)
            held = entry.drop(pod.uid)
            entry.bury(pod, now)
            if held is not None:
                self._company(held, entry, -1)
            self.touch(entry)
            self._discard(entry)

    def _bound(self, pod: PodView, old: PodView | None) -> None:
        decided = self.assumed.pop(pod.uid, "")
        self.pods[pod.uid] = pod
        for name in {decided, old.node if old else ""} - {"", pod.node}:
            self._lift(pod.uid, name)
        self.unnominate(pod.uid)
        self._place(pod, pod.node)

    def _place(self, pod: PodView, name: str) -> None:
        entry = self.entry(name)
        before = entry.pods.get(pod.uid)
        entry.add(pod)
        if before is None:
            self._company(pod, entry, 1)
        elif before.shape is pod.shape and before.labels == pod.labels:
            if before.deleting != pod.deleting:
                self.touch(entry)
            return
        else:
            self._company(before, entry, -1)
            self._company(pod, entry, 1)
        self.touch(entry)

    def _lift(self, uid: str, name: str) -> None:
        entry = self.entry(name)
        pod = entry.drop(uid)
        if pod is not None:
            self._company(pod, entry, -1)
        self.touch(entry)
        self._discard(entry)

    def _company(self, pod: PodView, entry: node.NodeEntry, change: int) -> None:
        """Inter-pod rules see that a pod came to a node (+1) or left it (-1)."""
        self.pod_sequence += 1
        self.priorities[pod.priority] += change
        if self.matches.count(pod, entry.name, change):
            # It refuses company, so every node of its domains may have changed.
            for other in self.nodes.values():
                self.touch(other)

    # --- our own decisions -----------------------------------------------------------------------

    def assume(self, uid: str, name: str, resource_status: str = "") -> None:
        """We decide that the pod goes there; it counts from now on, and nowhere else."""
        self.forget(uid)
        pod = self.pods[uid] = replace(self.pods[uid], resource_status=resource_status)
        self.assumed[uid] = name
        self.unnominate(uid)
        self._place(replace(pod, node=name), name)

    def forget(self, uid: str) -> None:
        """The decision is not in force any more (the API has refused the bind)."""
        name = self.assumed.pop(uid, "")
        if name:
            self._lift(uid, name)

    def nominate(self, uid: str, name: str) -> None:
        """The pod waits for room on that node, which lower priorities must leave to it."""
        self.unnominate(uid)
        pod = self.pods.get(uid)
        if pod is not None:
            entry = self.entry(name)
            entry.nominated[uid] = pod
            self.nominations[uid] = name
            self.touch(entry)

    def unnominate(self, uid: str) -> None:
        """The pod waits for no node in particular."""
        name = self.nominations.pop(uid, "")
        entry = self.nodes.get(name)
        if entry is not None:
            entry.nominated.pop(uid, None)
            self.touch(entry)

    # --- reading ---------------------------------------------------------------------------------

    def pending(self, scheduler: str) -> Iterator[PodView]:
        """Pods that wait for that scheduler."""
        return (
            pod
            for pod in self.pods.values()
            if not pod.node and pod.scheduler == scheduler and pod.uid not in self.assumed
        )

    def matching(self, term: terms.Term) -> Mapping[str, int]:
        """Node -> number of its pods that the term matches."""
        return self.matches.on_nodes(term, self.nodes, self.namespaces)

    def claims_in_use(self, pod: PodView) -> str:
        """Why a ReadWriteOncePod claim keeps the pod from running, empty when none does."""
        for name in pod.shape.claims:
            claim = self.storage.claims.get(f"{pod.namespace}/{name}")
            if claim is None or "ReadWriteOncePod" not in claim.modes:
                continue
            for other in self.pods.values():
                placed = bool(other.node) or other.uid in self.assumed
                if (
                    placed
                    and other.uid != pod.uid
                    and other.namespace == pod.namespace
                    and name in other.shape.claims
                ):
                    return "a pod uses the same ReadWriteOncePod PersistentVolumeClaim"
        return ""

    def has_lower(self, priority: int) -> bool:
        """Whether some pod on a node has a lower priority."""
        return any(number > 0 and other < priority for other, number in self.priorities.items())

    def collect(self) -> None:
        """Drop shapes that no pod has."""
        self.shapes.keep(frozenset(pod.shape.key for pod in self.pods.values()))


def read_namespace(obj: Mapping[str, Any]) -> tuple[str, Mapping[str, str]]:
    """Name and labels of a Namespace."""
    metadata = obj.get("metadata") or {}
    return str(metadata.get("name") or ""), dict(metadata.get("labels") or {})
