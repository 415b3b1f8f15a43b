"""The agent as a daemon: one task group that wires sources, observer, publisher and Lease."""

from __future__ import annotations

import asyncio
import logging
import os
import random
import signal
from contextlib import AsyncExitStack
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from rte import errors
from rte.agent import follow, learn, memory
from rte.agent.drift import DriftCheck
from rte.agent.follow import FileFollower, Signals
from rte.agent.follow_pods import follow_pods
from rte.agent.kubesink import KubeSink
from rte.agent.observer.clocks import Clocks
from rte.agent.observer.machine import Observer
from rte.agent.observer.messages import Change, OwnerSeen
from rte.agent.observing import Observing
from rte.agent.publisher.machine import FIELD_MANAGER, Pace, Publisher
from rte.agent.publisher.renewals import Rhythm
from rte.agent.settings import SinkKind
from rte.agent.sinks import LocalSink
from rte.agent.sources import Sources
from rte.kube import credentials
from rte.kube.client import Client
from rte.kube.lease import Heartbeat
from rte.sysfs import read_machine
from rte.telemetry import health
from rte.telemetry.cases import CaseBook
from rte.telemetry.health import Readiness
from rte.telemetry.metrics import AgentMetrics

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Mapping

    from rte.agent.settings import AgentSettings
    from rte.kubelet.podresources import PodResources

logger = logging.getLogger(__name__)

#: Label of the agents' Leases; each is named like its node.
LEASE_LABELS = {"app.kubernetes.io/name": "rte-agent"}

#: What must be written at the end has so long; a pod's grace period is 10 s.
_FLUSH_S = 3.0


@dataclass(frozen=True, kw_only=True)
class Tempo:
    """All clocks of the daemon, in seconds.

    Attributes:
        clocks: of the observer; its poll interval comes from the settings.
        pace: of the writer.
        rhythm: of the Lease (design §8).
        machine: between looks at on-line CPUs and pools of huge pages.
        list_pods: between podresources lists where pods may not be watched.
    """

    clocks: Clocks = field(default_factory=Clocks)
    pace: Pace = field(default_factory=Pace)
    rhythm: Rhythm = field(default_factory=Rhythm)
    machine: float = 5.0
    list_pods: float = 1.0


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
        node = _Node(
            settings,
            tempo or Tempo(),
            metrics or AgentMetrics(),
            await _connect(settings, environ, stack),
        )
        podresources = await _open_podresources(settings, stack)
        lease = _make_lease(node)
        sink = _make_sink(node, lease)
        observing = _make_observing(node, podresources, sink, rest)
        try:
            async with asyncio.TaskGroup() as group:
                running = {
                    **_followers(node, podresources),
                    **_sink_tasks(sink),
                    "observe": observing.run(),
                }
                if settings.metrics_listen:
                    running["metrics"] = health.serve(
                        settings.metrics_listen,
                        node.metrics.exposition,
                        node.readiness,
                        started=listening,
                    )
                tasks = [group.create_task(work, name=name) for name, work in running.items()]
                await stop.wait()
                for task in tasks:
                    task.cancel()
        finally:
            await _finish(sink, lease)


class _Node:
    """What all parts of one agent share."""

    def __init__(
        self, settings: AgentSettings, tempo: Tempo, metrics: AgentMetrics, client: Client | None
    ) -> None:
        self.settings = settings
        self.tempo = tempo
        self.metrics = metrics
        self.client = client
        self.readiness = Readiness(published="nothing was published yet")
        self.signals = Signals(metrics)
        self.learner = learn.Learner(settings, client)
        self.watches_pods = client is not None and settings.asks_kubelet


async def _connect(
    settings: AgentSettings, environ: Mapping[str, str], stack: AsyncExitStack
) -> Client | None:
    if settings.sink.kind is not SinkKind.KUBE and settings.kubeconfig is None:
        return None
    access = credentials.load(settings.kubeconfig, environ)
    return await stack.enter_async_context(Client(access, component=FIELD_MANAGER))


async def _open_podresources(settings: AgentSettings, stack: AsyncExitStack) -> PodResources | None:
    if settings.socket is None:
        return None
    from rte.kubelet.podresources import PodResources  # gRPC only where it is needed

    return await stack.enter_async_context(PodResources(settings.socket))


