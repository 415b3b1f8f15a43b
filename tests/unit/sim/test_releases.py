"""The simulated kubelet speaks as the release that it is told to be."""

from __future__ import annotations

import asyncio
import json
import random
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rte import errors
from rte.k8s import podspec
from rte.kubelet import statefiles
from rte.kubelet.podresources import PodResources
from rte.sim.apiserver import API, DeleteOptions
from rte.sim.kubelet import Kubelet, kubelet_document, views
from tests.cluster import pods, random_pods

if TYPE_CHECKING:
    from pathlib import Path

    from rte.model.kubelet import CPUManagerState, MemoryManagerState
    from rte.model.machine import Machine

VERSIONS = ("v1.34.8", "v1.35.4", "v1.36.4", "v1.37.1")
WHOLE = {"PodLevelResourceManagers": True}


async def until_told(api: API, name: str) -> dict[str, Any]:
    """A pod when its kubelet has said yes or no, and started it."""
    async with asyncio.timeout(30):
        while True:
            pod = api.get("pods", name, "default")
            if pod["status"].get("phase") != "Pending":
                return pod
            await asyncio.sleep(0)


def files_of(root: Path) -> tuple[CPUManagerState, MemoryManagerState]:
    """What the state files say; a checksum that is wrong fails."""
    return (
        statefiles.parse_cpu_state((root / statefiles.CPU_STATE).read_bytes()),
        statefiles.parse_memory_state((root / statefiles.MEMORY_STATE).read_bytes()),
    )


def whole_pod(name: str) -> dict[str, Any]:
    """Pod-level resources: one container with CPUs of its own, one in the pod's shared pool."""
    stanza = {"cpu": "4", "memory": "1Gi"}
    return pods.pod(
        pods.container(2, "512Mi"),
        pods.container(),
        name=name,
        node="n1",
        resources={"requests": stanza, "limits": stanza},
    )


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("gates", [{}, WHOLE], ids=["plain", "whole"])
async def test_files_hold_what_the_managers_hold(
    api: API, machine: Machine, run_dir: Path, version: str, gates: dict[str, bool]
) -> None:
    if gates and version < "v1.36":
        gates = {}  # no such gate
    document = kubelet_document(machine, policy="best-effort", scope="pod", featureGates=gates)
    chooser = random.Random(version)
    async with Kubelet(api, "n1", machine, document, version=version, root=run_dir) as kubelet:
        assert api.get("nodes", "n1")["status"]["nodeInfo"]["kubeletVersion"] == version
        for number in range(12):
            kinds = random_pods.Kinds(pod_level=0.5)
            pod = random_pods.draw(chooser, kinds, name=f"p{number}", node="n1")
            api.create("pods", pod, "default")
            await until_told(api, f"p{number}")
            told = views.cpu_state(kubelet.state), views.memory_state(kubelet.state)
            assert files_of(run_dir) == told
            if number % 3 == 2:  # what ended pods hold stays until the next admission
                api.delete("pods", f"p{number - 1}", "default", DeleteOptions(grace=0))
        await kubelet.restart()
        assert files_of(run_dir) == (
            views.cpu_state(kubelet.state),
            views.memory_state(kubelet.state),
        )
    keys = json.loads((run_dir / statefiles.CPU_STATE).read_text()).keys()
    assert ("data" in keys) == (version >= "v1.37")


async def test_podresources_show_whole_pods_since_1_37(
    api: API, machine: Machine, run_dir: Path
) -> None:
    seen = {}
    for version in ("v1.36.4", "v1.37.1"):
        document = kubelet_document(machine, scope="pod", featureGates=WHOLE)
        root = run_dir / version
        async with Kubelet(api, "n1", machine, document, version=version, root=root) as kubelet:
            api.create("pods", whole_pod(version), "default")
            await until_told(api, version)
            async with PodResources(str(kubelet.socket)) as client:
                (seen[version],) = await client.list()
        api.delete("pods", version, "default")
    before, now = (seen[version] for version in ("v1.36.4", "v1.37.1"))
    own, shared = (container.cpus for container in before.containers)
    assert (own.bit_count(), shared.bit_count()) == (2, 2)
    assert before.cpus == 0
    assert [container.cpus for container in now.containers] == [own, 0]
    assert now.cpus == own | shared
    assert sum(block.size for block in now.memory) == 1 << 30
    assert now.containers[1].memory == ()


