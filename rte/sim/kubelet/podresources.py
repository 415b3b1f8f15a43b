"""The podresources v1 server of a simulated kubelet, on a Unix socket."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

import grpc
import grpc.aio

from rte import errors
from rte.kubelet._pb import podresources_pb2 as pb
from rte.kubelet.podresources import MAX_PATH_CHARS, SERVICE
from rte.model import bits

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from rte.model.kubelet import Allocatable, DeviceHolding, ListedPod
    from rte.model.node import ClaimedDevice, MemoryBlock


class PodresourcesSource(Protocol):
    """What the server tells."""

    def listed(self) -> tuple[ListedPod, ...]:
        """The active pods."""

    def allocatable(self) -> Allocatable:
        """What could be handed out."""


class PodresourcesServer:
    """Answers ``List``, ``GetAllocatableResources`` and ``Get`` as a kubelet does."""

    def __init__(self, socket: Path, source: PodresourcesSource) -> None:
        self._socket = socket
        self._source = source
        self._server: grpc.aio.Server | None = None

    async def start(self) -> None:
        """Listen on a new socket.

        Raises:
            errors.KubeletError: its path is too long for a socket.
        """
        if len(str(self._socket)) > MAX_PATH_CHARS:
            raise errors.KubeletError(
                f"podresources socket {self._socket}: longer than {MAX_PATH_CHARS} characters; "
                "choose a shorter directory"
            )
        self._socket.parent.mkdir(parents=True, exist_ok=True)
        self._socket.unlink(missing_ok=True)
        server = grpc.aio.server(options=[("grpc.so_reuseport", 0)])
        handlers: dict[str, grpc.RpcMethodHandler[Any, Any]] = {
            "List": grpc.unary_unary_rpc_method_handler(
                self._list,
                pb.ListPodResourcesRequest.FromString,
                pb.ListPodResourcesResponse.SerializeToString,
            ),
            "GetAllocatableResources": grpc.unary_unary_rpc_method_handler(
                self._allocatable,
                pb.AllocatableResourcesRequest.FromString,
                pb.AllocatableResourcesResponse.SerializeToString,
            ),
            "Get": grpc.unary_unary_rpc_method_handler(
                self._get,
                pb.GetPodResourcesRequest.FromString,
                pb.GetPodResourcesResponse.SerializeToString,
            ),
        }
        server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(SERVICE, handlers),))
        server.add_insecure_port(f"unix:{self._socket}")
        await server.start()
        self._server = server

    async def stop(self) -> None:
        """Close the socket; calls under way fail."""
        if self._server is not None:
            await self._server.stop(None)
            self._server = None
        self._socket.unlink(missing_ok=True)

    async def _list(
        self, _request: pb.ListPodResourcesRequest, _context: object
    ) -> pb.ListPodResourcesResponse:
        return pb.ListPodResourcesResponse(
            pod_resources=[encode_pod(pod) for pod in self._source.listed()]
        )

    async def _allocatable(
        self, _request: pb.AllocatableResourcesRequest, _context: object
    ) -> pb.AllocatableResourcesResponse:
        found = self._source.allocatable()
        return pb.AllocatableResourcesResponse(
            cpu_ids=bits.members(found.cpus),
            memory=_memory(found.memory),
            devices=_devices(found.devices),
        )

    async def _get(
        self,
        request: pb.GetPodResourcesRequest,
        context: grpc.aio.ServicerContext[pb.GetPodResourcesRequest, pb.GetPodResourcesResponse],
    ) -> pb.GetPodResourcesResponse:
        for pod in self._source.listed():
            if (pod.namespace, pod.name) == (request.pod_namespace, request.pod_name):
                return pb.GetPodResourcesResponse(pod_resources=encode_pod(pod))
        await context.abort(
            grpc.StatusCode.UNKNOWN,
            f"pod {request.pod_name} in namespace {request.pod_namespace} not found",
        )
        raise AssertionError  # abort() does not return


def encode_pod(pod: ListedPod) -> pb.PodResources:
    """One pod of a ``List`` answer."""
    return pb.PodResources(
        name=pod.name,
        namespace=pod.namespace,
        containers=[
            pb.ContainerResources(
                name=container.name,
                cpu_ids=bits.members(container.cpus),
                memory=_memory(container.memory),
                devices=_devices(container.devices),
                dynamic_resources=_claimed(container.claimed),
            )
            for container in pod.containers
        ],
        cpu_ids=bits.members(pod.cpus),
        memory=_memory(pod.memory),
    )


def _claimed(devices: Iterable[ClaimedDevice]) -> list[pb.DynamicResource]:
    """One entry per claim, in order."""
    out: dict[tuple[str, str], pb.DynamicResource] = {}
    for item in devices:
        claim = out.setdefault(
            (item.namespace, item.claim),
            pb.DynamicResource(claim_name=item.claim, claim_namespace=item.namespace),
        )
        claim.claim_resources.add(
            cdi_devices=[pb.CDIDevice(name=name) for name in item.cdi],
            driver_name=item.driver,
            pool_name=item.pool,
            device_name=item.device,
            share_id=item.share or None,
        )
    return list(out.values())


def _memory(blocks: Iterable[MemoryBlock]) -> list[pb.ContainerMemory]:
    return [
        pb.ContainerMemory(
            memory_type=block.resource, size=block.size, topology=_topology(block.zones)
        )
        for block in blocks
    ]


def _devices(holdings: Iterable[DeviceHolding]) -> list[pb.ContainerDevices]:
    """One entry per device and zone, as the kubelet sends them."""
    out = []
    for holding in holdings:
        for device, zones in holding.devices.items():
            if zones is None:
                out.append(pb.ContainerDevices(resource_name=holding.resource, device_ids=[device]))
                continue
            out += [
                pb.ContainerDevices(
                    resource_name=holding.resource,
                    device_ids=[device],
                    topology=_topology(1 << zone),
                )
                for zone in bits.members(zones)
            ]
    return out


def _topology(zones: int) -> pb.TopologyInfo:
    return pb.TopologyInfo(nodes=[pb.NUMANode(ID=zone) for zone in bits.members(zones)])
