"""An NRI plugin for CPUs and GPUs: asked when a container is created, told of those that run.

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
#: gRPC's codes: a method that is not there, and one that cannot be carried out here.
_UNIMPLEMENTED, _FAILED_PRECONDITION = 12, 9
_AGAIN_S, _MOST_S = 0.5, 10.0


class Adjuster:
    """Answers the runtime's questions.

    Args:
        cpus_for: annotations and UID of a pod -> CPUs as a list, empty to leave it alone.
        gpus_for: annotations and UID of a pod -> names of devices; an error keeps the container
            from being created, because without its devices it would start in vain.
    """

    def __init__(
        self,
        cpus_for: Callable[[dict[str, str], str], str],
        gpus_for: Callable[[dict[str, str], str], tuple[str, ...]],
    ) -> None:
        self._cpus_for = cpus_for
        self._gpus_for = gpus_for
        self._told = pb.SynchronizeRequest()

    def answer(self, method: str, payload: bytes) -> protobuf.Message | None:
        """The answer to one question; None: there is no such question.

        Raises:
            NRIError: the question cannot be read.
            RteError: the container must not be created.
        """
        try:
            match method:
                case "Configure":
                    self._told.Clear()
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
        """Pin what was created while nobody was there.

        Who has much to tell does so in parts, in which a container may come before its pod, and
        takes updates for an answer to the last part only (synchronize of containerd/nri,
        ``pkg/adaptation/plugin.go``).
        """
        self._told.MergeFrom(told)
        if told.more:
            return pb.SynchronizeResponse(more=True)
        cpus_of = {
            pod.id: self._cpus_for(dict(pod.annotations), pod.uid) for pod in self._told.pods
        }
        updates = [
            # Without ``ignore_failure``: the runtime logs the failed ones, and goes on.
            pb.ContainerUpdate(
                container_id=box.id, linux=pb.LinuxContainerUpdate(resources=_resources(cpus))
            )
            for box in self._told.containers
            if (cpus := cpus_of.get(box.pod_sandbox_id, ""))
        ]
        logger.info("synchronized", extra={"confined": len(updates)})
        self._told.Clear()
        return pb.SynchronizeResponse(update=updates)

    def _create(self, told: pb.CreateContainerRequest) -> pb.CreateContainerResponse:
        pod = told.pod
        annotations = dict(pod.annotations)
        cpus = self._cpus_for(annotations, pod.uid)
        gpus = self._gpus_for(annotations, pod.uid)
        adjust = pb.ContainerAdjustment(CDI_devices=[pb.CDIDevice(name=name) for name in gpus])
        if cpus:
            adjust.linux.resources.CopyFrom(_resources(cpus))
        if cpus or gpus:
            where = f"{pod.namespace}/{pod.name}/{told.container.name}"
            logger.info("adjusted", extra={"container": where, "cpus": cpus, "gpus": gpus})
        return pb.CreateContainerResponse(adjust=adjust)


def _resources(cpus: str) -> pb.LinuxResources:
    return pb.LinuxResources(cpu=pb.LinuxCPU(cpus=cpus))


async def serve(socket: Path, adjuster: Adjuster, index: str) -> None:
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
            await _converse(reader, writer, adjuster, index)
            logger.warning("the runtime has closed the connection")
        except (OSError, errors.RteError) as error:
            logger.warning("NRI: %s", error)
        finally:
            writer.close()
        await asyncio.sleep(wait)


async def _converse(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter, adjuster: Adjuster, index: str
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
                reply = _reply(adjuster, message.payload)
                writer.write(encode(Message(PLUGIN, message.stream, RESPONSE, reply)))
        await writer.drain()


def _registered(payload: bytes) -> None:
    fault = pb.Reply.FromString(payload).status
    if fault.code:
        raise NRIError(f"the runtime takes no plugins: {fault.message}")
    logger.info("registered")


def _reply(adjuster: Adjuster, payload: bytes) -> bytes:
    asked = pb.Envelope.FromString(payload)
    try:
        answer = adjuster.answer(asked.method, asked.payload)
    except NRIError:
        raise
    except errors.RteError as error:
        logger.warning("%s: %s", asked.method, error)
        return _fault(_FAILED_PRECONDITION, str(error))
    if answer is None:
        return _fault(_UNIMPLEMENTED, f"no {asked.method} here")
    return pb.Reply(payload=answer.SerializeToString()).SerializeToString()


def _fault(code: int, message: str) -> bytes:
    return pb.Reply(status=pb.Fault(code=code, message=message)).SerializeToString()
