"""Objects that an API server takes and that nobody expects, of every collection that rte watches."""

# ruff: noqa: E501 - documents read best in one line

from __future__ import annotations

import copy
import json
from typing import TYPE_CHECKING, Any

from rte.nrt import device_zones, group_inventory, node_state
from tests.fuzz.values import NUMBERS, QUANTITIES, damaged, document, keys, text, varied
from tests.unit.scheduler.build import moment, state
from tests.unit.scheduler.desk import report_of
from tests.unit.scheduler.test_malformed import rich_pod

if TYPE_CHECKING:
    import random

_K, _GANG = "scheduling.koordinator.sh/", "gang.scheduling.koordinator.sh/"
DEVICE = {"koordinator.sh/gpu-core": "100", "koordinator.sh/gpu-memory-ratio": "100"}
_GROUPS: dict[str, Any] = {
    "version": 1,
    "groups": [
        {
            "name": "m",
            "count": 1,
            "workers": 1,
            "nics": [{"gbps": {"rx": 1, "tx": 1}}],
            "gpus": [{"count": 1, "match": {"model": "A100"}}],
            "hugepages": {"1Gi": 1},
        }
    ],
}

#: What the annotations of pods have in them where all is well.
ANNOTATIONS: dict[str, Any] = {
    "topology.rte.dev/groups": _GROUPS,
    "topology.rte.dev/allocation": {
        "version": 1, "pod": "uid-x", "node": "b", "inventory": "g", "misc": {"cpus": [0, 1], "zone": 0},
        "groups": [{"name": "m", "zone": 0, "cpus": [2], "nics": [], "gpus": []}],
    },
    "topology.rte.dev/device-alignment": "required",
    "k8s.v1.cni.cncf.io/networks": [{"name": "a", "namespace": "b"}],
    f"{_K}resource-spec": {"requiredCPUBindPolicy": "FullPCPUs"},
    f"{_K}resource-status": {
        "cpuset": "0-3", "numaNodeResources": [{"node": 0, "resources": {"cpu": "4"}}],
    },
    f"{_K}numa-topology-spec": {"numaTopologyPolicy": "SingleNUMANode"},
    f"{_K}device-allocate-hint": {"gpu": {"selector": {"matchLabels": {"a": "b"}}}},
    f"{_K}device-joint-allocate": {"deviceTypes": ["gpu", "rdma"], "requiredScope": "SamePCIe"},
    f"{_K}gpu-partition-spec": {"allocatePolicy": "Restricted", "ringBusBandwidth": "10Gi"},
    f"{_K}device-allocated": {"gpu": [{"minor": 0, "resources": {"koordinator.sh/gpu-core": "100"}}]},
    f"{_GANG}name": "g",
    f"{_GANG}min-available": 2,
    f"{_GANG}groups": ["default/g", "default/h"],
    f"{_GANG}waiting-time": "30s",
}  # fmt: skip

#: Annotations that are read together, and what the pod asks for and is labelled with beside them.
_FAMILIES: tuple[tuple[tuple[str, ...], dict[str, str], dict[str, str]], ...] = (
    ((f"{_GANG}name", f"{_GANG}min-available", f"{_GANG}groups", f"{_GANG}waiting-time"), {}, {}),
    (
        (f"{_K}device-allocate-hint", f"{_K}device-joint-allocate", f"{_K}gpu-partition-spec",
         f"{_K}device-allocated"),
        DEVICE, {},
    ),
    (
        (f"{_K}resource-spec", f"{_K}resource-status", f"{_K}numa-topology-spec"),
        {}, {"koordinator.sh/qosClass": "LSR"},
    ),
    (
        ("topology.rte.dev/groups", "topology.rte.dev/allocation", "k8s.v1.cni.cncf.io/networks"),
        {"hugepages-1Gi": "1Gi"}, {},
    ),
)  # fmt: skip

INVENTORY: dict[str, Any] = {
    "version": 1, "generation": "g", "zones": {"0": {"1Gi": 8}, "1": {"1Gi": 8}},
    "cores": {"0": "0-1 2-3", "1": "8-9 10-11"}, "paths": [["a"], ["b"]],
    "gpus": [{"address": "0000:19:00.0", "zone": 0, "path": 0, "model": "A100", "uuid": "GPU-1", "index": 0}],
    "nics": [{"address": "0000:1a:00.0", "zone": 0, "path": 0, "name": "e", "mac": "m", "mbps": 100, "link": "up"}],
}  # fmt: skip
_ZONES = {
    "version": 1, "pcieRoots": {"pci0000:00": 0}, "pciFunctions": {"0000:19:00.0": 0},
    "claimed": {"uid-h": {"c": [["c", "d", "p", "x", "s"]]}},
}  # fmt: skip

