"""A node, its kubelet and its API server as values: what an agent's two machines may meet.

Nothing happens by itself. A test chooses what happens next: something in the world, the service of
an effect (what is read is as of then) or the delivery of its answer, time. So any order of them can
be played, and every lie or delay is one that a real node could bring about.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from functools import cache
from typing import TYPE_CHECKING, Any

from rte import accounting, errors, nrt
from rte.agent.observer import messages as seen
from rte.agent.observer.known import Scope
from rte.agent.observer.machine import Observer
from rte.agent.observer.messages import KubeletChange, NodeObjectFacts
from rte.agent.publisher import messages as told
from rte.agent.publisher.machine import Publisher
from rte.model.kubelet import (
    Allocatable,
    AllocatedPods,
    CPUManagerState,
    ListedContainer,
    ListedPod,
    StateFiles,
    combine,
)
from rte.model.node import ConfigSource, KubeletConfig
from rte.sysfs import read_machine
from tests.unit.agent.kubelets import FIXTURES
from tests.unit.agent.test_pods import pod

if TYPE_CHECKING:
    import random
    from collections.abc import Mapping

    from rte.model.machine import Machine
    from rte.model.node import NodeState

#: Without it a kubelet of 1.34 does not tell whom it has admitted.
GATE = "InPlacePodVerticalScaling"

POLICIES = ("none", "best-effort", "restricted", "single-numa-node")


@cache
def machine() -> Machine:
    """The node's hardware."""
    return read_machine(FIXTURES / "16-2s-hugepages/sys", FIXTURES / "16-2s-hugepages/proc")


@dataclass(frozen=True)
class Truth:
    """What the kubelet's files said at one moment, between two changes of the shared pool."""

    entries: Mapping[str, int]
    admitted: frozenset[str]


@dataclass
class Kubelet:
    """One start of the kubelet.

    Attributes:
        listed: the pods that it knows; after its start none, until it has taken them up.
        told_all: it has listed all of its pods since its start; the last of them may be listed a
            moment before it is admitted, while the kubelet has just been started.
        synced: it has admitted all of its pods since its start.
        reported: it has told the API of itself.
        is_hasty: it was started so soon after the former one's last report that the API cannot
            show whose report it is.
        up: it answers; else it ``hangs``, or does not run.
        left_over: it does not tell whom it admits; this is what the one before it has told.
    """

    number: int
    began: float
    policy: str
    version: str
    listed: set[str] = field(default_factory=set)
    told_all: bool = False
    synced: bool = False
    reported: bool = False
    is_hasty: bool = False
    up: bool = True
    hangs: bool = False
    left_over: frozenset[str] | None = None

    @property
    def epoch(self) -> str:
        return f"epoch-{self.number}"


def _said(obj: dict[str, Any]) -> tuple[Any, ...]:
    """What a report tells of the node."""
    return obj["metadata"]["annotations"][nrt.node_state.ANNOTATION], obj["zones"]


@dataclass
class Pending:
    """An effect that somebody carries out: not yet (``answer`` is None), or not yet delivered."""

    effect: Any
    epoch: str
    answer: Any = None


