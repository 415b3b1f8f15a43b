"""Pods with every field that a filter reads."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.random_worlds.devices import EXTENDED
from tests.random_worlds.storage import claim
from tests.random_worlds.words import (
    APPS,
    DRIVERS,
    EFFECTS,
    HOST,
    NAMESPACES,
    NODES,
    PATIENT,
    PUSHY,
    TAINTS,
    TIERS,
    ZONE,
    ZONES,
    some_hosts,
    tagged,
    taint_value,
)

if TYPE_CHECKING:
    import random

    from tests.cluster.api import Object
    from tests.random_worlds.words import World

_PORTS = (80, 443, 8080)
_ADDRESSES = ("", "0.0.0.0", "127.0.0.1", "10.0.0.1")

#: Pods that hold the claims that one pod at a time may use.
ALONE = {f"there-{number}": f"bound-{number}" for number in range(3)}

#: A runtime class with overhead, for some nodes.
HEAVY: Object = {
    "metadata": {"name": "heavy"},
    "handler": "heavy",
    "overhead": {"podFixed": {"cpu": "500m", "memory": "1Gi"}},
    "scheduling": {"nodeSelector": {"disk": "ssd"}},
}


def add_bound(chooser: random.Random, world: World, name: str) -> None:
    """A pod on a node, which may have ended or be about to."""
    pod = draw(chooser, name, waits=False)
    if name in ALONE:
        volume = {"name": "alone", "persistentVolumeClaim": {"claimName": ALONE[name]}}
        pod["metadata"]["namespace"] = "default"
        pod["spec"].setdefault("volumes", []).append(volume)
    pod["spec"]["nodeName"] = f"n{chooser.randrange(NODES)}"
    namespace = pod["metadata"]["namespace"]
    world.objects.append((f"/api/v1/namespaces/{namespace}/pods", pod))
    path = f"/api/v1/namespaces/{namespace}/pods/{name}"
    status = _running(chooser, pod)
    drawn = chooser.random()
    if drawn < 0.1:
        status["phase"] = chooser.choice(("Succeeded", "Failed"))
    elif drawn < 0.25:
        world.leaving.append(path)
    world.statuses.append((path, status))


def _running(chooser: random.Random, pod: Object) -> Object:
    """What a kubelet says of the pod, which may be about to be resized."""
    spec = pod["spec"]
    status: Object = {"phase": "Running"}
    if chooser.random() < 0.7:
        return status
    for key, boxes in (
        ("containerStatuses", spec["containers"]),
        ("initContainerStatuses", spec.get("initContainers", ())),
    ):
        status[key] = [_held(chooser, box) for box in boxes]
    if chooser.random() < 0.4:
        reason = chooser.choice(("Infeasible", "Deferred"))
        status["conditions"] = [{"type": "PodResizePending", "status": "True", "reason": reason}]
    return status


def _held(chooser: random.Random, box: Object) -> Object:
    asked = box.get("resources", {}).get("requests", {})

    def other() -> Object:
        return asked | ({"cpu": chooser.choice(("100m", "2"))} if "cpu" in asked else {})

    return {
        "name": box["name"], "image": "pause", "imageID": "", "ready": True, "restartCount": 0,
        "resources": {"requests": other()}, "allocatedResources": other(),
    }  # fmt: skip


def draw(chooser: random.Random, name: str, *, waits: bool) -> Object:
    """A pod; one that waits asks for more."""
    labels = {"app": chooser.choice(APPS)}
    if chooser.random() < 0.7:
        labels["tier"] = chooser.choice(TIERS)
    container: Object = {"name": "main", "image": "registry.k8s.io/pause"}
    requests = _requests(chooser, waits=waits)
    if requests:
        container["resources"] = {"requests": requests}
        if limits := {name: requests[name] for name in requests if name.startswith("example")}:
            container["resources"]["limits"] = limits
    ports = _ports(chooser)
    if ports:
        container["ports"] = ports
    spec: Object = {"containers": [container], "terminationGracePeriodSeconds": 3600}
    if waits:
        spec["priorityClassName"] = chooser.choice((PATIENT, PUSHY))
    elif chooser.random() < 0.7:
        spec["priorityClassName"] = chooser.choice(("low", "low", "middle", "high"))
    affinity: Object = {}
    rare = 0.12 if waits else 0.06
    if waits and chooser.random() < 0.25:
        affinity["nodeAffinity"] = _node_affinity(chooser)
    if chooser.random() < rare:
        affinity["podAffinity"] = _inter_pod(chooser)
    if chooser.random() < rare:
        affinity["podAntiAffinity"] = _inter_pod(chooser)
    spec |= tagged(
        {},
        affinity=affinity,
        nodeSelector=_node_selector(chooser) if waits else None,
        tolerations=_tolerations(chooser),
        topologySpreadConstraints=_spread(chooser) if waits else None,
        volumes=_pod_volumes(chooser, waits=waits),
        initContainers=_init_containers(chooser),
    )
    if waits and chooser.random() < 0.05:
        spec["runtimeClassName"] = "heavy"
        spec.pop("nodeSelector", None)
    if chooser.random() < 0.1:
        spec["resources"] = {"requests": {"cpu": chooser.choice(("1", "6")), "memory": "6Gi"}}
        for each in (container, *spec.get("initContainers", ())):
            for resource in ("example.com/card", EXTENDED):
                each.get("resources", {}).get("requests", {}).pop(resource, None)
            each.get("resources", {}).pop("limits", None)
    if waits and chooser.random() < 0.15:
        claims = chooser.sample(range(10), chooser.choice((1, 1, 2)))
        spec["resourceClaims"] = [
            {"name": f"c{each}", "resourceClaimName": f"claim-{each}"} for each in claims
        ]
    namespace = chooser.choice(("default", "default", "default", "blue", "red"))
    if spec.get("volumes") or spec.get("resourceClaims"):
        namespace = "default"
    return {"metadata": {"name": name, "namespace": namespace, "labels": labels}, "spec": spec}


def _requests(chooser: random.Random, *, waits: bool = False) -> dict[str, str]:
    out = {}
    if chooser.random() < 0.7:
        out["cpu"] = chooser.choice(("100m", "500m", "1", "2"))
    if chooser.random() < 0.6:
        out["memory"] = chooser.choice(("64Mi", "1Gi", "3Gi"))
    if chooser.random() < 0.1:
        out["ephemeral-storage"] = chooser.choice(("1Gi", "8Gi"))
    if chooser.random() < 0.1:
        out["example.com/card"] = chooser.choice(("1", "2"))
    if waits and chooser.random() < 0.08:
        out[EXTENDED] = chooser.choice(("1", "2"))
    return out


def _init_containers(chooser: random.Random) -> list[Object]:
    out = []
    for number in range(chooser.choice((0, 0, 0, 0, 1, 2))):
        item: Object = {"name": f"init-{number}", "image": "registry.k8s.io/pause"}
        requests = _requests(chooser)
        requests.pop("example.com/card", None)
        if requests:
            item["resources"] = {"requests": requests}
        if chooser.random() < 0.5:
            item["restartPolicy"] = "Always"
            if ports := _ports(chooser):
                item["ports"] = ports
        out.append(item)
    return out


def _ports(chooser: random.Random) -> list[Object]:
    if chooser.random() > 0.15:
        return []
    number = chooser.choice(_PORTS)
    return [
        tagged(
            {"containerPort": number, "hostPort": number},
            hostIP=chooser.choice(_ADDRESSES),
            protocol=chooser.choice((None, "TCP", "UDP")),
        )
    ]


def _node_selector(chooser: random.Random) -> dict[str, str] | None:
    if chooser.random() > 0.15:
        return None
    return chooser.choice(({"disk": "ssd"}, {"disk": ""}, {ZONE: "a"}, {"disk": "hdd", ZONE: "b"}))


def _node_expression(chooser: random.Random) -> Object:
    key, values = chooser.choice((("disk", ("ssd", "hdd", "")), (ZONE, ZONES), ("none", ("x",))))
    operator = chooser.choice(("In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt"))
    if operator in ("Gt", "Lt"):
        return {
            "key": chooser.choice(("rank", "rank", "disk")),
            "operator": operator,
            "values": [str(chooser.randrange(9))],
        }
    item: Object = {"key": key, "operator": operator}
    if operator in ("In", "NotIn"):
        item["values"] = chooser.sample(values, chooser.randrange(1, len(values) + 1))
    return item


def _node_term(chooser: random.Random) -> Object:
    term: Object = {
        "matchExpressions": [_node_expression(chooser) for _ in range(chooser.choice((0, 1, 1, 2)))]
    }
    if chooser.random() < 0.25:
        operator = chooser.choice(("In", "NotIn"))
        wanted = {"key": "metadata.name", "operator": operator, "values": [some_hosts(chooser)[0]]}
        term["matchFields"] = [wanted]
    return term


def _node_affinity(chooser: random.Random) -> Object:
    terms = [_node_term(chooser) for _ in range(chooser.choice((1, 1, 2)))]
    return {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}


def _selector(chooser: random.Random) -> Object | None:
    drawn = chooser.random()
    if drawn < 0.05:
        return {}
    if drawn < 0.1:
        return None
    if drawn < 0.6:
        return {"matchLabels": {"app": chooser.choice(APPS)}}
    operator = chooser.choice(("In", "NotIn", "Exists", "DoesNotExist"))
    item: Object = {"key": "tier", "operator": operator}
    if operator in ("In", "NotIn"):
        item["values"] = chooser.sample(TIERS, chooser.choice((1, 2)))
    return {"matchLabels": {"app": chooser.choice(APPS)}, "matchExpressions": [item]}


def _inter_pod(chooser: random.Random) -> Object:
    return {
        "requiredDuringSchedulingIgnoredDuringExecution": [
            _pod_term(chooser) for _ in range(chooser.choice((1, 1, 1, 2)))
        ]
    }


def _pod_term(chooser: random.Random) -> Object:
    term: Object = {"topologyKey": chooser.choice((HOST, ZONE, ZONE, "disk"))}
    selector = _selector(chooser)
    if selector is not None:
        term["labelSelector"] = selector
        if chooser.random() < 0.15:
            term[chooser.choice(("matchLabelKeys", "mismatchLabelKeys"))] = ["tier"]
            selector["matchExpressions"] = []
    drawn = chooser.random()
    if drawn < 0.15:
        term["namespaces"] = chooser.sample(sorted(NAMESPACES), 2)
    elif drawn < 0.3:
        term["namespaceSelector"] = chooser.choice(
            (
                {},
                {"matchLabels": {"team": "blue"}},
                {"matchExpressions": [{"key": "env", "operator": "DoesNotExist"}]},
            )
        )
        if chooser.random() < 0.3:
            term["namespaces"] = ["red"]
    return term


def _spread(chooser: random.Random) -> list[Object]:
    out = []
    for key in chooser.sample((HOST, ZONE, "disk"), chooser.choice((0, 0, 0, 0, 1, 1, 2))):
        item: Object = {
            "topologyKey": key,
            "maxSkew": chooser.choice((1, 1, 2)),
            "whenUnsatisfiable": chooser.choice(
                ("DoNotSchedule", "DoNotSchedule", "ScheduleAnyway")
            ),
        }
        selector = _selector(chooser)
        if selector is not None:
            item["labelSelector"] = selector
            if chooser.random() < 0.2:
                item["matchLabelKeys"] = ["tier"]
                selector["matchExpressions"] = []
        if item["whenUnsatisfiable"] == "DoNotSchedule":
            item |= tagged({}, minDomains=chooser.choice((None, None, 2, 5)))
        item |= tagged(
            {},
            nodeAffinityPolicy=chooser.choice((None, None, "Ignore", "Honor")),
            nodeTaintsPolicy=chooser.choice((None, None, "Ignore", "Honor")),
        )
        out.append(item)
    return out


def _tolerations(chooser: random.Random) -> list[Object]:
    out = []
    for _ in range(chooser.choice((0, 0, 1, 2))):
        key = chooser.choice((*TAINTS, "", "node.kubernetes.io/unschedulable"))
        item = tagged({"operator": "Exists"}, key=key, effect=chooser.choice((None, *EFFECTS)))
        if key and chooser.random() < 0.6:
            item = tagged(item | {"operator": "Equal"}, value=taint_value(chooser, key))
        out.append(item)
    return out


def _disk(chooser: random.Random) -> Object:
    """A disk that not everybody may use at once."""
    number, kind = chooser.randrange(2), chooser.randrange(4)
    read_only = {"readOnly": True} if chooser.random() < 0.5 else {}
    if kind == 0:
        return {"gcePersistentDisk": {"pdName": f"disk-{number}", **read_only}}
    if kind == 1:
        return {"awsElasticBlockStore": {"volumeID": f"disk-{number}", **read_only}}
    if kind == 2:
        place = {"targetPortal": "10.0.0.9:3260", "iqn": f"iqn.2001-04.com.example:{number}"}
        return {"iscsi": {**place, "lun": chooser.randrange(2), **read_only}}
    monitors = chooser.choice((["m1", "m2"], ["m2"], ["m3"]))
    return {"rbd": {"monitors": monitors, "image": f"disk-{number}", **read_only}}


def _pod_volumes(chooser: random.Random, *, waits: bool) -> list[Object]:
    drawn = chooser.random()
    if drawn > 0.22:
        return []
    if drawn < 0.06:
        return [{"name": "shared", **_disk(chooser)}]
    if drawn < 0.09:
        return [{"name": "inline", "csi": {"driver": chooser.choice(DRIVERS)}}]
    if drawn < 0.12 and waits:
        template = {"spec": claim(chooser, "own", "late")["spec"]}
        return [{"name": "own", "ephemeral": {"volumeClaimTemplate": template}}]
    claims = [f"bound-{number}" for number in range(3, 8)]
    if waits:
        claims += ALONE.values()
        claims += [f"open-{number}" for number in range(11)] + ["missing"]
    chosen = chooser.sample(claims, chooser.choice((1, 1, 2)))
    return [{"name": each, "persistentVolumeClaim": {"claimName": each}} for each in chosen]
