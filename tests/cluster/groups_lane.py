"""A node with real containers, simulated GPUs, and NICs that move into pods."""

from __future__ import annotations

import json
import secrets
import sys
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml

from rte.model import bits
from rte.nrt import group_inventory
from rte.placement.groups import allocation
from rte.placement.groups.allocation import parse_record
from tests import machines
from tests.cluster import agents, builder, images, networks, processes
from tests.cluster.dra.running import hardware
from tests.cluster.field import PODS, on_the_nodes_network, running
from tests.cluster.test_layouts import render
from tests.cluster.test_writes import (
    scheduler_rights,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.cluster.api import Object
    from tests.cluster.cluster import Cluster
    from tests.cluster.node import Node


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


POLICY = {"networks": "${name}@${name}", "settleSeconds": 0}


@dataclass
class Lane:
    """A node with real containers, its agent and a scheduler; the plugin comes later."""

    cluster: Cluster
    node: Node

    def inventory(self) -> group_inventory.PublishedInventory:
        report = agents.wait_published(self.node)
        return group_inventory.decode(report["metadata"]["annotations"][group_inventory.ANNOTATION])

    def tells_link(self, address: str, state: str) -> bool:
        return self.inventory().inventory.nic_by_address[address].link == state

    def install_plugin(self, *flags: str) -> None:
        """``kubectl apply -k manifests/nri``; the runtime's socket lies in the node's folder."""
        *objects, daemonset = sorted(render("nri"), key=lambda obj: obj["kind"] == "DaemonSet")
        objects.append(on_the_nodes_network(daemonset, self.cluster))
        pod = objects[-1]["spec"]["template"]["spec"]
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

    def spec(self, pod: Object) -> Any:
        """What the runtime made the pod's container with."""
        return json.loads(self.ctr("containers", "info", container_of(pod)))["Spec"]

    def pinned(self, pod: Object) -> str:
        """The CPUs that the runtime confines the pod's container to, empty: all."""
        return str(self.spec(pod)["linux"]["resources"].get("cpu", {}).get("cpus", ""))

    def gpus(self, pod: Object) -> list[str]:
        """The GPUs that the runtime gave to the pod's container."""
        devices = self.spec(pod)["linux"].get("devices") or ()
        return sorted(it["path"] for it in devices if "nvidia" in it["path"])

    def becomes_pinned(self, pod: Object) -> None:
        """Wait until it is confined to what its annotation says."""
        wanted = bits.format_list(record_of(pod).allocation.cpu_mask())
        what = f"{pod['metadata']['name']} to be confined to {wanted}"
        processes.wait_until(lambda: self.pinned(pod) == wanted, 90, what, every=0.3)


def container_of(pod: Object) -> str:
    (status,) = pod["status"]["containerStatuses"]
    return str(status["containerID"]).removeprefix("containerd://")


def record_of(pod: Object) -> Any:
    record = parse_record(pod["metadata"]["annotations"][allocation.ANNOTATION])
    assert record.holds_for(pod["metadata"]["uid"], pod["spec"]["nodeName"])
    return record


@contextmanager
def a_lane(cluster: Cluster) -> Iterator[Lane]:
    """The node with its agent, and a scheduler with the rights of manifests/scheduler."""
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
        access = node.dir / "scheduler-token"
        access.write_text(stack.enter_context(scheduler_rights(cluster)))
        kubeconfig = cluster.write_kubeconfig(node.dir / "scheduler", {"tokenFile": str(access)})
        policy = node.dir / "policy.yaml"
        policy.write_text(yaml.safe_dump(POLICY))
        agents.start(node, "--group-inventory=true", *hardware(node), *KUBELET)
        cluster.spawn(
            "groups-scheduler",
            [sys.executable, "-m", "rte", "scheduler", "--no-leader-elect", "--listen=off",
             f"--kubeconfig={kubeconfig}", "--scheduler-name=groups",
             f"--groups-policy={policy}"],
        )  # fmt: skip
        after(cluster.stop_role, "groups-scheduler")
        after(cluster.kubectl, "delete", "crd", "--ignore-not-found", cluster.define(ATTACHMENTS))
        cluster.kubectl("apply", "-f", "-", text=yaml.safe_dump_all(attachments()))
        lane = Lane(cluster, node)
        after(lane.leave)
        yield lane
        lane.clear()


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
