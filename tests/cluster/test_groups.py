"""Processing groups in real containers: what a pod finds in its file, in its network and among its
devices is what its annotation says, and that is true of the machine.

Real are kubelet, containerd, the plugin of the shipped image and manifest, Multus with the plugins
of its networks, and the interfaces that move into the pod. The machine is simulated: its CPUs are
not there to be run on (``runc-unpinned``), and its GPUs are device files without a device. The
tests share a node; each makes the pods and the plugin that it needs.
"""

from __future__ import annotations

import itertools
import json
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import yaml

from rte import errors
from rte.model import bits
from rte.placement.groups import allocation
from rte.placement.groups.check import violations
from rte.placement.groups.parsing import parse_request
from rte.placement.groups.request import ANNOTATION
from tests.cluster import images, processes
from tests.cluster.field import running
from tests.cluster.groups_lane import (
    LABEL,
    STATUS,
    STEM,
    Lane,
    a_lane,
    container_of,
    record_of,
    uuid_of,
)
from tests.cluster.test_field import restart_containerd
from tests.cluster.test_writes import PODS as TEAMS_PODS
from tests.cluster.test_writes import (
    TEAM,
    author,
    marked,
    rights,
    wait_for_policy,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from tests.cluster.api import Api, Object
    from tests.cluster.cluster import Cluster

pytestmark = pytest.mark.cluster

#: The second group wants a GPU that zone 0 does not have.
REQUEST = {
    "version": 1,
    "misc": {"count": 1},
    "mapping": "pcie",
    "groups": [
        {"name": "radio", "gpus": [{"feeders": 1, "match": {"model": "H100"}}],
         "queues": [{"rx": 40, "tx": 20}], "workers": 2, "helpers": {"count": 1}},
        {"name": "core", "gpus": [{"feeders": 1, "match": {"model": "A100"}}],
         "nics": [{"gbps": {"rx": 10, "tx": 10}}], "workers": 2},
    ],
}  # fmt: skip
#: What the application is told, group by group.
TEMPLATE = """{{"misc": "${{misc.cpus}}", "groups": [{groups}]}}"""
GROUP = """{{
 "feeders": "${{groups[{i}].cpus.feeders[0]}}",
 "rx": "${{groups[{i}].cpus.queues.rx}}", "tx": "${{groups[{i}].cpus.queues.tx}}",
 "workers": "${{groups[{i}].cpus.workers}}", "helpers": "${{groups[{i}].cpus.helpers}}",
 "gpu": "${{groups[{i}].gpus[0]}}", "uuid": "${{groups[{i}].gpus.uuid}}",
 "nic": "${{groups[{i}].nics[0].address}}", "name": "${{groups[{i}].nics.name}}",
 "mac": "${{groups[{i}].nics.mac}}"}}"""
#: The application: what it was told, what it has, and where the machine says that things are.
LOOK = """
import glob, json, os
from pathlib import Path
pci = Path("/machine/sys/bus/pci/devices")
zones = Path("/machine/sys/devices/system/node")
def zone_of_cpu(cpu):
    (found,) = zones.glob(f"node*/cpu{cpu}")
    return int(found.parent.name.removeprefix("node"))
def place(address):
    return [int((pci / address / "numa_node").read_text()), str((pci / address).resolve())]
told = json.loads(Path("/filled/app.json").read_text())
answer = {"told": told, "groups": []}
for group in told["groups"]:
    kinds = ("feeders", "rx", "tx", "workers", "helpers")
    cpus = [int(cpu) for kind in kinds if group[kind] for cpu in group[kind].split(",")]
    information = Path("/machine/proc/driver/nvidia/gpus") / group["gpu"] / "information"
    answer["groups"].append({
        "cpus": sorted(set(cpus)), "zones": sorted({zone_of_cpu(cpu) for cpu in cpus}),
        "gpu": place(group["gpu"]), "nic": place(group["nic"]),
        "information": information.read_text(),
        "net": [path.name for path in (pci / group["nic"] / "net").iterdir()],
        "mac": (pci / group["nic"] / "net" / group["name"] / "address").read_text().strip(),
    })
answer["interfaces"] = {
    path.name: (path / "address").read_text().strip() for path in Path("/sys/class/net").iterdir()
}
answer["gpus"] = sorted(glob.glob("/dev/nvidia*"))
answer["visible"] = sorted(value for key, value in os.environ.items() if key.startswith("GPU_"))
print(json.dumps(answer))
"""


@pytest.fixture(scope="module")
def shared_lane(cluster: Cluster) -> Iterator[Lane]:
    with a_lane(cluster) as lane:
        yield lane


@pytest.fixture
def lane(shared_lane: Lane) -> Lane:
    """Without pods and plugin."""
    shared_lane.clear()
    return shared_lane


def application(lane: Lane, name: str, request: Mapping[str, Any] = REQUEST) -> Object:
    """As docs/groups.md tells: the downward API, and an init container that renders."""
    groups = ",".join(GROUP.format(i=i) for i in range(len(request["groups"])))
    lane.cluster.api.create(
        "/api/v1/namespaces/default/configmaps",
        {
            "metadata": {"name": name, "labels": {LABEL: "yes"}},
            "data": {"app.json": TEMPLATE.format(groups=groups)},
        },
    )
    image = images.names()["agent"]
    mounts = {"allocation": "/allocation", "template": "/template", "filled": "/filled"}
    field = f"metadata.annotations['{allocation.ANNOTATION}']"
    return {
        "metadata": {"name": name, "annotations": {ANNOTATION: json.dumps(request)}},
        "spec": {
            "schedulerName": "groups",
            "terminationGracePeriodSeconds": 1,
            "volumes": [
                {"name": "allocation", "downwardAPI": {
                    "items": [{"path": "allocation", "fieldRef": {"fieldPath": field}}]}},
                {"name": "template", "configMap": {"name": name}},
                {"name": "filled", "emptyDir": {}},
                {"name": "machine", "hostPath": {"path": str(lane.node.machine)}},
            ],
            "initContainers": [
                {
                    "name": "render", "image": image, "imagePullPolicy": "Never",
                    "args": ["render", "template", "/template/app.json",
                             "--allocation", "/allocation/allocation", "--out", "/filled/app.json"],
                    "securityContext": {"runAsUser": 0},
                    "volumeMounts": [
                        {"name": volume, "mountPath": path} for volume, path in mounts.items()
                    ],
                }
            ],
            "containers": [
                {
                    "name": "main", "image": image, "imagePullPolicy": "Never",
                    "command": ["/opt/rte/bin/python", "-c", "import time; time.sleep(3600)"],
                    "volumeMounts": [
                        {"name": "filled", "mountPath": "/filled"},
                        {"name": "machine", "mountPath": "/machine", "readOnly": True},
                    ],
                }
            ],
        },
    }  # fmt: skip


def test_what_a_pod_is_told_is_what_it_has_and_where_it_is(lane: Lane) -> None:
    cluster = lane.cluster
    published = lane.inventory()
    lane.install_plugin("--gpu-device=nvidia.com/gpu=${uuid}")
    request = parse_request(json.dumps(REQUEST))
    gpus: list[str] = []
    nics: list[str] = []
    pods = []
    for name in ("first", "second"):
        now = cluster.wait_pod(cluster.create_pod(application(lane, name)), "Running", seconds=120)
        pods.append(now)
        record = record_of(now)
        given = record.allocation
        assert violations(request, given, published.inventory) == []
        seen = look(lane, now)

        # The file says what the annotation says.
        assert seen["told"]["misc"] == listed(given.misc.cpus)
        for group, told in zip(given.groups, seen["told"]["groups"], strict=True):
            (gpu,), (nic,) = group.gpus, group.nics
            assert told == {
                "feeders": listed(group.cpus.feeders[0]),
                "rx": listed(tuple(queue.rx for queue in group.cpus.queues)),
                "tx": listed(tuple(queue.tx for queue in group.cpus.queues)),
                "workers": listed(group.cpus.workers),
                "helpers": listed(group.cpus.helpers),
                "gpu": gpu,
                "uuid": record.devices[gpu]["uuid"],
                "nic": nic.address,
                "name": record.devices[nic.address]["name"],
                "mac": record.devices[nic.address]["mac"],
            }
            gpus.append(gpu)
            nics.append(nic.address)

        # It is true of the machine: one zone, one switch, that model and that address.
        for told, true, model in zip(
            seen["told"]["groups"], seen["groups"], ("H100", "A100"), strict=True
        ):
            (zone,) = true["zones"]
            assert (true["gpu"][0], true["nic"][0]) == (zone, zone)
            assert switch(true["gpu"][1]) == switch(true["nic"][1])
            assert told["uuid"] in true["information"]
            assert model in true["information"]
            assert (true["net"], true["mac"]) == ([told["name"]], told["mac"])

        # The pod has just that: its interfaces, its GPUs, its CPUs.
        interfaces = {told["name"]: told["mac"] for told in seen["told"]["groups"]}
        there = {name: mac for name, mac in seen["interfaces"].items() if name.startswith(STEM)}
        assert there == interfaces
        uuids = sorted(told["uuid"] for told in seen["told"]["groups"])
        assert seen["visible"] == uuids
        assert seen["gpus"] == [f"/dev/nvidia{uuid[-1]}" for uuid in uuids]
        lane.becomes_pinned(now)
        status = json.loads(now["metadata"]["annotations"][STATUS])
        assert {it["interface"] for it in status if not it.get("default")} == interfaces.keys()

    assert len(set(gpus)) == len(set(nics)) == 4
    third = cluster.create_pod(application(lane, "third"))
    cluster.wait_pod(third, lambda now: "processing groups: gpus" in json.dumps(now))
    # What one gives back the next one gets, the interfaces too.
    before = record_of(pods[0]).allocation
    cluster.delete_pod(pods[0], grace=None)
    now = cluster.wait_pod(third, "Running", seconds=120)
    assert record_of(now).allocation == before
    seen = look(lane, now)
    assert {told["name"] for told in seen["told"]["groups"]} <= seen["interfaces"].keys()

    # The agent follows the hardware.
    port = "0000:14:00.0"
    link = lane.node.machine / f"sys/bus/pci/devices/{port}/net/{STEM}10/operstate"
    for state in ("down", "up"):
        link.write_text(state)
        told = partial(lane.tells_link, port, state)
        processes.wait_until(told, 90, f"the link to be {state}", every=0.5)


def test_what_was_there_before_the_plugin_is_confined_when_it_comes(lane: Lane) -> None:
    cluster, node = lane.cluster, lane.node
    cpus = {"version": 1, "groups": [{"name": "g", "workers": 4}]}

    def start(name: str) -> Object:
        pod = cpu_pod(name, cpus)
        return cluster.wait_pod(cluster.create_pod(pod), "Running")

    lane.inventory()
    early = start("early")
    plain = cpu_pod("plain", None)
    plain["spec"] |= {"schedulerName": "default-scheduler", "nodeName": node.name}
    other = cluster.wait_pod(cluster.create_pod(plain), "Running")
    assert not any(map(lane.pinned, (early, other)))

    lane.install_plugin()
    lane.becomes_pinned(early)
    late = start("late")
    lane.becomes_pinned(late)

    # containerd starts again, with its plugin beside it.
    restart_containerd(node)
    for pod in (early, late):
        lane.becomes_pinned(pod)

    # The plugin starts again, as its DaemonSet makes it anew.
    cluster.delete_pod(running(cluster, "rte-nri"), grace=None)
    lane.plugin_serves()
    between = start("between")
    for pod in (early, late, between):
        lane.becomes_pinned(pod)

    # Both are away, and pods start meanwhile.
    lane.remove_plugin()
    alone = start("alone")
    assert lane.pinned(alone) == ""
    restart_containerd(node)
    for pod in (early, late, between):
        lane.becomes_pinned(pod)
    lane.install_plugin()
    for pod in (early, late, between, alone):
        lane.becomes_pinned(pod)

    assert not lane.pinned(other)
    pinned = [bits.parse_list(lane.pinned(pod)) for pod in (early, late, between, alone)]
    assert all(not one & other for one, other in itertools.combinations(pinned, 2))


EVERYTHING = {
    "groups": [{"name": "m", "cpus": {"workers": [*range(32)]}, "gpus": ["0000:13:00.0"]}],
    "devices": {"0000:13:00.0": {"uuid": uuid_of(0)}},
}  # fmt: skip


@pytest.fixture
def forger(lane: Lane) -> Iterator[Api]:
    """Somebody with the role ``edit`` in a namespace."""
    yield author(lane.cluster, TEAM)
    lane.cluster.api.delete(TEAMS_PODS, grace=0)


@pytest.fixture
def no_policy(lane: Lane, forger: Api) -> Iterator[None]:
    """A cluster whose administrator has taken the policy away."""
    text = yaml.safe_dump_all([it for it in rights() if it["kind"].startswith("Validating")])
    lane.cluster.kubectl("delete", "-f", "-", text=text)
    processes.wait_until(lambda: may_forge(forger), 30, "the policy to be gone")
    yield
    lane.cluster.kubectl("apply", "--server-side", "-f", "-", text=text)
    wait_for_policy(forger, TEAMS_PODS)


def may_forge(forger: Api) -> bool:
    try:
        forger.request("POST", TEAMS_PODS, marked(name="probe"), dryRun="All")
    except errors.KubeError:
        return False
    return True


def gated(lane: Lane, forger: Api) -> tuple[Object, Object]:
    """A pod whose UID its author knows before it runs, and a patch that lets it go with all."""
    pod = cpu_pod("thief", None)
    pod["spec"] |= {
        "schedulerName": "default-scheduler", "schedulingGates": [{"name": "example.com/gate"}],
        "nodeSelector": {"kubernetes.io/hostname": lane.node.name}, "hostNetwork": True,
        "tolerations": [{"operator": "Exists"}],
    }  # fmt: skip
    made = forger.create(TEAMS_PODS, pod)
    record = {"version": 1, "pod": made["metadata"]["uid"], "node": lane.node.name, **EVERYTHING}
    said = {allocation.ANNOTATION: json.dumps(record)}
    return made, {"metadata": {"annotations": said}, "spec": {"schedulingGates": []}}


def test_with_the_policy_nobody_can_write_himself_an_allocation(lane: Lane, forger: Api) -> None:
    _, patch = gated(lane, forger)

    with pytest.raises(errors.KubeError, match="only a scheduler of rte writes"):
        forger.patch(f"{TEAMS_PODS}/thief", patch)


def test_without_the_policy_a_forged_allocation_gives_nothing_and_blocks_nothing(
    lane: Lane, forger: Api, no_policy: None
) -> None:
    """What counts is what the scheduler has recorded in the status of the pod."""
    cluster = lane.cluster
    lane.install_plugin("--gpu-device=nvidia.com/gpu=${uuid}")
    lane.inventory()
    wish = {"version": 1, "groups": [{"name": "g", "workers": 4, "gpus": [{"feeders": 1}]}]}

    thief, patch = gated(lane, forger)
    forger.patch(f"{TEAMS_PODS}/thief", patch)
    thief = cluster.wait_pod(thief, "Running")
    assert (lane.pinned(thief), lane.gpus(thief)) == ("", [])

    # Nothing of the node is held by that, and an honest pod gets what it asks for.
    honest = cluster.wait_pod(cluster.create_pod(cpu_pod("honest", wish)), "Running")
    lane.becomes_pinned(honest)
    assert len(lane.gpus(honest)) == 1

    # What a pod has, and holds, does not change with its annotation.
    before = record_of(honest)
    for said in (patch["metadata"]["annotations"][allocation.ANNOTATION], None):
        change = {"metadata": {"annotations": {allocation.ANNOTATION: said}}}
        cluster.api.patch("/api/v1/namespaces/default/pods/honest", change)
    cluster.delete_pod(running(cluster, "rte-nri"), grace=None)
    lane.plugin_serves()
    next_one = cluster.wait_pod(cluster.create_pod(cpu_pod("next", wish)), "Running")
    lane.becomes_pinned(next_one)
    assert lane.pinned(honest) == bits.format_list(before.allocation.cpu_mask())
    held = [bits.parse_list(lane.pinned(pod)) for pod in (honest, next_one)]
    assert not held[0] & held[1]
    assert (lane.pinned(thief), lane.gpus(thief)) == ("", [])
    assert not set(lane.gpus(honest)) & set(lane.gpus(next_one))


def cpu_pod(name: str, request: Mapping[str, Any] | None) -> Object:
    annotations = {} if request is None else {ANNOTATION: json.dumps(request)}
    return {
        "metadata": {"name": name, "annotations": annotations},
        "spec": {
            "schedulerName": "groups",
            "terminationGracePeriodSeconds": 0,
            "containers": [
                {"name": "main", "image": images.PAUSE_IMAGE, "imagePullPolicy": "Never"}
            ],
        },
    }


def look(lane: Lane, pod: Object) -> Any:
    return json.loads(
        lane.ctr(
            "tasks", "exec", "--exec-id", "look", container_of(pod),
            "/opt/rte/bin/python", "-c", LOOK,
        )
    )  # fmt: skip


def listed(cpus: tuple[int, ...]) -> str:
    return ",".join(map(str, cpus))


def switch(path: str) -> str:
    """The switch nearest to the root that a function is below."""
    root = next(part for part in Path(path).parts if part.startswith("pci"))
    parts = Path(path).parts
    return parts[parts.index(root) + 2]
