"""The agent as a daemon: one task group that wires sources, observer, publisher and Lease."""

from __future__ import annotations

import asyncio
import logging
import os
import random
import signal
import time
from contextlib import AsyncExitStack
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from rte import errors
from rte.agent import follow, learn, memory
from rte.agent.drift import DriftCheck
from rte.agent.follow import FileFollower, Signals
from rte.agent.observer.machine import Observer
from rte.agent.observer.messages import KubeletChange, OwnerSeen
from rte.agent.observing import Observing
from rte.agent.publisher.machine import FIELD_MANAGER, Publisher
from rte.agent.publishing import Publishing
from rte.agent.settings import SinkKind
from rte.agent.sources import NodeReader
from rte.agent.stores import KubeStore, LocalStore
from rte.agent.timings import DEFAULT, Timings
from rte.kube import credentials
from rte.kube.client import Client
from rte.kube.lease import Heartbeat
from rte.sysfs import read_machine
from rte.telemetry import health
from rte.telemetry.cases import CaseBook
from rte.telemetry.effects import Readiness
from rte.telemetry.metrics import AgentMetrics
from rte.telemetry.quarantine import FIRST_S, Quarantine
from rte.telemetry.tls import TLSFiles

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

    from rte.agent.settings import AgentSettings
    from rte.kubelet.podresources import PodResources

logger = logging.getLogger(__name__)

#: Label of the agents' Leases; each is named like its node.
LEASE_LABELS = {"app.kubernetes.io/name": "rte-agent"}

#: By then an agent has done what it does once.
_STARTED_S = 5.0

#: What must be written at the end has so long; a pod's grace period is 10 s.
_FLUSH_S = 3.0


def run(settings: AgentSettings) -> int:
    """Run until SIGTERM or SIGINT; 0 = stopped as asked.

    Raises:
        errors.RteError: the settings do not work here; nothing that passes by itself.
    """
    try:
        asyncio.run(_until_signalled(settings))
    except* (errors.RteError, BrokenPipeError) as group:
        raise _first(group) from None
    return 0


async def _until_signalled(settings: AgentSettings) -> None:
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    loop.call_later(_STARTED_S, memory.let_go_of_code)
    await serve(settings, os.environ, stop, rest=memory.Rests())


async def serve(
    settings: AgentSettings,
    environ: Mapping[str, str],
    stop: asyncio.Event,
    *,
    timings: Timings | None = None,
    metrics: AgentMetrics | None = None,
    listening: Callable[[int], None] = lambda _: None,
    rest: Callable[[], None] = lambda: None,
) -> None:
    """Follow the node and publish its state until ``stop`` is set; then flush and release.

    ``listening`` learns the port of the metrics server, ``rest`` is called while a new state is on
    its way, and after each answer of the kubelet.

    Raises:
        ExceptionGroup: of errors.RteError; the settings do not work here.
    """
    tls = TLSFiles.given(
        settings.tls_cert_file, settings.tls_private_key_file, settings.client_ca_file
    )
    async with AsyncExitStack() as stack:
        node = _AgentParts(
            settings,
            timings or DEFAULT,
            metrics or AgentMetrics(),
            await _connect(settings, environ, stack),
        )
        podresources = await _open_podresources(settings, stack)
        lease = _make_lease(node)
        store = _make_store(node)
        sources = _make_sources(node, podresources)
        publishing = _make_publishing(node, store, lease, sources)
        observing = _make_observing(node, sources, publishing, rest)
        try:
            async with asyncio.TaskGroup() as group:
                running = {
                    **{
                        name: _go_on(name, each, sources.quarantine)
                        for name, each in _followers(node, podresources).items()
                    },
                    "publish": publishing.run(),
                    "observe": observing.run(),
                }
                if settings.metrics_listen:
                    running["metrics"] = health.serve(
                        settings.metrics_listen,
                        node.metrics.exposition,
                        node.readiness,
                        started=listening,
                        tls=tls,
                        only_known=settings.client_ca_file is not None,
                        turned_away=node.metrics.turned_away.inc,
                    )
                if isinstance(store, KubeStore):
                    running["own object"] = _go_on(
                        "own object", partial(store.follow, publishing.feed), sources.quarantine
                    )
                tasks = [group.create_task(work, name=name) for name, work in running.items()]
                await stop.wait()
                for task in tasks:
                    task.cancel()
        finally:
            await _finish(publishing, lease)


class _AgentParts:
    """What all parts of one agent share."""

    def __init__(
        self,
        settings: AgentSettings,
        timings: Timings,
        metrics: AgentMetrics,
        client: Client | None,
    ) -> None:
        self.settings = settings
        self.timings = timings
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


