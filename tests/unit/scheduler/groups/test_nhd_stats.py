"""How full nodes are: NHD's statistics over TLS, and JSON for others."""

from __future__ import annotations

import asyncio
import contextlib
import subprocess
from dataclasses import replace
from typing import TYPE_CHECKING, Any, cast

import grpc
import grpc.aio
import pytest
from aiohttp import web
from aiohttp.test_utils import TestClient, TestServer

from rte import cli, errors
from rte.scheduler.front import nhd_stats, usage
from rte.scheduler.front._pb import nhd_stats_pb2 as pb
from rte.scheduler.report.metrics import SchedulerMetrics
from tests.unit.placement.groups.nodes import two_sockets
from tests.unit.scheduler.groups.rack import Rack, asking

if TYPE_CHECKING:
    from pathlib import Path


class Front:
    """As much of a scheduler as the statistics read."""

    def __init__(self, rack: Rack) -> None:
        self.cluster, self.cycle = rack.machine.cluster, rack.machine.cycle
        self.metrics = SchedulerMetrics()
        self.metrics.attempts.labels("unschedulable", "rte-scheduler").inc(3)
        self.metrics.attempts.labels("scheduled", "rte-scheduler").inc(5)


@pytest.fixture
def pair(tmp_path: Path) -> tuple[Path, Path]:
    cert, key = tmp_path / "cert.pem", tmp_path / "key.pem"
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256",
         "-nodes", "-keyout", key, "-out", cert, "-days", "1", "-subj", "/CN=stats",
         "-addext", "subjectAltName=DNS:localhost"],
        check=True, capture_output=True,
    )  # fmt: skip
    return cert, key


def a_rack() -> Rack:
    node = two_sockets()
    macs = tuple(replace(nic, mac=f"02:00:00:00:00:0{i}") for i, nic in enumerate(node.nics))
    rack = Rack()
    rack.server("a", replace(node, nics=macs))
    rack.server("b", unschedulable=True)
    rack.node("plain")
    group = {
        "gpus": [{"feeders": 1}], "queues": [{"rx": 10.5, "tx": 5}], "workers": 2,
        "helpers": {"count": 2}, "hugepages": {"1Gi": 1},
    }  # fmt: skip
    rack.asks(
        asking(group, misc={"count": 2}, hugepages={"1Gi": 2}), name="p",
        extra={"hugepages-1Gi": "3Gi"}, guaranteed=True, cpu="1500m",
    )  # fmt: skip
    return rack


async def test_the_calls_of_its_clients(pair: tuple[Path, Path], unused: int) -> None:
    rack = a_rack()
    address = f"localhost:{unused}"
    serving = asyncio.create_task(nhd_stats.serve(Front(rack), address, *pair, None))
    trust = grpc.ssl_channel_credentials(pair[0].read_bytes())
    async with grpc.aio.secure_channel(address, trust) as channel:

        async def ask(method: str, request: Any, answer: Any) -> Any:
            call = channel.unary_unary(
                f"/NhdStats.NHDControl/{method}",
                request_serializer=lambda message: message.SerializeToString(),
                response_deserializer=answer.FromString,
            )
            return await call(request, wait_for_ready=True, timeout=20)

        nodes = await ask("GetBasicNodeStats", pb.Empty(), pb.NodeStats)
        pods = await ask("GetPodStats", pb.Empty(), pb.PodStats)
        totals = await ask("GetSchedulerStats", pb.Empty(), pb.SchedulerStats)
        detailed = await ask("GetDetailedNodeStats", pb.NodeReq(name="a"), pb.DetailedNodeStats)
        unknown = await ask("GetDetailedNodeStats", pb.NodeReq(name="x"), pb.DetailedNodeStats)

    first, second = nodes.info
    assert (first.name, first.active, second.name, second.active) == ("a", True, "b", False)
    # Three cores of the group's two classes and one of misc, of twelve; four are reserved.
    record = rack.record("uid-p").allocation
    assert first.free_cpus == 24 - 2 * 5
    assert first.free_cpus + first.used_cpus == 32
    assert (first.free_gpus, first.used_gpus, first.total_pods) == (3, 1, 1)
    assert (first.free_hugepages, first.used_hugepages) == (29, 3)
    assert [(nic.used_rx, nic.used_tx) for nic in first.nic_info] == [(11, 5), (0, 0)]
    assert totals.failed_schedule_count == 3
    (pod,) = pods.info
    assert (pod.name, pod.namespace, pod.node, pod.hugepages) == ("p", "default", "a", 3)
    (group,) = record.groups
    assert list(pod.proc_cores) == [*group.cpus.all()[:-2]]
    assert list(pod.proc_helper_cores) == [*group.cpus.helpers]
    assert list(pod.misc_cores) == [*record.misc.cpus]
    assert (list(pod.gpus), list(pod.nic_macs)) == ([0], ["02:00:00:00:00:00"])
    assert "topology.rte.dev/allocation" in pod.annotations
    assert list(detailed.podinfo) == [pod]
    assert unknown.status == pb.NHD_STATUS_ERR
    serving.cancel()
    await asyncio.wait([serving])


async def test_connections_are_bounded_and_those_that_begin_no_tls_end(
    pair: tuple[Path, Path], unused: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    limits = {**dict(nhd_stats._LIMITS), "grpc.server_handshake_timeout_ms": 500}
    monkeypatch.setattr(nhd_stats, "_LIMITS", tuple(limits.items()))
    address = f"localhost:{unused}"
    serving = asyncio.create_task(nhd_stats.serve(Front(a_rack()), address, *pair, None))
    trust = grpc.ssl_channel_credentials(pair[0].read_bytes())
    async with grpc.aio.secure_channel(address, trust) as channel:
        await asyncio.wait_for(channel.channel_ready(), 20)
    crowd = [await asyncio.open_connection("localhost", unused) for _ in range(80)]
    async with asyncio.timeout(20):
        for reader, writer in crowd:
            with contextlib.suppress(OSError):
                assert await reader.read(100) == b""
            writer.close()
        async with grpc.aio.secure_channel(address, trust) as channel:
            await channel.channel_ready()
    serving.cancel()
    await asyncio.gather(serving, return_exceptions=True)


async def test_what_cannot_be_served_is_told(pair: tuple[Path, Path], tmp_path: Path) -> None:
    front = Front(Rack())
    with pytest.raises(errors.UsageError, match="stats-cert"):
        await nhd_stats.serve(front, "localhost:0", tmp_path / "none", pair[1], None)
    with pytest.raises(errors.UsageError, match="stats-listen"):
        await nhd_stats.serve(front, "nowhere.invalid:1", *pair, None)


def test_statistics_need_a_certificate(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["scheduler", "--stats-listen", "127.0.0.1:45655"]) == 2
    assert "--stats-listen needs --stats-cert and --stats-key" in capsys.readouterr().err


@pytest.fixture
def unused() -> int:
    import socket

    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


async def test_how_full_nodes_are_is_served_as_json() -> None:
    app = web.Application()
    app.add_routes(usage.routes(cast("Any", Front(a_rack()))))
    async with TestClient(TestServer(app)) as client:
        nodes = await (await client.get("/groups")).json()
        one = await (await client.get("/groups", params={"node": "a"})).json()
        missing = await client.get("/groups", params={"node": "plain"})

        assert [node["node"] for node in nodes] == ["a", "b"]
        assert one == nodes[0]
        assert list(one["pods"]) == ["default/p"]
        assert one["amounts"]["gpus"] == {"free": 3, "held": 1}
        assert nodes[1]["cordoned"]
        assert missing.status == 404
        assert "plain" in (await missing.json())["error"]
