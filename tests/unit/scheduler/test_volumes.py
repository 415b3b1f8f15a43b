"""Volumes decide where a pod may run, and what is bound before it is."""

from __future__ import annotations

from typing import Any

import pytest

from rte.scheduler.cache import volumes
from tests.unit.scheduler.build import World, pod_object


def claim(name: str, **more: Any) -> dict[str, Any]:
    spec = {
        "storageClassName": "local",
        "accessModes": ["ReadWriteOnce"],
        "resources": {"requests": {"storage": "5Gi"}},
        **more.pop("spec", {}),
    }
    metadata = {"namespace": "default", "name": name, "uid": f"uid-{name}", **more.pop("meta", {})}
    return {"metadata": metadata, "spec": spec, "status": more.pop("status", {"phase": "Pending"})}


def volume(name: str, node: str = "", size: str = "5Gi", **spec: Any) -> dict[str, Any]:
    if node:
        place = {"key": "kubernetes.io/hostname", "operator": "In", "values": [node]}
        terms = [{"matchExpressions": [place]}]
        spec["nodeAffinity"] = {"required": {"nodeSelectorTerms": terms}}
    labels = spec.pop("labels", {})
    spec = {
        "storageClassName": "local",
        "accessModes": ["ReadWriteOnce"],
        "capacity": {"storage": size},
        **spec,
    }
    return {
        "metadata": {"name": name, "labels": labels},
        "spec": spec,
        "status": {"phase": "Available"},
    }


def storage_class(provisioner: str = "kubernetes.io/no-provisioner", **more: Any) -> dict[str, Any]:
    return {
        "metadata": {"name": "local"},
        "provisioner": provisioner,
        "volumeBindingMode": "WaitForFirstConsumer",
        **more,
    }


@pytest.fixture
def world() -> World:
    made = World()
    for name in "ab":
        made.node(name, bare=True, labels={"topology.kubernetes.io/zone": f"zone-{name}"})
    return made


def add(world: World, *objects: dict[str, Any]) -> None:
    storage = world.cluster.storage
    for obj in objects:
        if "provisioner" in obj:
            kind = volumes.read_class(obj)
            storage.classes[kind.name] = kind
        elif "capacity" in obj["spec"]:
            found = volumes.read_volume(obj)
            storage.volumes[found.name] = found
        else:
            wanted = volumes.read_claim(obj)
            storage.claims[wanted.key] = wanted
    world.cluster.storage_changed()


def user(world: World, *claims: str) -> Any:
    obj = pod_object(guaranteed=False, cpu="1")
    obj["spec"]["volumes"] = [
        {"name": name, "persistentVolumeClaim": {"claimName": name}} for name in claims
    ]
    return world.pod(obj)


def test_a_bound_volume_binds_the_pod_to_its_node(world: World) -> None:
    bound = {"spec": {"volumeName": "v"}, "status": {"phase": "Bound"}}
    add(world, volume("v", "b"), claim("c", **bound))
    pod = user(world, "c")
    assert world.place(pod) == "b"


def test_zone_labels_of_a_volume_count_where_nodes_have_them(world: World) -> None:
    label = {"topology.kubernetes.io/zone": "zone-a__zone-c"}
    bound = {"spec": {"volumeName": "v"}, "status": {"phase": "Bound"}}
    add(world, volume("v", labels=label), claim("c", **bound))
    assert world.place(user(world, "c")) == "a"


def test_missing_deleted_and_immediate_claims_wait_with_their_names(world: World) -> None:
    assert world.why(user(world, "none")) == {'persistentvolumeclaim "none" not found': 2}
    add(world, claim("going", meta={"deletionTimestamp": "2026-01-01T00:00:00Z"}))
    pod = user(world, "going")
    assert world.why(pod) == {'persistentvolumeclaim "going" is being deleted': 2}
    add(world, storage_class(volumeBindingMode="Immediate"), claim("now"))
    pod = user(world, "now")
    assert world.why(pod) == {"pod has unbound immediate PersistentVolumeClaims": 2}


def test_the_smallest_free_volume_of_the_node_is_chosen_and_promised_once(world: World) -> None:
    add(world, storage_class(), claim("c"), claim("d"))
    add(
        world, volume("large", "b", "50Gi"), volume("small", "b", "6Gi"), volume("tiny", "a", "1Gi")
    )
    pod = user(world, "c")
    assert world.place(pod) == "b"
    info = world.cluster.nodes["b"].info
    assert info is not None
    storage = world.cluster.storage
    (first,) = storage.on_node(pod, info)
    assert first.volume is not None
    assert first.volume.name == "small"
    storage.promise([first])
    (second,) = storage.on_node(user(world, "d"), info)
    assert second.volume is not None
    assert second.volume.name == "large"
    storage.promise([second])
    add(world, claim("e"))
    late = user(world, "e")
    assert world.why(late) == {"node(s) didn't find available persistent volumes to bind": 2}


def test_two_claims_of_a_pod_need_two_volumes(world: World) -> None:
    add(world, storage_class(), claim("c"), claim("d"), volume("only", "a"))
    assert world.place(user(world, "c", "d")) is None
    add(world, volume("other", "a"))
    assert world.place(user(world, "c", "d")) == "a"


def test_provisioning_keeps_to_the_allowed_topologies(world: World) -> None:
    allowed = {"key": "topology.kubernetes.io/zone", "values": ["zone-b"]}
    topologies = [{"matchLabelExpressions": [allowed]}]
    add(world, storage_class("csi.example.com", allowedTopologies=topologies), claim("c"))
    pod = user(world, "c")
    assert world.place(pod) == "b"
    info = world.cluster.nodes["b"].info
    assert info is not None
    (binding,) = world.cluster.storage.on_node(pod, info)
    assert binding.volume is None


def test_a_claim_for_one_pod_at_a_time(world: World) -> None:
    once = {"spec": {"volumeName": "v", "accessModes": ["ReadWriteOncePod"]}}
    add(world, volume("v"), claim("c", **once, status={"phase": "Bound"}))
    first, second = user(world, "c"), user(world, "c")
    assert world.place(first) is not None
    assert world.place(second) is None
    world.end(first)
    assert world.place(second) is not None
