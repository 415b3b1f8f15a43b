"""The simulated kubelet: a pod's life as API, files and podresources show it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import TYPE_CHECKING, Any

import aiohttp
import pytest

from rte import errors
from rte.kubelet import statefiles
from rte.kubelet.podresources import PodResources
from rte.model import bits
from rte.model.node import DevicePool
from rte.sim.apiserver import API, APIServer
from rte.sim.kubelet import Kubelet, Timing, files, kubelet_document

if TYPE_CHECKING:
    from pathlib import Path

    from rte.model.machine import Machine

GPU = "example.com/gpu"
Create = Callable[..., dict[str, Any]]


@pytest.fixture
async def kubelet(api: API, machine: Machine, run_dir: Path) -> AsyncIterator[Kubelet]:
    async with Kubelet(api, "n1", machine, kubelet_document(machine), root=run_dir) as running:
        yield running


async def until(api: API, name: str, done: Callable[[dict[str, Any] | None], Any]) -> Any:
    """Wait by watch until a pod is as wanted."""
    watch = api.watch("pods")
    async with asyncio.timeout(30):
        while not done(found := api.store.get("pods", ("default", name))):
            await watch.batch()
    watch.stop()
    return found


def phase(wanted: str) -> Callable[[dict[str, Any] | None], bool]:
    return lambda pod: pod is not None and pod["status"]["phase"] == wanted


async def test_a_pod_runs_and_ends_by_its_command(
    api: API, kubelet: Kubelet, create_pod: Create
) -> None:
    create_pod("a", container={"command": ["sleep", "0.05"]})
    running = await until(api, "a", phase("Running"))
    assert running["status"]["containerStatuses"][0]["ready"]
    ended = await until(api, "a", phase("Succeeded"))
    assert ended["status"]["containerStatuses"][0]["state"]["terminated"]["exitCode"] == 0


async def test_a_refused_pod_fails_with_the_kubelets_words(
    api: API, kubelet: Kubelet, create_pod: Create
) -> None:
    create_pod("big", cpu=10)
    failed = await until(api, "big", phase("Failed"))
    assert failed["status"]["reason"] == "TopologyAffinityError"
    assert failed["status"]["message"] == (
        "Pod was rejected: Resources cannot be allocated with Topology locality"
    )
    assert [event["reason"] for event in api.list("events").items] == ["TopologyAffinityError"]


async def test_node_totals_are_checked_after_the_managers(
    api: API, kubelet: Kubelet, create_pod: Create
) -> None:
    create_pod("full", cpu=7)
    create_pod("rest", cpu=8)
    await until(api, "rest", phase("Running"))
    create_pod("late", cpu="500m", memory="1Mi", container={"ports": [{"containerPort": 80}]})
    failed = await until(api, "late", phase("Failed"))
    assert failed["status"]["reason"] == "OutOfcpu"
    assert "requested: 500, used: 15000, capacity: 15000" in failed["status"]["message"]


async def test_init_containers_give_their_memory_back_when_the_pod_has_started(
    api: API, kubelet: Kubelet, create_pod: Create
) -> None:
    limits = {"cpu": "1", "memory": "2Gi"}
    init = {"name": "i", "image": "i:1", "command": ["true"], "resources": {"limits": limits}}
    made = create_pod("a", memory="1Gi", initContainers=[init])
    await until(api, "a", phase("Running"))
    held = kubelet.state.holdings[made["metadata"]["uid"]]
    assert held["i"].memory == ()
    assert held["i"].cpus
    assert held["c"].memory[0].size == 1 << 30


async def test_the_api_shows_a_pod_gone_only_after_its_kubelet_let_go(
    api: API, kubelet: Kubelet, create_pod: Create
) -> None:
    create_pod("a", cpu=7)
    create_pod("b", cpu=8)
    await until(api, "b", phase("Running"))
    api.delete("pods", "b", "default")
    watch = api.watch("pods")
    async with asyncio.timeout(30):
        async for kind, obj in watch:
            if kind == "DELETED":
                assert "b" not in {pod.name for pod in kubelet.listed()}
                break
            assert obj["metadata"]["name"] == "b" or kind == "ADDED"
    create_pod("c", cpu=8)
    await until(api, "c", phase("Running"))


async def test_endings_leave_the_files_alone_until_the_next_admission(
    api: API, kubelet: Kubelet, create_pod: Create, run_dir: Path
) -> None:
    ended = create_pod("a", container={"command": ["true"]})["metadata"]["uid"]
    await until(api, "a", phase("Succeeded"))
    left = statefiles.read_state_files(run_dir)
    assert left.cpu is not None
    assert left.memory is not None
    assert ended in left.cpu.entries
    assert ended in left.memory.entries
    create_pod("b")
    await until(api, "b", phase("Running"))
    after = statefiles.read_state_files(run_dir)
    assert after.cpu is not None
    assert after.memory is not None
    assert after.allocated is not None
    assert ended not in after.cpu.entries
    assert ended not in after.memory.entries
    assert ended in after.allocated.pods  # it goes once the pod is gone from the API


async def test_the_order_of_writes_is_the_kubelets(
    api: API, kubelet: Kubelet, create_pod: Create, monkeypatch: pytest.MonkeyPatch
) -> None:
    written: list[tuple[str, bytes]] = []
    monkeypatch.setattr(
        files.StateDir, "_write", lambda _self, name, text: written.append((name, text))
    )
    uid = create_pod("a")["metadata"]["uid"].encode()
    await until(api, "a", phase("Running"))
    assert [(name, uid in text) for name, text in written] == [
        ("cpu_manager_state", False),
        ("cpu_manager_state", True),
        ("memory_manager_state", False),
        ("memory_manager_state", True),
        ("allocated_pods_state", True),
    ]


async def test_podresources_says_what_is_held(
    api: API, kubelet: Kubelet, create_pod: Create
) -> None:
    create_pod("a", cpu=2, memory="1Gi")
    await until(api, "a", phase("Running"))
    async with PodResources(f"unix://{kubelet.socket}") as client:
        (pod,) = await client.list()
        allocatable = await client.allocatable()
        one = await client.get("default", "a")
    assert pod == one
    assert bits.format_list(pod.containers[0].cpus) == "1,9"
    assert allocatable is not None
    assert bits.format_list(allocatable.cpus) == "1-15"


async def test_a_restart_keeps_what_is_held_on_a_new_socket(
    api: API, kubelet: Kubelet, create_pod: Create
) -> None:
    create_pod("a")
    await until(api, "a", phase("Running"))
    assert kubelet.socket is not None
    epoch, before = kubelet.epoch, kubelet.listed()
    inode = kubelet.socket.stat().st_ino, kubelet.socket.stat().st_mtime_ns
    await kubelet.restart()
    assert kubelet.epoch != epoch
    assert (kubelet.socket.stat().st_ino, kubelet.socket.stat().st_mtime_ns) != inode
    assert kubelet.listed() == before
    assert api.get("pods", "a", "default")["status"]["phase"] == "Running"
    api.delete("pods", "a", "default")
    await until(api, "a", lambda pod: pod is None)


async def test_devices_are_counted_and_their_health_is_told(
    api: API, machine: Machine, create_pod: Create
) -> None:
    pool = DevicePool(ids=("g0", "g1"), zones=(1, 2), healthy=3)
    async with Kubelet(
        api, "n1", machine, kubelet_document(machine), devices={GPU: pool}
    ) as kubelet:
        limits = {"cpu": "1", "memory": "1Gi", GPU: "1"}
        made = create_pod("a", container={"resources": {"limits": limits}})
        await until(api, "a", phase("Running"))
        assert kubelet.state.holdings[made["metadata"]["uid"]]["c"].devices == {GPU: 1}
        kubelet.set_devices({GPU: DevicePool(ids=("g0", "g1"), zones=(1, 2), healthy=1)})
        assert api.get("nodes", "n1")["status"]["allocatable"][GPU] == "1"
        assert api.get("nodes", "n1")["status"]["capacity"][GPU] == "2"


async def test_the_node_its_lease_and_configz(api: API, kubelet: Kubelet) -> None:
    node = api.get("nodes", "n1")
    assert node["status"]["allocatable"]["cpu"] == "15"
    assert node["status"]["allocatable"]["memory"] == str((16 << 30) - (512 << 20) - (256 << 20))
    await asyncio.sleep(0)
    lease = api.get("leases.coordination.k8s.io", "n1", "kube-node-lease")
    assert lease["spec"]["holderIdentity"] == "n1"
    async with APIServer(api) as server, aiohttp.ClientSession(server.url) as http:
        answer = await http.get("/api/v1/nodes/n1/proxy/configz")
        document = await answer.json()
    assert document["kubeletconfig"]["topologyManagerPolicy"] == "single-numa-node"


async def test_stopping_is_bounded_by_the_grace_period(
    api: API, machine: Machine, create_pod: Create
) -> None:
    async with Kubelet(api, "n1", machine, kubelet_document(machine), timing=Timing(stop=3600)):
        create_pod("a", terminationGracePeriodSeconds=1)
        await until(api, "a", phase("Running"))
        api.delete("pods", "a", "default")
        await until(api, "a", lambda pod: pod is None)


def test_a_configuration_that_would_not_start_is_refused(api: API, machine: Machine) -> None:
    document = kubelet_document(machine, reserved_cpus="0-99")
    with pytest.raises(errors.KubeletError):
        Kubelet(api, "n1", machine, document)


async def test_without_files_its_view_has_the_devices_of_a_pod_at_once(
    api: API, machine: Machine, create_pod: Create
) -> None:
    pool = DevicePool(ids=("gpu0",), zones=(1,), healthy=1)
    async with Kubelet(api, "n1", machine, kubelet_document(machine), devices={GPU: pool}) as one:
        limits = {"cpu": "2", "memory": "1Gi", GPU: "1"}
        pod = create_pod("a", container={"resources": {"limits": limits}})
        await until(api, "a", phase("Running"))
        held = one.view().devices
    assert held is not None
    assert pod["metadata"]["uid"] in held.entries
