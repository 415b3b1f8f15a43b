"""Volumes decide where a pod may run, and what is bound before it is."""

from __future__ import annotations

from typing import Any

import pytest

from rte.k8s import csi
from rte.scheduler.framework.claims import storage as volumes
from rte.scheduler.framework.events import ClusterEvent, Kind
from rte.scheduler.framework.writes import Impossible, Reserved, Step, Wait
from rte.scheduler.front import answers
from rte.scheduler.loop.room.plans import plans
from rte.scheduler.plugins import volume_binding
from rte.scheduler.plugins.default_preemption import EvictionPlan
from rte.scheduler.plugins.volume_writes import BoundClaim, TakenVolume
from tests.unit.scheduler.build import World, pod_object


def claim(name: str, **more: Any) -> dict[str, Any]:
    spec = {
        "storageClassName": "local",
        "accessModes": ["ReadWriteOnce"],
        "resources": {"requests": {"storage": "5Gi"}},
        **more.pop("spec", {}),
    }
    metadata = {"namespace": "default", "name": name, "uid": f"uid-{name}", **more.pop("meta", {})}
    status = more.pop("status", {"phase": "Pending"})
    if status["phase"] == "Bound":
        metadata.setdefault("annotations", {})["pv.kubernetes.io/bind-completed"] = "yes"
    return {"metadata": metadata, "spec": spec, "status": status}


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
            storage.set_volume(found.name, found)
        else:
            wanted = volumes.read_claim(obj)
            storage.claims[wanted.key] = wanted
    world.cluster.told(ClusterEvent(Kind.STORAGE))


def user(world: World, *claims: str, **more: Any) -> Any:
    obj = pod_object(guaranteed=False, cpu="1", **more)
    obj["spec"]["volumes"] = [
        {"name": name, "persistentVolumeClaim": {"claimName": name}} for name in claims
    ]
    return world.pod(obj)


def victims(world: World, pod: Any) -> dict[str, set[str]]:
    """Node -> claims of those who would be evicted there."""
    return {
        plan.node: {name for victim in plan.victims for name, _ in victim.shape.claims}
        for plan in plans(world.cycle, world.cluster, pod)
        if isinstance(plan, EvictionPlan)
    }


def targets(reserved: Reserved) -> list[tuple[str, str]]:
    return [(write.target.collection, write.target.name) for write in reserved.writes]


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
    plugin = volume_binding.VolumeBinding(world.cluster.storage)
    first = plugin.reserve(pod, world.cluster.nodes["b"])
    assert first is not None
    assert targets(first) == [("volumes", "small"), ("claims", "c")]
    other = user(world, "d")
    second = plugin.reserve(other, world.cluster.nodes["b"])
    assert second is not None
    assert targets(second) == [("volumes", "large"), ("claims", "d")]
    plugin.unreserve(second)
    assert plugin.reserve(other, world.cluster.nodes["b"]) == second
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
    reserved = world.cycle.profile.reserves[0].reserve(pod, world.cluster.nodes["b"])
    assert reserved is not None
    (write,) = reserved.writes
    assert write.next(write.known) == Step(
        "patch",
        {"metadata": {"annotations": {"volume.kubernetes.io/selected-node": "b"}}},
    )


def test_a_claim_for_one_pod_at_a_time(world: World) -> None:
    once = {"spec": {"volumeName": "v", "accessModes": ["ReadWriteOncePod"]}}
    add(world, volume("v"), claim("c", **once, status={"phase": "Bound"}))
    first, second = user(world, "c"), user(world, "c")
    assert world.place(first) is not None
    assert world.place(second) is None
    world.end(first)
    assert world.place(second) is not None


