"""The whole daemon, on the simulated kubelet and the embedded API server."""

from __future__ import annotations

import asyncio
import json
import os
import random
import signal
import sys
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import aiohttp
import pytest
import yaml

from rte import errors, nrt
from rte.agent import daemon
from rte.agent.settings import AgentSettings, SinkKind, SinkSetting
from rte.agent.timings import Timings
from rte.sim.apiserver import StatusError
from rte.sim.kubelet import Kubelet, kubelet_document
from rte.sysfs import read_machine
from rte.telemetry.metrics import AgentMetrics
from tests.unit.agent.kubelets import FIXTURES

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable
    from pathlib import Path

    from rte.model.node import NodeState
    from rte.sim.apiserver import APIServer

MACHINE = FIXTURES / "16-2s-hugepages"
LEASES, NRTS = "leases", "noderesourcetopologies"
TIMINGS = Timings(
    torn=0.005,
    check=0.02,
    source=0.02,
    readmission=0.01,
    relearn=0.1,
    first_retry=0.01,
    last_retry=0.05,
    renew=0.05,
    list_pods=0.05,
)


class World:
    """A kubelet, an API server, and the settings of an agent for them."""

    def __init__(self, server: APIServer, kubelet: Kubelet, folder: Path) -> None:
        self.server, self.kubelet = server, kubelet
        config = folder / "config.yaml"
        head = {"kind": "KubeletConfiguration", "apiVersion": "kubelet.config.k8s.io/v1beta1"}
        config.write_text(yaml.safe_dump({**head, **kubelet.document}))
        server.write_kubeconfig(folder / "kubeconfig")
        self.settings = AgentSettings(
            sysfs_root=MACHINE / "sys",
            procfs_root=MACHINE / "proc",
            kubelet_state_dir=folder / "kubelet",
            podresources_socket=str(folder / "kubelet/pod-resources/kubelet.sock"),
            kubelet_config_file=config,
            node_name="n0",
            kubeconfig=folder / "kubeconfig",
            metrics_listen="127.0.0.1:0",
        )
        self.metrics = AgentMetrics()
        self.port: asyncio.Future[int] = asyncio.get_running_loop().create_future()

    @asynccontextmanager
    async def agent(
        self, timings: Timings = TIMINGS, **changes: Any
    ) -> AsyncIterator[asyncio.Event]:
        """An agent at work; it ends gracefully with the block."""
        stop = asyncio.Event()
        task = asyncio.create_task(
            daemon.serve(
                replace(self.settings, **changes), {}, stop,
                timings=timings, metrics=self.metrics, listening=self.port.set_result,
            )
        )  # fmt: skip
        try:
            yield stop
        finally:
            stop.set()
            await asyncio.wait_for(task, 10)

    def create_pod(self, name: str, cpu: str = "2") -> str:
        amounts = {"cpu": cpu, "memory": "64Mi"}
        body = {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": name},
            "spec": {
                "nodeName": "n0",
                "terminationGracePeriodSeconds": 0,
                "containers": [
                    {
                        "name": "c",
                        "image": "pause",
                        "resources": {"requests": amounts, "limits": amounts},
                    }
                ],
            },
        }
        return str(self.server.api.create("pods", body, "default")["metadata"]["uid"])

    def state(self) -> NodeState | None:
        try:
            return nrt.decode(self.server.api.get(NRTS, "n0")).state
        except StatusError:
            return None

    async def until(self, condition: Callable[[NodeState], bool], seconds: float = 30) -> NodeState:
        async with asyncio.timeout(seconds):
            while (state := self.state()) is None or not condition(state):
                await asyncio.sleep(0.005)
        return state

    def lease(self) -> dict[str, Any] | None:
        try:
            return self.server.api.get(LEASES, "n0", "rte-agents")["spec"]
        except StatusError:
            return None

    async def get(self, path: str) -> tuple[int, str]:
        port = await asyncio.wait_for(asyncio.shield(self.port), 10)
        async with (
            aiohttp.ClientSession() as session,
            session.get(f"http://127.0.0.1:{port}{path}") as answer,
        ):
            return answer.status, await answer.text()


