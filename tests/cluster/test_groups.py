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
import secrets
import sys
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import yaml

from rte.model import bits
from rte.nrt import group_inventory
from rte.placement.groups import allocation, holdings
from rte.placement.groups.check import violations
from rte.placement.groups.parsing import parse_request
from rte.placement.groups.record import parse_record
from rte.placement.groups.request import ANNOTATION
from tests import machines
from tests.cluster import agents, builder, images, networks, processes
from tests.cluster.dra.running import hardware
from tests.cluster.field import PODS, running
from tests.cluster.test_field import restart_containerd
from tests.cluster.test_layouts import render

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from tests.cluster.api import Object
    from tests.cluster.cluster import Cluster
    from tests.cluster.node import Node

pytestmark = pytest.mark.cluster

STATUS = "k8s.v1.cni.cncf.io/network-status"
MODELS = {0: "NVIDIA H100 80GB HBM3", 1: "NVIDIA A100-SXM4-80GB"}
#: Of the host's interfaces, which are this session's own.
STEM = f"rt{secrets.token_hex(2)}"
#: Bus of each switch -> its zone; every second one's port has two VFs.
SWITCHES = {0x10: 0, 0x20: 0, 0x90: 1, 0xA0: 1}

ATTACHMENTS: Any = {
    "apiVersion": "apiextensions.k8s.io/v1",
    "kind": "CustomResourceDefinition",
    "metadata": {"name": "network-attachment-definitions.k8s.cni.cncf.io"},
    "spec": {
        "group": "k8s.cni.cncf.io",
        "scope": "Namespaced",
        "names": {
            "plural": "network-attachment-definitions", "kind": "NetworkAttachmentDefinition"
        },
        "versions": [{
            "name": "v1", "served": True, "storage": True,
            "schema": {"openAPIV3Schema": {
                "type": "object", "x-kubernetes-preserve-unknown-fields": True,
            }},
        }],
    },
}  # fmt: skip
#: Of what a test makes beside its pods.
LABEL = "topology.rte.dev/test-groups"
PLUGIN = "app.kubernetes.io/name=rte-nri"
#: Beside hardware from elsewhere no kubelet is asked that is not named.
KUBELET = (
    "--kubelet-state-dir=/var/lib/kubelet",
    "--podresources-socket=unix:///var/lib/kubelet/pod-resources/kubelet.sock",
)


@dataclass(frozen=True)
class Function:
    """A network function of the machine."""

    address: str
    zone: int
    name: str
    mac: str
    path: tuple[str, ...]
    pf: str = ""
    vfs: tuple[str, ...] = ()

    def device(self) -> machines.Device:
        links = {f"virtfn{i}": f"../{address}" for i, address in enumerate(self.vfs)}
        return machines.Device(
            address=self.address, kind="nic", pci_class="0x020000", vendor="0x15b3",
            device="0x101d", zone=self.zone, path=self.path,
            files={
                f"net/{self.name}/address": self.mac,
                f"net/{self.name}/speed": "-1" if self.pf else "100000",
                f"net/{self.name}/operstate": "down" if self.pf else "up",
            },
            links={**links, **({"physfn": f"../{self.pf}"} if self.pf else {})},
        )  # fmt: skip


def functions() -> Iterator[Function]:
    for bus, zone in SWITCHES.items():
        path = (f"0000:{bus:02x}:01.0", f"0000:{bus + 1:02x}:00.0", f"0000:{bus + 2:02x}:01.0")
        stem, port = f"{STEM}{bus:02x}", f"0000:{bus + 4:02x}:00.0"
        vfs = tuple(f"0000:{bus + 4:02x}:01.{i}" for i in range(2)) if bus % 0x20 == 0 else ()
        yield Function(port, zone, stem, f"02:00:00:00:{bus:02x}:00", path, vfs=vfs)
        for i, address in enumerate(vfs):
            mac = f"02:00:00:00:{bus:02x}:1{i}"
            yield Function(address, zone, f"{stem}v{i}", mac, path, pf=port)


def uuid_of(index: int) -> str:
    return f"GPU-5ea1ed00-0000-4000-8000-00000000000{index}"


def server() -> machines.Shape:
    """Two zones, in each two switches with a GPU and a port; GPUs of another model in each zone."""
    devices = [function.device() for function in functions()]
    files = {}
    for index, (bus, zone) in enumerate(SWITCHES.items()):
        address = f"0000:{bus + 3:02x}:00.0"
        path = (f"0000:{bus:02x}:01.0", f"0000:{bus + 1:02x}:00.0", f"0000:{bus + 2:02x}:00.0")
        driver = {"driver": "../../../../bus/pci/drivers/nvidia"}
        devices.append(
            machines.Device(
                address=address,
                kind="gpu",
                pci_class="0x030200",
                vendor="0x10de",
                device="0x2330",
                zone=zone,
                path=path,
                links=driver,
            )
        )
        files[f"proc/driver/nvidia/gpus/{address}/information"] = (
            f"Model: \t\t {MODELS[zone]}\nGPU UUID: \t {uuid_of(index)}\nDevice Minor: \t {index}\n"
        )
    return machines.Shape(
        about="Switches with a GPU and a port.", sockets=2, cores=16, threads=2,
        memory=(64 * machines.GIB,), devices=tuple(devices), files=files,
    )  # fmt: skip


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
POLICY = {"networks": "${name}@${name}", "settleSeconds": 0}

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