class World:
    """Everything, and the checks of what the agent does."""

    def __init__(self, rng: random.Random, *, api: bool, unrest: float = 1.0) -> None:
        self.rng, self.api, self.unrest = rng, api, unrest
        self.now = 1000.0
        self.kubelet = Kubelet(1, -1e6, "none", "v1.35.0", synced=True, reported=True)
        self.node_version, self.node_heard = self.kubelet.version, self.now
        self.kubelets = {self.kubelet.epoch: self.kubelet}
        self.entries: dict[str, int] = {}
        self.admitted: set[str] = set()
        self.alive: set[str] = set()
        self.half: tuple[str, int, int] | None = None
        self.damaged = False
        self.serial = 0
        self.history: list[Truth] = []
        self.oldest = 0
        self.static: set[str] = set()
        self.shown: dict[str, dict[str, Any]] = {}
        self.untold: list[Any] = []
        self.unnoticed = KubeletChange.NOTHING
        self.node_uid = "node-1"
        self.stored: dict[str, Any] | None = None
        self.version = 1
        self.watched: list[told.Watched] = []
        self.backup: tuple[int, dict[str, Any] | None] = (1, None)
        self.api_is_up, self.has_published = True, False
        self.is_friendly = False
        self.last_answer: dict[str, float] = {}
        self.silent_since: dict[str, float] = {}
        self.best_known = ""
        self.offers: list[tuple[float, Any]] = []
        self.behind_since: float | None = None
        self.known_epoch = ""
        self.felt_at = -math.inf
        self.known_gone = False
        self.renewals = self.synced_reports = 0
        scope = Scope(
            node_name="n0",
            pods=api,
            publish=nrt.WriterOptions(),
            accounting=accounting.ReadingOptions(),
        )
        self.observer = Observer(scope)
        self.publisher = Publisher(has_lease=True)
        self.reads: list[Pending] = []
        self.requests: list[Pending] = []
        self.trusted = -math.inf
        self.remember()
        self.tell(seen.MachineRead(machine()))

    # --- the agent -------------------------------------------------------------------------------

    def tell(self, event: Any) -> None:
        """The observer is told; what it wants is taken note of."""
        for effect in self.observer.handle(event, self.now):
            match effect:
                case seen.ReadFiles() | seen.Ask() | seen.Learn() | seen.ReadMachine():
                    self.reads.append(Pending(effect, self.kubelet.epoch))
                case seen.Publish():
                    self.check_report(effect.observation.object)
                    self.note_offer(effect.observation.object)
                    self.tell_publisher(told.Offered(effect.observation))
        reading = self.observer.reading
        if reading is not None and reading.state is not None and reading.state.synced:
            assert reading.state.epoch == self.known_epoch, "the kubelet is another one by now"
            assert not self.known_gone, "the kubelet does not run"
        if self.observer.trusted_until() != self.trusted:
            self.trusted = self.observer.trusted_until()
            self.tell_publisher(told.Trusted(self.trusted))

    def tell_publisher(self, event: Any) -> None:
        """The publisher is told; what it wants is taken note of."""
        if isinstance(event, told.Watched) and event.listed and self.offers:
            has = [_said(obj) if obj else None for obj in (event.object, self.stored)]
            if self.offers[-1][1] not in has:
                self.behind_since = self.behind_since or self.now
        for effect in self.publisher.handle(event, self.now):
            match effect:
                case told.Get() | told.AskOwner() | told.WriteReport() | told.Probe():
                    self.requests.append(Pending(effect, ""))
                case told.Renew():
                    self.check_renewal()
                    self.requests.append(Pending(effect, ""))

    def tick(self) -> None:
        """What is due now."""
        if self.observer.deadline() <= self.now:
            self.tell(seen.Tick())
        if self.publisher.deadline() <= self.now:
            self.tell_publisher(told.Tick())

    # --- checks ----------------------------------------------------------------------------------

    def check_report(self, obj: dict[str, Any]) -> None:
        """A report that says that it is synced is true."""
        state = nrt.decode(obj).state
        assert state is not None
        if not state.synced:
            return
        self.synced_reports += 1
        assert state.epoch == self.known_epoch, "of another start than the last one noticed"
        kubelet = self.kubelets[state.epoch]
        assert kubelet.synced, "the kubelet has not taken up its pods"
        # What is only assumed may be wrong, and says so; what was known is never given up for it.
        if state.config.source is ConfigSource.CONFIGZ:
            assert state.config.topology_policy == kubelet.policy
        else:
            assert self.best_known != state.epoch, "a weaker source has replaced a better one"
        if not kubelet.is_hasty and self.now - kubelet.began < 120:
            assert state.kubelet_version == kubelet.version
        matches = [
            index
            for index in range(self.oldest, len(self.history))
            if self._is_true(state, self.history[index])
        ]
        assert matches, (state.holdings, state.admitted, self.history[self.oldest :], self.alive)
        self.oldest = matches[0]

    def _is_true(self, state: NodeState, truth: Truth) -> bool:
        """What the files said once, less pods that have ended."""
        held = {uid: containers["c"].cpus for uid, containers in state.holdings.items()}
        missing = set(truth.entries.keys() - held.keys())
        is_told = self.kubelets[state.epoch].left_over is None  # else the API tells, and later
        if is_told:
            missing |= truth.admitted - state.admitted
        union = 0
        for cpus in held.values():
            union |= cpus
        return (
            all(truth.entries.get(uid) == cpus for uid, cpus in held.items())
            and (state.admitted <= truth.admitted or not is_told)
            and not missing & self.alive
            and state.shared == machine().online & ~union
        )

    def check_renewal(self) -> None:
        """The Lease is renewed only while the kubelet that is reported of has just answered."""
        self.renewals += 1
        assert self.now - self.felt_at < 5, "the kubelet has given no sign of life"
        assert self.now - self.last_answer.get(self.known_epoch, -math.inf) < 1.2 * 60 + 30
        for what, since in self.silent_since.items():
            assert self.now - since < 31, f"{what} have failed for so long"
        if self.behind_since is not None:
            assert self.now - self.behind_since < 41, "the API server lacks what is vouched for"
        state = self.observer.reading and self.observer.reading.state
        assert state is not None
        assert state.epoch == self.known_epoch
        assert self.has_published, "nothing was published yet"

    def note_offer(self, obj: dict[str, Any]) -> None:
        """The API server is to have this."""
        said = _said(obj)
        if self.offers and said == self.offers[-1][1]:
            return
        self.offers.append((self.now, said))
        if self.behind_since is None:
            self.behind_since = self.now
        self.note_stored()

    def note_stored(self) -> None:
        """What the API server lacks counts from the first offer after the one that it has."""
        stored = self.stored and _said(self.stored)
        for index in reversed(range(len(self.offers))):
            if self.offers[index][1] == stored:
                later = self.offers[index + 1 :]
                self.behind_since = later[0][0] if later else None
                return

    # --- the world -------------------------------------------------------------------------------

    def remember(self) -> None:
        """The files agree with each other, whoever is admitted by now."""
        entries = dict(self.entries)
        if self.half is not None:
            entries[self.half[0]] = self.half[1]
        self.history.append(Truth(entries, frozenset(self.admitted)))

    def files(self) -> StateFiles:
        """As they are read now."""
        default = machine().online
        entries = dict(self.entries)
        if self.half is not None and self.half[2] >= 1:
            default &= ~self.half[1]
        if self.half is not None and self.half[2] >= 2:
            entries[self.half[0]] = self.half[1]
        for cpus in entries.values():
            default &= ~cpus
        return StateFiles(
            cpu=CPUManagerState(
                policy="static",
                default=default,
                entries={uid: {"c": cpus} for uid, cpus in entries.items()},
            ),
            allocated=AllocatedPods(dict.fromkeys(self.told_admitted(), frozenset({"c"}))),
            signatures=((self.serial, 0, 0), None, (self.serial, 1, 0), None),
        )

    def told_admitted(self) -> frozenset[str]:
        """UIDs in the file that tells who was admitted."""
        left_over = self.kubelet.left_over
        return frozenset(self.admitted) if left_over is None else left_over

    def change_files(self) -> None:
        """Something was written; inotify will tell."""
        self.serial += 1
        self.unnoticed |= KubeletChange.FILES

    def admit(self) -> None:
        """Begin an admission, or go on with it: shared pool, entry, marker."""
        if not self.kubelet.up or self.damaged or not self._is_back:
            return
        if self.half is None:
            # What ended pods still hold goes with the next admission, before it takes its own.
            for uid in self.entries.keys() - self.alive:
                del self.entries[uid]
            self.admitted &= self.alive
            taken = 1
            for cpus in self.entries.values():
                taken |= cpus
            free = [1 << bit for bit in range(16) if not taken >> bit & 1]
            if not free:
                return
            number = self.rng.randint(1, min(3, len(free)))
            mask = sum(self.rng.sample(free, number))
            uid = f"p{self.serial}-{len(self.history)}"
            self.remember()
            self.half = (uid, mask, 1)
            self.alive.add(uid)
            if self.rng.random() < 0.5:
                self.static.add(uid)
            self.show(uid, "Pending")
        else:
            uid, mask, stage = self.half
            if stage == 1:
                self.half = (uid, mask, 2)
                self.remember()
            else:
                self.half = None
                self.entries[uid] = mask
                self.admitted.add(uid)
                self.kubelet.listed.add(uid)
                self.remember()
                self.show(uid, "Running")
        self.change_files()

    @property
    def has_told_of_itself(self) -> bool:
        """Whether an answer about the kubelet's configuration is on its way to the agent."""
        return any(isinstance(pending.answer, seen.Learnt) for pending in self.reads)

    @property
    def _is_back(self) -> bool:
        return self.admitted & self.alive <= self.kubelet.listed

    def end(self) -> None:
        """A pod ends: the kubelet lets go of it, then the API shows it."""
        running = sorted(self.alive & self.admitted & self.kubelet.listed)
        if not running or not self.kubelet.up:
            return
        uid = self.rng.choice(running)
        self.alive.discard(uid)
        self.kubelet.listed.discard(uid)
        if self.rng.random() < 0.5:
            self.show(uid, "Succeeded")
        else:
            gone = self.shown.pop(uid, None)
            if gone is not None:
                self.untold.append(seen.PodGone(gone))

    def show(self, uid: str, phase: str) -> None:
        """The API shows a pod."""
        obj = pod(uid, phase=phase, mirror=uid if uid in self.static else "")
        if uid in self.static:
            obj["metadata"]["uid"] = f"mirror-{uid}"
        if phase == "Pending":
            obj["status"].pop("startTime")
        self.shown[uid] = obj
        self.untold.append(seen.PodSeen(obj))

    def lose_a_mirror(self) -> None:
        """Somebody deletes the mirror of a static pod that runs; maybe while nobody watches."""
        shown = sorted(self.static & self.alive & self.admitted & self.shown.keys())
        if shown:
            gone = self.shown.pop(self.rng.choice(shown))
            if self.rng.random() < 0.5:
                self.untold.append(seen.PodGone(gone))
            else:
                self.relist()

    def restart(self) -> None:
        """Another kubelet, maybe configured otherwise; an admission under way is cut off."""
        if self.half is not None:
            uid, _, _ = self.half
            self.half = None
            self.alive.discard(uid)
            self.change_files()
            self.show(uid, "Failed")
        self.damaged = False
        number = self.kubelet.number + 1
        is_old = self.rng.random() < 0.2
        self.kubelet = Kubelet(
            number,
            self.now,
            self.rng.choice(POLICIES),
            "v1.34.0" if is_old else f"v1.{35 + number % 3}.0",
            is_hasty=self.now - self.node_heard <= 10,
            left_over=self.told_admitted() if is_old else None,
        )
        self.kubelets[self.kubelet.epoch] = self.kubelet
        self.unnoticed |= KubeletChange.SOCKET
        self.take_up()

    def take_up(self, *, everybody: bool = False) -> None:
        """The kubelet takes up one of the pods from before its start, or all of them."""
        waiting = sorted((self.alive & self.admitted) - self.kubelet.listed)
        if everybody:
            self.kubelet.listed |= set(waiting)
        elif self.kubelet.up and waiting and self.rng.random() < 0.05:
            self.kubelet.listed.add(waiting[0])
        if self.now - self.kubelet.began > 120:
            self.kubelet.listed |= set(waiting)
            self.kubelet.synced = True
        if self._is_back and self.rng.random() < 0.2:
            self.kubelet.synced = True
        if everybody or (self.kubelet.up and self.api_is_up and self.rng.random() < 0.01):
            self.report()

    def report(self) -> None:
        """The kubelet tells the API of itself."""
        self.kubelet.reported = True
        self.node_version, self.node_heard = self.kubelet.version, self.now

    def write_over(self) -> None:
        """Somebody else writes the object, deletes it, or makes the Node anew."""
        if self.stored is None:
            return
        self.version += 1
        chance = self.rng.random()
        if chance < 0.2:
            self.stored = None
            self.node_uid = f"node-{self.version}"
        elif chance < 0.4:
            self.stored = None
        else:
            metadata = {**self.stored["metadata"], "resourceVersion": str(self.version)}
            part = {"zones": []} if chance < 0.7 else {"foreign": chance}
            self.stored = {**self.stored, "metadata": metadata, **part}
        self.watched.append(told.Watched(self.stored, str(self.version)))

    def restore(self) -> None:
        """The API server's store is what it was a while ago, its versions too.

        What it lacks since then counts from the moment at which the agent can know.
        """
        self.version, self.stored = self.backup
        del self.offers[:-1]
        self.behind_since = None
        self.watched.clear()
        version = self.stored["metadata"]["resourceVersion"] if self.stored else str(self.version)
        self.watched.append(told.Watched(self.stored, version, listed=True))

    # --- what is read ----------------------------------------------------------------------------

    def serve(self, pending: Pending) -> None:
        """Carry an effect of the observer out; the answer is as of now."""
        epoch = self.kubelet.epoch
        match pending.effect:
            case seen.ReadMachine():
                pending.answer = seen.MachineRead(machine())
            case seen.ReadFiles():
                began = self.kubelet.began
                if self.damaged or self.rng.random() < 0.02:
                    error = errors.ParseError("cpu_manager_state", "{")
                    pending.answer = seen.FilesRead(None, epoch, began, error, made=began)
                else:
                    pending.answer = seen.FilesRead(self.files(), epoch, began, made=began)
            case seen.Ask():
                pending.answer = self._ask(pending.epoch)
            case seen.Learn():
                pending.answer = self._learn(pending.effect)

    def serve_some(self) -> None:
        """Some effects are carried out, and nobody has told the observer yet."""
        for pending in self.reads:
            if pending.answer is None and self.rng.random() < 0.5:
                self.serve(pending)

    def _ask(self, before: str) -> seen.Answered:
        if before != self.kubelet.epoch or self.rng.random() < 0.05:
            return seen.Answered(before, None, problem=errors.KubeletError("no answer"))
        if not self.kubelet.up:
            return seen.Answered(before, None, problem=self.no_answer())
        if self.damaged:
            return seen.Answered(before, None, problem=errors.ParseError("cpu_manager_state", "{"))
        kubelet = self.kubelet
        kubelet.synced |= kubelet.told_all or (self._is_back and self.now - kubelet.began >= 10)
        kubelet.told_all = self._is_back
        files = self.files()
        listed = tuple(
            ListedPod(
                namespace="default",
                name=uid,
                containers=(ListedContainer(name="c", cpus=self.entries[uid]),),
            )
            for uid in sorted(self.kubelet.listed & self.entries.keys())
        )
        view = combine(
            files,
            pods=listed,
            allocatable=Allocatable(cpus=machine().online & ~1),
            coherent=self.half is None,
        )
        return seen.Answered(before, view, files)

    def _learn(self, effect: seen.Learn) -> seen.Learnt:
        kubelet = self.kubelet
        if not self.api_is_up or self.rng.random() < 0.1:
            return seen.Learnt(effect.epoch, problem=errors.KubeError("no answer"))
        if effect.epoch != kubelet.epoch:
            problem = errors.InconsistentStateError("restarted while it was asked")
            return seen.Learnt(effect.epoch, problem=problem)
        config = KubeletConfig(
            cpu_policy="static",
            reserved_cpus=1,
            topology_policy=kubelet.policy,
            feature_gates={} if kubelet.left_over is None else {GATE: False},
            source=ConfigSource.CONFIGZ,
        )
        if effect.patient and not kubelet.up:
            return seen.Learnt(effect.epoch, problem=errors.KubeError("no answer"))
        if self.api and not (kubelet.up and self.is_friendly) and self.rng.random() < 0.3:
            # It may not be asked: its file, of which nobody knows whether it is in force.
            policy = self.rng.choice(POLICIES)
            config = replace(config, topology_policy=policy, source=ConfigSource.USUAL_FILE)
        node = NodeObjectFacts(uid=self.node_uid, version=self.node_version, heard=self.node_heard)
        return seen.Learnt(effect.epoch, config, node)

    def deliver(self, pending: Pending) -> None:
        """The observer learns the answer."""
        self.reads.remove(pending)
        answer = pending.answer
        match answer:
            case seen.FilesRead():
                if answer.epoch != self.known_epoch:
                    self.silent_since.clear()
                    self.known_gone = False
                self.known_epoch = answer.epoch
                self._note_silence("files", answer.problem)
            case seen.Answered(epoch=epoch) if epoch == self.known_epoch:
                if answer.view is not None:
                    self.last_answer[epoch] = self.now
                    self.known_gone = False
                self.known_gone |= isinstance(answer.problem, errors.KubeletGoneError)
                # Its problem may be the files around it.
                is_theirs = isinstance(answer.problem, errors.ParseError)
                self._note_silence("files" if is_theirs else "answers", answer.problem)
        self.tell(answer)
        match answer:
            case seen.Learnt(epoch=epoch, config=KubeletConfig(source=ConfigSource.CONFIGZ)):
                if epoch == self.known_epoch:
                    self.best_known = epoch

    def _note_silence(self, what: str, problem: errors.RteError | None) -> None:
        if problem is None:
            self.silent_since.pop(what, None)
        else:
            self.silent_since.setdefault(what, self.now)

    # --- the API server --------------------------------------------------------------------------

    def answer_request(self, pending: Pending) -> None:
        """The API server takes a request, or does not; an answer may be lost."""
        self.requests.remove(pending)
        effect = pending.effect
        if isinstance(effect, told.Probe):
            self.probe()
            return
        is_lost = self.rng.random() < 0.05
        if not self.api_is_up or self.rng.random() < 0.05:
            status = self.rng.choice((0, 403, 409, 422, 429, 500))
            self._refuse(effect, status)
            return
        match effect:
            case told.Renew():
                self.tell_publisher(told.Renewed())
            case told.AskOwner():
                self.tell(seen.OwnerSeen(self.node_uid))
                self.tell_publisher(told.OwnerKnown(self.node_uid))
            case told.Get() if self.stored is None:
                self._refuse(effect, 404)
            case told.Get():
                self.tell_publisher(told.Stored(self.stored))
            case told.WriteReport():
                self._write(effect, is_lost=is_lost)

    def probe(self) -> None:
        """The kubelet gives a sign of life, or does not."""
        problem = None if self.kubelet.up else self.no_answer()
        if problem is None:
            self.felt_at = self.now
        self.deliver_pulse(seen.Pulse(self.kubelet.epoch, problem))
        self.tell_publisher(told.Probed(problem is None))

    def deliver_pulse(self, pulse: seen.Pulse) -> None:
        """The observer learns of it."""
        if pulse.epoch == self.known_epoch:
            self.known_gone |= isinstance(pulse.problem, errors.KubeletGoneError)
            if pulse.problem is not None:
                self._note_silence("answers", pulse.problem)
        self.tell(pulse)

    def no_answer(self) -> errors.KubeletError:
        """Of a kubelet that hangs, or that does not run."""
        kind = errors.KubeletError if self.kubelet.hangs else errors.KubeletGoneError
        return kind("no answer")

    def _refuse(self, effect: Any, status: int) -> None:
        error = errors.KubeError("refused", status=status)
        answer = told.Renewed(error) if isinstance(effect, told.Renew) else told.WriteRefused(error)
        self.tell_publisher(answer)

    def _write(self, write: told.WriteReport, *, is_lost: bool) -> None:
        there = self.stored["metadata"]["resourceVersion"] if self.stored else ""
        if write.operation == "create" and self.stored is not None:
            self._refuse(write, 409)
        elif write.operation == "update" and self.stored is None:
            self._refuse(write, 404)
        elif write.operation == "update" and write.body["metadata"].get("resourceVersion") != there:
            self._refuse(write, 409)
        else:
            self.version += 1
            metadata = {**write.body["metadata"], "resourceVersion": str(self.version)}
            self.stored = {**write.body, "metadata": metadata}
            self.has_published = True
            self.note_stored()
            self.watched.append(told.Watched(self.stored, str(self.version)))
            if is_lost:
                self._refuse(write, 0)
            else:
                self.tell_publisher(told.Stored(self.stored))

    def truth(self) -> NodeState | None:
        """What the API server shows."""
        return nrt.decode(self.stored).state if self.stored else None

    def expected(self) -> dict[str, int]:
        """Who holds what at the kubelet's next admission."""
        return {uid: cpus for uid, cpus in self.entries.items() if uid in self.alive}

    def advance(self, seconds: float) -> None:
        """Time passes; deadlines on the way are kept."""
        until = self.now + seconds
        for _ in range(200):
            due = min(self.observer.deadline(), self.publisher.deadline())
            if due > until:
                break
            self.now = max(self.now, due)
            self.tick()
        self.now = max(self.now, until)

    def notice(self) -> None:
        """Followers tell what they have noticed."""
        changes, self.unnoticed = self.unnoticed, KubeletChange.NOTHING
        if changes:
            self.tell(seen.Noticed(changes, self.now))

    def tell_of_pods(self, number: int) -> None:
        """The watch of pods tells, where there is one."""
        if not self.observer.pods.listed:
            return
        for _ in range(min(number, len(self.untold))):
            self.tell(self.untold.pop(0))

    def relist(self) -> None:
        """The watch of pods begins anew."""
        self.untold.clear()
        self.tell(seen.PodsListed(tuple(self.shown.values())))
