"""ProcessingGroups: nodes that hold all groups of a pod, what it gets there, and who holds what.

The allocation is written by the bind itself, in one transaction with the pod's node: there is no
moment in which one of them is there without the other, and nothing to take back when it fails.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from rte import errors
from rte.placement.groups import allocation, holdings
from rte.placement.groups.allocation import Record, devices_of
from rte.placement.groups.cluster import preference
from rte.placement.groups.delivery import networks
from rte.placement.groups.document import RequestError
from rte.placement.groups.facts import site_values
from rte.placement.groups.place import ALIGNMENT, RESOURCES, unfit
from rte.scheduler.framework.events import Kind
from rte.scheduler.framework.plugin import (
    Annotate,
    Clocked,
    Drains,
    NodeFilter,
    Passed,
    PreFilter,
    Score,
)
from rte.scheduler.plugins.groups.settling import Settling
from rte.scheduler.plugins.groups.totals import Totals
from rte.telemetry.effects import Measured

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from rte.placement.groups.allocation import GroupsAllocation
    from rte.scheduler.framework.events import ClusterEvent
    from rte.scheduler.framework.node import NodeEntry
    from rte.scheduler.framework.objects import PodView
    from rte.scheduler.framework.plugin import Candidate, Snapshot
    from rte.scheduler.framework.shape import Shape
    from rte.scheduler.framework.status import Status
    from rte.scheduler.plugins.groups.books import Books, OnNode

#: Reason of the event about what two pods hold, or what nobody can read.
_CONFLICT = "AllocationConflict"
#: Reasons that pods which leave the node can change.
_OF_ROOM = frozenset({*RESOURCES, ALIGNMENT})


class GroupsWellFormed(PreFilter):
    """A pod whose request is invalid waits until the annotation changes."""

    name = "ProcessingGroupsRequest"
    says = "the annotation `topology.rte.dev/groups`; an invalid one is told by `InvalidGroups`"
    tells = "InvalidGroups"

    def __init__(self, books: Books) -> None:
        self._books = books

    def concerns(self, shape: Shape) -> bool:
        """Pods with groups."""
        return shape.has_groups

    def pre_filter(self, pod: PodView, snapshot: Snapshot) -> str:  # noqa: ARG002
        """What is wrong with the request, with its place in the annotation."""
        wish = self._books.wish(pod.shape)
        if wish is None:
            return ""
        self._books.answers.begin()
        if isinstance(wish, RequestError):
            return str(wish)
        try:
            if self._books.policies.attach:
                networks.elements(pod.annotations.get(networks.ANNOTATION, ""))
        except networks.NetworkError as error:
            return str(error)
        return ""


class GroupsNode(NodeFilter, Clocked):
    """Nodes that take no pods with groups, or not these, whatever is free there."""

    name = "ProcessingGroupsNode"
    says = "node groups, maintenance, cordon, CPU architecture, cool-down"
    helped_by = (
        Kind.NODE_ADDED | Kind.NODE_LABELS | Kind.NODE_TAINTS | Kind.REPORT | Kind.RESTED
        | Kind.POD_GONE
    )  # fmt: skip

    def __init__(self, books: Books) -> None:
        self._books = books
        self._settling = Settling()

    def concerns(self, shape: Shape) -> bool:
        """Pods with groups."""
        return shape.has_groups

    def is_told(self, shape: Shape) -> bool:
        """Of groups columns know nothing."""
        return not shape.has_groups

    def filter_node(self, shape: Shape, node: NodeEntry, status: Status) -> Status:
        """All reasons that apply."""
        wish = self._books.valid(shape)
        if wish is None:
            return status
        known = self._books.on(node)
        if known is None:
            return _refused(status, ("no-inventory",))
        if known.held.unreadable:
            return _refused(status, ("unreadable-allocation",))
        reported = node.report.state if node.report else None
        if reported and reported.config.cpu_policy == "static" and any(shape.exclusive_cpus):
            return _refused(status, ("static-cpu-manager",))
        facts = known.facts
        if self._settling.rests(node.name):
            facts = replace(facts, seconds_since_change=0.0)
        reasons = unfit(wish.request, facts, known.ground.policy)
        return _refused(status, reasons) if reasons else status

    def started(self, pod: PodView, node: NodeEntry, now: float) -> None:
        """The node rests."""
        if self._books.valid(pod.shape) is not None:
            self._disturb(pod, node, now)

    def undone(self, pod: PodView, node: str) -> None:
        """It rests no longer for that pod's sake."""
        self._settling.undo(node, pod.uid)

    def ended(self, pod: PodView, node: NodeEntry, now: float) -> None:
        """The node rests, if the pod held anything."""
        if self._books.holds(pod, node):
            self._disturb(pod, node, now)

    def second(self, now: float, snapshot: Snapshot) -> Passed:  # noqa: ARG002
        """Nodes that rest no longer."""
        return Passed(nodes=self._settling.wake(now))

    def _disturb(self, pod: PodView, node: NodeEntry, now: float) -> None:
        known = self._books.on(node)
        if known is not None and known.ground.policy.settle_seconds:
            until = now + known.ground.policy.settle_seconds
            self._settling.disturb(node.name, pod.uid, until)


