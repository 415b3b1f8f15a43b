"""Devices of DRA, and claims of which some are allocated."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.random_worlds.words import NODES, ZONE

if TYPE_CHECKING:
    import random

    from tests.cluster.api import Object
    from tests.random_worlds.words import World

_DEVICES = "/apis/resource.k8s.io/v1"
_GPU = "gpu.example.com"

#: A resource of containers that device plugins serve on some nodes, and devices on others.
EXTENDED = "example.com/gpu"


def add(chooser: random.Random, world: World) -> None:
    """Slices of most nodes and of a rack, classes and claims."""
    put = world.objects.append
    for name, expression in (
        ("gpu", f"device.driver == '{_GPU}'"),
        ("large", f"device.capacity['{_GPU}'].memory.compareTo(quantity('40Gi')) >= 0"),
    ):
        spec = {"selectors": [{"cel": {"expression": expression}}]}
        put((f"{_DEVICES}/deviceclasses", {"metadata": {"name": name}, "spec": spec}))
    spec = {"selectors": [{"cel": {"expression": "true"}}], "extendedResourceName": EXTENDED}
    put((f"{_DEVICES}/deviceclasses", {"metadata": {"name": "extended"}, "spec": spec}))
    free: list[tuple[str, str]] = []
    for number in range(NODES):
        if chooser.random() < 0.6:
            for made in slices_of(chooser, f"n{number}"):
                put((f"{_DEVICES}/resourceslices", made))
                held = [each for each in made["spec"].get("devices", ()) if _is_whole(each)]
                free += [(f"n{number}", device["name"]) for device in held]
    spec = {"driver": _GPU, "devices": [_device(chooser, each) for each in range(2)]}
    spec["pool"] = {"name": "rack", "generation": 1, "resourceSliceCount": 1}
    wanted = {"key": ZONE, "operator": "In", "values": ["a"]}
    spec["nodeSelector"] = {"nodeSelectorTerms": [{"matchExpressions": [wanted]}]}
    put((f"{_DEVICES}/resourceslices", {"metadata": {"name": "s-rack"}, "spec": spec}))
    chooser.shuffle(free)
    for number in range(10):
        held = number < 5
        claim = {"metadata": {"name": f"claim-{number}"}, "spec": _asks(chooser, simple=held)}
        path = f"{_DEVICES}/namespaces/default/resourceclaims"
        put((path, claim))
        if held and free:
            world.statuses.append((f"{path}/claim-{number}", _allocated(*free.pop())))


def slices_of(chooser: random.Random, node: str) -> list[Object]:
    """The devices of a node; some are parts of one, which has so much of something."""
    devices = [_device(chooser, each) for each in range(chooser.choice((1, 2, 4)))]
    counters: list[Object] = []
    if chooser.random() < 0.3:
        has = {"slots": {"value": "4"}}
        counters = [{"sharedCounters": [{"name": "board", "counters": has}]}]
        for device in devices:
            used = {"slots": {"value": chooser.choice(("1", "2", "3"))}}
            device["consumesCounters"] = [{"counterSet": "board", "counters": used}]
    pool = {"name": node, "generation": 1, "resourceSliceCount": 1 + len(counters)}
    parts: list[Object] = [{"devices": devices}, *counters]
    return [
        {
            "metadata": {"name": f"s-{node}-{number}"},
            "spec": {"driver": _GPU, "nodeName": node, "pool": pool, **part},
        }
        for number, part in enumerate(parts)
    ]


def _device(chooser: random.Random, number: int) -> Object:
    item: Object = {
        "name": f"gpu-{number}",
        "attributes": {
            "model": {"string": chooser.choice(("x1", "x2"))},
            "numa": {"int": chooser.randrange(2)},
            "driver": {"version": chooser.choice(("1.2.3", "2.0.0"))},
            "fast": {"bool": chooser.random() < 0.5},
        },
        "capacity": {"memory": {"value": chooser.choice(("20Gi", "40Gi", "80Gi"))}},
    }
    if chooser.random() < 0.2:
        item["allowMultipleAllocations"] = True
        policy = {"default": "10Gi", "validRange": {"min": "5Gi", "step": "5Gi"}}
        item["capacity"]["memory"]["requestPolicy"] = policy
    if chooser.random() < 0.1:
        item["taints"] = [{"key": "broken", "effect": "NoSchedule"}]
    return item


def _is_whole(device: Object) -> bool:
    """Whether a claim has all of it."""
    return "allowMultipleAllocations" not in device and "consumesCounters" not in device


def _allocated(node: str, device: str) -> Object:
    wanted = {"key": "metadata.name", "operator": "In", "values": [node]}
    result = {"request": "it", "driver": _GPU, "pool": node, "device": device}
    return {
        "allocation": {
            "devices": {"results": [result]},
            "nodeSelector": {"nodeSelectorTerms": [{"matchFields": [wanted]}]},
        },
        # What nobody holds kube-scheduler gives back for a pod that fits nowhere.
        "reservedFor": [{"resource": "pods", "name": "holder", "uid": "holder"}],
    }


def _asks(chooser: random.Random, *, simple: bool) -> Object:
    def exactly() -> Object:
        item: Object = {"deviceClassName": chooser.choice(("gpu", "gpu", "large", "missing"))}
        if chooser.random() < 0.2:
            item["allocationMode"] = "All"
        else:
            item |= {"allocationMode": "ExactCount", "count": chooser.choice((1, 1, 2))}
        if chooser.random() < 0.4:
            attribute = f"device.attributes['{_GPU}']"
            texts = (
                f"{attribute}.model == 'x1'",
                f"{attribute}.numa == 0",
                f"{attribute}.none > 1",
            )
            item["selectors"] = [{"cel": {"expression": chooser.choice(texts)}}]
        if chooser.random() < 0.3:
            amount = chooser.choice(("5Gi", "12Gi", "30Gi"))
            item["capacity"] = {"requests": {"memory": amount}}
        if chooser.random() < 0.2:
            item["tolerations"] = [{"key": "broken", "operator": "Exists"}]
        return item

    if simple:
        return {"devices": {"requests": [{"name": "it", "exactly": {"deviceClassName": "gpu"}}]}}
    requests: list[Object] = []
    for number in range(chooser.choice((1, 1, 2))):
        if chooser.random() < 0.25:
            several = [{"name": f"try-{each}", **exactly()} for each in range(2)]
            requests.append({"name": f"r{number}", "firstAvailable": several})
        else:
            requests.append({"name": f"r{number}", "exactly": exactly()})
    spec: Object = {"requests": requests}
    if chooser.random() < 0.4:
        rule = chooser.choice(("matchAttribute", "distinctAttribute"))
        spec["constraints"] = [{rule: f"{_GPU}/{chooser.choice(('numa', 'model'))}"}]
    return {"devices": spec}