def _jitter() -> float:
    return random.uniform(0.5, 1.0)  # noqa: S311 - spreads load


def _make_lease(node: _Node) -> Heartbeat | None:
    settings = node.settings
    is_kept = settings.sink.kind is SinkKind.KUBE and settings.lease_namespace
    if node.client is None or not is_kept:
        return None
    return Heartbeat(
        node.client,
        settings.node_name,
        settings.lease_namespace,
        settings.node_name,
        duration_s=max(1, round(node.tempo.rhythm.duration)),
        labels=LEASE_LABELS,
        owners=node.learner.owners,
    )


def _make_sink(node: _Node, lease: Heartbeat | None) -> KubeSink | LocalSink:
    settings, tempo = node.settings, node.tempo
    if settings.sink.kind is not SinkKind.KUBE or node.client is None:
        return LocalSink(settings.sink, settings.output, node.metrics, node.readiness)
    return KubeSink(
        node.client,
        settings.node_name,
        Publisher(tempo.pace, tempo.rhythm if lease else None, jitter=_jitter),
        metrics=node.metrics,
        readiness=node.readiness,
        ask_owner=node.learner.owner_uid,
        tell_owner=lambda uid: node.signals.give(OwnerSeen(uid)),
        lease=lease,
    )


def _make_observing(
    node: _Node,
    podresources: PodResources | None,
    sink: KubeSink | LocalSink,
    rest: Callable[[], None],
) -> Observing:
    settings, drift = node.settings, None
    observer = Observer(
        settings.scope(pods=node.watches_pods),
        replace(node.tempo.clocks, poll=settings.poll_interval),
        jitter=_jitter,
    )
    if node.watches_pods and settings.drift_check:
        cases = CaseBook(settings.case_dir)
        drift = DriftCheck(settings.node_name, observer.pods, node.metrics, cases)
    return Observing(
        observer,
        Sources(
            machine=lambda: read_machine(settings.sysfs, settings.procfs),
            learner=node.learner.learn,
            state_dir=settings.state_dir,
            plugin_dir=settings.plugin_dir,
            podresources=podresources,
            socket=podresources.path if podresources else None,
        ),
        node.signals,
        sink,
        metrics=node.metrics,
        readiness=node.readiness,
        drift=drift,
        rest=rest,
    )


def _followers(
    node: _Node, podresources: PodResources | None
) -> dict[str, Coroutine[Any, Any, None]]:
    """What tells of changes, by name."""
    settings, tempo, signals = node.settings, node.tempo, node.signals
    followers: dict[str, Coroutine[Any, Any, None]] = {
        "machine": follow.follow_machine(
            signals,
            lambda: follow.hardware(settings.sysfs, devices=settings.group_inventory),
            every_s=tempo.machine,
        )
    }
    if settings.asks_kubelet:
        files = FileFollower(
            signals,
            state_dir=settings.state_dir,
            plugin_dir=settings.plugin_dir,
            socket=podresources.path if podresources else None,
        )
        followers["files"] = files.run()
        followers["poll"] = follow.poll(signals, Change.POLL, every_s=settings.poll_interval)
    if node.client is not None and node.watches_pods:
        followers["pods"] = follow_pods(
            node.client, settings.node_name, signals, node.metrics, poll_s=tempo.list_pods
        )
    return followers


def _sink_tasks(sink: KubeSink | LocalSink) -> dict[str, Coroutine[Any, Any, None]]:
    if isinstance(sink, KubeSink):
        return {"publish": sink.run(), "own object": sink.follow()}
    return {}


async def _finish(sink: KubeSink | LocalSink, lease: Heartbeat | None) -> None:
    """Write what is not written yet, and give the Lease back."""
    try:
        async with asyncio.timeout(_FLUSH_S):
            if isinstance(sink, KubeSink):
                await sink.flush()
            if lease is not None:
                await lease.release()
    except errors.KubeError as error:
        logger.warning("the Lease is not given back: %s", error)
    except TimeoutError:
        logger.warning("the API server does not answer: the last state may not be published")


def _first(group: BaseExceptionGroup[errors.RteError]) -> errors.RteError:
    error: BaseException = group
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    assert isinstance(error, errors.RteError)  # noqa: S101 - the group was filtered by it
    return error