class ProcessingGroups(NodeFilter, Score, Annotate, Clocked, Drains):
    """The allocation: exact, and proven where there is none.

    Attributes:
        books: what is known of requests and nodes.
    """

    name = "ProcessingGroups"
    says = (
        "groups of CPUs, GPUs, NICs and huge pages, placed jointly; the bind writes what they get"
    )
    about_room = True
    helped_by = Kind.NODE_ADDED | Kind.REPORT | Kind.POD_GONE | Kind.POD_CHANGED
    decides = True

    def __init__(self, books: Books) -> None:
        self.books = books
        self._looked_at = -1
        self._told: dict[str, frozenset[tuple[str, str, str]]] = {}
        self._cut_off = 0
        self._totals = Totals()

    def concerns(self, shape: Shape) -> bool:
        """Pods with groups."""
        return shape.has_groups

    def helps(self, event: ClusterEvent, pod: PodView, snapshot: Snapshot) -> bool:  # noqa: ARG002
        """A pod that held nothing gives nothing back."""
        return event.pod is None or bool(event.pod.annotations or event.pod.recorded)

    def filter_node(self, shape: Shape, node: NodeEntry, status: Status) -> Status:
        """What the pod would get, or every resource that lacks."""
        wish = self.books.valid(shape)
        known = self.books.on(node) if wish is not None else None
        if wish is None or known is None:
            return status
        if known.kept:
            return _refused(status, ("kept-for-another-pod",))
        decision = self.books.answers.place(wish, known.ground)
        given = decision.allocation
        if given is None:
            resources = bool(_OF_ROOM.intersection(decision.reasons))
            return replace(_refused(status, decision.reasons), resources=resources)
        fillers = self.books.fillers(shape)
        if known.ground.policy.networks or fillers:
            record = _record("", node, known, given)
            try:
                _networks(record, known, "")
            except errors.RteError as error:
                return replace(_refused(status, ("networks",)), message=str(error))
            try:
                _filled(fillers, record)
            except errors.RteError as error:
                return replace(_refused(status, ("nhd-config",)), message=str(error))
        return replace(status, groups=given)

    def missing(self, shape: Shape, node: NodeEntry) -> int:
        """CPUs and devices that pods with groups hold there; less and less while it drains."""
        known = self.books.on(node) if self.books.valid(shape) is not None else None
        if known is None:
            return 0
        used = known.ground.used
        return used.cpus.bit_count() + len(used.gpus) + len(used.nics)

    def is_concerned(self, pod: PodView, snapshot: Snapshot) -> bool:  # noqa: ARG002
        """Pods with groups."""
        return self.books.valid(pod.shape) is not None

    def score(
        self,
        pod: PodView,
        candidates: Sequence[Candidate],
        snapshot: Snapshot,  # noqa: ARG002
    ) -> Sequence[float] | None:
        """Nodes without GPUs for pods without, then by strategy, then by name."""
        wish = self.books.valid(pod.shape)
        if wish is None or len(candidates) < 2:
            return None
        keys = []
        for number, (node, _) in enumerate(candidates):
            known = self.books.on(node)
            order = preference(wish.request, known.ground) if known else (True, 0)
            keys.append((known is None, order, node.name, number))
        keys.sort()
        last = len(keys) - 1
        scores = [0.0] * len(keys)
        for rank, key in enumerate(keys):
            scores[key[-1]] = 100.0 * (last - rank) / last
        return scores

    def annotations(self, pod: PodView, node: NodeEntry, status: Status) -> Mapping[str, str]:
        """The record, tied to the pod's UID, its network selection, and NHD's file for it."""
        known = self.books.on(node)
        if status.groups is None or known is None:
            return {}
        record = _record(pod.uid, node, known, status.groups)
        written = {allocation.ANNOTATION: record.text()}
        selected = _networks(record, known, pod.annotations.get(networks.ANNOTATION, ""))
        if selected:
            written[networks.ANNOTATION] = selected
        return written | _filled(self.books.fillers(pod.shape), record)

    def second(self, now: float, snapshot: Snapshot) -> Passed:  # noqa: ARG002
        """What two pods hold that only one can, and records that cannot be read."""
        changed = snapshot.changed_since(self._looked_at)
        self._looked_at = snapshot.sequence
        notes: list[tuple[PodView, str, str]] = []
        for entry in changed:
            notes += self._look(entry)
            known = self.books.on(entry)
            self._totals.set(entry.name, known.ground if known else None)
        for name in self._told.keys() - snapshot.nodes.keys():
            del self._told[name]
        self._totals.keep(snapshot.nodes.keys())
        cut_off = self.books.answers.cut_off
        limits, self._cut_off = cut_off - self._cut_off, cut_off
        told = (reason for faults in self._told.values() for _, reason, _ in faults)
        conflicts = float(sum(reason == _CONFLICT for reason in told))
        return Passed(
            metrics=(
                Measured("group_conflicts", conflicts, how="set"),
                Measured("group_search_limits", float(limits)),
                *(
                    Measured("group_amounts", float(amount), state, how="set")
                    for state, amount in self._totals.changed()
                ),
            ),
            notes=tuple(notes),
        )

    def _look(self, entry: NodeEntry) -> Iterator[tuple[PodView, str, str]]:
        known = self.books.on(entry)
        found = frozenset(_faults(known)) if known is not None else frozenset()
        for uid, reason, text in sorted(found - self._told.get(entry.name, frozenset())):
            if uid in entry.pods:
                yield entry.pods[uid], reason, text
        self._told.pop(entry.name, None)
        if found:
            self._told[entry.name] = found


