"""What a scheduling rule is: one plugin, whole.

A plugin declares which fields of the PodSpec are its own and which events can end a refusal of its
own, and brings any of the parts below. The table of features in docs/scheduler.md is made from
these declarations, and a test fails when the newest PodSpec has a field that nobody owns.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, Protocol, Self

import numpy as np

from rte.scheduler.framework.events import Kind
from rte.scheduler.framework.status import SUCCESS, Status

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from numpy.typing import NDArray

    from rte.scheduler.framework.claims.devices import Devices
    from rte.scheduler.framework.claims.storage import Storage
    from rte.scheduler.framework.columns import Column, Columns, Mask, NodeAmounts, Rows
    from rte.scheduler.framework.events import ClusterEvent
    from rte.scheduler.framework.matches import MatchIndex
    from rte.scheduler.framework.node import NodeEntry, Promise
    from rte.scheduler.framework.objects import PodView
    from rte.scheduler.framework.outlook import Room
    from rte.scheduler.framework.shape import Shape
    from rte.scheduler.framework.writes import RequiredWrite, Reserved
    from rte.telemetry.effects import Measured


class Snapshot(Protocol):
    """The cluster as plugins read it; they never change it."""

    @property
    def nodes(self) -> Mapping[str, NodeEntry]:
        """Nodes by name."""

    @property
    def pods(self) -> Mapping[str, PodView]:
        """Pods that are not terminal, by UID."""

    @property
    def assumed(self) -> Mapping[str, str]:
        """UID -> node of our decisions that the API has not shown yet."""

    @property
    def promises(self) -> Mapping[str, Promise]:
        """UID -> room promised to the pod, of pods that wait."""

    @property
    def namespaces(self) -> Mapping[str, Mapping[str, str]]:
        """Name -> labels."""

    @property
    def matches(self) -> MatchIndex:
        """Which pods match inter-pod terms, and which have some."""

    @property
    def columns(self) -> Columns:
        """Labels and taints of all nodes."""

    @property
    def storage(self) -> Storage:
        """Claims, volumes, classes and drivers."""

    @property
    def devices(self) -> Devices:
        """Devices of DRA and their claims."""

    @property
    def sequence(self) -> int:
        """Number of the latest change of any node."""

    def changed_since(self, sequence: int) -> list[NodeEntry]:
        """Nodes that changed after that number, latest first."""


class Candidate(NamedTuple):
    """A node that would take the pod, and what its rules say."""

    node: NodeEntry
    status: Status


class Plugin:
    """One scheduling rule. Subclasses add the parts that they have.

    Attributes:
        name: kube-scheduler's where it has the rule.
        owns: fields of the PodSpec that it answers for, dotted; ``affinity.podAffinity``.
        says: what is done with them, for the table of features.
        helped_by: kinds of events that can end a refusal of its own.
        named: of these kinds, events that name claims help only pods that name them as well.
        bounds: where its :meth:`helps` is False the node of the event refuses the pod now, so no
            other plugin can help there; :meth:`room` says whom that leaves.
    """

    name: ClassVar[str]
    owns: ClassVar[frozenset[str]] = frozenset()
    says: ClassVar[str] = ""
    helped_by: ClassVar[Kind] = Kind(0)
    named: ClassVar[Kind] = Kind(0)
    bounds: ClassVar[bool] = False

    def concerns(self, shape: Shape) -> bool:  # noqa: ARG002
        """Whether it may have to do with a pod of that shape, ever; False: it is not asked of any
        (kube-scheduler: Skip).
        """
        return True

    def helps(self, event: ClusterEvent, pod: PodView, snapshot: Snapshot) -> bool:  # noqa: ARG002
        """Whether an event of those kinds can end a refusal of this pod; False must be certain."""
        return True

    def may_have_refused(self, event: ClusterEvent, pod: PodView, snapshot: Snapshot) -> bool:  # noqa: ARG002
        """Of a rule that ``bounds``: whether it may have refused the node before the event."""
        return True

    def room(self, event: ClusterEvent, snapshot: Snapshot) -> Room:
        """What holds all pods of which :meth:`helps` is true."""
        raise NotImplementedError

    def spreads(self, event: ClusterEvent) -> bool:  # noqa: ARG002
        """Whether it can change the answer of other nodes than its own; False must be certain."""
        return True


class PreFilter(Plugin):
    """Rules out pods whatever the node. ``tells``: reason of the event that says so."""

    tells: ClassVar[str] = "FailedScheduling"

    def pre_filter(self, pod: PodView, snapshot: Snapshot) -> str:
        """Why the pod can go nowhere, empty when nothing is wrong with it."""
        raise NotImplementedError


class NodeFilter(Plugin):
    """A rule over one node and the shape of a pod alone: its answers are remembered.

    ``about_room``: it refuses for want of room, so what leaves the node can change its answer.
    ``by_object``: of a node it reads the Node object alone: its answer stands until that changes.
    """

    about_room: ClassVar[bool] = False
    by_object: ClassVar[bool] = False

    def rules_out(
        self,
        shape: Shape,  # noqa: ARG002
        amounts: NodeAmounts,  # noqa: ARG002
        rows: Rows | slice,  # noqa: ARG002
    ) -> Iterable[RowRefusal]:
        """Whom of these rows it refuses for certain, as far as columns tell."""
        return ()

    def is_told(self, shape: Shape) -> bool:  # noqa: ARG002
        """Of a rule that is asked before others that columns tell of: whether they tell all that
        it says of such a pod.
        """
        return True

    def lacks_room(self, shape: Shape, node: NodeEntry) -> bool:  # noqa: ARG002
        """Of a rule ``about_room``: whether amounts alone show that it refuses the pod."""
        return False

    def helps(self, event: ClusterEvent, pod: PodView, snapshot: Snapshot) -> bool:
        """Only a node that the rule does not refuse any more."""
        if not event.node:
            return True
        node = snapshot.nodes.get(event.node)
        if node is None or node.info is None:
            return False
        status = self.filter_node(pod.shape, node, SUCCESS)
        return not status.reason or status.waits or status.uncertain or status.second_best

    def filter_node(self, shape: Shape, node: NodeEntry, status: Status) -> Status:
        """The answer so far, or a refusal in its place.

        Args:
            shape: of the pod.
            node: its ``info`` is there.
            status: what the rules before this one say; never a refusal.
        """
        raise NotImplementedError


class Filter(Plugin):
    """A rule that looks at other nodes or objects: prepared once for each decision.

    ``by_pods``: pods that come to a node can change its answer.
    """

    by_pods: ClassVar[bool] = True

    def prepare(self, pod: PodView, snapshot: Snapshot) -> Any:
        """What :meth:`filter` needs, None when the rule does not concern the pod."""
        raise NotImplementedError

    def filter(self, prepared: Any, pod: PodView, node: NodeEntry) -> str | Status:
        """Why the pod cannot go there, empty when it can; a Status where that passes by itself."""
        raise NotImplementedError

    def changed(self, prepared: Any, changes: Sequence[PodChange]) -> Any:  # noqa: ARG002
        """What was prepared, with pods more or fewer on nodes; ``prepared`` stays as it is.

        Rules that read a node's own pods have nothing to do: they are given the node as it is then.
        kube-scheduler's ``PreFilterExtensions``: AddPod and RemovePod.
        """
        return prepared

    def joins(self, prepared: Any, pod: PodView, other: PodView) -> bool:  # noqa: ARG002
        """Whether the pod may need that other one where it goes, so that it should not leave."""
        return False


class PodChange(NamedTuple):
    """A pod that comes to a node (``number`` 1) or leaves it (-1)."""

    pod: PodView
    node: str
    number: int


class RowRefusal(NamedTuple):
    """Rows that a rule refuses, and why.

    Attributes:
        rows: that are refused.
        reason: as the exact check says; empty: that cannot be told without asking it.
        resources: that may end when pods leave them.
        sure: of a rule about zones, rows where nothing else can be the kubelet's reason.
    """

    rows: Mask
    reason: str
    resources: bool = False
    sure: Mask | None = None


class Surroundings:
    """What a rule that answers for all nodes at once knows of one pod's."""

    _everywhere: tuple[RowRefusal, ...] | None = None

    def refusals(self, rows: Rows | slice) -> Iterable[RowRefusal]:
        """Whom of these rows the rule refuses; of several reasons for a row the first counts."""
        raise NotImplementedError

    def changed(self, changes: Sequence[PodChange]) -> Self:
        """The same with pods more or fewer; see :meth:`Filter.changed`."""
        raise NotImplementedError

    @property
    def everywhere(self) -> tuple[RowRefusal, ...]:
        """Of all rows."""
        if self._everywhere is None:
            self._everywhere = tuple(self.refusals(slice(None)))
        return self._everywhere

    def refusal_of(self, row: int) -> str | Status:
        """Of one row; empty when it is not refused."""
        known = self._everywhere
        if known is not None:
            found = next((item for item in known if item.rows[row]), None)
        else:
            one = np.array([row], dtype=np.intp)
            found = next((item for item in self.refusals(one) if item.rows[0]), None)
        return "" if found is None else Status(reason=found.reason, resources=found.resources)