@dataclass
class Lane:
    """A node with real containers, its agent and a scheduler; the plugin comes later."""

    cluster: Cluster
    node: Node

    def inventory(self) -> group_inventory.Published:
        report = agents.wait_published(self.node)
        return group_inventory.decode(report["metadata"]["annotations"][group_inventory.ANNOTATION])

    def tells_link(self, address: str, state: str) -> bool:
        return self.inventory().inventory.nic_by_address[address].link == state

    def install_plugin(self, *flags: str) -> None:
        """``kubectl apply -k manifests/nri``; the runtime's socket lies in the node's folder."""
        objects = render("nri")
        (daemonset,) = (obj for obj in objects if obj["kind"] == "DaemonSet")
        pod = daemonset["spec"]["template"]["spec"]
        pod["containers"][0]["args"] += flags
        (volume,) = pod["volumes"]
        volume["hostPath"]["path"] = str(self.node.dir / "nri")
        self.cluster.kubectl("apply", "--server-side", "-f", "-", text=yaml.safe_dump_all(objects))
        self.plugin_serves()

    def plugin_serves(self) -> Object:
        """The plugin's pod, once it has looked at what runs: from then on it is asked."""
        pod = running(self.cluster, "rte-nri")
        name, uid = pod["metadata"]["name"], pod["metadata"]["uid"]
        log = self.node.dir / "pod-logs" / f"{agents.NAMESPACE}_{name}_{uid}/nri/0.log"
        processes.wait_until(
            lambda: log.exists() and "synchronized" in log.read_text(), 90, f"{name} to serve",
            every=0.3,
        )  # fmt: skip
        return pod

    def remove_plugin(self) -> None:
        """``kubectl delete -k manifests/nri``, until its pod is gone."""
        text = yaml.safe_dump_all(render("nri"))
        self.cluster.kubectl("delete", "--ignore-not-found", "--timeout=90s", "-f", "-", text=text)
        processes.wait_until(
            lambda: not self.cluster.api.get(PODS, labelSelector=PLUGIN)["items"],
            90, "the plugin's pod to be gone", every=0.3,
        )  # fmt: skip

    def leave(self) -> None:
        """Delete what a test has made."""
        self.cluster.api.delete("/api/v1/namespaces/default/pods", grace=0)
        self.cluster.kubectl("delete", "configmap", "-l", f"{LABEL}=yes")
        text = yaml.safe_dump_all(render("nri"))
        self.cluster.kubectl("delete", "--ignore-not-found", "--wait=false", "-f", "-", text=text)

    def clear(self) -> None:
        """No pods of a test and no plugin; the network has its interfaces back."""
        self.leave()
        self.remove_plugin()
        processes.wait_until(self.is_clear, 180, "containers to be gone", every=0.3)

    def is_clear(self) -> bool:
        ours = 'labels."io.kubernetes.pod.namespace"==default'
        running = set(self.ctr("tasks", "list", "-q").split())
        here = {path.name for path in Path("/sys/class/net").iterdir()}
        return not running & set(self.ctr("containers", "list", "-q", ours).split()) and all(
            it.name in here for it in functions() if not it.vfs
        )

    def ctr(self, *words: str) -> str:
        done = self.node.run(
            [builder.containerd() / "ctr", "-a", self.node.dir / "cri.sock", "-n", "k8s.io", *words]
        )
        assert done.returncode == 0, done.stderr
        return str(done.stdout)

    def look(self, pod: Object) -> Any:
        return json.loads(
            self.ctr(
                "tasks", "exec", "--exec-id", "look", container_of(pod),
                "/opt/rte/bin/python", "-c", LOOK,
            )
        )  # fmt: skip

    def pinned(self, pod: Object) -> str:
        """The CPUs that the runtime confines the pod's container to, empty: all."""
        spec: Any = json.loads(self.ctr("containers", "info", container_of(pod)))["Spec"]
        return str(spec["linux"]["resources"].get("cpu", {}).get("cpus", ""))

    def becomes_pinned(self, pod: Object) -> None:
        """Wait until it is confined to what its annotation says."""
        wanted = bits.format_list(holdings.cpus(record_of(pod).allocation))
        what = f"{pod['metadata']['name']} to be confined to {wanted}"
        processes.wait_until(lambda: self.pinned(pod) == wanted, 90, what, every=0.3)