def _faults(known: OnNode) -> Iterator[tuple[str, str, str]]:
    """A pod, the reason of the event, and what is wrong with what it holds."""
    for line, holders in holdings.conflicts(known.held.allocations):
        yield min(holders), _CONFLICT, line
    for uid, line in known.held.unreadable.items():
        yield uid, _CONFLICT, line
    for uid in known.held.unrecorded:
        text = f"the annotation {allocation.ANNOTATION} is not what a scheduler has recorded for"
        yield uid, "AllocationIgnored", f"{text} the pod: it holds nothing; leave it out"


def _refused(status: Status, reasons: Sequence[str]) -> Status:
    return replace(status, reason=f"processing groups: {', '.join(reasons)}")


def _record(uid: str, node: NodeEntry, known: OnNode, given: GroupsAllocation) -> Record:
    inventory = known.ground.inventory
    labels = node.info.labels if node.info else {}
    return Record(
        pod=uid,
        node=node.name,
        allocation=given,
        inventory=inventory.generation,
        devices=devices_of(given, inventory),
        values=site_values(labels),
    )


def _networks(record: Record, known: OnNode, existing: str) -> str:
    template = known.ground.policy.networks
    return networks.selection(template, record, existing) if template else ""


def _filled(fillers: Mapping[str, Callable[[Record], str]], record: Record) -> dict[str, str]:
    return {annotation: filler(record) for annotation, filler in fillers.items()}
