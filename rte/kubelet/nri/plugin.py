"""An NRI plugin for CPUs and GPUs: asked when a container is created, told of those that run.

The annotations of a pod come with each question, but its author may have written them: what counts
is what the scheduler has recorded in the pod's status, and that is asked of the API server.
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
from rte.placement.groups import allocation

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from pathlib import Path

logger = logging.getLogger(__name__)

NAME: Final = "rte"
_RUNTIME_SERVICE = "nri.pkg.api.v1alpha1.Runtime"
#: Number of the event CREATE_CONTAINER.
_CREATE_CONTAINER = 4
#: gRPC's codes: a method that is not there, and one that cannot be carried out here.
_UNIMPLEMENTED, _FAILED_PRECONDITION = 12, 9
#: All pods and containers of a node: a thousand pods, with the most annotations that there can be.
_MOST_TOLD_BYTES = 256 << 20
_AGAIN_S, _MOST_S = 0.5, 10.0
#: Pods whose record is remembered, so that their containers start again without the API server.
_MOST_KNOWN = 1024


class Adjuster:
    """Answers the runtime's questions.

    Args:
        recorded: the allocation in the pod's status, ``""`` where none is; an error keeps the
            container from being created, because nobody knows what is its own.
        cpus_for: annotations and UID of a pod -> CPUs as a list, empty to leave it alone.
        gpus_for: annotations and UID of a pod -> names of devices; an error keeps the container
            from being created, because without its devices it would start in vain.
    """

    def __init__(
        self,
        recorded: Callable[[pb.PodSandbox], Awaitable[str]],
        cpus_for: Callable[[dict[str, str], str], str],
        gpus_for: Callable[[dict[str, str], str], tuple[str, ...]],
    ) -> None:
        self._recorded = recorded
        self._known: dict[str, str] = {}
        self._cpus_for = cpus_for
        self._gpus_for = gpus_for
        self._told = pb.SynchronizeRequest()

    async def answer(self, method: str, payload: bytes) -> protobuf.Message | None:
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
                    return await self._synchronize(pb.SynchronizeRequest.FromString(payload))
                case "CreateContainer":
                    return await self._create(pb.CreateContainerRequest.FromString(payload))
                case "Shutdown" | "StateChange":
                    return pb.Empty()
        except protobuf.DecodeError as error:
            raise NRIError(f"{method} cannot be read: {error}") from error
        return None

    async def _synchronize(self, told: pb.SynchronizeRequest) -> pb.SynchronizeResponse:
        """Pin what was created while nobody was there.

        Who has much to tell does so in parts, in which a container may come before its pod, and
        takes updates for an answer to the last part only (synchronize of containerd/nri,
        ``pkg/adaptation/plugin.go``).
        """
        self._told.MergeFrom(told)
        if self._told.ByteSize() > _MOST_TOLD_BYTES:
            raise NRIError(f"the runtime tells of more than {_MOST_TOLD_BYTES} bytes of containers")
        if told.more:
            return pb.SynchronizeResponse(more=True)
        pods = list(self._told.pods)
        said = await asyncio.gather(*map(self._annotations, pods))
        cpus_of = {
            pod.id: self._cpus_for(annotations, pod.uid)
            for pod, annotations in zip(pods, said, strict=True)
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

    async def _create(self, told: pb.CreateContainerRequest) -> pb.CreateContainerResponse:
        pod = told.pod
        annotations = await self._annotations(pod)
        cpus = self._cpus_for(annotations, pod.uid)
        gpus = self._gpus_for(annotations, pod.uid)
        adjust = pb.ContainerAdjustment(CDI_devices=[pb.CDIDevice(name=name) for name in gpus])
        if cpus:
            adjust.linux.resources.CopyFrom(_resources(cpus))
        if cpus or gpus:
            where = f"{pod.namespace}/{pod.name}/{told.container.name}"
            logger.info("adjusted", extra={"container": where, "cpus": cpus, "gpus": gpus})
        return pb.CreateContainerResponse(adjust=adjust)

    async def _annotations(self, pod: pb.PodSandbox) -> dict[str, str]:
        """The pod's annotations, but with the allocation that is recorded for it."""
        annotations = dict(pod.annotations)
        if not (said := annotations.pop(allocation.ANNOTATION, "")):
            return annotations
        if pod.uid not in self._known:
            recorded = await self._recorded(pod)
            if not recorded:
                where = f"{pod.namespace}/{pod.name}"
                logger.warning("no scheduler has recorded the allocation that %s has", where)
                return annotations
            while len(self._known) >= _MOST_KNOWN:
                del self._known[next(iter(self._known))]
            self._known[pod.uid] = recorded
        recorded = self._known[pod.uid]
        if recorded != said:
            logger.warning("%s/%s: its annotation is not its allocation", pod.namespace, pod.name)
        return {**annotations, allocation.ANNOTATION: recorded}


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
                reply = await _reply(adjuster, message.payload)
                writer.write(encode(Message(PLUGIN, message.stream, RESPONSE, reply)))
        await writer.drain()


def _registered(payload: bytes) -> None:
    try:
        fault = pb.Reply.FromString(payload).status
    except protobuf.DecodeError as error:
        raise NRIError(f"the answer to the registration cannot be read: {error}") from error
    if fault.code:
        raise NRIError(f"the runtime takes no plugins: {fault.message}")
    logger.info("registered")


async def _reply(adjuster: Adjuster, payload: bytes) -> bytes:
    try:
        asked = pb.Envelope.FromString(payload)
    except protobuf.DecodeError as error:
        raise NRIError(f"a question cannot be read: {error}") from error
    try:
        answer = await adjuster.answer(asked.method, asked.payload)
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