def container_of(pod: Object) -> str:
    (status,) = pod["status"]["containerStatuses"]
    return str(status["containerID"]).removeprefix("containerd://")


def record_of(pod: Object) -> Any:
    record = parse_record(pod["metadata"]["annotations"][allocation.ANNOTATION])
    assert record.holds_for(pod["metadata"]["uid"], pod["spec"]["nodeName"])
    return record


@pytest.fixture(scope="module")
def shared_lane(cluster: Cluster) -> Iterator[Lane]:
    with ExitStack() as stack:
        after = stack.callback
        macs = {it.name: it.mac for it in functions() if not it.vfs}
        stack.enter_context(networks.interfaces(cluster.dir, macs))
        cluster.start_scheduler()  # a DaemonSet's pods are the default scheduler's
        after(cluster.stop_role, "scheduler")
        none = {"policy": "none", "cpu_policy": "none", "memory_policy": "None"}
        node = cluster.add_node(
            shape=server(), kubelet=none, images=images.archive(), own_machine=True
        )
        after(node.remove)
        networks.use_multus(node)
        (node.dir / "cdi/nvidia.json").write_text(json.dumps(cdi()))
        policy = node.dir / "policy.yaml"
        policy.write_text(yaml.safe_dump(POLICY))
        agents.start(node, "--group-inventory=true", *hardware(node), *KUBELET)
        cluster.spawn(
            "groups-scheduler",
            [sys.executable, "-m", "rte", "scheduler", "--no-leader-elect", "--listen=off",
             f"--kubeconfig={cluster.kubeconfig}", "--scheduler-name=groups",
             f"--groups-policy={policy}"],
        )  # fmt: skip
        after(cluster.stop_role, "groups-scheduler")
        after(cluster.kubectl, "delete", "crd", "--ignore-not-found", cluster.define(ATTACHMENTS))
        cluster.kubectl("apply", "-f", "-", text=yaml.safe_dump_all(attachments()))
        lane = Lane(cluster, node)
        after(lane.leave)
        yield lane
        lane.clear()


@pytest.fixture
def lane(shared_lane: Lane) -> Lane:
    """Without pods and plugin."""
    shared_lane.clear()
    return shared_lane


def cdi() -> Object:
    """What a GPU vendor's toolkit writes for a node, with device files that lead nowhere."""
    null = {"hostPath": "/dev/null", "type": "c", "major": 1, "minor": 3}
    devices = [
        {
            "name": uuid_of(index),
            "containerEdits": {
                "env": [f"GPU_{index}={uuid_of(index)}"],
                "deviceNodes": [{"path": f"/dev/nvidia{index}", **null}],
            },
        }
        for index in range(len(SWITCHES))
    ]
    return {"cdiVersion": "0.6.0", "kind": "nvidia.com/gpu", "devices": devices}


def attachments() -> list[Object]:
    """A network for each function, by its name, as clusters with NHD have them."""
    return [
        {
            "apiVersion": f"{ATTACHMENTS['spec']['group']}/v1",
            "kind": ATTACHMENTS["spec"]["names"]["kind"],
            "metadata": {"name": function.name, "namespace": "default"},
            "spec": {"config": json.dumps({
                "cniVersion": "0.4.0", "name": function.name, "type": "host-device",
                "device": function.name,
            })},
        }
        for function in functions() if not function.vfs
    ]  # fmt: skip


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
        seen = lane.look(now)

        # The file says what the annotation says.
        assert seen["told"]["misc"] == listed(given.misc)
        for group, told in zip(given.groups, seen["told"]["groups"], strict=True):
            (gpu,), (nic,) = group.gpus, group.nics
            assert told == {
                "feeders": listed(group.feeders[0]),
                "rx": listed(tuple(rx for rx, _ in group.queues)),
                "tx": listed(tuple(tx for _, tx in group.queues)),
                "workers": listed(group.workers),
                "helpers": listed(group.helpers),
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
    seen = lane.look(now)
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
    copied = cpu_pod("copied", cpus)
    copied["metadata"]["annotations"][allocation.ANNOTATION] = record_of(early).text()
    others = []
    for pod in (plain, copied):
        pod["spec"] |= {"schedulerName": "default-scheduler", "nodeName": node.name}
        others.append(cluster.wait_pod(cluster.create_pod(pod), "Running"))
    assert not any(map(lane.pinned, (early, *others)))

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

    assert not any(map(lane.pinned, others))
    pinned = [bits.parse_list(lane.pinned(pod)) for pod in (early, late, between, alone)]
    assert all(not one & other for one, other in itertools.combinations(pinned, 2))


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


def listed(cpus: tuple[int, ...]) -> str:
    return ",".join(map(str, cpus))


def switch(path: str) -> str:
    """The switch nearest to the root that a function is below."""
    root = next(part for part in Path(path).parts if part.startswith("pci"))
    parts = Path(path).parts
    return parts[parts.index(root) + 2]
