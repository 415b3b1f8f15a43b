"""Volumes, claims, classes and drivers."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.random_worlds.words import (
    APPS,
    BETA_ZONE,
    DRIVERS,
    HOST,
    NODES,
    ZONE,
    ZONES,
    some_hosts,
    tagged,
)

if TYPE_CHECKING:
    import random

    from tests.cluster.api import Object
    from tests.random_worlds.words import World


def add(chooser: random.Random, world: World) -> None:
    """What storage there is, and claims for the pods to come."""
    group = "/apis/storage.k8s.io/v1"
    for name in DRIVERS:
        spec = {"storageCapacity": name == DRIVERS[0], "attachRequired": True}
        world.objects.append((f"{group}/csidrivers", {"metadata": {"name": name}, "spec": spec}))
    world.objects += [(f"{group}/storageclasses", item) for item in _classes()]
    for number in range(NODES):
        world.objects.append((f"{group}/csinodes", csi_node(chooser, f"n{number}")))
    for number in range(6):
        path = f"{group}/namespaces/default/csistoragecapacities"
        world.objects.append((path, capacity(chooser, number)))
    _volumes(chooser, world)


def _classes() -> list[Object]:
    def made(name: str, driver: str, mode: str, zones: tuple[str, ...] = ()) -> Object:
        terms = [{"matchLabelExpressions": [{"key": ZONE, "values": list(zones)}]}]
        item = {"metadata": {"name": name}, "provisioner": driver, "volumeBindingMode": mode}
        return tagged(item, allowedTopologies=terms if zones else None)

    late = "WaitForFirstConsumer"
    return [
        made("now", DRIVERS[1], "Immediate"),
        made("late", DRIVERS[1], late),
        made("late-ab", DRIVERS[1], late, ("a", "b")),
        made("late-full", DRIVERS[0], late),
        made("by-hand", "kubernetes.io/no-provisioner", late),
    ]


def csi_node(chooser: random.Random, name: str) -> Object:
    """What the drivers on a node may attach."""
    drivers = [
        tagged(
            {"name": driver, "nodeID": name, "topologyKeys": [ZONE]},
            allocatable=chooser.choice((None, {"count": 1}, {"count": 3})),
        )
        for driver in (*DRIVERS, "ebs.csi.aws.com")
        if chooser.random() < 0.85
    ]
    migrated = {"storage.alpha.kubernetes.io/migrated-plugins": "kubernetes.io/aws-ebs"}
    metadata = tagged({"name": name}, annotations=migrated if chooser.random() < 0.7 else None)
    return {"metadata": metadata, "spec": {"drivers": drivers}}


def capacity(chooser: random.Random, number: int) -> Object:
    """What a driver has left in a zone."""
    zone = {"matchLabels": {ZONE: chooser.choice(ZONES)}}
    item = {
        "metadata": {"name": f"capacity-{number}"},
        "storageClassName": "late-full",
        "nodeTopology": zone,
        "capacity": chooser.choice(("1Gi", "10Gi", "100Gi")),
    }
    return tagged(item, maximumVolumeSize=chooser.choice((None, "5Gi")))


def _mode(*, exclusive: bool) -> list[str]:
    return ["ReadWriteOncePod" if exclusive else "ReadWriteOnce"]


def volume(
    chooser: random.Random, name: str, of: str, claim: str = "", *, exclusive: bool = False
) -> Object:
    """A volume of this class, for the claim if one is named."""
    spec: Object = {
        "capacity": {"storage": chooser.choice(("2Gi", "20Gi"))},
        "accessModes": _mode(exclusive=exclusive),
        "storageClassName": of,
        "persistentVolumeReclaimPolicy": "Retain",
    }
    if of == "by-hand":
        spec["local"] = {"path": "/mnt"}
    elif chooser.random() < 0.2:
        spec["awsElasticBlockStore"] = {"volumeID": f"aws://a/vol-{name}"}
    else:
        spec["csi"] = {"driver": chooser.choice(DRIVERS), "volumeHandle": name}
    if of == "by-hand" or chooser.random() < 0.6:
        wanted = chooser.choice(
            (
                {"key": ZONE, "operator": "In", "values": chooser.sample(ZONES, 2)},
                {"key": HOST, "operator": "In", "values": some_hosts(chooser)},
                {"key": HOST, "operator": "NotIn", "values": some_hosts(chooser)},
            )
        )
        spec["nodeAffinity"] = {"required": {"nodeSelectorTerms": [{"matchExpressions": [wanted]}]}}
    if claim:
        spec["claimRef"] = {"kind": "PersistentVolumeClaim", "namespace": "default", "name": claim}
    labels = {"app": chooser.choice(APPS)}
    if chooser.random() < 0.2:
        labels[chooser.choice((ZONE, BETA_ZONE))] = chooser.choice(("a", "b", "a__b", "none"))
    return {"metadata": {"name": name, "labels": labels}, "spec": spec}


def _volumes(chooser: random.Random, world: World) -> None:
    volumes, claims = (
        "/api/v1/persistentvolumes",
        "/api/v1/namespaces/default/persistentvolumeclaims",
    )
    for number in range(6):
        # The last one waits for a claim of that name.
        meant = "open-7" if number == 5 else ""
        world.objects.append((volumes, volume(chooser, f"free-{number}", "by-hand", meant)))
        world.statuses.append((f"{volumes}/free-{number}", {"phase": "Available"}))
    for number in range(8):
        # Bound ones refer to each other as the volume controller leaves them.
        name = f"bound-{number}"
        alone = number < 3
        made = volume(chooser, f"pv-{name}", "now", name, exclusive=alone)
        world.objects.append((volumes, made))
        bound = claim(chooser, name, "now", exclusive=alone)
        bound["spec"]["volumeName"] = f"pv-{name}"
        bound["metadata"]["annotations"] = {"pv.kubernetes.io/bind-completed": "yes"}
        world.objects.append((claims, bound))
    for number, of in enumerate(
        ("now", "late", "late-ab", "late-full", "by-hand", "none", "late-full", "by-hand")
    ):
        world.objects.append((claims, claim(chooser, f"open-{number}", of)))
    for number, of in enumerate(("by-hand", "late", "by-hand"), 8):
        item = claim(chooser, f"open-{number}", of)
        if number == 8:
            # The volume controller is to bind it.
            item["spec"]["volumeName"] = "free-0"
        else:
            chosen = {"volume.kubernetes.io/selected-node": some_hosts(chooser)[0]}
            item["metadata"]["annotations"] = chosen
        world.objects.append((claims, item))


def claim(chooser: random.Random, name: str, of: str, *, exclusive: bool = False) -> Object:
    """A claim of this class, unbound."""
    spec: Object = {
        "accessModes": _mode(exclusive=exclusive),
        "storageClassName": of,
        "resources": {"requests": {"storage": chooser.choice(("1Gi", "8Gi"))}},
    }
    if of == "by-hand" and chooser.random() < 0.5:
        spec["selector"] = {"matchLabels": {"app": chooser.choice(APPS)}}
    return {"metadata": {"name": name}, "spec": spec}
