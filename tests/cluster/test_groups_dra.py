"""A processing group whose GPU and NIC come through DRA and whose CPUs come from the kubelet: one
claim for both devices, of one PCIe root, and the zone that the CPU manager will give."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import yaml

from rte.model import bits
from tests.cluster import agents
from tests.cluster.dra.running import start_driver
from tests.cluster.test_scheduler import PODS, Schedulers, schedulers  # noqa: F401 - a fixture

if TYPE_CHECKING:
    from tests.cluster.api import Object
    from tests.cluster.cluster import Cluster
    from tests.cluster.conftest import FreshNode
    from tests.cluster.node import Node

pytestmark = pytest.mark.cluster

CLAIMS = "/apis/resource.k8s.io/v1/namespaces/default/resourceclaims"
PAGE = Path(__file__).parents[2] / "docs/groups.md"


def of_the_page(name: str) -> list[Object]:
    """What docs/groups.md tells users to apply: a template for claims, and a pod."""
    section = PAGE.read_text().partition("## Devices through DRA")[2]
    text = section.partition("```yaml\n")[2].partition("```")[0]
    template, pod = yaml.safe_load_all(text)
    pod["metadata"]["name"] = name
    for container in pod["spec"]["containers"]:
        container |= {"image": "pause:1", "imagePullPolicy": "IfNotPresent"}
    pod["spec"]["terminationGracePeriodSeconds"] = 0
    return [template, pod]


def zone_of(node: Node, address: str) -> int:
    return int((node.machine / "sys/bus/pci/devices" / address / "numa_node").read_text())


def root_of(node: Node, address: str) -> str:
    path = (node.machine / "sys/bus/pci/devices" / address).resolve()
    return next(part for part in path.parts if part.startswith("pci0"))


def zones_of_cpus(node: Node, uid: str) -> set[int]:
    (cpus,) = node.state_file("cpu_manager_state")["entries"][uid].values()
    folders = (node.machine / "sys/devices/system/node").glob("node[0-9]*")
    return {
        int(folder.name[4:])
        for folder in folders
        if bits.parse_list((folder / "cpulist").read_text()) & bits.parse_list(cpus)
    }


def devices_of(cluster: Cluster, pod: Object) -> dict[str, str]:
    """Request -> PCI address of what a pod's claim was given."""
    (claim,) = (
        one
        for one in cluster.api.get(CLAIMS)["items"]
        if any(
            owner["uid"] == pod["metadata"]["uid"]
            for owner in one["metadata"].get("ownerReferences", ())
        )
    )
    told = {}
    for slice_ in cluster.api.get("/apis/resource.k8s.io/v1/resourceslices")["items"]:
        for device in slice_["spec"]["devices"]:
            key = slice_["spec"]["driver"], slice_["spec"]["pool"]["name"], device["name"]
            told[key] = device["attributes"]["resource.kubernetes.io/pciBusID"]["string"]
    return {
        one["request"]: told[one["driver"], one["pool"], one["device"]]
        for one in claim["status"]["allocation"]["devices"]["results"]
    }


def test_gpu_nic_and_cpus_of_a_claim_meet(
    cluster: Cluster,
    fresh_node: FreshNode,
    schedulers: Schedulers,  # noqa: F811
) -> None:
    """Two pods fill a zone. The third belongs into the other, but the first two have no controller
    and may end before it is admitted, so its zone is not certain: it waits."""
    node = fresh_node(shape="2x16,gpus=2,nics=2", kubelet={"policy": "single-numa-node"})
    start_driver(cluster, node)
    agents.install(cluster)
    agents.start(node)
    agents.wait_published(node)
    schedulers.start()
    names = [f"group-{number}" for number in range(2)]
    given = []
    for name in names:
        template, pod = of_the_page(name)
        cluster.kubectl("apply", "-f", "-", text=yaml.safe_dump(template))
        pod["spec"]["nodeSelector"] = {"kubernetes.io/hostname": node.name}
        made = cluster.wait_pod(cluster.create_pod(pod), "Running", seconds=120)
        devices = devices_of(cluster, made)
        assert len({root_of(node, address) for address in devices.values()}) == 1
        zones = {zone_of(node, address) for address in devices.values()}
        assert zones == zones_of_cpus(node, made["metadata"]["uid"])
        given += devices.values()
    assert len(set(given)) == 4

    _, late = of_the_page("late")
    late["spec"]["nodeSelector"] = {"kubernetes.io/hostname": node.name}
    cluster.create_pod(late)
    cluster.api.wait(
        PODS, "late", lambda seen: "are not certain yet" in json.dumps((seen or {}).get("status")),
        what="it to wait for a certain zone",
    )  # fmt: skip
