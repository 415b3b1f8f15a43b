"""The observer as a machine: ``handle`` is the way in, effects and a deadline are the way out.

It has no clock, task, lock or I/O. A driver carries the effects out, hands the results back as
events, and says ``Tick`` when the deadline is due and nothing else waits. Nothing here waits for
the API server while the kubelet changes: what must be asked of it is asked beside.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING

from rte import errors
from rte.accounting import liveness
from rte.accounting.liveness import PodTable, uid_of
from rte.agent.observer import messages
from rte.agent.observer.files import Looking
from rte.agent.observer.known import NodeSources
from rte.agent.observer.messages import KubeletChange
from rte.agent.observer.published import GONE, NOT_TAKEN_UP, Failures, ReadingGate, tell_synced
from rte.agent.timings import DEFAULT, Timings
from rte.model.node import NodeReading
from rte.telemetry.effects import Measured, Said, SetReadiness
from rte.telemetry.quarantine import Quarantine

if TYPE_CHECKING:
    from collections.abc import Callable

    from rte.agent.observer.known import Scope
    from rte.agent.observer.messages import Effect, Event
    from rte.model.kubelet import NodePod, StateFiles
    from rte.model.machine import Machine
    from rte.model.node import NodeState
    from rte.telemetry.quarantine import Bulkhead, Fault


class Observer:
    """What one node has, whenever something changed there.

    Args:
        scope: see there.
        timings: see there.
        jitter: factor of each wait for the API server.
        quarantine: shared with who reads for it.

    Attributes:
        pods: the API's pods of this node.
        quarantine: what has caused an internal error.
    """

    def __init__(
        self,
        scope: Scope,
        timings: Timings = DEFAULT,
        *,
        jitter: Callable[[], float] = lambda: 1.0,
        pods: PodTable | None = None,
        quarantine: Quarantine | None = None,
    ) -> None:
        self._scope = scope
        self._timings = timings
        self.quarantine = quarantine or Quarantine()
        self.pods = pods or PodTable()
        self._known = NodeSources(scope, timings, self.pods, jitter)
        self._failures = Failures(timings)
        self._published = ReadingGate(scope.publish)
        self._looking = Looking()
        self._is_due = False
        self._effects: list[Effect] = []
        if not scope.podresources:
            self._known.learning.at(-math.inf)

    # --- the way in, and the way out -------------------------------------------------------------

    def handle(self, event: Event, now: float) -> list[Effect]:
        """Take an event in; what has to be done about it."""
        with self.quarantine.guard("observer", type(event).__name__, now) as bulkhead:
            self._take(event, now)
        if bulkhead.fault is not None:
            self._put_off(event, bulkhead.fault, now)
        self.quarantine.tidy(now)
        effects = [*self._effects, *self.quarantine.effects]
        self._effects.clear()
        self.quarantine.effects.clear()
        return effects

    def _put_off(self, event: Event, fault: Fault, now: float) -> None:
        """An event could not be taken in as a whole: nothing is published until all was read."""
        known = self._known
        if isinstance(event, messages.FilesRead):
            self._looking.end()
        elif isinstance(event, messages.Answered):
            known.answers.ended()
        elif isinstance(event, messages.MachineRead):
            known.hardware.changed = True
        elif isinstance(event, messages.Learnt):
            known.learning.asked = False
            known.learning.at(now + self._timings.source)
        self._failed(errors.InternalError(str(fault)), now)

    def _take(self, event: Event, now: float) -> None:
        match event:
            case messages.Noticed():
                self._add(event.changes, event.at, now)
            case messages.MachineRead():
                self._machine_read(event, now)
            case messages.FilesRead():
                self._files_read(event, now)
            case messages.Answered():
                self._answered(event, now)
            case messages.Pulse():
                self._felt(event, now)
            case messages.Learnt():
                self._learnt(event, now)
            case messages.OwnerSeen():
                self._own(event.uid, now)
            case messages.Tick():
                self._tick(now)
            case _:
                self._pods_told(event, now)

    def deadline(self) -> float:
        """When ``handle(Tick(), now)`` is due; infinite: only after the next event."""
        hardware, learning = self._known.hardware, self._known.learning
        if hardware.machine is None:
            return math.inf if hardware.asked else self._looking.at
        return min(self._looking.deadline(), math.inf if learning.asked else learning.due)

    def trusted_until(self) -> float:
        """Until when what was published last is (nearly) what the kubelet has."""
        if self._published.state is None:
            return -math.inf
        return self._failures.trusted_until(
            self._known.answers if self._scope.podresources else None
        )

    @property
    def reading(self) -> NodeReading | None:
        """What was read last."""
        return self._published.reading

    # --- what to look at -------------------------------------------------------------------------

    def _add(self, changes: KubeletChange, at: float, now: float) -> None:
        self._known.hardware.changed |= KubeletChange.MACHINE in changes
        self._looking.add(changes, at, now)

    def _pods_told(self, event: messages.PodsEvent, now: float) -> None:
        changed = True
        match event:
            case messages.PodsListed():
                self.pods.replace(event.items, lambda uid: self._of_pod(uid, now))
            case messages.PodSeen():
                with self._of_pod(uid_of(event.obj), now):
                    changed = self.pods.update(event.obj)
            case messages.PodGone():
                changed = self.pods.remove(event.obj)
            case messages.PodsUnknown():
                self.pods.listed = changed = False
        if changed:
            self._tell(KubeletChange.PODS, now)

    def _of_pod(self, uid: str, now: float) -> Bulkhead:
        """For work about a pod: of one that raises what was last known stands."""
        return self.quarantine.guard("pods", uid, now)

    def _tell(self, change: KubeletChange, now: float) -> None:
        """A change that nobody else has counted."""
        self._effects.append(Measured("changes", labels=(str(change.name).lower(),)))
        self._add(change, now, now)

    def _tick(self, now: float) -> None:
        hardware = self._known.hardware
        if hardware.machine is None or hardware.changed:
            self._effects += hardware.ask()
        if hardware.machine is None:
            return
        if learn := self._known.learning.ask(hardware.machine.memory_bytes, now):
            self._effects.append(learn)
        if self._looking.is_due(now):
            self._looking.begin()
            if self._scope.kubelet:
                self._effects.append(messages.ReadFiles(self._known.files.content))
            else:
                self._looking.end()

    # --- what was read ---------------------------------------------------------------------------

    def _machine_read(self, event: messages.MachineRead, now: float) -> None:
        hardware = self._known.hardware
        hardware.asked = False
        if event.machine is None:
            self._effects.append(Said("warning", f"the hardware cannot be read: {event.problem}"))
            hardware.changed = True
            self._looking.at = now + self._timings.source
            return
        hardware.machine = event.machine
        if hardware.changed:
            self._looking.by(now)  # it changed while it was read
        if not self._scope.kubelet:
            self._publish(NodeReading(node_name=self._scope.node_name, machine=event.machine), now)
            self._looking.noticed = None
            return
        self._is_due = True
        self._account(now)

    def _files_read(self, event: messages.FilesRead, now: float) -> None:
        known = self._known
        changes = self._looking.end()
        self._notice_restart(event, now)
        known.files.failed = event.problem is not None
        if event.problem is not None:
            self._failed(event.problem, now)
            return
        if event.files is not None:
            self._take_files(event.files, now)
        if changes & (KubeletChange.FILES | KubeletChange.PODS):
            known.answers.put_off(now)
        asks = known.needs_answer(changes, now)
        if asks:
            self._ask(holds_up=known.answers.is_needed(changes) or known.lists_other_files)
        # What only an answer is needed for is accounted for when it is there.
        if not asks or changes & (KubeletChange.FILES | KubeletChange.PODS):
            self._is_due = True
        self._account(now)

    def _take_files(self, files: StateFiles, now: float) -> None:
        known = self._known
        is_first = known.files.content is None
        if known.files.take(files, now):
            # The Node's capacity is about to change.
            known.learning.at(now + self._timings.relearn)
        if is_first:
            self.pods.expect(known.files.holders | known.files.admitted)

    def _notice_restart(self, event: messages.FilesRead, now: float) -> None:
        known, before = self._known, self._known.restart.epoch
        if not known.restart.notice(event.epoch, now, event.started, event.made):
            return
        known.answers.restarted()
        known.learning.restarted(now)
        self._failures.restarted()
        if before:
            self._distrust(NOT_TAKEN_UP, now)
            self._effects += [
                Said("info", "the kubelet was restarted"),
                Measured("kubelet_restarts"),
            ]
            known.hardware.changed = True
            self._looking.by(now)
            known.learning.at(now + self._timings.relearn)

    def _learnt(self, event: messages.Learnt, now: float) -> None:
        is_new, told = self._known.learning.take(event, now)
        self._effects += told
        known = self._known.learning
        if self._scope.pods and self._scope.publish.koordinator:
            known.at(now + self._timings.node)
        if known.config is not None:
            self._known.files.has_marker = liveness.keeps_allocated(
                known.node.version, known.config.feature_gates
            )
        if is_new:
            self._tell(KubeletChange.LEARNT, now)

    def _own(self, uid: str, now: float) -> None:
        """The Node is another one: publish the last reading again, owned by it."""
        learning = self._known.learning
        if uid != learning.node.uid:
            learning.node = replace(learning.node, uid=uid)
            if self._published.reading is not None:
                self._publish(self._published.reading, now)

    # --- what podresources answered --------------------------------------------------------------

    def _ask(self, *, holds_up: bool) -> None:
        if self._known.answers.ask(holds_up=holds_up):
            self._effects.append(messages.Ask(self._known.files.content))

    def _answered(self, event: messages.Answered, now: float) -> None:
        answers = self._known.answers
        held_up, again = answers.holds_up, answers.ended()
        if event.view is None or event.epoch != self._known.restart.epoch:
            self._unanswered(event, now)
            return
        answers.take(event.view, event.files, now)
        self._effects += [
            Measured("source_up", 1.0, how="set"),
            SetReadiness("source"),
        ]
        self._is_due = True
        if again:
            self._ask(holds_up=held_up)
        if event.files == self._known.files.content:
            self._account(now)
        else:
            self._looking.by(now)

    def _unanswered(self, event: messages.Answered, now: float) -> None:
        if event.problem is None:
            # The kubelet was restarted, which the next look will notice.
            self._looking.by(now + self._timings.readmission)
            return
        if not isinstance(event.problem, errors.KubeletError):
            self._failed(event.problem, now)  # the files around the answer
            return
        self._effects.append(Measured("podresources_failures", labels=("list",)))
        self._silent(event.problem, now)
        answers = self._known.answers
        if answers.view is None or not self._known.has_pods:
            self._failed(event.problem, now)
            return
        # Files and API go on telling what changes.
        answers.check_in(self._timings.source, now)
        self._is_due = True
        self._account(now)

    def _felt(self, event: messages.Pulse, now: float) -> None:
        """Another question tells whether it is back, or goes on failing."""
        answers = self._known.answers
        if event.epoch != self._known.restart.epoch:
            return
        if event.problem is not None:
            self._silent(event.problem, now)
        if answers.silent_since is not None:
            self._ask(holds_up=False)

    def _silent(self, problem: errors.RteError, now: float) -> None:
        """The kubelet does not answer; where it does not run, nothing is to be sent there."""
        answers = self._known.answers
        self._effects += [
            Measured("source_up", 0.0, how="set"),
            SetReadiness("source", "podresources does not answer"),
        ]
        was_gone = answers.is_gone
        answers.fail(problem, now)
        if answers.is_gone and not was_gone:
            self._effects.append(Said("warning", f"{GONE}: {problem}"))
            self._distrust(GONE, now)

    def _distrust(self, why: str, now: float) -> None:
        owner = self._known.learning.node.uid
        self._effects += self._published.distrust(why, owner, now)

    # --- what is handed on -----------------------------------------------------------------------

    def _account(self, now: float) -> None:
        """Account for what is known, once all of it is, and publish it."""
        known, machine = self._known, self._known.hardware.machine
        if not self._is_due or machine is None or self._looking.under_way:
            return
        if known.lacks_something:
            return
        if hold := known.files.admission_under_way(known.ended, now):
            self._looking.by(now + hold)
            return
        try:
            wait = self._build(machine, now)
        except Exception as error:  # noqa: BLE001 - nothing is published, and it is looked again
            self._failed(self.quarantine.as_expected("observer", "reading", error, now), now)
            return
        self._is_due, self._looking.noticed = False, None
        self._looking.by(now + wait)
        self._effects += self._failures.worked(now)

    def _build(self, machine: Machine, now: float) -> float:
        """Build and publish a reading; seconds until the next look."""
        known, exact = self._known, self._known.is_exact
        if not exact and known.answers.check_at == math.inf:
            known.answers.check_in(self._timings.check, now)
        waits = [max(0.001, known.answers.check_at - now)]
        pods = known.listed_pods
        if self._scope.pods and known.files.content is not None:
            left = self.pods.retain(known.files.holders | known.files.admitted, now)
            waits.append(math.inf if left is None else left)
        doubtful = known.doubtful(now)
        reading = known.account(machine, pods, self._published.state, now)
        if reading.state is not None:
            self._take_up(reading.state, pods, now)
            state = replace(reading.state, synced=known.synced)
            reading = replace(reading, state=state)
            if not state.synced:
                waits.append(self._timings.readmission)
            alive = doubtful & (state.holdings.keys() | state.admitted)
            if state.synced:  # else podresources may not list them yet
                self.pods.bury(doubtful - alive)
            if alive:
                waits.append(self._timings.source)  # only podresources will tell of their end
        if exact:
            self._effects += self._published.disagree(reading.disagreements)
        self._publish(reading, now)
        if reading.state is not None:
            self._effects.append(messages.CompareAdmissions(reading.state))
        return min(waits)

    def _take_up(self, state: NodeState, pods: tuple[NodePod, ...] | None, now: float) -> None:
        """Whether the kubelet has by now re-admitted its pods."""
        known, restart, answers = self._known, self._known.restart, self._known.answers
        if restart.synced:
            restart.gone = known.files.admitted - state.admitted
        elif not known.learning.pending and not (self._scope.podresources and restart.epoch):
            restart.nobody_to_ask()
        elif not known.learning.pending and answers.is_fresh:
            answers.is_fresh = False
            if line := restart.check(*known.awaited(state, pods, now), now):
                self._effects.append(Said("warning", line))
        if answers.is_gone:
            self._effects += tell_synced(GONE)
        else:
            self._effects += tell_synced("" if restart.synced else NOT_TAKEN_UP)

    def _publish(self, reading: NodeReading, now: float) -> None:
        noticed = now if self._looking.noticed is None else self._looking.noticed
        owner = self._known.learning.node.uid
        self._effects += self._published.offer(reading, owner, noticed)

    def _failed(self, error: errors.RteError, now: float) -> None:
        """Note a failure, and when to look again unless something changes before."""
        is_young = self._known.restart.is_young(now)
        look_at, effects = self._failures.failed(error, now, is_young=is_young)
        self._effects += effects
        self._is_due = True
        self._looking.by(look_at)