def test_who_holds_a_claim_for_one_pod_is_evicted_for_one_of_higher_priority(world: World) -> None:
    once = {"spec": {"volumeName": "v", "accessModes": ["ReadWriteOncePod"]}}
    add(world, volume("v"), claim("c", **once, status={"phase": "Bound"}))
    holder = user(world, "c")
    at = world.place(holder)
    high = user(world, "c", priority=1)
    why = (
        "node has pod using PersistentVolumeClaim with the same name and ReadWriteOncePod access "
        "mode"
    )
    assert world.why(high) == {why: 2}
    # Nowhere else: there the holder would go on running.
    assert victims(world, high) == {at: {"c"}}


def test_a_generic_ephemeral_volume_must_belong_to_the_pod(world: World) -> None:
    add(world, storage_class("csi.example.com"))
    obj = pod_object("p", guaranteed=False, cpu="1")
    obj["spec"]["volumes"] = [{"name": "scratch", "ephemeral": {"volumeClaimTemplate": {}}}]
    pod = world.pod(obj)
    waits = 'waiting for ephemeral volume controller to create "p-scratch"'
    assert world.why(pod) == {waits: 2}
    add(world, claim("p-scratch"))
    assert world.why(pod) == {'persistentvolumeclaim "p-scratch" was not created for the pod': 2}
    owner = {"kind": "Pod", "name": "p", "uid": "uid-p", "controller": True}
    add(world, claim("p-scratch", meta={"ownerReferences": [owner]}))
    assert world.place(pod) is not None


def test_provisioning_needs_storage_capacity_where_the_driver_publishes_it(world: World) -> None:
    add(world, storage_class("csi.example.com"), claim("c"))
    storage = world.cluster.storage
    storage.tracked.add("csi.example.com")
    pod = user(world, "c")
    assert world.why(pod) == {"node(s) did not have enough free storage": 2}
    zone = {"matchLabels": {"topology.kubernetes.io/zone": "zone-b"}}
    small = {"storageClassName": "local", "nodeTopology": zone, "capacity": "1Gi"}
    storage.capacities["x/pool"] = volumes.read_capacity(small)
    assert world.place(pod) is None
    large = {**small, "maximumVolumeSize": "5Gi"}
    storage.capacities["x/pool"] = volumes.read_capacity(large)
    assert world.place(pod) == "b"


def test_a_driver_attaches_only_so_many_volumes_to_a_node(world: World) -> None:
    bound = {"status": {"phase": "Bound"}}
    for number in range(3):
        csi = {"csi": {"driver": "d.example.com", "volumeHandle": f"h{number}"}}
        add(world, volume(f"v{number}", **csi))
        add(world, claim(f"c{number}", spec={"volumeName": f"v{number}"}, **bound))
    for name, most in (("a", 0), ("b", 2)):
        drivers = [{"name": "d.example.com", "allocatable": {"count": most}}]
        world.cluster.storage.csi_nodes[name] = volumes.read_csi_node(
            {"spec": {"drivers": drivers}}
        )
    assert world.place(user(world, "c0")) == "b"
    assert world.place(user(world, "c1")) == "b"
    # One volume of two pods is attached once.
    assert world.place(user(world, "c1")) == "b"
    late = user(world, "c2")
    assert world.why(late) == {"node(s) exceed max volume count": 2}
    # Who needs to leave b for it holds a volume alone, and is less important.
    assert victims(world, user(world, "c2", priority=1)) == {"b": {"c0"}}


@pytest.mark.parametrize(
    ("disk", "shared"),
    [
        ({"gcePersistentDisk": {"pdName": "d"}}, False),
        ({"gcePersistentDisk": {"pdName": "d", "readOnly": True}}, True),
        ({"awsElasticBlockStore": {"volumeID": "d", "readOnly": True}}, False),
        ({"iscsi": {"iqn": "d", "targetPortal": "p", "lun": 0}}, False),
        ({"rbd": {"monitors": ["m"], "image": "i", "pool": "rbd"}}, False),
        ({"rbd": {"monitors": ["m"], "image": "i", "readOnly": True}}, True),
    ],
)
def test_disks_that_pods_of_a_node_cannot_share(disk: dict[str, Any], shared: bool) -> None:
    world = World()
    world.node("a", bare=True)

    def uses() -> Any:
        obj = pod_object(guaranteed=False, cpu="1")
        obj["spec"]["volumes"] = [{"name": "v", **disk}]
        return world.pod(obj)

    assert world.place(uses()) == "a"
    second = uses()
    assert (world.place(second) == "a") is shared
    if not shared:
        assert world.why(second) == {"node(s) had no available disk": 1}


