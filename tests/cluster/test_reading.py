"""A reading against the kubelet itself: what rte prints is what the kubelet holds at its next
admission (a probe pod forces one), CPU by CPU and byte by byte.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections import Counter
from typing import TYPE_CHECKING, Any

import pytest

from rte import accounting, nrt
from rte.accounting import liveness
from rte.kubelet import config as kubelet_config
from rte.kubelet import statefiles
from rte.kubelet.podresources import PodResources
from rte.model import bits, quantity
from rte.sysfs import read_machine
from tests.cluster import builder
from tests.cluster.pods import container, pod

if TYPE_CHECKING:
    from collections.abc import Mapping

    from rte.model.kubelet import KubeletView
    from rte.model.node import NodeReading, NodeState
    from tests.cluster.cluster import Cluster
    from tests.cluster.conftest import FreshNode
    from tests.cluster.node import Node

GPU = "example.com/gpu"
#: One per zone and shared ones: of both zones, without topology, with a topology of no zones.
DEVICES = {GPU: [[0], [0], [1], [1], [0, 1], None, []], "example.com/plain": [None, None]}
SHAPE = "2x24,memory=32Gi,hugepages-2Mi=1024"


def fill(cluster: Cluster, node: Node) -> dict[str, str]:
    """A dozen pods of every kind, living, ended, deleted and refused; returns name -> UID."""
    gpu: dict[str, Any] = {GPU: 1}
    plain: dict[str, Any] = {"example.com/plain": 1}
    huge: dict[str, Any] = {"hugepages_2Mi": "256Mi"}
    short = ["sleep", "0.2"]
    living = [
        pod(container(2, "1Gi"), name="pinned"),
        pod(container(3, "1Gi"), container(1, "512Mi"), name="two-containers"),
        pod(container("500m", "1Gi"), name="fraction"),
        pod(container(1, "1Gi", limits={"memory": "2Gi"}), name="burstable"),
        pod(name="best-effort"),
        pod(container(2, "1Gi", **huge), name="hugepages"),
        pod(
            container(2, "1Gi"),
            init=[container(4, "2Gi", command=short), container(1, "1Gi", command=short)],
            name="init",
        ),
        pod(
            container(1, "1Gi"),
            init=[container(1, "1Gi", sidecar=True), container(2, "1Gi", command=short)],
            name="sidecar",
        ),
        pod(container(1, "1Gi", **gpu), name="device"),
        pod(container(1, "1Gi", **plain), container("100m", "64Mi", **plain), name="plain-devices"),
        pod(container("200m", **gpu, limits={GPU: 1}), name="burstable-device"),
        pod(
            container("100m", "64Mi"),
            init=[container(2, "1Gi", command=short, **gpu)],
            name="only-init",
        ),
    ]
    for item in living:
        item["spec"] |= {"nodeName": node.name, "tolerations": [{"operator": "Exists"}]}
        cluster.create_pod(item)
    uids = {
        item["metadata"]["name"]: cluster.wait_pod(item, "Running")["metadata"]["uid"]
        for item in living
    }
    uids["static"] = add_static_pod(cluster, node)
    cluster.run_pod(pod(container(64, "1Gi"), node=node.name, name="refused"), "Failed")
    # The last to be admitted, so that nothing makes the kubelet let go of what they held.
    ending = pod(container(2, "2Gi", command=["sleep", "1"]), node=node.name, name="ended")
    cluster.create_pod(ending)
    gone = cluster.run_pod(pod(container(2, "1Gi", **gpu), node=node.name, name="deleted"))
    cluster.wait_pod(ending, "Succeeded")
    cluster.delete_pod(gone)
    return uids


def add_static_pod(cluster: Cluster, node: Node) -> str:
    """A pinned static pod; returns the UID that the kubelet uses."""
    item = pod(container(2, "1Gi"), name="static")
    (node.dir / "static/static.json").write_text(json.dumps(item))
    mirror = cluster.wait_pod(
        pod(name=f"static-{node.name}"),
        lambda obj: obj is not None and obj["status"].get("phase") == "Running",
    )
    return str(mirror["metadata"]["annotations"]["kubernetes.io/config.hash"])


def oneshot(cluster: Cluster, node: Node, *more: str) -> NodeState:
    """The node-state annotation that ``rte run --oneshot`` prints."""
    done = subprocess.run(
        [
            sys.executable,
            *("-m", "rte", "run", "--oneshot", "--sink=stdout", f"--node-name={node.name}"),
            f"--sysfs-root={node.machine / 'sys'}",
            f"--procfs-root={node.machine / 'proc'}",
            f"--podresources-socket={node.podresources_socket}",
            f"--kubelet-state-dir={node.root}",
            f"--kubelet-config-file={node.config_file}",
            f"--kubeconfig={cluster.kubeconfig}",
            *more,
        ],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
    assert "disagree" not in done.stderr, done.stderr
    decoded = nrt.decode(json.loads(done.stdout))
    assert decoded.state is not None
    return decoded.state


async def view_of(node: Node, *, files: bool = True, podresources: bool = True) -> KubeletView:
    machine = read_machine(node.machine / "sys", node.machine / "proc")
    configz = node.kubelet_get("/configz")
    async with PodResources(str(node.podresources_socket)) as client:
        view, _ = await statefiles.read_view(
            node.root if files else None,
            client if podresources else None,
            config=kubelet_config.from_configz(configz, memory_bytes=machine.memory_bytes),
            version=f"v{node.version}",
            epoch=statefiles.kubelet_epoch(node.podresources_socket, node.root),
        )
    return view


def read(node: Node, view: KubeletView, *, api: bool = True, **options: Any) -> NodeReading:
    cluster = node.cluster
    listed = cluster.api.get("/api/v1/pods", fieldSelector=f"spec.nodeName={node.name}")["items"]
    capacity = cluster.api.get(f"/api/v1/nodes/{node.name}")["status"]["capacity"]
    return accounting.build_reading(
        node.name,
        read_machine(node.machine / "sys", node.machine / "proc"),
        view,
        [liveness.node_pod(item) for item in listed] if api else None,
        accounting.ReadingOptions(
            node_capacity={
                name: quantity.parse_resource(name, text) for name, text in capacity.items()
            },
            **options,
        ),
    )


def kubelets_truth(node: Node) -> dict[str, Any]:
    """What the kubelet holds after its next admission, as plainly as the reading below.

    The probe asks for a device, because the device manager writes for no other.
    """
    probe = node.cluster.run_pod(pod(container(**{GPU: 1}), node=node.name, name="probe"))
    cpu = statefiles.parse_cpu_state((node.root / "cpu_manager_state").read_bytes())
    memory = statefiles.parse_memory_state((node.root / "memory_manager_state").read_bytes())
    devices = statefiles.parse_device_checkpoint(
        (node.root / "device-plugins/kubelet_internal_checkpoint").read_bytes()
    )
    return {
        "shared": bits.format_list(cpu.default),
        "cpus": present(cpu.entries),
        "rows": dict(memory.zones),
        "blocks": {
            uid: {name: set(blocks) for name, blocks in containers.items()}
            for uid, containers in memory.entries.items()
        },
        "devices": {
            uid: {
                name: {(held.resource, tuple(sorted(held.devices))) for held in holdings}
                for name, holdings in containers.items()
            }
            for uid, containers in devices.entries.items()
            if uid != probe["metadata"]["uid"]
        },
    }


def present(table: Mapping[str, Mapping[str, Any]]) -> dict[str, dict[str, Any]]:
    return {
        uid: held
        for uid, containers in table.items()
        if (held := {name: value for name, value in containers.items() if value})
    }


def plainly(state: NodeState) -> dict[str, Any]:
    def of(value: Any) -> dict[str, dict[str, Any]]:
        return present(
            {
                uid: {name: value(held) for name, held in containers.items()}
                for uid, containers in state.holdings.items()
            }
        )

    def named(held: Any) -> set[tuple[str, tuple[str, ...]]]:
        return {
            (name, tuple(state.devices[name].ids[place] for place in bits.members(mask)))
            for name, mask in held.devices.items()
        }

    return {
        "shared": bits.format_list(state.shared),
        "cpus": of(lambda held: held.cpus),
        "rows": dict(state.memory),
        "blocks": of(lambda held: set(held.memory)),
        "devices": of(named),
    }


def devices_by_zones(state: NodeState) -> dict[tuple[str, str], Counter[Any]]:
    """UID and container -> how many devices of each resource and zone set."""
    return {
        (uid, name): Counter(
            (resource, state.devices[resource].zones[place])
            for resource, mask in held.devices.items()
            for place in bits.members(mask)
        )
        for uid, containers in state.holdings.items()
        for name, held in containers.items()
        if held.devices
    }


@pytest.mark.parametrize("release", builder.PROVEN)
@pytest.mark.parametrize("policy", ["none", "best-effort", "restricted", "single-numa-node"])
async def test_a_reading_is_what_the_kubelet_holds_at_its_next_admission(
    cluster: Cluster, fresh_node: FreshNode, policy: str, release: str
) -> None:
    node = fresh_node(
        shape=SHAPE,
        version=release,
        # The kubelet's own clean-up between admissions must not help.
        kubelet={"policy": policy, "reserved_cpus": "0,24", "reconcile": "1h"},
        devices=DEVICES,
    )
    uids = fill(cluster, node)
    printed = oneshot(cluster, node)
    views = {
        "both": await view_of(node),
        "files": await view_of(node, podresources=False),
        "podresources": await view_of(node, files=False),
    }
    readings = {source: read(node, view) for source, view in views.items()}
    readings["no API"] = read(node, views["both"], api=False)
    stale = statefiles.parse_cpu_state((node.root / "cpu_manager_state").read_bytes())
    truth = kubelets_truth(node)
    # Otherwise nothing was stale and this proves nothing.
    assert truth["cpus"].keys() < stale.entries.keys()

    whole = readings["both"].state
    assert whole is not None
    # An NRT tells of devices by zone set, not by name.
    for part in truth.keys() - {"devices"}:
        assert plainly(printed)[part] == truth[part], part
    assert devices_by_zones(printed) == devices_by_zones(whole)
    for source in ("both", "files", "no API"):
        assert readings[source].disagreements == (), source
        assert readings[source].state is not None, source
        assert plainly(readings[source].state) == truth, source
    assert printed.admitted >= set(uids.values())
    assert printed.reserved == bits.parse_list("0,24")
    assert check_podresources_alone(readings["podresources"], truth)
    assert_fit(whole, uids)
    node_capacity_equals_zones(cluster, node, readings["both"])


def check_podresources_alone(alone: NodeReading, truth: dict[str, Any]) -> bool:
    """All but what podresources cannot tell: ordinary init containers (named i...)."""
    assert alone.state is not None
    for part in ("cpus", "devices"):
        expected = present(
            {
                uid: {name: value for name, value in containers.items() if name != "i0"}
                for uid, containers in truth[part].items()
            }
        )
        seen = present(
            {
                uid: {name: value for name, value in containers.items() if name != "i0"}
                for uid, containers in plainly(alone.state)[part].items()
            }
        )
        for uid, containers in seen.items():
            assert {
                name: value for name, value in expected[uid].items() if name in containers
            } == containers
    return True


def assert_fit(state: NodeState, uids: Mapping[str, str]) -> None:
    """The kinds of pods left what their kind leaves."""
    holdings = state.holdings
    assert holdings[uids["pinned"]]["c0"].cpus.bit_count() == 2
    assert uids["burstable"] not in holdings
    assert uids["best-effort"] not in holdings
    assert holdings[uids["fraction"]]["c0"].cpus == 0
    assert holdings[uids["fraction"]]["c0"].memory[0].size == 1 << 30
    assert {block.resource for block in holdings[uids["hugepages"]]["c0"].memory} == {
        "memory",
        "hugepages-2Mi",
    }
    # An ordinary init container keeps CPUs and devices, and its memory goes.
    init = holdings[uids["init"]]["i0"]
    assert init.cpus.bit_count() == 4
    assert init.memory == ()
    assert holdings[uids["only-init"]]["i0"].devices[GPU].bit_count() == 1
    assert holdings[uids["sidecar"]]["i0"].memory
    assert holdings[uids["static"]]["c0"].cpus.bit_count() == 2
    pool = state.devices[GPU]
    assert dict(zip(pool.ids, pool.zones, strict=True)) == {
        "gpu0": 1, "gpu1": 1, "gpu2": 2, "gpu3": 2, "gpu4": 3, "gpu5": None, "gpu6": 0,
    }  # fmt: skip
    assert pool.complete
    assert pool.healthy == 0b1111111


def node_capacity_equals_zones(cluster: Cluster, node: Node, whole: NodeReading) -> None:
    """Zones add up to what the kubelet reports of the node."""
    status = cluster.api.get(f"/api/v1/nodes/{node.name}")["status"]
    zones = accounting.zone_resources(whole)
    for resource in ("cpu", "memory", "hugepages-2Mi"):
        told = quantity.parse_resource(resource, status["capacity"][resource])
        assert sum(table[resource].capacity for table in zones.values()) == told, resource
    told = quantity.parse_resource("cpu", status["allocatable"]["cpu"])
    assert sum(table["cpu"].allocatable for table in zones.values()) == told


async def test_memory_over_several_zones(cluster: Cluster, fresh_node: FreshNode) -> None:
    node = fresh_node(shape="4x16,memory=8Gi", kubelet={"policy": "best-effort", "reconcile": "1h"})
    for number, (cpus, memory) in enumerate(((6, "12Gi"), (5, "10Gi"), (1, "1Gi"))):
        cluster.run_pod(pod(container(cpus, memory), node=node.name, name=f"wide-{number}"))
    kept = read(node, await view_of(node))
    assert kept.state is not None
    widths = {
        block.zones.bit_count()
        for containers in kept.state.holdings.values()
        for held in containers.values()
        for block in held.memory
    }
    assert widths >= {2}
    zones = accounting.zone_resources(kept)
    lost = sum(table["memory"].allocatable - table["memory"].available for table in zones.values())
    assert lost == sum(
        block.size
        for containers in kept.state.holdings.values()
        for held in containers.values()
        for block in held.memory
    )
    cluster.delete_pod(pod(name="wide-0"))
    whole = read(node, await view_of(node))
    node.force_admission()
    memory = statefiles.parse_memory_state((node.root / "memory_manager_state").read_bytes())
    assert whole.state is not None
    assert dict(whole.state.memory) == dict(memory.zones)
    assert whole.disagreements == ()


async def test_reserved_cpus_that_the_kubelet_picks_itself(
    cluster: Cluster, fresh_node: FreshNode
) -> None:
    for number, options in enumerate(
        ({}, {"strict-cpu-reservation": "true"}, {"distribute-cpus-across-numa": "true"})
    ):
        node = fresh_node(
            f"r{number}",
            shape="2x8,memory=8Gi",
            kubelet={
                "policy": "best-effort",
                "reserved_cpus": "",
                "systemReserved": {"cpu": "2500m"},
                "cpu_options": options,
            },
        )
        cluster.run_pod(pod(container(2, "1Gi"), node=node.name))
        with_podresources = read(node, await view_of(node))
        files_only = read(node, await view_of(node, podresources=False))
        for whole in (with_podresources, files_only):
            assert whole.disagreements == ()
            assert whole.state is not None
            assert whole.state.reserved.bit_count() == 3
        assert with_podresources.state.reserved == files_only.state.reserved
        allocatable = (await view_of(node)).allocatable
        assert allocatable is not None
        assert allocatable.cpus == 0xFFFF & ~files_only.state.reserved


async def test_managers_without_policy(cluster: Cluster, fresh_node: FreshNode) -> None:
    node = fresh_node(
        shape="2x8,memory=8Gi,hugepages-2Mi=64",
        kubelet={
            "policy": "none",
            "cpu_policy": "none",
            "memory_policy": "None",
            "reserved_cpus": "",
            "systemReserved": {"cpu": "1500m"},
        },
    )
    cluster.run_pod(pod(container(2, "1Gi"), node=node.name))
    whole = read(node, await view_of(node))
    assert whole.disagreements == ()
    status = cluster.api.get(f"/api/v1/nodes/{node.name}")["status"]
    zones = accounting.zone_resources(whole)
    assert sorted(zones) == [0, 1]
    for resource in ("memory", "hugepages-2Mi"):
        for part in ("capacity", "allocatable"):
            told = quantity.parse_resource(resource, status[part][resource])
            ours = sum(getattr(table[resource], part) for table in zones.values())
            assert ours == told, (resource, part)
    assert sum(table["cpu"].capacity for table in zones.values()) == 16000
    # Zones count whole CPUs.
    assert sum(table["cpu"].allocatable for table in zones.values()) == 14000


async def test_unhealthy_devices_are_remembered(cluster: Cluster, fresh_node: FreshNode) -> None:
    node = fresh_node(
        shape="2x8,memory=8Gi",
        kubelet={"policy": "best-effort", "nodeStatusUpdateFrequency": "1s"},
        devices={GPU: [[0], [0], [1], []]},
    )
    cluster.run_pod(pod(container(1, "1Gi", **{GPU: 3}), node=node.name))
    before = read(node, await view_of(node))
    assert before.state is not None
    node.set_health(GPU, "gpu1", healthy=False)
    after = read(node, await view_of(node), previous=before.state)
    fresh = read(node, await view_of(node))
    for whole in (after, fresh):
        assert whole.state is not None
        pool = whole.state.devices[GPU]
        assert "gpu1" not in {
            name for place, name in enumerate(pool.ids) if pool.healthy >> place & 1
        }
    pool = after.state.devices[GPU]
    assert pool.zones == before.state.devices[GPU].zones
    assert pool.ids == ("gpu0", "gpu1", "gpu2", "gpu3")
    assert pool.complete


async def test_the_epoch_is_that_of_the_kubelets_start(fresh_node: FreshNode) -> None:
    node = fresh_node(shape="1x4,memory=8Gi")
    first = (await view_of(node)).epoch
    assert first
    assert (await view_of(node)).epoch == first
    node.restart_kubelet()
    assert (await view_of(node)).epoch not in ("", first)