_META = {
    "name": "x",
    "namespace": "default",
    "uid": "uid-x",
    "labels": {"a": "b"},
    "annotations": {},
}
_CLAIM = {"requests": [{"name": "r", "exactly": {"deviceClassName": "gpu", "count": 1}}]}
_DEVICES = [
    {
        "name": "d0",
        "attributes": {
            "dra.net/numaNode": {"int": 0},
            "resource.kubernetes.io/pcieRoot": {"string": "pci0000:00"},
        },
        "capacity": {"memory": {"value": "8Gi"}},
    }
]

#: One sound object of each collection but pods and reports.
SOUND: dict[str, dict[str, Any]] = {
    "namespaces": {"metadata": _META},
    "budgets": {"metadata": _META, "spec": {"minAvailable": 1, "selector": {"matchLabels": {"a": "b"}}},
                "status": {"disruptionsAllowed": 1, "disruptedPods": {"p": moment(1)}}},
    "claims": {"metadata": _META, "spec": {"volumeName": "v", "storageClassName": "s", "accessModes": ["ReadWriteOnce"],
               "resources": {"requests": {"storage": "1Gi"}}}, "status": {"phase": "Bound"}},
    "volumes": {"metadata": _META, "spec": {"capacity": {"storage": "1Gi"}, "accessModes": ["ReadWriteOnce"],
                "storageClassName": "s", "claimRef": {"name": "x", "namespace": "default", "uid": "u"},
                "csi": {"driver": "d"}}, "status": {"phase": "Available"}},
    "classes": {"metadata": _META, "provisioner": "d", "volumeBindingMode": "WaitForFirstConsumer"},
    "drivers": {"metadata": _META, "spec": {"storageCapacity": True}},
    "limits": {"metadata": {**_META, "name": "a"}, "spec": {"drivers": [{"name": "d", "nodeID": "n", "allocatable": {"count": 3}}]}},
    "capacities": {"metadata": _META, "storageClassName": "s", "capacity": "1Gi", "nodeTopology": {"matchLabels": {"a": "b"}}},
    "slices": {"metadata": _META, "spec": {"driver": "d", "nodeName": "a", "devices": _DEVICES,
               "pool": {"name": "p", "generation": 1, "resourceSliceCount": 1}}},
    "device-claims": {"metadata": _META, "spec": {"devices": _CLAIM}},
    "device-classes": {"metadata": {**_META, "name": "gpu"}, "spec": {"selectors": [{"cel": {"expression": "device.driver == 'd'"}}]}},
    "device-taint-rules": {"metadata": _META, "spec": {"deviceSelector": {"driver": "d"},
                           "taint": {"key": "k", "value": "v", "effect": "NoSchedule"}}},
    "podgroups": {"metadata": {**_META, "name": "g"}, "spec": {"schedulingPolicy": {"gang": {"minCount": 2}}}},
    "workloads-1.35": {"metadata": _META, "spec": {"podGroups": [{"name": "g", "policy": {"gang": {"minCount": 2}}}]}},
    "podgroups-coscheduling": {"metadata": {**_META, "name": "g"}, "spec": {"minMember": 2, "scheduleTimeoutSeconds": 10}},
    "koordinator-devices": {"metadata": {**_META, "name": "a"}, "spec": {"devices": [
        {"id": "GPU-1", "type": "gpu", "minor": 0, "health": True, "resources": DEVICE,
         "topology": {"socketID": 0, "nodeID": 0, "pcieID": "0", "busID": "0000:19:00.0"}}]}},
    "leases": {"metadata": {**_META, "name": "a"}, "spec": {"holderIdentity": "h", "renewTime": moment(1)}},
    "nodes": {"metadata": {**_META, "name": "odd"}, "spec": {"taints": [{"key": "k", "value": "v", "effect": "NoSchedule"}]},
              "status": {"allocatable": {"cpu": "8", "memory": "32Gi", "pods": "110", "example.com/gpu": "4"}}},
}  # fmt: skip


