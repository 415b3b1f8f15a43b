"""Client of the kubelet's podresources API (v1) over its Unix socket."""

from __future__ import annotations

import stat
from pathlib import Path
from typing import TYPE_CHECKING, Self, TypeVar

import grpc
import grpc.aio
from google.protobuf import message

from rte import errors
from rte.kubelet._pb import podresources_pb2 as pb
from rte.kubelet.checkpoints import MOST_BYTES
from rte.kubelet.statefiles import kubelet_epoch
from rte.model import bits
from rte.model.kubelet import (
    Allocatable,
    DeviceHolding,
    ListedContainer,
    ListedPod,
)
from rte.model.node import ClaimedDevice, MemoryBlock

if TYPE_CHECKING:
    from collections.abc import Iterable

SERVICE = "v1.PodResourcesLister"
DEFAULT_SOCKET = "unix:///var/lib/kubelet/pod-resources/kubelet.sock"

#: Largest answer taken, the limit of every known client; the kubelet itself has none.
MAX_MESSAGE_BYTES = 16 * 1024 * 1024
#: ``sun_path`` of sockaddr_un holds 107 characters and a NUL.
MAX_PATH_CHARS = 107

_Message = TypeVar("_Message", bound=message.Message)


def socket_path(address: str) -> Path:
    """The path in ``unix:///path``, ``unix:path`` or a plain path.

    Raises:
        errors.UsageError: another scheme, an empty path, or one too long for a socket.
    """
    scheme, colon, rest = address.partition(":")
    if not colon:
        path = address
    elif scheme == "unix":
        path = rest.removeprefix("//")
    else:
        raise errors.UsageError(f"podresources socket {address!r}: expected unix:///path or a path")
    if not path or "\0" in path:
        raise errors.UsageError(f"podresources socket {address!r}: no path")
    if len(path) > MAX_PATH_CHARS:
        raise errors.UsageError(
            f"podresources socket {address!r}: longer than {MAX_PATH_CHARS} characters, the limit"
        )
    return Path(path)


class NotOfferedError(errors.KubeletError):
    """The kubelet is too old for the call, or has its feature gate off."""


