"""One consistent reading of this node, published once.

Sources that a run does not use are not imported: neither gRPC without a socket, nor an HTTP client
without an API server.
"""

from __future__ import annotations

import asyncio
import logging
import time
from contextlib import AsyncExitStack
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from rte import accounting, errors, nrt
from rte.agent import learn, sinks
from rte.agent.settings import SinkKind
from rte.kubelet import reading as kubelet_reading
from rte.model.node import NodeReading
from rte.sysfs import read_machine

if TYPE_CHECKING:
    from collections.abc import Mapping

    from rte.agent.settings import AgentSettings
    from rte.kube.client import Client
    from rte.kubelet.reading import Source
    from rte.model.kubelet import NodePod
    from rte.model.machine import Machine

logger = logging.getLogger(__name__)

#: Between two readings of a state that is not consistent yet; a kubelet writes within milliseconds.
_RETRY_S = 0.05


@dataclass(frozen=True)
class _API:
    """The API server and what it says of this node's Node object."""

    client: Client
    node: Mapping[str, Any]


async def run(settings: AgentSettings, environ: Mapping[str, str]) -> None:
    """Read, account, encode, publish.

    The API server is asked when it is the sink or ``kubeconfig`` is given; then it tells which pods
    are active and, without a kubelet configuration file, how the kubelet is configured.

    Raises:
        errors.RteError: the machine or a source that was asked for cannot be read, no consistent
            state was seen within ``oneshot_timeout``, or the sink refuses.
    """
    machine = read_machine(settings.sysfs, settings.procfs)
    async with AsyncExitStack() as stack:
        api = None
        if settings.sink.kind is SinkKind.KUBE or settings.kubeconfig is not None:
            api = await _connect(settings, environ, stack)
        if settings.asks_kubelet:
            reading = await _read(settings, machine, api, stack)
        else:
            reading = NodeReading(node_name=settings.node_name, machine=machine)
        for line in reading.disagreements:
            logger.warning("sources disagree: %s", line)
        owner = str(api.node["metadata"].get("uid") or "") if api else ""
        encoded = nrt.build(reading, settings.nrt_options(owner))
        for key in encoded.dropped:
            logger.warning("annotation left out, the object would be too large", extra={"key": key})
        if settings.sink.kind is SinkKind.KUBE and api:
            await _publish(settings, api.client, encoded.object)
        elif settings.sink.path is not None:
            sinks.write_file(settings.sink.path, sinks.render(encoded.object, settings.output))
        else:
            sinks.write_stdout(sinks.render(encoded.object, settings.output))


async def read_node(
    settings: AgentSettings, machine: Machine, recording: Source | None = None
) -> NodeReading:
    """One consistent reading of the machine and its kubelet, without the API server.

    ``recording`` stands for the kubelet's podresources API where none is asked.

    Raises:
        errors.RteError: as :func:`run`.
    """
    async with AsyncExitStack() as stack:
        return await _read(settings, machine, None, stack, recording)


# The API server


async def _connect(
    settings: AgentSettings, environ: Mapping[str, str], stack: AsyncExitStack
) -> _API:
    from rte.kube import credentials
    from rte.kube.client import Client
    from rte.kube.resources import NODES

    access = credentials.load(settings.kubeconfig, environ)
    client = await stack.enter_async_context(
        Client(access, timeout_s=settings.oneshot_timeout, component="rte-agent")
    )
    try:
        node = await client.get(NODES.path(settings.node_name))
    except errors.KubeError as error:
        if error.status != 404:
            raise
        raise learn.no_such_node(settings.node_name, error) from error
    return _API(client, node)


async def _list_pods(settings: AgentSettings, client: Client) -> tuple[NodePod, ...]:
    from rte.agent import pods
    from rte.kube.lists import list_all
    from rte.kube.resources import PODS

    selectors = {"fieldSelector": f"spec.nodeName={settings.node_name}"}
    answer = await list_all(client, PODS.path(), selectors)
    return tuple(pods.parse(item) for item in answer["items"])


async def _publish(settings: AgentSettings, client: Client, document: dict[str, Any]) -> None:
    """Write it as the daemon would: only what differs, guarded, tried again after a conflict."""
    from rte.agent.kubesink import KubeSink, Observation
    from rte.agent.mailbox import Mailbox
    from rte.kube import retry
    from rte.telemetry.health import Readiness
    from rte.telemetry.metrics import AgentMetrics

    mailbox: Mailbox[Observation] = Mailbox()
    sink = KubeSink(
        client, settings.node_name, mailbox, metrics=AgentMetrics(), readiness=Readiness()
    )
    mailbox.put(Observation(document, time.monotonic()))
    deadline = time.monotonic() + settings.oneshot_timeout
    attempts = retry.forever(
        retry_on=lambda error: (
            time.monotonic() < deadline
            and (retry.is_transient(error) or getattr(error, "status", 0) == 409)
        ),
        most_s=1.0,
    )
    async for attempt in attempts:
        with attempt:
            await sink.flush()


# The kubelet


async def _read(
    settings: AgentSettings,
    machine: Machine,
    api: _API | None,
    stack: AsyncExitStack,
    recording: Source | None = None,
) -> NodeReading:
    """One consistent reading, tried again while the kubelet is between two writes.

    CPUs that no state file mentions are always taken for such a moment here; that they were
    plugged in after the kubelet's start only podresources can tell.
    """
    source, socket = recording, None
    if settings.socket is not None:
        from rte.kubelet.podresources import PodResources

        client = PodResources(settings.socket, timeout_seconds=settings.oneshot_timeout)
        source, socket = await stack.enter_async_context(client), client.path
    config = await learn.read_kubelet_config(
        settings, machine.memory_bytes, api.client if api else None, api.node if api else None
    )
    facts = learn.node_facts(api.node) if api else learn.NodeFacts()
    deadline = time.monotonic() + settings.oneshot_timeout
    files = None
    while True:
        try:
            view, files = await kubelet_reading.read_view(
                settings.state_dir,
                source,
                plugin_dir=settings.plugin_dir,
                config=config,
                version=facts.version,
                epoch=kubelet_reading.kubelet_epoch(socket, settings.plugin_dir),
                previous=files,
            )
            return accounting.build_reading(
                settings.node_name,
                machine,
                view,
                await _list_pods(settings, api.client) if api else None,
                accounting.Options(
                    reference_container=settings.reference_container,
                    exclude_pods=settings.exclude_pods,
                    node_capacity=facts.capacity,
                ),
            )
        except errors.InconsistentStateError as error:
            if time.monotonic() >= deadline:
                raise errors.InconsistentStateError(
                    f"no consistent state within {settings.oneshot_timeout:g} s: {error}"
                ) from error
            logger.debug("reading again: %s", error)
            await _wait()


async def _wait() -> None:
    await asyncio.sleep(_RETRY_S)