def _make_lease(node: _AgentParts) -> Heartbeat | None:
    settings = node.settings
    is_kept = settings.sink.kind is SinkKind.KUBE and settings.lease_namespace
    if node.client is None or not is_kept:
        return None
    node.readiness.fails("lease", "it has not been renewed yet")
    return Heartbeat(
        node.client,
        settings.node_name,
        settings.lease_namespace,
        settings.node_name,
        duration_s=max(1, round(node.timings.lease)),
        labels=LEASE_LABELS,
        owners=node.learner.owners,
    )


def _make_store(node: _AgentParts) -> KubeStore | LocalStore:
    settings = node.settings
    if settings.sink.kind is not SinkKind.KUBE or node.client is None:
        return LocalStore(settings.sink, settings.output)
    return KubeStore(
        node.client,
        settings.node_name,
        ask_owner=node.learner.owner_uid,
        tell_owner=lambda uid: node.signals.give(OwnerSeen(uid)),
    )


def _make_publishing(
    node: _AgentParts, store: KubeStore | LocalStore, lease: Heartbeat | None, sources: NodeReader
) -> Publishing:
    async def probe() -> bool:
        pulse = await sources.probe()
        node.signals.give(pulse)
        return pulse.problem is None

    return Publishing(
        store,
        Publisher(node.timings, has_lease=lease is not None, jitter=_jitter),
        metrics=node.metrics,
        readiness=node.readiness,
        lease=lease,
        probe=probe,
    )


def _make_sources(node: _AgentParts, podresources: PodResources | None) -> NodeReader:
    settings = node.settings
    return NodeReader(
        machine=lambda: read_machine(settings.sysfs, settings.procfs),
        learner=node.learner.learn,
        state_dir=settings.state_dir,
        plugin_dir=settings.plugin_dir,
        podresources=podresources,
        socket=podresources.path if podresources else None,
    )


def _make_observing(
    node: _AgentParts,
    sources: NodeReader,
    sink: Publishing,
    rest: Callable[[], None],
) -> Observing:
    settings, drift = node.settings, None
    observer = Observer(
        settings.scope(pods=node.watches_pods),
        replace(node.timings, poll=settings.poll_interval),
        jitter=_jitter,
        quarantine=sources.quarantine,
    )
    if node.watches_pods and settings.drift_check:
        cases = CaseBook(settings.case_dir)
        drift = DriftCheck(settings.node_name, node.metrics, cases)
    return Observing(
        observer,
        sources,
        node.signals,
        sink,
        metrics=node.metrics,
        readiness=node.readiness,
        drift=drift,
        rest=rest,
    )


async def _go_on(name: str, work: Callable[[], Awaitable[None]], quarantine: Quarantine) -> None:
    """Whatever one that follows raises, it begins again after a while."""
    while True:
        with quarantine.guard("followers", name, time.monotonic()) as bulkhead:
            await work()
        fault = bulkhead.fault
        await asyncio.sleep(FIRST_S if fault is None else fault.wait)


def _followers(
    node: _AgentParts, podresources: PodResources | None
) -> dict[str, Callable[[], Awaitable[None]]]:
    """What tells of changes, by name."""
    settings, timings, signals = node.settings, node.timings, node.signals
    followers: dict[str, Callable[[], Awaitable[None]]] = {
        "machine": partial(
            follow.follow_machine,
            signals,
            lambda: follow.hardware(settings.sysfs, devices=settings.group_inventory),
            every_s=timings.machine,
        )
    }
    if settings.asks_kubelet:
        files = FileFollower(
            signals,
            state_dir=settings.state_dir,
            plugin_dir=settings.plugin_dir,
            socket=podresources.path if podresources else None,
        )
        followers["files"] = files.run
        if podresources is not None:
            followers["connection"] = partial(follow.follow_connection, signals, podresources)
        followers["poll"] = partial(
            follow.poll, signals, KubeletChange.POLL, every_s=settings.poll_interval
        )
    if node.client is not None and node.watches_pods:
        followers["pods"] = partial(
            follow.follow_pods,
            node.client,
            settings.node_name,
            signals,
            node.metrics,
            poll_s=timings.list_pods,
        )
    return followers


async def _finish(publishing: Publishing, lease: Heartbeat | None) -> None:
    """Write what is not written yet, and give the Lease back."""
    try:
        async with asyncio.timeout(_FLUSH_S):
            await publishing.flush()
            if lease is not None:
                await lease.release()
    except errors.KubeError as error:
        logger.warning("the Lease is not given back: %s", error)
    except TimeoutError:
        logger.warning("the API server does not answer: the last state may not be published")


def _first(group: BaseExceptionGroup[Exception]) -> BaseException:
    error: BaseException = group
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error