def test_an_unknown_claim_is_explained_and_not_stumbled_over(world: World) -> None:
    pod = user(world, "nope")
    answer = answers.explain_pod(world.cluster, world.cycle, pod)
    assert answer.problem == 'persistentvolumeclaim "nope" not found'
    assert [node.reason for node in answer.nodes] == [answer.problem] * 2
    around = world.cycle.around(pod)
    (status,) = {world.cycle.check(entry, pod, around) for entry in world.cluster.nodes.values()}
    assert status.reason == answer.problem


IN_TREE = {
    "awsElasticBlockStore": {"volumeID": "aws://zone-a/vol-1"},
    "gcePersistentDisk": {"pdName": "d"},
    "azureDisk": {"diskName": "d", "diskURI": "/disks/d"},
    "cinder": {"volumeID": "v"},
    "portworxVolume": {"volumeID": "v"},
}


@pytest.mark.parametrize("kind", IN_TREE)
@pytest.mark.parametrize("inline", [True, False])
def test_volumes_of_old_count_at_the_driver_that_serves_them_now(
    world: World, kind: str, inline: bool
) -> None:
    source = {kind: IN_TREE[kind]}
    (driver,) = {csi.attached(source).driver}
    for name, most in (("a", 0), ("b", 1)):
        drivers = [{"name": driver, "allocatable": {"count": most}}]
        seen = volumes.read_csi_node({"spec": {"drivers": drivers}})
        world.cluster.storage.csi_nodes[name] = seen
    if inline:
        obj = pod_object(guaranteed=False, cpu="1", volumes=[{"name": "v", **source}])
        assert world.place(world.pod(obj)) == "b"
        return
    bound = {"spec": {"volumeName": "v"}, "status": {"phase": "Bound"}}
    add(world, storage_class(), volume("v", **source), claim("c", **bound))
    assert world.place(user(world, "c")) == "b"


def test_zones_of_old_labels_are_those_of_todays_nodes(world: World) -> None:
    bound = {"spec": {"volumeName": "v"}, "status": {"phase": "Bound"}}
    old = {"failure-domain.beta.kubernetes.io/zone": "zone-b__zone-c"}
    add(world, storage_class(), volume("v", labels=old), claim("c", **bound))
    assert world.place(user(world, "c")) == "b"


def test_the_zone_labels_of_a_free_volume_bind_nobody(world: World) -> None:
    free = volume("v", labels={"topology.kubernetes.io/zone": "elsewhere"})
    add(world, storage_class(), free, claim("c"))
    assert world.place(user(world, "c")) in ("a", "b")


@pytest.mark.parametrize("mode", ["WaitForFirstConsumer", "Immediate"])
def test_a_claim_that_names_its_volume_is_the_volume_controllers_to_bind(
    world: World, mode: str
) -> None:
    add(world, storage_class(volumeBindingMode=mode), volume("v"))
    add(world, claim("c", spec={"volumeName": "v"}))
    pod = user(world, "c")
    assert world.why(pod) == {"pod has unbound immediate PersistentVolumeClaims": 2}


def test_a_volume_of_an_earlier_claim_of_that_name_is_not_its_own(world: World) -> None:
    earlier = {"namespace": "default", "name": "c", "uid": "uid-earlier"}
    add(world, storage_class(), volume("old", "a", claimRef=earlier), volume("new", "b"))
    add(world, claim("c"))
    assert world.place(user(world, "c")) == "b"


