"""An NRI plugin that pins containers: it is asked when one is created, and told of those that run.

The annotations of a pod come with each question, so it needs no API server and keeps no state.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Final

from google.protobuf import message as protobuf

from rte import errors
from rte.kubelet._pb import nri_pb2 as pb
from rte.kubelet.nri.frames import (
    PLUGIN,
    REQUEST,
    RESPONSE,
    RUNTIME,
    Decoder,
    Message,
    NRIError,
    encode,
)

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

logger = logging.getLogger(__name__)

NAME: Final = "rte"
_RUNTIME_SERVICE = "nri.pkg.api.v1alpha1.Runtime"
#: Number of the event CREATE_CONTAINER.
_CREATE_CONTAINER = 4
#: gRPC's code for a method that is not there.
_UNIMPLEMENTED = 12
_AGAIN_S, _MOST_S = 0.5, 10.0


class Pinner:
    """Answers the runtime's questions.

    Args:
        cpus_for: annotations and UID of a pod -> CPUs as a list, empty to leave it alone.
    """

    def __init__(self, cpus_for: Callable[[dict[str, str], str], str]) -> None:
        self._cpus_for = cpus_for
        self._pods: dict[str, str] = {}

    def answer(self, method: str, payload: bytes) -> protobuf.Message | None:
        """The answer to one question; None: there is no such question.

        Raises:
            NRIError: the question cannot be read.
        """
        try:
            match method:
                case "Configure":
                    return pb.ConfigureResponse(events=1 << (_CREATE_CONTAINER - 1))
                case "Synchronize":
                    return self._synchronize(pb.SynchronizeRequest.FromString(payload))
                case "CreateContainer":
                    return self._create(pb.CreateContainerRequest.FromString(payload))
                case "Shutdown" | "StateChange":
                    return pb.Empty()
        except protobuf.DecodeError as error:
            raise NRIError(f"{method} cannot be read: {error}") from error
        return None

    def _synchronize(self, told: pb.SynchronizeRequest) -> pb.SynchronizeResponse:
        """Pin what was created while nobody was there."""
        for pod in told.pods:
            self._pods[pod.id] = self._cpus_for(dict(pod.annotations), pod.uid)
        updates = [
            pb.ContainerUpdate(
                container_id=box.id,
                linux=pb.LinuxContainerUpdate(resources=_resources(cpus)),
                ignore_failure=True,
            )
            for box in told.containers
            if (cpus := self._pods.get(box.pod_sandbox_id, ""))
        ]
        if not told.more:
            self._pods.clear()
        return pb.SynchronizeResponse(update=updates, more=told.more)

    def _create(self, told: pb.CreateContainerRequest) -> pb.CreateContainerResponse:
        pod = told.pod
        cpus = self._cpus_for(dict(pod.annotations), pod.uid)
        if not cpus:
            return pb.CreateContainerResponse()
        where = f"{pod.namespace}/{pod.name}/{told.container.name}"
        logger.info("pinned", extra={"container": where, "cpus": cpus})
        linux = pb.LinuxContainerAdjustment(resources=_resources(cpus))
        return pb.CreateContainerResponse(adjust=pb.ContainerAdjustment(linux=linux))


def _resources(cpus: str) -> pb.LinuxResources:
    return pb.LinuxResources(cpu=pb.LinuxCPU(cpus=cpus))


async def serve(socket: Path, pinner: Pinner, index: str) -> None:
    """Serve the runtime until cancelled; where it goes away, wait for it to come back."""
    wait = _AGAIN_S
    while True:
        try:
            reader, writer = await asyncio.open_unix_connection(socket)
        except OSError as error:
            logger.warning("no NRI at %s, trying again: %s", socket, error)
            await asyncio.sleep(wait)
            wait = min(_MOST_S, 2 * wait)
            continue
        wait = _AGAIN_S
        try:
            await _converse(reader, writer, pinner, index)
            logger.warning("the runtime has closed the connection")
        except (OSError, errors.RteError) as error:
            logger.warning("NRI: %s", error)
        finally:
            writer.close()
        await asyncio.sleep(wait)


async def _converse(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter, pinner: Pinner, index: str
) -> None:
    request = pb.Envelope(
        service=_RUNTIME_SERVICE,
        method="RegisterPlugin",
        payload=pb.RegisterPluginRequest(plugin_name=NAME, plugin_idx=index).SerializeToString(),
    )
    writer.write(encode(Message(RUNTIME, 1, REQUEST, request.SerializeToString())))
    decoder = Decoder()
    while data := await reader.read(65_536):
        for message in decoder.feed(data):
            if message.connection == RUNTIME and message.kind == RESPONSE:
                _registered(message.payload)
            elif message.connection == PLUGIN and message.kind == REQUEST:
                reply = _reply(pinner, message.payload)
                writer.write(encode(Message(PLUGIN, message.stream, RESPONSE, reply)))
        await writer.drain()


def _registered(payload: bytes) -> None:
    fault = pb.Reply.FromString(payload).status
    if fault.code:
        raise NRIError(f"the runtime takes no plugins: {fault.message}")
    logger.info("registered")


def _reply(pinner: Pinner, payload: bytes) -> bytes:
    asked = pb.Envelope.FromString(payload)
    answer = pinner.answer(asked.method, asked.payload)
    if answer is None:
        fault = pb.Fault(code=_UNIMPLEMENTED, message=f"no {asked.method} here")
        return pb.Reply(status=fault).SerializeToString()
    return pb.Reply(payload=answer.SerializeToString()).SerializeToString()
