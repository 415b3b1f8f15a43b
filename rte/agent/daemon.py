"""The agent as a daemon: one task group that wires sources, observer, sink and Lease."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import time
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from rte import errors
from rte.agent import follow, learn, memory, sinks
from rte.agent.drift import DriftCheck
from rte.agent.follow import Change, FileFollower, Signals
from rte.agent.kubesink import FIELD_MANAGER, KubeSink, Observation, Pace
from rte.agent.mailbox import Mailbox
from rte.agent.observe import Clocks, Observer, Sources
from rte.agent.pods import PodTable, follow_pods
from rte.agent.settings import SinkKind
from rte.kube import credentials, retry
from rte.kube.client import Client
from rte.kube.lease import Heartbeat
from rte.kube.resources import NODES
from rte.kubelet.reading import read_state_files
from rte.sysfs import read_machine
from rte.telemetry import health
from rte.telemetry.cases import CaseBook
from rte.telemetry.health import Readiness
from rte.telemetry.metrics import AgentMetrics

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Mapping
    from pathlib import Path

    import tenacity

    from rte.agent.settings import AgentSettings
    from rte.model.node import KubeletConfig

logger = logging.getLogger(__name__)

#: Label of the agents' Leases; each is named like its node.
LEASE_LABELS = {"app.kubernetes.io/name": "rte-agent"}

#: Between renewals of the Lease, and until others take the agent for dead (design §8).
LEASE_RENEW_S = 10.0
LEASE_DURATION_S = 40

#: Attempts in which only the kubelet itself is asked for its configuration: some seconds.
_PATIENCE = 8

#: What must be written at the end has so long; a pod's grace period is 10 s.
_FLUSH_S = 3.0


@dataclass(frozen=True, kw_only=True)
class Tempo:
    """All clocks of the daemon, in seconds.

    Attributes:
        clocks: of the observer.
        pace: of the writer.
        machine: between looks at on-line CPUs and pools of huge pages.
        list_pods: between podresources lists where pods may not be watched.
        lease: between renewals of the Lease.
    """

    clocks: Clocks = field(default_factory=Clocks)
    pace: Pace = field(default_factory=Pace)
    machine: float = 5.0
    list_pods: float = 1.0
    lease: float = LEASE_RENEW_S


def run(settings: AgentSettings) -> int:
    """Run until SIGTERM or SIGINT; 0 = stopped as asked.

    Raises:
        errors.RteError: the settings do not work here; nothing that passes by itself.
    """
    try:
        asyncio.run(_until_signalled(settings))
    except* errors.RteError as group:
        raise _first(group) from None
    return 0


async def _until_signalled(settings: AgentSettings) -> None:
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    await serve(settings, os.environ, stop, rest=memory.Rests())


async def serve(
    settings: AgentSettings,
    environ: Mapping[str, str],
    stop: asyncio.Event,
    *,
    tempo: Tempo | None = None,
    metrics: AgentMetrics | None = None,
    listening: Callable[[int], None] = lambda _: None,
    rest: Callable[[], None] = lambda: None,
) -> None:
    """Follow the node and publish its state until ``stop`` is set; then flush and release.

    ``listening`` learns the port of the metrics server, ``rest`` is called while a new state is on
    its way.

    Raises:
        ExceptionGroup: of errors.RteError; the settings do not work here.
    """
    async with AsyncExitStack() as stack:
        agent = await _Agent.assemble(
            settings, environ, stack, tempo or Tempo(), metrics or AgentMetrics(), rest
        )
        try:
            async with asyncio.TaskGroup() as group:
                tasks = [
                    group.create_task(coroutine, name=name)
                    for name, coroutine in agent.tasks(listening).items()
                ]
                await stop.wait()
                for task in tasks:
                    task.cancel()
        finally:
            await agent.finish()


class _Agent:
    """The parts, and how they hang together."""

    def __init__(self, settings: AgentSettings, tempo: Tempo, metrics: AgentMetrics) -> None:
        self._settings = settings
        self._tempo = tempo
        self._metrics = metrics
        self._readiness = Readiness(published="nothing was published yet")
        self._signals = Signals(metrics)
        self._mailbox: Mailbox[Observation] = Mailbox()
        self._client: Client | None = None
        self._pods: PodTable | None = None
        self._sink: KubeSink | None = None
        self._heartbeat: Heartbeat | None = None
        self._socket: Path | None = None
        self._told = ""
        self._observer: Observer

    @classmethod
    async def assemble(
        cls,
        settings: AgentSettings,
        environ: Mapping[str, str],
        stack: AsyncExitStack,
        tempo: Tempo,
        metrics: AgentMetrics,
        rest: Callable[[], None],
    ) -> _Agent:
        self = cls(settings, tempo, metrics)
        if settings.sink.kind is SinkKind.KUBE or settings.kubeconfig is not None:
            access = credentials.load(settings.kubeconfig, environ)
            self._client = await stack.enter_async_context(Client(access, component=FIELD_MANAGER))
        podresources = None
        if settings.socket is not None:
            from rte.kubelet.podresources import PodResources  # gRPC only where it is needed

            podresources = await stack.enter_async_context(PodResources(settings.socket))
            self._socket = podresources.path
        if self._client is not None and settings.asks_kubelet:
            self._pods = PodTable(before=_uids_in_files(settings))
        drift = None
        if self._pods is not None and settings.drift_check:
            cases = CaseBook(settings.case_dir)
            drift = DriftCheck(settings.node_name, self._pods, metrics, cases)
        self._observer = Observer(
            settings,
            Sources(
                read_machine=lambda: read_machine(settings.sysfs, settings.procfs),
                learn=self._learn,
                podresources=podresources,
                socket=self._socket,
                pods=self._pods,
                drift=drift,
                rest=rest,
            ),
            self._signals,
            self._mailbox,
            metrics=metrics,
            readiness=self._readiness,
            clocks=tempo.clocks,
        )
        if settings.sink.kind is SinkKind.KUBE and self._client is not None:
            self._sink = KubeSink(
                self._client,
                settings.node_name,
                self._mailbox,
                metrics=metrics,
                readiness=self._readiness,
                pace=tempo.pace,
                before_create=self._renew_owner,
            )
        return self

    def tasks(self, listening: Callable[[int], None]) -> dict[str, Coroutine[Any, Any, None]]:
        """Name -> what runs until it is cancelled."""
        settings, tempo, signals = self._settings, self._tempo, self._signals
        tasks: dict[str, Coroutine[Any, Any, None]] = {
            "observe": self._observer.run(),
            "machine": follow.follow_machine(
                signals, lambda: follow.hardware(settings.sysfs), every_s=tempo.machine
            ),
        }
        if settings.asks_kubelet:
            files = FileFollower(
                signals,
                state_dir=settings.state_dir,
                plugin_dir=settings.plugin_dir,
                socket=self._socket,
            )
            tasks["files"] = files.run()
            tasks["poll"] = follow.poll(signals, Change.POLL, every_s=settings.poll_interval)
        if self._client is not None and self._pods is not None:
            tasks["pods"] = follow_pods(
                self._client,
                settings.node_name,
                self._pods,
                signals,
                self._metrics,
                poll_s=tempo.list_pods,
            )
        if self._sink is not None:
            tasks["publish"] = self._sink.run()
            tasks["own object"] = self._sink.follow()
            if settings.lease_namespace:
                tasks["lease"] = self._keep_lease(self._sink)
        else:
            tasks["publish"] = self._write_out()
        if settings.metrics_listen:
            tasks["metrics"] = health.serve(
                settings.metrics_listen,
                self._metrics.exposition,
                self._readiness,
                started=listening,
            )
        return tasks

    async def finish(self) -> None:
        """Write what is not written yet, and give the Lease back."""
        last_words = (
            ("the last state may not be published", self._sink and self._sink.flush),
            ("the Lease is not given back", self._heartbeat and self._heartbeat.release),
        )
        try:
            async with asyncio.timeout(_FLUSH_S):
                for problem, say in last_words:
                    try:
                        if say:
                            await say()
                    except errors.KubeError as error:
                        logger.warning("%s: %s", problem, error)
        except TimeoutError:
            logger.warning("the API server does not answer: the last state may not be published")

    async def _learn(self, memory_bytes: int) -> tuple[KubeletConfig, learn.NodeFacts]:
        """Ask until there is an answer."""
        complained = False

        def complain(state: tenacity.RetryCallState) -> None:
            nonlocal complained
            if not complained:
                complained = True
                reason = state.outcome.exception() if state.outcome else None
                logger.warning("the node cannot be learnt about yet, will keep asking: %s", reason)

        attempts = retry.forever(
            retry_on=lambda error: isinstance(error, errors.RteError),
            before_sleep=complain,
            most_s=self._tempo.pace.last_retry,
        )
        async for attempt in attempts:
            with attempt:
                node = await self._get_node()
                tried = attempt.retry_state.attempt_number
                config = await learn.read_kubelet_config(
                    self._settings,
                    memory_bytes,
                    self._client,
                    node,
                    patient=tried < _PATIENCE,  # a kubelet's sockets open one after the other
                    tell=self._tell,
                )
                if config is None:
                    # A guess would be published as the truth, and pods placed by it.
                    raise errors.KubeletError(
                        "the kubelet's configuration is unknown: allow get on nodes/configz, or "
                        "give --kubelet-config-file"
                    )
                return config, learn.node_facts(node or {})
        raise AssertionError("retrying does not end")

    def _tell(self, problem: str) -> None:
        """A line that is told again when it is another one: a better source is asked for long."""
        if problem != self._told:
            self._told = problem
            logger.warning("%s", problem)

    async def _renew_owner(self) -> None:
        """Learn who the Node is now: with the old one our object may have been collected."""
        node = await self._get_node()
        self._observer.own(learn.node_facts(node or {}).uid)

    async def _lease_owners(self) -> list[dict[str, str]]:
        await self._renew_owner()
        uid, name = self._observer.node.uid, self._settings.node_name
        return [{"apiVersion": "v1", "kind": "Node", "name": name, "uid": uid}] if uid else []

    async def _get_node(self) -> Mapping[str, Any] | None:
        """The Node; None where the API is not asked, or does not let us see it."""
        if self._client is None:
            return None
        try:
            node: Mapping[str, Any] = await self._client.get(NODES.path(self._settings.node_name))
        except errors.KubeError as error:
            if error.status == 404:
                raise learn.no_such_node(self._settings.node_name, error) from error
            if error.status != 403:
                raise
            logger.warning("the Node may not be read, so the object has no owner: %s", error)
            return None
        return node

    async def _keep_lease(self, sink: KubeSink) -> None:
        """Renew the Lease while what is published can be trusted; until cancelled."""
        assert self._client is not None  # noqa: S101 - there is a sink, so there is a client
        await sink.first_publish.wait()
        settings = self._settings
        self._heartbeat = Heartbeat(
            self._client,
            settings.node_name,
            settings.lease_namespace,
            settings.node_name,
            duration_s=LEASE_DURATION_S,
            labels=LEASE_LABELS,
            owners=self._lease_owners,
        )
        failing = False
        while True:
            behind = sink.behind_since()
            is_current = behind is None or time.monotonic() - behind < LEASE_DURATION_S
            if self._observer.is_trustworthy and is_current:
                try:
                    await self._heartbeat.renew()
                    self._metrics.lease_renewals.labels("renewed").inc()
                    failing = False
                except errors.KubeError as error:
                    self._metrics.lease_renewals.labels("failed").inc()
                    if not failing:
                        logger.warning("the Lease cannot be renewed, will keep trying: %s", error)
                    failing = True
            else:
                self._metrics.lease_renewals.labels("withheld").inc()
            await asyncio.sleep(self._tempo.lease)

    async def _write_out(self) -> None:
        """Write each new state to the file or to standard output; until cancelled."""
        sink, written, failing = self._settings.sink, b"", False
        while True:
            await self._mailbox.wait()
            observation = self._mailbox.take()
            if observation is None:
                continue
            text = sinks.render(observation.object, self._settings.output)
            if text == written:
                continue
            try:
                if sink.path is not None:
                    sinks.write_file(sink.path, text)
                else:
                    sinks.write_stdout(text)
            except errors.RteError as error:
                if not failing:
                    logger.warning("%s; will try again with the next change", error)
                failing = True
                continue
            written, failing = text, False
            self._metrics.writes.labels("write", "change").inc()
            self._metrics.publish_seconds.observe(time.monotonic() - observation.noticed)
            self._metrics.last_publish.set_to_current_time()
            self._readiness.met("published")


def _uids_in_files(settings: AgentSettings) -> frozenset[str]:
    """UIDs known before the API's first list; none where the files cannot be read yet."""
    if settings.state_dir is None:
        return frozenset()
    try:
        files = read_state_files(settings.state_dir, plugin_dir=settings.plugin_dir)
    except errors.RteError:
        return frozenset()
    parts = (files.cpu, files.memory, files.devices)
    held = {uid for part in parts if part is not None for uid in part.entries}
    return frozenset(held | (files.allocated.pods.keys() if files.allocated else set()))


def _first(group: BaseExceptionGroup[errors.RteError]) -> errors.RteError:
    error: BaseException = group
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    assert isinstance(error, errors.RteError)  # noqa: S101 - the group was filtered by it
    return error