class PodResources:
    """One kubelet's podresources endpoint; an asynchronous context manager.

    It connects anew by itself, so one client outlives restarts of the kubelet. Every call
    raises :class:`errors.KubeletError` when there is no answer and :class:`errors.ParseError` when
    it is not sound.
    """

    def __init__(self, address: str = DEFAULT_SOCKET, *, timeout_seconds: float = 10.0) -> None:
        self.path = socket_path(address)
        self._timeout_seconds = timeout_seconds
        self._channel = self._connect()
        self._epoch, self._calls = "", 0

    def _connect(self) -> grpc.aio.Channel:
        return grpc.aio.insecure_channel(
            f"unix:{self.path}",
            options=[
                ("grpc.max_receive_message_length", MAX_MESSAGE_BYTES),
                # A Go server refuses an authority that is not a host name.
                ("grpc.default_authority", "localhost"),
                ("grpc.initial_reconnect_backoff_ms", 100),
                ("grpc.max_reconnect_backoff_ms", 1000),
                # Despite its name how long one attempt to connect may take: on a node under load
                # a kubelet is slow to greet.
                ("grpc.min_reconnect_backoff_ms", round(1000 * self._timeout_seconds)),
                # Channels share connections by their target: that of a former socket is not ours.
                ("grpc.use_local_subchannel_pool", 1),
            ],
        )

    async def _leave_former(self) -> None:
        """Connect anew where the socket is another one: who made the former may live on.

        While a call is under way it is left alone; the next question will do.
        """
        epoch = kubelet_epoch(self.path, None)
        if self._calls or epoch in ("", self._epoch):
            return
        is_first, self._epoch = not self._epoch, epoch
        if not is_first:
            former, self._channel = self._channel, self._connect()
            await former.close(None)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_exc: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Close the channel; calls under way fail."""
        await self._channel.close(None)

    async def wait_closed(self) -> None:
        """Until a connection that stood is closed: the kubelet has ended, most likely."""
        channel = self._channel
        state = channel.get_state()
        while True:
            await channel.wait_for_state_change(state)
            before, state = state, channel.get_state()
            if before is grpc.ChannelConnectivity.READY or channel is not self._channel:
                return

    async def list(self) -> tuple[ListedPod, ...]:
        """Every pod with what its app and sidecar containers hold."""
        payload = await self.fetch("List", pb.ListPodResourcesRequest())
        return decode_pods(decode(pb.ListPodResourcesResponse, payload).pod_resources)

    async def allocatable(self) -> Allocatable | None:
        """What could be handed out; None where this kubelet does not offer the call."""
        try:
            payload = await self.fetch("GetAllocatableResources", pb.AllocatableResourcesRequest())
        except NotOfferedError:
            return None
        return decode_allocatable(decode(pb.AllocatableResourcesResponse, payload))

    async def get(self, namespace: str, name: str) -> ListedPod | None:
        """One pod of :meth:`list`; None where this kubelet does not offer the call."""
        request = pb.GetPodResourcesRequest(pod_name=name, pod_namespace=namespace)
        try:
            payload = await self.fetch("Get", request)
        except NotOfferedError:
            return None
        return decode_pods([decode(pb.GetPodResourcesResponse, payload).pod_resources])[0]

    async def fetch(self, method: str, request: message.Message) -> bytes:
        """The encoded answer of one call, as a snapshot keeps it (:func:`decode` reads it).

        Raises:
            NotOfferedError: this kubelet does not offer the call.
            errors.KubeletError: there is no answer.
        """
        await self._leave_former()
        # Bytes in and out: where a message does not decode, grpc would log it and answer None.
        call = self._channel.unary_unary(f"/{SERVICE}/{method}", bytes, bytes)
        self._calls += 1
        try:
            payload: bytes = await call(request.SerializeToString(), timeout=self._timeout_seconds)
        except grpc.aio.AioRpcError as error:
            raise self._explain(method, error) from error
        finally:
            self._calls -= 1
        return payload

    def _explain(self, method: str, error: grpc.aio.AioRpcError) -> errors.KubeletError:
        code, details = error.code(), " ".join((error.details() or "").split())[:200]
        where = f"podresources {method} at {self.path}"
        # A kubelet that knows the call but has its feature gate off answers with a plain error.
        if code in (grpc.StatusCode.UNIMPLEMENTED, grpc.StatusCode.FAILED_PRECONDITION) or (
            code is grpc.StatusCode.UNKNOWN and "disabled" in details
        ):
            return NotOfferedError(f"{where}: this kubelet does not offer it ({details})")
        if code is grpc.StatusCode.UNAVAILABLE:
            return errors.KubeletGoneError(f"{where}: no answer, {self._why_unreachable(details)}")
        if code is grpc.StatusCode.DEADLINE_EXCEEDED:
            return errors.KubeletError(f"{where}: no answer within {self._timeout_seconds:g} s")
        if code is grpc.StatusCode.RESOURCE_EXHAUSTED and "larger than max" in details:
            limit = MAX_MESSAGE_BYTES // 1024 // 1024
            return errors.KubeletError(f"{where}: the answer is larger than {limit} MiB")
        return errors.KubeletError(f"{where}: {code.name}: {details}")

    def _why_unreachable(self, details: str) -> str:
        try:
            mode = self.path.stat().st_mode
        except OSError as error:
            return f"{error.strerror}; is the kubelet running, and its directory mounted?"
        return details if stat.S_ISSOCK(mode) else "this is not a socket"


def decode_pods(pods: Iterable[pb.PodResources]) -> tuple[ListedPod, ...]:
    """The pods of a ``List`` answer.

    Raises:
        errors.ParseError: an id that no CPU or zone can have.
    """
    return tuple([_pod(pod) for pod in pods])


def decode_allocatable(answer: pb.AllocatableResourcesResponse) -> Allocatable:
    """A ``GetAllocatableResources`` answer.

    Raises:
        errors.ParseError: an id that no CPU or zone can have.
    """
    return Allocatable(
        cpus=_ids(answer.cpu_ids, "podresources CPU"),
        memory=_memory(answer.memory),
        devices=_devices(answer.devices),
    )


def decode(kind: type[_Message], payload: bytes) -> _Message:
    """Decode a stored answer (a snapshot's).

    Raises:
        errors.ParseError: the bytes are not such a message.
    """
    try:
        return kind.FromString(payload)
    except message.DecodeError as error:
        raise errors.ParseError(f"podresources {kind.__name__}", payload, str(error)) from error


# Lists before tuples, and no field asked twice: a message makes a new object at every access.


def _pod(pod: pb.PodResources) -> ListedPod:
    cpus, memory = pod.cpu_ids, pod.memory
    return ListedPod(
        pod.namespace,
        pod.name,
        tuple([_container(container) for container in pod.containers]),
        _ids(cpus, "podresources CPU") if cpus else 0,
        _memory(memory) if memory else (),
    )


def _container(container: pb.ContainerResources) -> ListedContainer:
    devices, claims = container.devices, container.dynamic_resources
    return ListedContainer(
        container.name,
        _ids(container.cpu_ids, "podresources CPU"),
        _memory(container.memory),
        _devices(devices) if devices else (),
        _claimed(claims) if claims else (),
    )


def _claimed(claims: Iterable[pb.DynamicResource]) -> tuple[ClaimedDevice, ...]:
    return tuple(
        ClaimedDevice(
            claim.claim_namespace,
            claim.claim_name,
            device.driver_name,
            device.pool_name,
            device.device_name,
            device.share_id,
            tuple(cdi.name for cdi in device.cdi_devices),
        )
        for claim in claims
        for device in claim.claim_resources
    )


def _memory(blocks: Iterable[pb.ContainerMemory]) -> tuple[MemoryBlock, ...]:
    return tuple(
        [
            MemoryBlock(block.memory_type, _zones(block.topology), _size(block.size))
            for block in blocks
        ]
    )


def _size(size: int) -> int:
    if size >= MOST_BYTES:
        raise errors.ParseError("podresources memory block", size, "expected less than 2^60 bytes")
    return size


def _devices(entries: Iterable[pb.ContainerDevices]) -> tuple[DeviceHolding, ...]:
    """Merge entries: the kubelet sends one per device and zone (cm/container_manager.go)."""
    merged: dict[str, dict[str, int | None]] = {}
    for entry in entries:
        zones = _zones(entry.topology) if entry.HasField("topology") else None
        devices = merged.setdefault(entry.resource_name, {})
        for device in entry.device_ids:
            known = devices.get(device)
            devices[device] = zones if known is None else known | (zones or 0)
    return tuple(DeviceHolding(resource, merged[resource]) for resource in sorted(merged))


def _zones(topology: pb.TopologyInfo) -> int:
    nodes = topology.nodes
    # Nearly always; going through them takes nearly twice as long.
    if len(nodes) == 1 and 0 <= (zone := nodes[0].ID) <= bits.MAX_ID:
        return 1 << zone
    mask = 0
    for node in nodes:
        zone = node.ID
        if zone > bits.MAX_ID:
            raise errors.ParseError("podresources zone", zone, "id out of range")
        # A negative id means "does not care", as in the device plugin API.
        mask |= 1 << zone if zone >= 0 else 0
    return mask


def _ids(ids: Iterable[int], what: str) -> int:
    mask = 0
    for number in ids:
        if not 0 <= number <= bits.MAX_ID:
            raise errors.ParseError(what, number, "id out of range")
        mask |= 1 << number
    return mask