def test_the_volume_that_names_the_claim_is_taken_before_all_others(world: World) -> None:
    named = volume("own", "a", size="9Gi", claimRef={"namespace": "default", "name": "c"})
    add(world, storage_class(), named, volume("small", "a"), volume("free", "b"), claim("c"))
    pod = user(world, "c")
    assert world.why(pod) == {"": 1, "node(s) didn't find available persistent volumes to bind": 1}
    reserved = world.cycle.profile.reserves[0].reserve(pod, world.cluster.nodes["a"])
    assert reserved is not None
    assert targets(reserved) == [("volumes", "own"), ("claims", "c")]
    step = reserved.writes[0].next(named)
    assert step.body["spec"]["claimRef"]["uid"] == "uid-c"
    assert "metadata" not in step.body, "it was not the controller that chose it"


def test_where_a_node_was_chosen_a_volume_is_made_and_none_is_taken(world: World) -> None:
    chosen = {"annotations": {"volume.kubernetes.io/selected-node": "a"}}
    add(world, storage_class(), volume("v"), claim("c", meta=chosen))
    assert world.place(user(world, "c")) is None


def test_a_node_looks_at_volumes_that_it_may_reach_alone(world: World) -> None:
    add(world, volume("here", "a"), volume("there", "b"), volume("anywhere"))
    info = world.cluster.nodes["a"].info
    assert info is not None
    near = [name for _, found in world.cluster.storage.free("local").near(info) for name in found]
    assert sorted(near) == ["anywhere", "here"]
    world.cluster.storage.set_volume("here", None)
    near = [name for _, found in world.cluster.storage.free("local").near(info) for name in found]
    assert near == ["anywhere"]


def test_a_migrated_volume_is_where_its_drivers_label_says(world: World) -> None:
    zone = {"topology.kubernetes.io/zone": "z"}
    terms = csi.migrated_terms("kubernetes.io/aws-ebs", None, zone)
    assert terms is not None
    assert terms[0].matches("n", {"topology.ebs.csi.aws.com/zone": "z"})
    assert not terms[0].matches("n", zone)
    assert csi.migrated_terms("kubernetes.io/azure-disk", None, zone) is None


def test_a_volume_names_its_claim_unless_it_names_another() -> None:
    wanted, free = volumes.read_claim(claim("c")), volumes.read_volume(volume("v"))
    write = TakenVolume(claim=wanted, volume=free)
    step = write.next(write.known)
    assert isinstance(step, Step)
    assert write.next({"spec": step.body["spec"]}) is None
    other = {"spec": {"claimRef": {"namespace": "default", "name": "d"}}}
    assert write.next(other) == Impossible('persistentvolume "v" is taken')
    assert write.next(None) == Impossible('persistentvolume "v" is gone')


def test_a_claim_waits_for_its_volume_until_the_provisioner_gives_up() -> None:
    seen = claim("c", meta={"resourceVersion": "1"})
    write = BoundClaim(claim=volumes.read_claim(seen), node="n")
    step = write.next(write.known)
    assert isinstance(step, Step)
    marked = claim("c", meta={"resourceVersion": "2", **step.body["metadata"]})
    assert isinstance(write.next(marked), Wait)
    named = {**marked, "spec": {"volumeName": "v"}, "status": {"phase": "Bound"}}
    assert isinstance(write.next(named), Wait)
    done = {**marked["metadata"]["annotations"], "pv.kubernetes.io/bind-completed": "yes"}
    completed = {**named, "metadata": {**named["metadata"], "annotations": done}}
    assert write.next(completed) is None
    given_up = claim("c", meta={"resourceVersion": "3", "annotations": {}})
    assert write.next(given_up) == Impossible('no volume for persistentvolumeclaim "c" on n')
    another = claim("c", meta={"uid": "other"})
    assert write.next(another) == Impossible('persistentvolumeclaim "c" is gone')
