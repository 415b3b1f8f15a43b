"""One consistent reading of this node, published once.

The observer and publisher of the daemon, fed in turn until there is something to publish. Sources
that a run does not use are not imported: neither gRPC without a socket, nor an HTTP client without
an API server.
"""

from __future__ import annotations

import asyncio
import logging
import math
import time
from collections import deque
from contextlib import AsyncExitStack
from dataclasses import replace
from typing import TYPE_CHECKING

from rte import errors
from rte.agent import learn, stores
from rte.agent.observer import messages
from rte.agent.observer.machine import Observer
from rte.agent.observer.messages import KubeletChange
from rte.agent.settings import SinkKind
from rte.agent.sources import NodeReader
from rte.agent.timings import Timings
from rte.sysfs import read_machine
from rte.telemetry.effects import Said

if TYPE_CHECKING:
    from collections.abc import Mapping

    from rte.agent.observer.messages import Effect, Event, Observation
    from rte.agent.settings import AgentSettings
    from rte.kube.client import Client
    from rte.kubelet.statefiles import PodresourcesClient
    from rte.model.machine import Machine
    from rte.model.node import NodeReading
    from rte.reader.json import JsonObject

logger = logging.getLogger(__name__)

#: A kubelet writes within milliseconds. CPUs that no state file mentions are always taken for such
#: a moment here; that they were plugged in after the kubelet's start only a follower can tell.
_TIMINGS = Timings(torn=0.05, torn_most=0.05, settled=math.inf)


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
        client = None
        if settings.sink.kind is SinkKind.KUBE or settings.kubeconfig is not None:
            client = await _connect(settings, environ, stack)
        once = _Once(settings, machine, client, await _sources(settings, machine, client, stack))
        await once.run()
        for key in once.left_out:
            logger.warning("annotation left out, the object would be too large", extra={"key": key})
        if settings.sink.kind is SinkKind.KUBE and client is not None:
            await _publish(settings, client, once.observation)
        elif settings.sink.path is not None:
            text = stores.render(once.observation.object, settings.output)
            stores.write_file(settings.sink.path, text)
        else:
            stores.write_stdout(stores.render(once.observation.object, settings.output))


async def read_node(
    settings: AgentSettings, machine: Machine, recording: PodresourcesClient | None = None
) -> NodeReading:
    """One consistent reading of the machine and its kubelet, without the API server.

    ``recording`` stands for the kubelet's podresources API where none is asked.

    Raises:
        errors.RteError: as :func:`run`.
    """
    async with AsyncExitStack() as stack:
        sources = await _sources(settings, machine, None, stack, recording)
        return await _Once(settings, machine, None, sources).run()


class _Once:
    """Feeds an observer until it has something to publish.

    Attributes:
        observation: what it published last.
        left_out: annotations that would make it too large.
    """

    def __init__(
        self, settings: AgentSettings, machine: Machine, client: Client | None, sources: NodeReader
    ) -> None:
        self._settings = settings
        self._client = client
        self._sources = sources
        scope = settings.scope(pods=client is not None)
        self._observer = Observer(
            replace(scope, podresources=sources.podresources is not None), _TIMINGS
        )
        self._ends = time.monotonic() + settings.oneshot_timeout
        self._events: deque[Event] = deque(
            [messages.MachineRead(machine), messages.Noticed(KubeletChange.POLL, time.monotonic())]
        )
        self._lists_pods = client is not None and settings.asks_kubelet
        self.observation: Observation
        self.left_out: tuple[str, ...] = ()

    async def run(self) -> NodeReading:
        """Until a consistent state is read, of a kubelet that has re-admitted its pods.

        One that has not within the time given is published as it is, not synced.
        """
        while True:
            while self._events:
                now = time.monotonic()
                for effect in self._observer.handle(self._events.popleft(), now):
                    await self._carry_out(effect)
            reading = self._observer.reading
            wait = self._observer.deadline() - time.monotonic()
            if reading is not None and wait > 0:
                is_synced = reading.state is None or reading.state.synced
                if is_synced or time.monotonic() >= self._ends:
                    return reading
            if wait > 0:
                await _wait(wait)
            self._events.append(messages.Tick())

    async def _carry_out(self, effect: Effect) -> None:
        match effect:
            case messages.ReadFiles():
                self._events.append(self._sources.read_files(effect))
                if self._lists_pods and self._client is not None:
                    # After the files: what it lacks of them is gone.
                    self._lists_pods = False
                    self._events.append(await _list_pods(self._settings, self._client))
            case messages.Ask():
                self._events.append(await self._sources.ask(effect))
            case messages.Learn():
                learnt = await self._sources.learn(replace(effect, patient=False))
                if learnt.problem is not None:
                    self._failed(learnt.problem)
                self._events.append(learnt)
            case messages.Publish():
                self.observation = effect.observation
                self.left_out = tuple(name for name, is_so in effect.left_out.items() if is_so)
            case messages.Failed():
                self._failed(effect.error)
            case Said() if effect.level == "warning":
                effect.say(logger)

    def _failed(self, error: errors.RteError) -> None:
        if not isinstance(error, errors.InconsistentStateError):
            raise error
        if time.monotonic() >= self._ends:
            raise errors.InconsistentStateError(
                f"no consistent state within {self._settings.oneshot_timeout:g} s: {error}"
            ) from error
        logger.debug("reading again: %s", error)


# The API server


async def _connect(
    settings: AgentSettings, environ: Mapping[str, str], stack: AsyncExitStack
) -> Client:
    from rte.kube import credentials
    from rte.kube.client import Client

    access = credentials.load(settings.kubeconfig, environ)
    return await stack.enter_async_context(
        Client(access, timeout_s=settings.oneshot_timeout, component="rte-agent")
    )


async def _list_pods(settings: AgentSettings, client: Client) -> messages.PodsListed:
    from rte.kube.lists import list_all
    from rte.kube.resources import PODS

    selectors = {"fieldSelector": f"spec.nodeName={settings.node_name}"}
    answer: JsonObject = await list_all(client, PODS.path(), selectors)
    return messages.PodsListed(tuple(answer["items"]))


async def _publish(settings: AgentSettings, client: Client, observation: Observation) -> None:
    """Write it as the daemon would: only what differs, guarded, tried again after a conflict."""
    from rte.agent.publisher.machine import Publisher
    from rte.agent.publishing import Publishing
    from rte.agent.stores import KubeStore
    from rte.telemetry.effects import Readiness
    from rte.telemetry.metrics import AgentMetrics

    publisher = Publisher(Timings(last_retry=1.0))
    store = KubeStore(client, settings.node_name)
    publishing = Publishing(store, publisher, metrics=AgentMetrics(), readiness=Readiness())
    await publishing.publish(observation, settings.oneshot_timeout)


# The kubelet


async def _sources(
    settings: AgentSettings,
    machine: Machine,
    client: Client | None,
    stack: AsyncExitStack,
    recording: PodresourcesClient | None = None,
) -> NodeReader:
    podresources, socket = recording, None
    if settings.socket is not None:
        from rte.kubelet.podresources import PodResources

        asked = PodResources(settings.socket, timeout_seconds=settings.oneshot_timeout)
        podresources, socket = await stack.enter_async_context(asked), asked.path
    return NodeReader(
        machine=lambda: machine,
        learner=learn.Learner(settings, client, must_know=False).learn,
        state_dir=settings.state_dir,
        plugin_dir=settings.plugin_dir,
        podresources=podresources,
        socket=socket,
    )


async def _wait(seconds: float) -> None:
    await asyncio.sleep(seconds)
