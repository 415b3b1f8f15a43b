"""NHD's gRPC statistics, over TLS: how full nodes are, and what pods hold.

All four calls answer; NHD's own fill neither ``GetPodStats`` nor ``hugepages``, and do not
implement ``GetDetailedNodeStats``. Source: NHD ``nhd_stats.proto``, ``NHDRpcServer.py``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import grpc
import grpc.aio

from rte import errors
from rte.placement.groups.allocation import devices_of
from rte.placement.groups.explain import HUGEPAGES, amounts
from rte.scheduler.front import turns
from rte.scheduler.front._pb import nhd_stats_pb2 as pb
from rte.scheduler.front.groups import books_of

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from rte.placement.groups.allocation import GroupsAllocation
    from rte.placement.groups.inventory import GroupInventory
    from rte.scheduler.cache.cluster import Cluster
    from rte.scheduler.framework.node import NodeEntry
    from rte.scheduler.plugins.groups.books import Books, OnNode
    from rte.scheduler.shell.service import Scheduler

SERVICE = "NhdStats.NHDControl"
_SIZE = "1Gi"

#: Calls at once; more are refused (RESOURCE_EXHAUSTED).
_MOST_CALLS = 8
#: As for our other listeners (:mod:`rte.telemetry.connections`), in gRPC's words.
_LIMITS = (
    ("grpc.max_allowed_incoming_connections", 32),
    ("grpc.server_handshake_timeout_ms", 5_000),
    ("grpc.max_connection_idle_ms", 75_000),
    ("grpc.max_concurrent_streams", _MOST_CALLS),
    ("grpc.max_metadata_size", 16 << 10),
    ("grpc.max_receive_message_length", 64 << 10),
)


class Statistics:
    """The answers, from what the scheduler knows right now.

    Args:
        cluster: what is known.
        books: of the plugin for processing groups.
    """

    def __init__(self, cluster: Cluster, books: Books) -> None:
        self._cluster = cluster
        self._books = books

    async def nodes(self) -> pb.NodeStats:
        """Every node with an inventory."""
        found = (_node(entry, known) for entry, known in self._known())
        return pb.NodeStats(info=await turns.gathered(found))

    async def pods(self) -> pb.PodStats:
        """Every pod with an allocation."""
        found = (pod for entry, known in self._known() for pod in _pods(entry, known))
        return pb.PodStats(info=await turns.gathered(found))

    def node(self, name: str) -> pb.DetailedNodeStats:
        """The pods of one node."""
        for entry, known in self._known():
            if entry.name == name:
                return pb.DetailedNodeStats(name=name, podinfo=_pods(entry, known))
        return pb.DetailedNodeStats(status=pb.NHD_STATUS_ERR, name=name)

    def _known(self) -> Iterator[tuple[NodeEntry, OnNode]]:
        for _, entry in sorted(self._cluster.nodes.items()):
            known = self._books.on(entry)
            if known is not None:
                yield entry, known


def _node(entry: NodeEntry, known: OnNode) -> pb.NodeInfo:
    inventory, used = known.ground.inventory, known.ground.used
    there = amounts(inventory, used)
    cpus, gpus = there["cpus"], there["gpus"]
    pages = there.get(f"{HUGEPAGES}{_SIZE}", {"free": 0, "held": 0})
    return pb.NodeInfo(
        name=entry.name,
        free_cpus=cpus["free"],
        used_cpus=sum(cpus.values()) - cpus["free"],
        free_gpus=gpus["free"],
        used_gpus=gpus["held"],
        free_hugepages=pages["free"],
        used_hugepages=pages["held"],
        total_pods=len(known.held.allocations),
        nic_info=[
            pb.NICInfoBrief(used_rx=-(-use.rx // 1000), used_tx=-(-use.tx // 1000))
            if (use := used.nics.get(nic.address))
            else pb.NICInfoBrief()
            for nic in inventory.nics
        ],
        active=not (known.facts.cordoned or known.facts.maintenance),
    )


def _pods(entry: NodeEntry, known: OnNode) -> list[pb.PodInfo]:
    out = []
    for uid, allocation in known.held.allocations.items():
        pod = entry.pods.get(uid)
        if pod is not None:
            told = pb.PodInfo(
                name=pod.name,
                node=entry.name,
                annotations=dict(pod.annotations),
                namespace=pod.namespace,
                misc_cores=allocation.misc.cpus,
                hugepages=_pages(allocation),
            )
            _tell_groups(told, allocation, known.ground.inventory)
            out.append(told)
    return out


def _tell_groups(told: pb.PodInfo, allocation: GroupsAllocation, inventory: GroupInventory) -> None:
    try:
        devices = devices_of(allocation, inventory)
    except KeyError:  # a device that the node has lost
        devices = {}
    for group in allocation.groups:
        helpers = group.cpus.helpers
        cpus = group.cpus.all()
        told.proc_cores.extend(cpus[: len(cpus) - len(helpers)])
        told.proc_helper_cores.extend(helpers)
        for address in group.gpus:
            index = devices.get(address, {}).get("index")
            if isinstance(index, int):
                told.gpus.append(index)
        for nic in group.nics:
            mac = devices.get(nic.address, {}).get("mac")
            if mac and str(mac) not in told.nic_macs:
                told.nic_macs.append(str(mac))


def _pages(allocation: GroupsAllocation) -> int:
    return sum(count for size, _, count in allocation.all_pages() if size == _SIZE)


async def serve(
    scheduler: Scheduler, address: str, cert: Path, key: Path, client_ca: Path | None
) -> None:
    """Serve until cancelled.

    Args:
        scheduler: whose state is told.
        address: ``host:port``.
        cert: certificates, in PEM.
        key: the private key.
        client_ca: clients must have a certificate of this authority; None: anybody may ask.

    Raises:
        errors.UsageError: a file cannot be read, or the address cannot be bound.
    """
    statistics = Statistics(scheduler.cluster, books_of(scheduler.cycle))
    try:
        pair = (key.read_bytes(), cert.read_bytes())
        authority = client_ca.read_bytes() if client_ca else None
    except OSError as error:
        raise errors.UsageError(f"--stats-cert, --stats-key, --stats-client-ca: {error}") from error
    server = grpc.aio.server(options=_LIMITS, maximum_concurrent_rpcs=_MOST_CALLS)
    server.add_generic_rpc_handlers((_handler(statistics, scheduler),))
    credentials = grpc.ssl_server_credentials(
        [pair], root_certificates=authority, require_client_auth=authority is not None
    )
    try:
        server.add_secure_port(address, credentials)
    except RuntimeError as error:
        raise errors.UsageError(f"--stats-listen {address}: {error}") from error
    await server.start()
    try:
        await server.wait_for_termination()
    finally:
        await server.stop(0)


def _handler(statistics: Statistics, scheduler: Scheduler) -> grpc.GenericRpcHandler:
    async def nodes(_request: pb.Empty, _context: Any) -> pb.NodeStats:
        return await statistics.nodes()

    async def pods(_request: pb.Empty, _context: Any) -> pb.PodStats:
        return await statistics.pods()

    async def node(request: pb.NodeReq, _context: Any) -> pb.DetailedNodeStats:
        return statistics.node(request.name)

    async def totals(_request: pb.Empty, _context: Any) -> pb.SchedulerStats:
        return pb.SchedulerStats(failed_schedule_count=scheduler.metrics.unschedulable())

    calls: dict[str, tuple[Any, Any]] = {
        "GetBasicNodeStats": (nodes, pb.Empty),
        "GetPodStats": (pods, pb.Empty),
        "GetDetailedNodeStats": (node, pb.NodeReq),
        "GetSchedulerStats": (totals, pb.Empty),
    }
    return grpc.method_handlers_generic_handler(
        SERVICE,
        {
            name: grpc.unary_unary_rpc_method_handler(
                call,
                request_deserializer=request.FromString,
                response_serializer=lambda message: message.SerializeToString(),
            )
            for name, (call, request) in calls.items()
        },
    )