def pod(rng: random.Random, number: int) -> dict[str, Any]:
    """A pod that waits, runs, or is somebody else's."""
    obj = rich_pod()
    metadata, spec = obj["metadata"], obj["spec"]
    # Its own moment, so that a case is the same whatever was made before.
    metadata |= {
        "name": f"odd-{number}",
        "uid": f"uid-odd-{number}",
        "creationTimestamp": moment(number),
        "resourceVersion": str(number),
    }
    if rng.random() < 0.5:  # else hardly any pod would come as far as zones and devices
        kept = {"containers", "schedulerName", *rng.sample(sorted(spec), k=rng.choice((0, 0, 1)))}
        spec = obj["spec"] = {name: spec[name] for name in sorted(kept)}
    for name in rng.sample(sorted(spec), k=rng.randrange(len(spec))):
        if name not in ("containers", "schedulerName"):
            spec[name] = varied(rng, {"v": spec[name]}).get("v", spec[name])
        if rng.random() < 0.5 and name not in ("containers", "schedulerName"):
            del spec[name]
    count = rng.choice((1, 1, 1, 2, 3, 20, 100))
    names = rng.choice(
        (
            ["cpu", "memory"],
            ["memory"],
            ["cpu", "memory", *DEVICE],
            ["cpu", "hugepages-1Gi", "memory", "x.io/y"],
        )
    )
    amounts = {name: rng.choice(QUANTITIES) for name in names}
    labels: dict[str, str] = {}
    annotations: dict[str, str] = {}
    if rng.random() < 0.4:
        family, asked, labels = copy.deepcopy(rng.choice(_FAMILIES))
        amounts = {"cpu": "1", "memory": "1Gi", **asked}
        annotations = {key: text(ANNOTATIONS[key]) for key in family}
        for broken in rng.sample(family, k=rng.choice((1, 1, 2, 3))):
            annotations[broken] = document(rng, ANNOTATIONS[broken])
    spec["containers"] = [
        {
            "name": f"c{index}",
            "resources": {"requests": amounts, "limits": amounts if rng.random() < 0.8 else {}},
        }
        for index in range(count)
    ]
    metadata |= {"labels": labels, "annotations": annotations}
    for key in rng.sample(keys(), k=rng.choice((0, 1, 3))):
        labels[key] = rng.choice(("", "true", "x", "LSR", "BE", "y" * 63))
    for key in rng.sample(sorted(ANNOTATIONS), k=rng.choice((0, 1, 2, 5))):
        annotations[key] = document(rng, ANNOTATIONS[key])
    for key in rng.sample(keys(), k=rng.choice((0, 1, 2))):
        annotations[key] = document(rng, rng.choice(list(ANNOTATIONS.values())))
    if rng.random() < 0.2:
        spec["schedulingGroup"] = {"podGroupName": "g"}
    spec["schedulerName"] = rng.choice(("rte-scheduler", "rte-scheduler", "default-scheduler"))
    if rng.random() < 0.3:
        spec["nodeName"] = rng.choice(("a", "b", "missing"))
    spec["priority"] = rng.choice((0, 0, 10, -(2**31), 2**31 - 1))
    spec["terminationGracePeriodSeconds"] = rng.choice((30, 0, *NUMBERS, 2**63 - 1))
    obj["status"] = {
        "phase": rng.choice(
            ("Pending", "Running", "Failed") if "nodeName" in spec else ("Pending",)
        )
    }
    return obj


def report(rng: random.Random, name: str) -> dict[str, Any]:
    """What a stolen token of an agent may write about its node."""
    obj = report_of(name, state())
    sound = json.loads(obj["metadata"]["annotations"][node_state.ANNOTATION])
    sound.setdefault("holdings", {})["uid-h"] = {
        "c": {
            "cpus": "1-2",
            "memory": [["memory", "0", 1 << 30]],
            "devices": {"x.io/d": [[0, "0"]]},
        }
    }
    sound["devices"] = {
        "x.io/d": {"complete": True, "classes": [{"zones": "0", "total": 2, "healthy": 2}]}
    }
    if rng.random() < 0.05:
        rows, each = rng.choice(((1, 32_000), (3, 65_535), (6, 65_535)))
        many = [{"zones": str(zone), "total": each, "healthy": each} for zone in range(rows)]
        sound["devices"]["x.io/d"]["classes"] = many
    annotations = obj["metadata"]["annotations"]
    mood, part = rng.random(), rng.choice(("memory", "holdings", "devices", "topology", "config"))
    if mood < 0.4:  # one part, so that it comes as far as decisions
        sound[part] = damaged(rng, {"v": sound[part]}).get("v")
    annotations[node_state.ANNOTATION] = document(rng, sound) if mood > 0.7 else json.dumps(sound)
    if rng.random() < 0.6:
        annotations[group_inventory.ANNOTATION] = document(rng, INVENTORY)
    if rng.random() < 0.5:
        annotations[device_zones.ANNOTATION] = document(rng, _ZONES)
    if rng.random() < 0.3:
        del annotations[node_state.ANNOTATION]
    for part in ("zones", "attributes"):
        obj[part] = varied(rng, {"v": obj.get(part) or []}).get("v") or []
    return obj


def other(rng: random.Random) -> tuple[str, str, dict[str, Any]]:
    """(collection, key, object) of something else that is watched."""
    collection = rng.choice(sorted(SOUND))
    obj = varied(rng, {"v": SOUND[collection]})["v"]
    metadata = {**SOUND[collection]["metadata"], "annotations": {}}
    for key in rng.sample(keys(), k=rng.choice((0, 1, 2))):
        metadata["annotations"][key] = document(rng, damaged(rng, _GROUPS))
    by_path = (
        collection in ("budgets", "claims", "capacities", "device-claims")
        or "group" in collection
        or "workloads" in collection
    )
    key = f"default/{metadata['name']}" if by_path else metadata["name"]
    return collection, key, {**obj, "metadata": metadata}
