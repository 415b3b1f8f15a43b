"""The observer as a machine: ``handle`` is the way in, effects and a deadline are the way out.

It has no clock, task, lock or I/O. A driver carries the effects out, hands the results back as
events, and says ``Tick`` when the deadline is due and nothing else waits. Nothing here waits for
the API server while the kubelet changes: what must be asked of it is asked beside.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from rte import accounting, errors, nrt
from rte.agent.observer import messages
from rte.agent.observer.answers import Answers
from rte.agent.observer.clocks import Clocks
from rte.agent.observer.failures import Failures
from rte.agent.observer.files import Files
from rte.agent.observer.learning import Learning
from rte.agent.observer.messages import Change
from rte.agent.observer.pods import PodTable
from rte.agent.observer.published import Published, tell_synced
from rte.agent.observer.restart import Restart
from rte.model.kubelet import KubeletView, combine
from rte.model.node import ConfigSource, NodeReading
from rte.telemetry.effects import Condition, Measured, Said

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable
    from collections.abc import Set as AbstractSet

    from rte.agent.observer.messages import Effect, Event
    from rte.model.kubelet import NodePod, StateFiles
    from rte.model.machine import Machine
    from rte.model.node import NodeState

_CLOCKS = Clocks()

#: Everything is asked once per poll interval, give or take a fifth of it.
_MOST_POLLS = 1.2


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
    accounting: accounting.Options = field(default_factory=accounting.Options)
    publish: nrt.Options = field(default_factory=nrt.Options)


class Observer:
    """What one node has, whenever something changed there.

    Args:
        scope: see there.
        clocks: see there.
        jitter: factor of each wait for the API server.

    Attributes:
        pods: the API's pods of this node.
    """

    def __init__(
        self,
        scope: Scope,
        clocks: Clocks = _CLOCKS,
        *,
        jitter: Callable[[], float] = lambda: 1.0,
        pods: PodTable | None = None,
    ) -> None:
        self._scope = scope
        self._clocks = clocks
        self.pods = pods or PodTable()
        self._restart = Restart(clocks.resync_most)
        best = ConfigSource.CONFIGZ if scope.pods else ConfigSource.UNKNOWN
        self._learning = Learning(clocks, self._restart, best, jitter)
        self._answers = Answers(clocks)
        self._failures = Failures(clocks)
        self._machine: Machine | None = None
        self._machine_asked = False
        self._files = Files(clocks)
        self._changes = Change.NOTHING
        self._noticed: float | None = None
        self._looking: Change | None = None
        self._look_at = -math.inf
        self._is_due = False
        self._gone: frozenset[str] = frozenset()
        self._published = Published(scope.publish)
        self._worked_at = -math.inf
        self._effects: list[Effect] = []
        if not scope.podresources:
            self._learning.at(-math.inf)

    # --- the way in, and the way out -------------------------------------------------------------

    def handle(self, event: Event, now: float) -> list[Effect]:
        """Take an event in; what has to be done about it."""
        match event:
            case messages.Noticed():
                self._add(event.changes, event.at, now)
            case messages.MachineRead():
                self._machine_read(event, now)
            case messages.FilesRead():
                self._files_read(event, now)
            case messages.Answered():
                self._answered(event, now)
            case messages.Learnt():
                self._learnt(event, now)
            case messages.OwnerSeen():
                self._own(event.uid, now)
            case messages.Tick():
                self._tick(now)
            case _:
                self._pods_told(event, now)
        effects, self._effects = self._effects, []
        return effects

    def deadline(self) -> float:
        """When ``handle(Tick(), now)`` is due; infinite: only after the next event."""
        if self._machine is None:
            return math.inf if self._machine_asked else self._look_at
        look = math.inf if self._looking is not None else self._look_at
        return min(look, math.inf if self._learning.asked else self._learning.due)

    def trusted_until(self) -> float:
        """Until when what was published last is (nearly) what the kubelet has.

        Trust ends by itself: with a source that fails for ``stale`` seconds, and with none that has
        said anything although everything was due to be asked. What a former kubelet said is worth
        nothing.
        """
        if self._published.state is None:
            return -math.inf
        oldest = self._worked_at
        if self._scope.podresources:
            oldest = min(oldest, self._answers.at)
        until = oldest + _MOST_POLLS * self._clocks.poll + self._clocks.stale
        for since in (self._failures.since, self._answers.silent_since):
            if since is not None:
                until = min(until, since + self._clocks.stale)
        return until

    @property
    def reading(self) -> NodeReading | None:
        """What was read last."""
        return self._published.reading

    # --- what to look at -------------------------------------------------------------------------

    def _add(self, changes: Change, at: float, now: float) -> None:
        self._changes |= changes
        if self._noticed is None:
            self._noticed = at
        self._look_at = min(self._look_at, now)

    def _pods_told(self, event: messages.PodsEvent, now: float) -> None:
        changed = True
        match event:
            case messages.PodsListed():
                self.pods.replace(event.items)
            case messages.PodSeen():
                changed = self.pods.update(event.obj)
            case messages.PodGone():
                changed = self.pods.remove(event.obj)
            case messages.PodsUnknown():
                self.pods.listed = changed = False
        if changed:
            self._tell(Change.PODS, now)

    def _tell(self, change: Change, now: float) -> None:
        """A change that nobody else has counted."""
        self._effects.append(Measured("changes", labels=(str(change.name).lower(),)))
        self._add(change, now, now)

    def _tick(self, now: float) -> None:
        if self._machine is None:
            self._ask_machine()
            return
        if Change.MACHINE in self._changes and not self._machine_asked:
            self._changes &= ~Change.MACHINE
            self._ask_machine()
        if learn := self._learning.ask(self._machine.memory_bytes, now):
            self._effects.append(learn)
        if self._looking is None and self._look_at <= now:
            self._look_at = math.inf
            changes, self._changes = self._changes, self._changes & Change.MACHINE
            if self._scope.kubelet:
                self._looking = changes
                self._effects.append(messages.ReadFiles(self._files.content))

    def _ask_machine(self) -> None:
        if not self._machine_asked:
            self._machine_asked = True
            self._effects.append(messages.ReadMachine())

    def _machine_read(self, event: messages.MachineRead, now: float) -> None:
        self._machine_asked = False
        if event.machine is None:
            self._effects.append(Said("warning", f"the hardware cannot be read: {event.problem}"))
            self._changes |= Change.MACHINE
            self._look_at = now + self._clocks.source
            return
        self._machine = event.machine
        if Change.MACHINE in self._changes:
            self._look_at = min(self._look_at, now)  # it changed while it was read
        if not self._scope.kubelet:
            self._publish(NodeReading(node_name=self._scope.node_name, machine=event.machine), now)
            self._noticed = None
            return
        self._is_due = True
        self._account(now)

    def _files_read(self, event: messages.FilesRead, now: float) -> None:
        changes, self._looking = self._looking or Change.NOTHING, None
        self._notice_restart(event.epoch, event.age_s, now)
        self._files.failed = event.problem is not None
        if event.problem is not None:
            self._failed(event.problem, now)
            return
        if event.files is not None:
            self._take_files(event.files, now)
        if changes & (Change.FILES | Change.PODS):
            self._answers.put_off(now)
        asks = self._scope.podresources and self._needs_answer(changes, now)
        if asks:
            self._ask(holds_up=self._answers.is_needed(changes) or self._lists_other_files)
        # What only an answer is needed for is accounted for when it is there.
        if not asks or changes & (Change.FILES | Change.PODS):
            self._is_due = True
        self._account(now)

    def _take_files(self, files: StateFiles, now: float) -> None:
        is_first = self._files.content is None
        if self._files.take(files, now):
            # The Node's capacity is about to change.
            self._learning.at(now + self._clocks.relearn)
        if is_first:
            self.pods.expect(self._files.holders | self._files.admitted)

    def _notice_restart(self, epoch: str, age_s: float | None, now: float) -> None:
        known = self._restart.epoch
        if not self._restart.notice(epoch, now, None if age_s is None else now - age_s):
            return
        self._answers.restarted()
        self._learning.restarted(now)
        self._worked_at = -math.inf
        if known:
            self._effects += self._published.distrust(self._learning.node.uid, now)
            self._effects += [
                Said("info", "the kubelet was restarted"),
                Measured("kubelet_restarts"),
            ]
            self._changes |= Change.MACHINE
            self._look_at = min(self._look_at, now)
            self._learning.at(now + self._clocks.relearn)

    def _learnt(self, event: messages.Learnt, now: float) -> None:
        is_new, told = self._learning.take(event, now)
        self._effects += told
        if is_new:
            self._tell(Change.LEARNT, now)

    def _own(self, uid: str, now: float) -> None:
        """The Node is another one: publish the last reading again, owned by it."""
        if uid != self._learning.node.uid:
            self._learning.node = replace(self._learning.node, uid=uid)
            if self._published.reading is not None:
                self._publish(self._published.reading, now)

    # --- podresources ----------------------------------------------------------------------------

    @property
    def _knows_pods(self) -> bool:
        return self._scope.pods and self.pods.listed

    @property
    def _lists_other_files(self) -> bool:
        """Without the API only podresources tells who is active, of the very files it is of."""
        return not self._knows_pods and self._files.content != self._answers.files

    def _needs_answer(self, changes: Change, now: float) -> bool:
        return (
            self._answers.is_due(changes, now)
            or not (self._restart.synced or self._answers.is_fresh)
            or self._lists_other_files
            or bool(self.pods.doubtful(now))
        )

    def _ask(self, *, holds_up: bool) -> None:
        if self._answers.ask(holds_up=holds_up):
            self._effects.append(messages.Ask(self._files.content))

    def _answered(self, event: messages.Answered, now: float) -> None:
        held_up, again = self._answers.holds_up, self._answers.ended()
        if event.view is None or event.epoch != self._restart.epoch:
            self._unanswered(event, now)
            return
        self._answers.take(event.view, event.files, now)
        self._effects += [
            Measured("source_up", 1.0, how="set"),
            Condition("source"),
        ]
        self._is_due = True
        if again:
            self._ask(holds_up=held_up)
        if event.files == self._files.content:
            self._account(now)
        else:
            self._look_at = min(self._look_at, now)

    def _unanswered(self, event: messages.Answered, now: float) -> None:
        if event.problem is None:
            # The kubelet was restarted, which the next look will notice.
            self._look_at = min(self._look_at, now + self._clocks.resync)
            return
        if not isinstance(event.problem, errors.KubeletError):
            self._failed(event.problem, now)  # the files around the answer
            return
        self._effects += [
            Measured("podresources_failures", labels=("list",)),
            Measured("source_up", 0.0, how="set"),
            Condition("source", "podresources does not answer"),
        ]
        self._answers.fail(now)
        if self._answers.view is None or not self._knows_pods:
            self._failed(event.problem, now)
            return
        # Files and API go on telling what changes.
        self._answers.check_in(self._clocks.source, now)
        self._is_due = True
        self._account(now)

    # --- accounting ------------------------------------------------------------------------------

    def _account(self, now: float) -> None:
        """Account for what is known, once all of it is, and publish it."""
        if not self._is_due or self._machine is None or self._lacks_something:
            return
        ended = {pod.uid for pod in self.pods.pods() if pod.terminal} if self._scope.pods else set()
        if hold := self._files.admission_under_way(ended, now):
            self._look_at = min(self._look_at, now + hold)
            return
        try:
            wait = self._build(self._machine, now)
        except errors.RteError as error:
            self._failed(error, now)
            return
        self._is_due, self._noticed = False, None
        self._look_at = min(self._look_at, now + wait)
        self._worked(now)

    @property
    def _lacks_something(self) -> bool:
        """Whether something is being read without which nothing can be said."""
        return (
            self._machine_asked
            or Change.MACHINE in self._changes
            or self._looking is not None
            or self._files.failed
            or not self._learning.known
            or (self._scope.files and self._files.content is None)
            or (
                self._scope.podresources
                and (
                    self._answers.view is None or self._answers.holds_up or self._lists_other_files
                )
            )
        )

    def _build(self, machine: Machine, now: float) -> float:
        """Build and publish a reading; seconds until the next look."""
        files, answers = self._files.content, self._answers
        view = answers.view or KubeletView()
        exact = not self._scope.podresources or (view.coherent and files == answers.files)
        if not exact and answers.check_at == math.inf:
            answers.check_in(self._clocks.check, now)
        waits = [max(0.001, answers.check_at - now)]
        pods = self.pods.pods() if self._knows_pods else None
        if self._scope.pods and files is not None:
            left = self.pods.retain(self._files.holders | self._files.admitted, now)
            waits.append(math.inf if left is None else left)
        doubtful = self.pods.doubtful(now) if self._scope.pods and exact else frozenset()
        reading = accounting.build_reading(
            self._scope.node_name,
            machine,
            combine(
                files,
                config=self._learning.config,
                version=self._learning.node.version,
                epoch=self._restart.epoch,
                pods=view.pods,
                allocatable=view.allocatable,
                # Devices are what the answers are needed for: those of the same checkpoint agree.
                coherent=exact or (view.coherent and self._files.have_same_devices(answers.files)),
            ),
            pods,
            replace(
                self._scope.accounting,
                previous=self._published.state,
                synced=self._restart.synced,
                drop_unknown=bool(doubtful),
                settled=self._files.have_settled(now),
                node_capacity=self._learning.node.capacity,
            ),
        )
        if reading.state is not None:
            reading = self._checked(reading, reading.state, view, pods, now)
            if not self._restart.synced:
                waits.append(self._clocks.resync)
        if self._scope.pods and reading.state is not None:
            alive = reading.state.holdings.keys() | reading.state.admitted
            self.pods.bury(doubtful - alive)
            if doubtful & alive:
                waits.append(self._clocks.source)  # only podresources will tell of their end
        if exact:
            self._effects += self._published.disagree(reading.disagreements)
        self._publish(reading, now)
        if reading.state is not None:
            self._effects.append(messages.Compare(reading.state))
        return min(waits)

    def _checked(
        self,
        reading: NodeReading,
        state: NodeState,
        view: KubeletView,
        pods: tuple[NodePod, ...] | None,
        now: float,
    ) -> NodeReading:
        """The reading, synced if the kubelet has by now re-admitted its pods."""
        restart, answers = self._restart, self._answers
        if restart.synced:
            self._gone = self._files.admitted - state.admitted
        elif not self._learning.pending and not (self._scope.podresources and restart.epoch):
            restart.nobody_to_ask()
        elif not self._learning.pending and answers.is_fresh:
            answers.is_fresh = False
            if line := restart.check(*self._awaited(state, view, pods, now), now):
                self._effects.append(Said("warning", line))
        self._effects += tell_synced(restart.synced)
        return replace(reading, state=replace(state, synced=restart.synced))

    def _awaited(
        self, state: NodeState, view: KubeletView, pods: tuple[NodePod, ...] | None, now: float
    ) -> tuple[AbstractSet[Hashable], AbstractSet[Hashable]]:
        """Who is there after a restart, and who is to be.

        With the API these are the pods that it shows, by name. Without it they are those that the
        files call admitted, by UID, less those known to have ended before the restart; of a kubelet
        that ran long before we did, none.
        """
        admitted = self._files.admitted
        if pods is not None:
            return (
                {(pod.namespace, pod.name) for pod in view.pods or ()},
                {
                    (pod.namespace, pod.name)
                    for pod in pods
                    if not pod.terminal and (pod.admitted or pod.uid in admitted)
                },
            )
        if self._restart.is_first and self._restart.is_settled(now):
            return frozenset(), frozenset()
        return state.admitted if view.coherent else frozenset(), admitted - self._gone

    def _publish(self, reading: NodeReading, now: float) -> None:
        noticed = now if self._noticed is None else self._noticed
        self._effects += self._published.offer(reading, self._learning.node.uid, noticed)

    def _failed(self, error: errors.RteError, now: float) -> None:
        """Note a failure, and when to look again unless something changes before."""
        look_at, effects = self._failures.failed(error, now, is_young=self._restart.is_young(now))
        self._effects += effects
        self._is_due = True
        self._look_at = min(self._look_at, look_at)

    def _worked(self, now: float) -> None:
        self._worked_at = now
        self._effects += self._failures.worked()