class RowFilter(Filter):
    """A rule that looks at other nodes or objects and answers for all nodes at once."""

    def prepare(self, pod: PodView, snapshot: Snapshot) -> Surroundings | None:
        """What decides whom it refuses."""
        raise NotImplementedError

    def filter(
        self,
        prepared: Surroundings,
        pod: PodView,  # noqa: ARG002
        node: NodeEntry,
    ) -> str | Status:
        """What was prepared, for one node."""
        return prepared.refusal_of(node.row)

    def changed(self, prepared: Surroundings, changes: Sequence[PodChange]) -> Surroundings:
        """What was prepared, with pods more or fewer on nodes."""
        return prepared.changed(changes)


class Score(Plugin):
    """A preference. ``weight`` is kube-scheduler's, 0: not asked for; scores run from 0 to 100.

    ``exact``: only nodes that take the pod can be compared, so it has no part in their order.
    ``decides``: where it is concerned no other preference counts, and no two nodes are alike.
    """

    weight: ClassVar[float] = 1.0
    exact: ClassVar[bool] = False
    decides: ClassVar[bool] = False

    def is_concerned(self, pod: PodView, snapshot: Snapshot) -> bool:
        """Whether it could tell nodes apart for this pod; False saves the work."""
        raise NotImplementedError

    def score(
        self, pod: PodView, candidates: Sequence[Candidate], snapshot: Snapshot
    ) -> Sequence[float] | None:
        """One score for each candidate, None where all are alike."""
        raise NotImplementedError