@pytest.fixture
async def world(
    server: APIServer, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[World]:
    folder = tmp_path_factory.mktemp("w")
    machine = read_machine(MACHINE / "sys", MACHINE / "proc")
    server.api.create("namespaces", {"metadata": {"name": "rte-agents"}})
    (folder / "kubelet").mkdir()
    kubelet = Kubelet(server.api, "n0", machine, kubelet_document(machine), root=folder / "kubelet")
    async with kubelet:
        yield World(server, kubelet, folder)


async def test_it_publishes_follows_and_gives_its_lease_back(world: World):
    async with world.agent():
        await world.until(lambda state: state.synced)
        uid = world.create_pod("a")
        state = await world.until(lambda state: uid in state.admitted)
        assert state.holdings[uid]["c"].cpus.bit_count() == 2
        world.server.api.delete("pods", "a", "default")
        await world.until(lambda state: uid not in state.holdings)
        async with asyncio.timeout(30):
            while (lease := world.lease()) is None:
                await asyncio.sleep(0.005)
        assert lease["holderIdentity"] == "n0"
    assert not world.lease().get("holderIdentity")


async def test_no_change_is_lost_however_fast_they_follow_each_other(world: World):
    async with world.agent():
        await world.until(lambda state: state.synced)
        rng, alive, names = random.Random(1), {}, iter(range(1000))
        for _ in range(40):
            for _ in range(rng.randint(1, 4)):
                if alive and (len(alive) == 3 or rng.random() < 0.5):
                    world.server.api.delete("pods", alive.popitem()[1], "default")
                else:
                    name = f"p{next(names)}"
                    alive[world.create_pod(name, str(rng.randint(1, 2)))] = name
                if rng.random() < 0.5:
                    await asyncio.sleep(rng.random() * 0.01)
            # No poll and no later change would heal it: what is waited for is the last state.
            await world.until(lambda state: state.holdings.keys() == alive.keys(), 3)
            held = world.kubelet.state.holdings
            assert {uid: world.state().holdings[uid] for uid in alive} == {
                uid: held[uid] for uid in alive
            }


async def test_health_endpoints_tell_the_truth(world: World):
    world.server.faults.fail_next(10**6, code=500, path="noderesourcetopologies")
    async with world.agent():
        assert await world.get("/healthz") == (200, "ok\n")
        status, reasons = await world.get("/readyz")
        assert status == 503
        assert "published: nothing was published yet" in reasons
        world.server.faults._failures.clear()
        await world.until(lambda state: state.synced)
        async with asyncio.timeout(30):
            while (await world.get("/readyz"))[0] != 200:
                await asyncio.sleep(0.01)
        assert "rte_kubelet_synced 1.0" in (await world.get("/metrics"))[1]


async def test_the_last_change_is_written_before_the_end(world: World):
    async with world.agent() as stop:
        await world.until(lambda state: state.synced)
        world.server.faults.delay_seconds = 0.05
        uid = world.create_pod("a")
        path = world.kubelet.root / "allocated_pods_state"
        async with asyncio.timeout(30):
            while not path.exists() or uid not in path.read_text():
                await asyncio.sleep(0.001)
        await asyncio.sleep(0.03)  # noticed, its write under way
        stop.set()
    assert uid in world.state().admitted


async def test_without_the_right_to_watch_pods_podresources_tells_of_endings(world: World):
    world.server.faults.fail_next(10**6, code=403, path="/api/v1/pods")
    async with world.agent():
        await world.until(lambda state: state.synced)
        uid = world.create_pod("a")
        await world.until(lambda state: any(held for held in state.holdings.values()))
        world.server.api.delete("pods", "a", "default")
        await world.until(lambda state: not state.holdings)
        assert uid


async def test_a_kubelet_restart_is_a_new_epoch_and_keeps_what_is_held(world: World):
    async with world.agent():
        uid = world.create_pod("a")
        before = await world.until(lambda state: state.synced and uid in state.admitted)
        await world.kubelet.restart()
        after = await world.until(lambda state: state.synced and state.epoch != before.epoch)
        assert after.holdings == before.holdings


async def test_a_state_that_cannot_be_written_for_long_ends_the_lease(
    world: World,
):
    timings = replace(TIMINGS, lease=0.1)

    def withheld() -> float:
        labels = {"result": "withheld"}
        return world.metrics.registry.get_sample_value("rte_lease_renewals_total", labels) or 0.0

    async with world.agent(timings):
        await world.until(lambda state: state.synced)
        world.server.faults.fail_next(10**6, code=403, path="noderesourcetopologies")
        world.create_pod("a")
        async with asyncio.timeout(30):
            while withheld() < 2:
                await asyncio.sleep(0.01)
        world.server.faults._failures.clear()


async def test_a_file_sink_follows_too_and_needs_no_api_server(world: World, tmp_path: Path):
    out = tmp_path / "nrt.json"
    sink = SinkSetting(SinkKind.FILE, out)
    async with world.agent(sink=sink, kubeconfig=None):
        async with asyncio.timeout(10):
            while not out.exists():
                await asyncio.sleep(0.005)
        uid = world.create_pod("a")
        async with asyncio.timeout(10):
            while True:
                state = nrt.decode(json.loads(out.read_text())).state
                if state and any(state.holdings.values()):
                    break
                await asyncio.sleep(0.005)
        assert uid


async def test_an_address_in_use_is_one_error_and_not_a_silent_default(world: World):
    async with world.agent():
        port = await world.port
        with pytest.raises(ExceptionGroup) as failed:
            await daemon.serve(
                replace(world.settings, metrics_listen=f"127.0.0.1:{port}"),
                {},
                asyncio.Event(),
                timings=TIMINGS,
            )
    assert isinstance(daemon._first(failed.value), errors.UsageError)


async def test_sigterm_ends_the_process_with_zero(world: World):
    settings = world.settings
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "rte", "run", "--node-name=n0",
        f"--kubeconfig={settings.kubeconfig}", f"--sysfs-root={settings.sysfs_root}",
        f"--procfs-root={settings.procfs_root}",
        f"--kubelet-state-dir={settings.kubelet_state_dir}",
        f"--podresources-socket={settings.podresources_socket}",
        f"--kubelet-config-file={settings.kubelet_config_file}", "--metrics-listen=off",
        env={**os.environ}, stderr=asyncio.subprocess.PIPE,
    )  # fmt: skip
    await world.until(lambda state: state.synced, 20)
    async with asyncio.timeout(10):
        while not (world.lease() or {}).get("holderIdentity"):
            await asyncio.sleep(0.01)
    process.send_signal(signal.SIGTERM)
    _, log = await asyncio.wait_for(process.communicate(), 10)
    assert process.returncode == 0
    assert b"Traceback" not in log
    assert not world.lease().get("holderIdentity")
