"""From signals to observations: re-reads what changed, accounts for it, hands it on.

Nothing here waits for the API server while the kubelet changes: an observation goes into a mailbox,
and what must be asked of the API server (configuration, Node) is asked by a task beside.
"""

from __future__ import annotations

import asyncio
import logging
import math
import time
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Protocol

from rte import accounting, errors, nrt
from rte.agent.follow import Change
from rte.agent.kubesink import Observation
from rte.agent.learn import NodeFacts
from rte.kubelet import reading as kubelet_reading
from rte.model.kubelet import KubeletView
from rte.model.node import ConfigSource, NodeReading

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from rte.agent.drift import DriftCheck
    from rte.agent.follow import Signals
    from rte.agent.mailbox import Mailbox
    from rte.agent.pods import PodTable
    from rte.agent.settings import AgentSettings
    from rte.kubelet.reading import Source, StateFiles
    from rte.model.kubelet import ListedPod, NodePod
    from rte.model.machine import Machine
    from rte.model.node import KubeletConfig
    from rte.telemetry.health import Readiness
    from rte.telemetry.metrics import AgentMetrics

logger = logging.getLogger(__name__)

#: What only podresources tells, or tells better.
_LIST = Change.DEVICES | Change.SOCKET | Change.POLL | Change.LEARNT

#: Everything is asked once per poll interval, give or take a fifth of it.
_MOST_POLLS = 1.2