@pytest.mark.parametrize(("version", "kept"), [("v1.36.4", False), ("v1.37.1", True)])
async def test_a_restart_refuses_what_the_release_refuses(
    api: API, machine: Machine, version: str, kept: bool
) -> None:
    """Up to 1.36, full-pcpus-only forgets what a container holds already."""
    document = kubelet_document(
        machine, policy="restricted", cpu_options={"full-pcpus-only": "true"}
    )
    async with Kubelet(api, "n1", machine, document, version=version) as kubelet:
        created = [
            api.create("pods", pods.pod(pods.container(6, "1Gi"), name=name, node="n1"), "default")
            for name in ("c", "d")
        ]
        for pod in created:
            assert (await until_told(api, pod["metadata"]["name"]))["status"]["phase"] == "Running"
        await kubelet.restart()
        async with asyncio.timeout(30):
            while not kept and api.get("pods", "d", "default")["status"]["phase"] == "Running":
                await asyncio.sleep(0)
        phases = {api.get("pods", name, "default")["status"]["phase"] for name in ("c", "d")}
    # Stopped containers end well; only an event tells why they were stopped.
    assert phases == ({"Running"} if kept else {"Succeeded"})
    refused = [] if kept else [("c", "SMTAlignmentError"), ("d", "SMTAlignmentError")]
    assert kubelet.refusals == refused


async def test_an_upgrade_in_place_keeps_what_is_held(
    api: API, machine: Machine, run_dir: Path
) -> None:
    document = kubelet_document(machine)
    async with Kubelet(api, "n1", machine, document, version="v1.35.4", root=run_dir) as kubelet:
        api.create("pods", pods.pod(pods.container(3, "1Gi"), name="a", node="n1"), "default")
        await until_told(api, "a")
        old = files_of(run_dir)
        for version in ("v1.37.1", "v1.36.4"):
            await kubelet.restart(version)
            cpu, memory = files_of(run_dir)
            assert (cpu.default, cpu.entries) == (old[0].default, old[0].entries)
            assert (memory.zones, memory.entries) == (old[1].zones, old[1].entries)
            assert cpu.embedded == (version == "v1.37.1")
            assert api.get("nodes", "n1")["status"]["nodeInfo"]["kubeletVersion"] == version


async def test_a_kubelet_that_would_not_start_again_says_why(api: API, machine: Machine) -> None:
    document = kubelet_document(
        machine, reserved_cpus="0", cpu_options={"strict-cpu-reservation": "true"},
        policy="best-effort",
    )  # fmt: skip
    async with Kubelet(api, "n1", machine, document) as kubelet:
        api.create("pods", pods.pod(pods.container(15, "1Gi"), name="a", node="n1"), "default")
        await until_told(api, "a")
        assert kubelet.state.shared == 0
        with pytest.raises(errors.KubeletStartError, match="default cpuset cannot be empty"):
            await kubelet.restart()


@given(seed=st.integers(0, 1 << 32))
def test_a_pod_of_yaml_is_read_as_the_server_would_store_it(seed: int) -> None:
    kinds = random_pods.Kinds(devices=("example.com/gpu",), pod_level=0.8)
    pod = random_pods.draw(random.Random(seed), kinds, name="p", node="n1")
    stored = podspec.parse_pod(API().create("pods", pod, "default"))
    read = podspec.parse_pod(pod)
    assert (read.qos, read.containers) == (stored.qos, stored.containers)
    assert (read.pod_requests, read.pod_limits) == (stored.pod_requests, stored.pod_limits)
