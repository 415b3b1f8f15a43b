"""What is known of one node, source by source, and what is still lacking."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from rte import accounting, nrt
from rte.agent.observer.answers import PodresourcesAnswers
from rte.agent.observer.files import FilesReading
from rte.agent.observer.learning import KubeletRestart, Learning
from rte.agent.observer.messages import ReadMachine
from rte.model.kubelet import KubeletView, combine
from rte.model.node import ConfigSource

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable
    from collections.abc import Set as AbstractSet

    from rte.accounting.liveness import PodTable
    from rte.agent.observer.messages import Effect, KubeletChange
    from rte.agent.timings import Timings
    from rte.model.kubelet import NodePod
    from rte.model.machine import Machine
    from rte.model.node import NodeReading, NodeState


@dataclass(frozen=True, kw_only=True, slots=True)
class Scope:
    """What an observer is about.

    Attributes:
        node_name: of the Node and of the object.
        kubelet: there is a kubelet; else only the hardware is told.
        files: its state files are read.
        podresources: its podresources API is asked; its socket shows when it was started.
        pods: the API server is asked for the pods of the node.
        accounting: as given; what is known only while running is filled in.
        publish: what the object shows.
    """

    node_name: str
    kubelet: bool = True
    files: bool = True
    podresources: bool = True
    pods: bool = True
    accounting: accounting.ReadingOptions = field(default_factory=accounting.ReadingOptions)
    publish: nrt.WriterOptions = field(default_factory=nrt.WriterOptions)


class Hardware:
    """The machine as it was read last.

    Attributes:
        machine: None until the first reading.
        asked: it is being read.
        changed: it is to be read (again).
    """

    def __init__(self) -> None:
        self.machine: Machine | None = None
        self.asked = False
        self.changed = False

    def ask(self) -> list[Effect]:
        """Have it read, unless it is under way."""
        if self.asked:
            return []
        self.asked, self.changed = True, False
        return [ReadMachine()]


class NodeSources:
    """All sources of one node.

    Args:
        scope: which of them there are.
        timings: see there.
        pods: what the API has told of pods so far.
        jitter: factor of each wait for the API server.
    """

    def __init__(
        self, scope: Scope, timings: Timings, pods: PodTable, jitter: Callable[[], float]
    ) -> None:
        self._scope = scope
        self.hardware = Hardware()
        self.files = FilesReading(timings)
        self.answers = PodresourcesAnswers(timings)
        self.pods = pods
        self.restart = KubeletRestart(timings.readmission_most)
        best = ConfigSource.CONFIGZ if scope.pods else ConfigSource.UNKNOWN
        self.learning = Learning(timings, self.restart, best, jitter)

    @property
    def synced(self) -> bool:
        """Whether the kubelet runs, and has re-admitted its pods since it was started."""
        return self.restart.synced and not self.answers.is_gone

    @property
    def has_pods(self) -> bool:
        """Whether the API tells who is active."""
        return self._scope.pods and self.pods.listed

    @property
    def listed_pods(self) -> tuple[NodePod, ...] | None:
        """The API's pods; None where it does not tell."""
        return self.pods.pods() if self.has_pods else None

    @property
    def view(self) -> KubeletView:
        """What podresources told last; empty where it is not asked."""
        return self.answers.view or KubeletView()

    @property
    def lists_other_files(self) -> bool:
        """Without the API only podresources tells who is active, of the very files it is of."""
        return not self.has_pods and self.files.content != self.answers.files

    @property
    def is_exact(self) -> bool:
        """Whether podresources answered while the files stood as they do."""
        return not self._scope.podresources or (
            self.view.coherent and self.files.content == self.answers.files
        )

    def needs_answer(self, changes: KubeletChange, now: float) -> bool:
        """Whether podresources is to be asked, after these changes."""
        return self._scope.podresources and (
            self.answers.is_due(changes, now)
            or not (self.restart.synced or self.answers.is_fresh)
            or self.lists_other_files
            or bool(self.pods.doubtful(now))
        )

    @property
    def lacks_something(self) -> bool:
        """Whether something is being read without which nothing can be said."""
        return (
            self.hardware.asked
            or self.hardware.changed
            or self.files.failed
            or not self.learning.known
            or (self._scope.files and self.files.content is None)
            or (
                self._scope.podresources
                and (self.answers.view is None or self.answers.holds_up or self.lists_other_files)
            )
        )

    @property
    def ended(self) -> frozenset[str]:
        """UIDs of pods that are over, as the API has it."""
        pods = self.pods.pods() if self._scope.pods else ()
        return frozenset(pod.uid for pod in pods if pod.terminal)

    def doubtful(self, now: float) -> frozenset[str]:
        """UIDs in the files that the API has not shown for long, when podresources can tell."""
        return self.pods.doubtful(now) if self._scope.pods and self.is_exact else frozenset()

    def account(
        self,
        machine: Machine,
        pods: tuple[NodePod, ...] | None,
        previous: NodeState | None,
        now: float,
    ) -> NodeReading:
        """One reading of all sources, after the state ``previous``; ``pods`` as the API has them.

        Raises:
            errors.RteError: they do not agree (yet).
        """
        files, answers, view = self.files.content, self.answers, self.view
        reported, self.learning.reported = self.learning.reported, None
        if previous is None and reported is not None:
            previous = replace(reported, devices={})  # classes without ids
        # Devices are what the answers are needed for: those of the same checkpoint agree.
        agrees = view.coherent and self.files.have_same_devices(answers.files)
        return accounting.build_reading(
            self._scope.node_name,
            machine,
            combine(
                files,
                config=self.learning.config,
                version=self.learning.node.version,
                epoch=self.restart.epoch,
                pods=view.pods,
                allocatable=view.allocatable,
                coherent=self.is_exact or agrees,
            ),
            pods,
            replace(
                self._scope.accounting,
                previous=previous,
                synced=self.synced,
                drop_unknown=bool(self.doubtful(now)),
                settled=self.files.have_settled(now),
                node_capacity=self.learning.node.capacity,
                node_annotations=self.learning.node.annotations,
            ),
        )

    def awaited(
        self, state: NodeState, pods: tuple[NodePod, ...] | None, now: float
    ) -> tuple[AbstractSet[Hashable], AbstractSet[Hashable]]:
        """Who is there by now after a restart, as this state has it, and who is to be.

        With the API's ``pods`` these are those that it shows, by name, and those that it may yet
        show, by UID: the kubelet admitted them before. Without it they are those that the files
        call admitted, by UID, less those known to have ended before the restart; of a kubelet that
        ran long before we did, none.
        """
        admitted, view = self.files.admitted, self.view
        if pods is not None:
            unseen = self.pods.unseen & admitted
            return (
                {(pod.namespace, pod.name) for pod in view.pods or ()}
                # Only what is doubtful is looked for in podresources.
                | (unseen & (state.admitted | state.holdings.keys()) & self.doubtful(now)),
                {
                    (pod.namespace, pod.name)
                    for pod in pods
                    if not pod.terminal and (pod.admitted or pod.uid in admitted)
                }
                | unseen,
            )
        if self.restart.is_first and self.restart.is_settled(now):
            return frozenset(), frozenset()
        return state.admitted if view.coherent else frozenset(), admitted - self.restart.gone