class Learner(Protocol):
    """Asks for what changes only when the kubelet restarts."""

    async def __call__(self, memory_bytes: int) -> tuple[KubeletConfig, NodeFacts]:
        """Configuration and Node."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Clocks:
    """Seconds.

    Attributes:
        admission: how long the last write of an admission is waited for, once its first is seen.
        breath: after a new state was handed on, before the next look: its write goes first.
        torn: first wait before files that do not agree are read again without a new write.
        torn_most: longest such wait.
        settled: files that stood still this long are not caught between two writes.
        check: after a change in the files, podresources is compared this much later, if nothing
            else has changed meanwhile.
        check_most: by then it is compared whatever changes.
        source: between attempts to reach a kubelet that does not answer.
        resync: between looks at a restarted kubelet until it has re-admitted its pods.
        resync_most: a kubelet that runs this long has re-admitted what it ever will.
        stale: after so long without a sound reading the last one is not to be trusted.
        relearn: a kubelet has told the API what is new about it this much later; also the first
            wait before a better source of its configuration is asked again, which doubles.
        relearn_most: longest such wait.
    """

    admission: float = 0.1
    breath: float = 0.002
    torn: float = 0.02
    torn_most: float = 1.0
    settled: float = 1.0
    check: float = 0.25
    check_most: float = 1.0
    source: float = 1.0
    resync: float = 0.1
    resync_most: float = 120.0
    stale: float = 30.0
    relearn: float = 15.0
    relearn_most: float = 300.0


@dataclass(frozen=True, kw_only=True)
class Sources:
    """Where an observer reads.

    Attributes:
        read_machine: reads the hardware.
        learn: asks for configuration and Node; it does not return before it knows.
        podresources: client of the kubelet's API; None where no socket is asked.
        socket: path of that API's socket.
        pods: the API's pods of this node; None where the API is not asked.
        drift: compares admissions with their predictions; None: nobody does.
        rest: called when a state was handed on and is on its way.
    """

    read_machine: Callable[[], Machine]
    learn: Learner
    podresources: Source | None = None
    socket: Path | None = None
    pods: PodTable | None = None
    drift: DriftCheck | None = None
    rest: Callable[[], None] = lambda: None


class Observer:
    """Reads one node whenever something changed there.

    Args:
        settings: what to read and publish.
        sources: where to read it.
        signals: what tells of changes.
        mailbox: where observations go.
    """

    def __init__(
        self,
        settings: AgentSettings,
        sources: Sources,
        signals: Signals,
        mailbox: Mailbox[Observation],
        *,
        metrics: AgentMetrics,
        readiness: Readiness,
        clocks: Clocks = Clocks(),
    ) -> None:
        self._settings = settings
        self._signals = signals
        self._mailbox = mailbox
        self._read_machine = sources.read_machine
        self._source = sources.podresources
        self._socket = sources.socket
        self._pods = sources.pods
        self._learn = sources.learn
        self._drift = sources.drift
        self._rest = sources.rest
        self._metrics = metrics
        self._readiness = readiness
        self._clocks = clocks
        self._accounting = accounting.Options(
            reference_container=settings.reference_container,
            exclude_pods=settings.exclude_pods,
        )
        self._must_learn = asyncio.Event()
        self._learnt = False
        self._learning = True
        self._config: KubeletConfig | None = None
        self._config_epoch = ""
        self._node = NodeFacts()
        self._machine: Machine | None = None
        self._files: StateFiles | None = None
        self._files_changed = 0.0
        self._view: KubeletView | None = None  # of this start of the kubelet
        self._is_fresh = False
        self._answered = self._worked_at = -math.inf
        self._silent_since: float | None = None
        self._check_at: float | None = None
        self._check_by = 0.0
        self._listed_files: StateFiles | None = None
        self._restart = Restart(clocks.resync_most)
        self._reading: NodeReading | None = None
        self._handed_on: tuple[NodeReading, nrt.Options] | None = None
        self._seen_half: frozenset[str] = frozenset()
        self._problem = ""
        self._failing_since: float | None = None
        self._failures = 0
        self._disagreements: tuple[str, ...] = ()

    @property
    def is_trustworthy(self) -> bool:
        """Whether what was handed on last is (nearly) what the kubelet has now.

        Trust ends by itself: with a source that fails for ``stale`` seconds, and with none that has
        said anything although everything was due to be asked.
        """
        now = time.monotonic()
        failing = [since for since in (self._failing_since, self._silent_since) if since]
        if self._reading is None or any(now - since >= self._clocks.stale for since in failing):
            return False
        oldest = self._worked_at if self._source is None else min(self._worked_at, self._answered)
        return now - oldest < _MOST_POLLS * self._settings.poll_interval + self._clocks.stale

    async def run(self) -> None:
        """Observe until cancelled."""
        self._machine = await asyncio.to_thread(self._read_machine)
        async with asyncio.TaskGroup() as group:
            group.create_task(self._keep_learning(), name="learn")
            group.create_task(self._observe(), name="look")

    @property
    def node(self) -> NodeFacts:
        """What was last learnt of the Node."""
        return self._node

    def own(self, uid: str) -> None:
        """The Node is another one: hand on the last reading again, owned by it."""
        if uid != self._node.uid:
            self._node = replace(self._node, uid=uid)
            if self._reading is not None:
                self._hand_on(self._reading, time.monotonic())

    # Configuration and Node

    async def _keep_learning(self) -> None:
        wait_s = self._clocks.relearn
        while True:
            await self._must_learn.wait()
            self._must_learn.clear()
            assert self._machine is not None  # noqa: S101 - run() reads it first
            epoch, before = self._restart.epoch, (self._config, self._node)
            config, self._node = await self._learn(self._machine.memory_bytes)
            if epoch != self._restart.epoch:
                continue  # what one kubelet said of itself says nothing about the next
            if epoch != self._config_epoch:
                self._config, self._config_epoch = None, epoch
                wait_s = self._clocks.relearn
            self._take_config(config)
            waited_for, self._learnt = not self._learnt, True
            is_late = self._restart.is_before(self._node.heard, time.time())
            if is_late:
                self._learn_later(self._clocks.source)
            self._learning = self._must_learn.is_set() or is_late
            if waited_for or before != (self._config, self._node):
                self._signals.add(Change.LEARNT)
            if config.source.rank < self._best_source.rank:
                self._learn_later(wait_s)
                wait_s = min(2 * wait_s, self._clocks.relearn_most)

    def _take_config(self, config: KubeletConfig) -> None:
        """Take a configuration, but none of a weaker source than that of the same kubelet."""
        known = self._config
        if known is not None and config.source.rank < known.source.rank:
            return
        self._config = config
        if known is None or config.source is not known.source:
            for source in ConfigSource:
                if source:
                    self._metrics.config_source.labels(source).set(source is config.source)
            say = logger.warning if config.is_assumed else logger.info
            say(
                "the kubelet's configuration is taken from: %s%s",
                config.source or "nowhere",
                " (its flags are not known; allow get on nodes/configz)"
                if config.is_assumed
                else "",
            )

    @property
    def _best_source(self) -> ConfigSource:
        """What can be had at best: without an API server nobody can be asked."""
        return ConfigSource.CONFIGZ if self._pods is not None else ConfigSource.UNKNOWN

    # Looking

    async def _observe(self) -> None:
        if not self._settings.asks_kubelet:
            await self._observe_machine()
        if self._socket is None:
            self._must_learn.set()
        self._signals.add(Change.SOCKET | Change.FILES | Change.POLL)
        wait_s: float | None = None
        while True:
            await self._signals.wait(wait_s)
            changes, noticed = self._signals.take()
            before = self._handed_on
            wait_s = await self._look(changes, noticed)
            if self._handed_on is not before:
                await asyncio.sleep(self._clocks.breath)
                self._rest()
            self._check_drift()

    def _check_drift(self) -> None:
        """Compare what was just handed on with predictions, while it is on its way."""
        state = self._reading.state if self._reading else None
        if self._drift is not None and state is not None and self._failing_since is None:
            self._drift.observe(state)

    async def _observe_machine(self) -> None:
        """Without a kubelet only the hardware can change."""
        while True:
            assert self._machine is not None  # noqa: S101 - run() reads it first
            reading = NodeReading(node_name=self._settings.node_name, machine=self._machine)
            self._hand_on(reading, time.monotonic())
            self._rest()
            await self._signals.wait()
            self._signals.take()
            self._machine = await asyncio.to_thread(self._read_machine)

    async def _look(self, changes: Change, noticed: float) -> float | None:
        """Read what changed and hand it on; the seconds until the next look, None: at a signal."""
        began = time.monotonic()
        try:
            await self._read(changes)
            if not self._learnt:
                return None
            if hold := self._admission_under_way(began):
                return hold
            wait_s = self._account(noticed)
        except errors.InconsistentStateError as error:
            return self._failed("torn", "the kubelet's files do not agree", error)
        except errors.ParseError as error:
            return self._failed("torn", "a state file of the kubelet is damaged", error)
        except errors.KubeletError as error:
            return self._failed("failed", "the kubelet cannot be read", error)
        self._worked()
        self._metrics.readings.labels("consistent").inc()
        self._metrics.reading_seconds.observe(time.monotonic() - began)
        return wait_s

    async def _read(self, changes: Change) -> None:
        if changes & Change.MACHINE:
            self._machine = await asyncio.to_thread(self._read_machine)
        if changes & (Change.SOCKET | Change.POLL):
            await self._notice_restart()
        if self._check_at is not None and changes & (Change.FILES | Change.PODS):
            # What has changed is published first: the answer would come amid the next writes.
            put_off = min(time.monotonic() + self._clocks.check, self._check_by)
            self._check_at = max(self._check_at, put_off)
        state_dir = self._settings.state_dir
        if state_dir is not None:
            plugins = self._settings.plugin_dir
            files = kubelet_reading.read_state_files(state_dir, self._files, plugin_dir=plugins)
            self._take_files(files)
        if self._source is not None and self._needs_list(changes):
            await self._list()

    async def _notice_restart(self) -> None:
        # While our socket is away another one would tell another epoch of the same start.
        plugins = self._settings.plugin_dir if self._socket is None else None
        epoch = kubelet_reading.kubelet_epoch(self._socket, plugins)
        known = self._restart.epoch
        if not self._restart.notice(epoch, time.time(), _modified(self._socket)):
            return
        # The former kubelet's answers say nothing about this one.
        self._view = self._listed_files = None
        self._learnt, self._learning = False, True
        self._must_learn.set()
        if known:
            self._distrust()
            logger.info("the kubelet was restarted")
            self._metrics.kubelet_restarts.inc()
            self._machine = await asyncio.to_thread(self._read_machine)
            self._learn_later()

    def _learn_later(self, wait_s: float | None = None) -> None:
        wait_s = self._clocks.relearn if wait_s is None else wait_s
        asyncio.get_running_loop().call_later(wait_s, self._must_learn.set)

    def _take_files(self, files: StateFiles) -> None:
        known = self._files
        if files is not known and files != known:
            self._files_changed = time.monotonic()
            if _registered(known) != _registered(files) and known is not None:
                self._learn_later()  # the Node's capacity is about to change
        self._files = files

    def _needs_list(self, changes: Change) -> bool:
        """Without the API only podresources tells who is active, so it is asked each time."""
        return (
            self._view is None
            or bool(changes & _LIST)
            or not self._restart.synced
            or self._pods is None
            or not self._pods.listed
            or (self._check_at is not None and time.monotonic() >= self._check_at)
            or bool(self._pods.doubtful(time.monotonic()))
        )

    async def _list(self) -> None:
        self._check_at = None
        try:
            view, files = await kubelet_reading.read_view(
                self._settings.state_dir,
                self._source,
                plugin_dir=self._settings.plugin_dir,
                previous=self._files,
            )
        except errors.KubeletError:
            self._metrics.podresources_failures.labels("list").inc()
            self._metrics.source_up.set(0)
            self._readiness.fails("source", "podresources does not answer")
            if self._silent_since is None:
                self._silent_since = time.monotonic()
            if self._view is None or self._pods is None or not self._pods.listed:
                raise
            # Files and API go on telling what changes.
            self._check_later(self._clocks.source)
            return
        if files is not None:
            self._take_files(files)
        self._view, self._is_fresh, self._listed_files = view, True, files
        self._answered, self._silent_since = time.monotonic(), None
        self._metrics.source_up.set(1)
        self._readiness.met("source")

    def _check_later(self, wait_s: float) -> None:
        now = time.monotonic()
        self._check_at, self._check_by = now + wait_s, now + max(wait_s, self._clocks.check_most)

    def _admission_under_way(self, now: float) -> float:
        """Seconds to wait for the last write of an admission; 0: there is none under way.

        A pod enters ``allocated_pods_state`` right after the last of its entries. Publishing the
        half would delay the whole: the write of it would be under way when the rest comes.
        """
        files = self._files
        if files is None or files.allocated is None:
            return 0.0
        half = _holders(files) - files.allocated.pods.keys()
        new = half - self._seen_half
        if self._pods is not None:
            new -= {pod.uid for pod in self._pods.pods() if pod.terminal}
        left = self._files_changed + self._clocks.admission - now
        if new and left > 0:
            return left
        self._seen_half = half
        return 0.0

    def _account(self, noticed: float) -> float | None:
        """Build and hand on a reading; seconds until the next look."""
        assert self._machine is not None  # noqa: S101 - run() reads it first
        now = time.monotonic()
        waits: list[float] = []
        files, listed, view = self._files, self._listed_files, self._view or KubeletView()
        exact = self._source is None or (view.coherent and files == listed)
        if not exact and self._check_at is None:
            self._check_later(self._clocks.check)
        if self._check_at is not None:
            waits.append(max(0.001, self._check_at - now))
        pods = self._pods.pods() if self._pods is not None and self._pods.listed else None
        if self._pods is not None and files is not None:
            left = self._pods.retain(_holders(files) | _admitted(files), now)
            if left is not None:
                waits.append(left)
        doubtful = self._pods.doubtful(now) if self._pods is not None and exact else frozenset()
        if not self._restart.synced:
            if not self._learning and (self._source is None or self._is_fresh):
                self._restart.check(view.pods, pods, time.time())
                self._is_fresh = False
            if not self._restart.synced:
                waits.append(self._clocks.resync)
        self._metrics.synced.set(self._restart.synced)
        reading = accounting.build_reading(
            self._settings.node_name,
            self._machine,
            kubelet_reading.combine(
                files,
                config=self._config,
                version=self._node.version,
                epoch=self._restart.epoch,
                pods=view.pods,
                allocatable=view.allocatable,
                # Devices are what the answers are needed for: those of the same checkpoint agree.
                coherent=exact or (view.coherent and _same_devices(files, listed)),
            ),
            pods,
            replace(
                self._accounting,
                previous=self._reading.state if self._reading else None,
                synced=self._restart.synced,
                drop_unknown=bool(doubtful),
                settled=now - self._files_changed >= self._clocks.settled,
                node_capacity=self._node.capacity,
            ),
        )
        if self._pods is not None and reading.state is not None:
            alive = reading.state.holdings.keys() | reading.state.admitted
            self._pods.bury(doubtful - alive)
            if doubtful & alive:
                waits.append(self._clocks.source)  # only podresources will tell of their end
        self._reading = reading
        if exact:
            self._report(reading.disagreements)
        self._hand_on(reading, noticed)
        return min(waits, default=None)

    def _distrust(self) -> None:
        """Hand on the last reading once more as not synced: nothing is known of a new kubelet."""
        self._metrics.synced.set(0)
        if self._reading is not None and self._reading.state is not None:
            state = replace(self._reading.state, synced=False)
            self._reading = replace(self._reading, state=state)
            self._hand_on(self._reading, time.monotonic())

    def _hand_on(self, reading: NodeReading, noticed: float) -> None:
        options = self._settings.nrt_options(self._node.uid)
        if self._handed_on == (reading, options):
            return
        encoded = nrt.build(reading, options)
        self._handed_on = reading, options
        for name in nrt.ANNOTATIONS:
            self._metrics.left_out.labels(name).set(name in encoded.dropped)
        self._mailbox.put(Observation(encoded.object, noticed))

    def _report(self, disagreements: tuple[str, ...]) -> None:
        self._metrics.disagreements.set(len(disagreements))
        for line in disagreements:
            if line not in self._disagreements:
                logger.warning("sources disagree: %s", line)
        self._disagreements = disagreements

    # Failures

    def _failed(self, result: str, what: str, error: errors.RteError) -> float:
        """Note a failure; seconds until the next attempt, unless a signal comes before."""
        self._metrics.readings.labels(result).inc()
        now = time.monotonic()
        if self._failing_since is None:
            self._failing_since = now
            self._failures = 0
        self._failures += 1
        lasting = result == "failed" or now - self._failing_since > self._clocks.settled
        if lasting and what != self._problem:
            self._problem = what
            logger.warning("%s, will keep looking: %s", what, error)
            self._readiness.fails("reading", what)
        if result == "failed":
            just_started = self._restart.is_young(time.time())
            return self._clocks.resync if just_started else self._clocks.source
        doubled = self._clocks.torn * float(2 ** min(self._failures - 1, 16))
        return min(doubled, self._clocks.torn_most)

    def _worked(self) -> None:
        self._failing_since = None
        self._worked_at = time.monotonic()
        self._readiness.met("reading")
        if self._problem:
            logger.info("the kubelet is readable again")
            self._problem = ""


class Restart:
    """Whether the kubelet has re-admitted its pods since it was started (pure but for its state).

    Its podresources list shows a pod as soon as the kubelet knows it, a moment before admission;
    so the list of a kubelet that was just started must be complete twice in a row. ``most_s`` after
    its start a kubelet has re-admitted all that it ever will.
    """

    _JUST_STARTED_S = 10.0
    #: A kubelet may report first and make its socket afterwards, and tells whole seconds.
    _SLACK_S = 10.0

    def __init__(self, most_s: float) -> None:
        self._most_s = most_s
        self.epoch = ""
        self.synced = False
        self._began = 0.0
        self._started: float | None = None
        self._expected: frozenset[tuple[str, str]] = frozenset()
        self._listed: frozenset[tuple[str, str]] = frozenset()
        self._complete = 0

    def notice(self, epoch: str, now: float, started: float | None) -> bool:
        """Take the current epoch ("" = no socket); True when it is a new one.

        ``started`` is when the kubelet made its socket (Unix time, as ``now``).
        """
        if not epoch or epoch == self.epoch:
            return False
        self._expected = self._listed
        self.epoch, self._began, self._started = epoch, now, started
        just_started = started is None or now - started < self._JUST_STARTED_S
        self._complete = 0 if just_started else 1
        self.synced = False
        return True

    def is_young(self, now: float) -> bool:
        """Whether the start was noticed a moment ago, and the kubelet is about to answer."""
        return bool(self.epoch) and not self.synced and now - self._began < self._JUST_STARTED_S

    def is_before(self, heard: float | None, now: float) -> bool:
        """Whether a report from that moment (Unix time) is still the former kubelet's.

        A starting kubelet reports at once (syncNodeStatus in pkg/kubelet/kubelet_node_status.go);
        ``most_s`` after the start nothing more is waited for.
        """
        if heard is None or self._started is None or now - self._began > self._most_s:
            return False
        return heard < self._started - self._SLACK_S

    def check(
        self,
        listed: tuple[ListedPod, ...] | None,
        pods: tuple[NodePod, ...] | None,
        now: float,
    ) -> None:
        """Compare what podresources lists with what the API says was admitted.

        Each call is about a new answer. Without the API the pods listed before the restart are
        expected, or, of a kubelet that ran before we did, none.
        """
        if listed is None:
            self.synced = True  # nobody to ask
            return
        self._listed = frozenset((pod.namespace, pod.name) for pod in listed)
        expected = self._expected
        if pods is not None:
            expected = frozenset(
                (pod.namespace, pod.name) for pod in pods if pod.admitted and not pod.terminal
            )
        self._complete = self._complete + 1 if expected <= self._listed else 0
        if now - self._began > self._most_s and not self._complete:
            logger.warning(
                "the kubelet has not taken up %d of its pods after its start",
                len(expected - self._listed),
            )
            self._complete = 2
        self.synced = self._complete >= 2


def _holders(files: StateFiles) -> frozenset[str]:
    """UIDs that hold anything in the files."""
    uids: set[str] = set()
    for part in (files.cpu, files.memory, files.devices):
        if part is not None:
            uids |= part.entries.keys()
    return frozenset(uids)


def _admitted(files: StateFiles) -> frozenset[str]:
    return frozenset(files.allocated.pods) if files.allocated else frozenset()


def _modified(path: Path | None) -> float | None:
    try:
        return path.stat().st_mtime if path else None
    except OSError:
        return None


def _registered(files: StateFiles | None) -> Mapping[str, frozenset[str]]:
    return files.devices.registered if files and files.devices else {}


def _same_devices(files: StateFiles | None, listed: StateFiles | None) -> bool:
    return files is not None and listed is not None and files.devices == listed.devices