class RowScore(Score):
    """A preference over what the columns tell: the same for a few nodes and for all."""

    def score_rows(
        self, pod: PodView, rows: Rows, snapshot: Snapshot
    ) -> NDArray[np.float64] | None:
        """One score for each of these rows, None where all are alike."""
        raise NotImplementedError

    def score(
        self, pod: PodView, candidates: Sequence[Candidate], snapshot: Snapshot
    ) -> Sequence[float] | None:
        """Of the candidates' rows."""
        rows = np.array([node.row for node, _ in candidates], dtype=np.intp)
        scores = self.score_rows(pod, rows, snapshot)
        return None if scores is None else list(scores.tolist())


class Ranks(Plugin):
    """A preference that has a part in the order in which nodes are asked."""

    def ranks(self, shape: Shape, amounts: NodeAmounts, rows: Rows) -> Column | None:
        """Of each of these rows, the smaller the better; None where all are alike."""
        raise NotImplementedError


class Reserve(Plugin):
    """Holds what a decision takes beside the node's room, until the API shows it or it is undone.

    What has to be written for it stands before the bind (:mod:`rte.scheduler.framework.writes`).
    """

    def reserve(self, pod: PodView, node: NodeEntry) -> Reserved | None:
        """Take what the pod needs on the node; None when it is not there any more."""
        raise NotImplementedError

    def unreserve(self, reserved: Reserved) -> None:
        """The decision is not in force any more, or the API shows what was written."""
        raise NotImplementedError

    def leftovers(self, pod: PodView) -> Iterable[RequiredWrite]:  # noqa: ARG002
        """What stands of an attempt before (of a replica before us), for a pod that fits nowhere.

        It is undone, so that the pod may be decided afresh.
        """
        return ()


class Drains(Plugin):
    """How far nodes are from taking a pod that waits until they have lost enough."""

    def missing(self, shape: Shape, node: NodeEntry) -> int:
        """The less, the nearer; it falls while the node drains. 0 for pods of no concern."""
        raise NotImplementedError


class Annotate(Plugin):
    """What the bind writes on the pod, in one transaction with the pod's node."""

    def annotations(self, pod: PodView, node: NodeEntry, status: Status) -> Mapping[str, str]:
        """The annotations for a pod that goes to a node whose answer was ``status``."""
        raise NotImplementedError


class Passed(NamedTuple):
    """What a second has brought.

    Attributes:
        nodes: whose answers have changed by time alone.
        metrics: what has been measured.
        notes: pod, reason and text of events to post.
    """

    nodes: tuple[str, ...] = ()
    metrics: tuple[Measured, ...] = ()
    notes: tuple[tuple[PodView, str, str], ...] = ()


class Clocked(Plugin):
    """A rule that time changes. Its answers may change in :meth:`second` only."""

    def started(self, pod: PodView, node: NodeEntry, now: float) -> None:
        """We have decided that the pod goes there."""

    def undone(self, pod: PodView, node: str) -> None:
        """That decision has failed."""

    def ended(self, pod: PodView, node: NodeEntry, now: float) -> None:
        """A pod of the node is terminal or gone."""

    def second(self, now: float, snapshot: Snapshot) -> Passed:
        """Called each second."""
        raise NotImplementedError


def scaled(values: NDArray[np.float64]) -> NDArray[np.float64] | None:
    """Whole numbers, stretched to 0..100 by the extremes; None: all alike."""
    if not len(values):
        return None
    low, high = values.min(), values.max()
    if high <= low:
        return None
    out: NDArray[np.float64] = np.floor(100.0 * ((values - low) / (high - low)))
    return out


def shares(values: NDArray[np.float64], *, reverse: bool = False) -> NDArray[np.float64] | None:
    """Whole hundredths of the largest value (kube-scheduler's DefaultNormalizeScore).

    None: there is nothing to tell apart.
    """
    high = values.max(initial=0.0)
    if not high or values.min() == high:
        return None
    out: NDArray[np.float64] = np.floor(100.0 * values / high)
    return 100.0 - out if reverse else out


def feature_table(plugins: Iterable[Plugin]) -> str:
    """The table of features: plugin, fields of the PodSpec that it owns, what is done with them."""
    lines = ["| plugin | owns of the PodSpec | what is honoured |", "|---|---|---|"]
    for plugin in sorted(plugins, key=lambda each: each.name):
        fields = ", ".join(f"`{name}`" for name in sorted(plugin.owns)) or "-"
        lines.append(f"| {plugin.name} | {fields} | {plugin.says or '-'} |")
    return "\n".join(lines)
