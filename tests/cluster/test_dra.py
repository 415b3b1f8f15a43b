"""DRA on a real kubelet: the test bed's driver registers and prepares; its devices are reported."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING, Any

from rte.placement.dra import CEL, ClaimNode, DeviceInventory, DeviceSupply, Usage, allocate, decode
from tests.cluster.dra.running import calls, hardware, start_driver
from tests.cluster.pods import container, pod

if TYPE_CHECKING:
    from tests.cluster import node as nodes
    from tests.cluster.cluster import Cluster
    from tests.cluster.conftest import FreshNode

API = "/apis/resource.k8s.io/v1"
CLAIMS = f"{API}/namespaces/default/resourceclaims"


def allocated_claim(cluster: Cluster, node: nodes.Node, owner: dict[str, Any]) -> dict[str, Any]:
    """A claim for a GPU and a NIC of one root, allocated by the library, reserved for the pod."""
    api = cluster.api
    made = api.create(
        CLAIMS,
        {
            "apiVersion": "resource.k8s.io/v1",
            "kind": "ResourceClaim",
            "metadata": {"name": f"{owner['metadata']['name']}-devices"},
            "spec": {
                "devices": {
                    "requests": [
                        {"name": kind, "exactly": {"deviceClassName": kind, "count": 1}}
                        for kind in ("gpu", "nic")
                    ],
                    "constraints": [{"matchAttribute": "resource.kubernetes.io/pcieRoot"}],
                }
            },
        },
    )
    inventory = DeviceInventory()
    for one in api.get(f"{API}/resourceslices")["items"]:
        inventory.put_slice(decode.resource_slice(one))
    place = ClaimNode(name=node.name)
    supply = DeviceSupply(
        pools=inventory.pools(place),
        classes={
            one["metadata"]["name"]: decode.device_class(one)
            for one in api.get(f"{API}/deviceclasses")["items"]
        },
        usage=Usage(),
        expressions=CEL(),
    )
    verdict = allocate(place, [decode.resource_claim(made)], supply)
    assert verdict.fits, verdict.message
    (allocation,) = verdict.allocations.values()
    consumer = {
        "resource": "pods",
        "name": owner["metadata"]["name"],
        "uid": owner["metadata"]["uid"],
    }
    made["status"] = {"allocation": decode.encode(allocation), "reservedFor": [consumer]}
    return api.request("PUT", f"{CLAIMS}/{made['metadata']['name']}/status", made)


def test_a_pod_gets_the_devices_that_the_library_has_chosen(
    cluster: Cluster, fresh_node: FreshNode
) -> None:
    node = fresh_node(shape="32-2s-gpus", kubelet={"policy": "single-numa-node"})
    start_driver(cluster, node)
    main = container(2, "1Gi") | {"name": "main"}
    main["resources"]["claims"] = [{"name": "devices"}]
    wanted = pod(
        main,
        name=f"dra-{node.name}",
        resourceClaims=[{"name": "devices", "resourceClaimName": f"dra-{node.name}-devices"}],
        schedulingGates=[{"name": "testbed.rte.dev/claim"}],
    )
    path = "/api/v1/namespaces/default/pods"
    made = cluster.api.create(path, wanted)
    claim = allocated_claim(cluster, node, made)
    cluster.api.patch(f"{path}/{made['metadata']['name']}", {"spec": {"schedulingGates": None}})
    cluster.api.create(
        f"{path}/{made['metadata']['name']}/binding",
        {
            "apiVersion": "v1",
            "kind": "Binding",
            "metadata": {"name": made["metadata"]["name"]},
            "target": {"kind": "Node", "name": node.name},
        },
    )

    cluster.api.wait(
        path,
        made["metadata"]["name"],
        lambda seen: seen is not None and seen["status"].get("phase") == "Running",
        seconds=60,
    )

    assert calls(node, "prepared") == 2
    chosen = {one["device"] for one in claim["status"]["allocation"]["devices"]["results"]}
    agent = [sys.executable, "-m", "rte", "run", "--oneshot", "--sink=stdout"]
    kubelet = "/var/lib/kubelet"
    agent += [f"--kubelet-state-dir={kubelet}", f"--node-name={node.name}", *hardware(node)]
    agent.append(f"--podresources-socket={kubelet}/pod-resources/kubelet.sock")
    report = json.loads(node.run(agent).stdout)
    text = report["metadata"]["annotations"]["topology.rte.dev/device-zones"]
    (held,) = json.loads(text)["claimed"].values()
    assert {device for _, _, _, device, _ in held["main"]} == chosen
