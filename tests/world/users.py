"""What users and other programs do: acts that are no faults."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Any

from rte.sim.apiserver import DeleteOptions, StatusError
from rte.sim.demo.cluster import CLAIM_TEMPLATE
from tests.world.acts import act
from tests.world.cluster import GPU

if TYPE_CHECKING:
    import random

    from tests.world.cluster import World

_GROUP = "scheduling.k8s.io/v1beta1"


def pod(
    name: str, cpu: str, memory: str, seconds: float, *, priority: int = 0, gpu: int = 0
) -> dict[str, Any]:
    """A pod of one container that ends by itself."""
    amounts = {"cpu": cpu, "memory": memory}
    if gpu:
        amounts[GPU] = str(gpu)
    shared = cpu.endswith("m")
    return {
        "metadata": {"name": name, "labels": {"app": name.partition("-")[0]}},
        "spec": {
            "schedulerName": "rte-scheduler",
            "restartPolicy": "Never",
            "terminationGracePeriodSeconds": 2,
            **({"priority": priority, "priorityClassName": _CLASS[priority]} if priority else {}),
            "containers": [
                {
                    "name": "main",
                    "image": "app:1",
                    "command": ["sleep", f"{seconds:g}" if seconds else "infinity"],
                    "resources": {"requests": amounts, **({} if shared else {"limits": amounts})},
                }
            ],
        },
    }


_CLASS = {1000: "urgent"}


def _draw_amounts(chance: random.Random) -> dict[str, Any]:
    if chance.random() < 0.2:
        return {"cpu": chance.choice(("200m", "900m")), "memory": "500Mi"}
    return {
        "cpu": chance.choice(("1", "2", "2", "3", "4", "4", "6")),
        "memory": f"{chance.choice((1, 2, 4, 8))}Gi",
    }


def _draw_pods(chance: random.Random) -> dict[str, Any]:
    return {
        "count": chance.choice((1, 1, 2, 4, 8)),
        **_draw_amounts(chance),
        "seconds": round(chance.choice((5, 20, 60, 180)) * chance.uniform(0.5, 1.5), 1),
        "gpu": int(chance.random() < 0.15),
        "priority": 1000 if chance.random() < 0.05 else 0,
    }


@act("pods", draw=_draw_pods, weight=30)
def make_pods(
    world: World,
    *,
    number: int,
    count: int,
    cpu: str,
    memory: str,
    seconds: float,
    gpu: int = 0,
    priority: int = 0,
) -> None:
    """Pods that end by themselves."""
    if world.waiting_pods() + count > 60:
        return
    if priority:
        with suppress(StatusError):
            world.api.create(
                "priorityclasses", {"metadata": {"name": _CLASS[priority]}, "value": priority}
            )
    for one in range(count):
        made = pod(f"p{number}-{one}", cpu, memory, seconds, priority=priority, gpu=gpu)
        with suppress(StatusError):
            world.api.create("pods", made, "default")


def _draw_gang(chance: random.Random) -> dict[str, Any]:
    return {
        "count": chance.choice((2, 3, 4)),
        "cpu": chance.choice(("2", "3", "4")),
        "seconds": round(chance.uniform(20, 90), 1),
    }


@act("gang", draw=_draw_gang, weight=4)
def make_gang(world: World, *, number: int, count: int, cpu: str, seconds: float) -> None:
    """A PodGroup and its pods."""
    if world.waiting_pods() + count > 60:
        return
    name = f"g{number}"
    group = {
        "apiVersion": _GROUP,
        "kind": "PodGroup",
        "metadata": {"name": name},
        "spec": {"schedulingPolicy": {"gang": {"minCount": count}}},
    }
    with suppress(StatusError):
        world.api.create("podgroups", group, "default")
    for one in range(count):
        made = pod(f"{name}-{one}", cpu, "1Gi", seconds)
        made["spec"]["schedulingGroup"] = {"podGroupName": name}
        with suppress(StatusError):
            world.api.create("pods", made, "default")


def _draw_claiming(chance: random.Random) -> dict[str, Any]:
    return {"seconds": round(chance.uniform(10, 60), 1), "count": chance.choice((1, 1, 2, 4))}


@act("claiming", draw=_draw_claiming, weight=5)
def make_claiming(world: World, *, number: int, seconds: float, count: int = 1) -> None:
    """Pods with a GPU of DRA each."""
    if world.waiting_pods() + count > 60:
        return
    for one in range(count):
        made = pod(f"d{number}-{one}", "2", "1Gi", seconds)
        claim = {"name": "gpu", "resourceClaimTemplateName": CLAIM_TEMPLATE}
        made["spec"]["resourceClaims"] = [claim]
        made["spec"]["containers"][0]["resources"]["claims"] = [{"name": "gpu"}]
        with suppress(StatusError):
            world.api.create("pods", made, "default")


def _draw_deployment(chance: random.Random) -> dict[str, Any]:
    return {
        "which": chance.randrange(3),
        "replicas": chance.randrange(6),
        "cpu": chance.choice(("1", "2", "3")),
    }


@act("deployment", draw=_draw_deployment, weight=6)
def scale_deployment(world: World, *, number: int, which: int, replicas: int, cpu: str) -> None:
    """A Deployment is made, or has another size from now on."""
    name = f"web{which}"
    labels = {"app": name}
    template = pod(name, cpu, "1Gi", 0)
    template["spec"]["restartPolicy"] = "Always"
    made = {
        "metadata": {"name": name},
        "spec": {
            "replicas": replicas,
            "selector": {"matchLabels": labels},
            "template": {"metadata": {"labels": labels}, "spec": template["spec"]},
        },
    }
    with suppress(StatusError):
        if world.api.store.get("deployments.apps", ("default", name)) is None:
            world.api.create("deployments", made, "default")
        else:
            world.api.patch("deployments", name, {"spec": {"replicas": replicas}}, "default")


@act("job", draw=lambda c: {"count": c.choice((1, 3, 5)), "cpu": c.choice(("1", "2"))}, weight=4)
def make_job(world: World, *, number: int, count: int, cpu: str) -> None:
    """A Job."""
    template = pod("job", cpu, "1Gi", 15.0)["spec"]
    made = {
        "metadata": {"name": f"job{number}"},
        "spec": {
            "completions": count,
            "parallelism": 2,
            "template": {"metadata": {"labels": {"app": "job"}}, "spec": template},
        },
    }
    with suppress(StatusError):
        world.api.create("jobs", made, "default")


@act("delete", draw=lambda c: {"place": c.random(), "force": c.random() < 0.2}, weight=10)
def delete_pod(world: World, *, number: int, place: float, force: bool) -> None:
    """Somebody deletes a pod."""
    pods = [obj for _, obj in world.api.store.items("pods", namespace="default")]
    if pods:
        one = pods[int(place * len(pods))]
        options = DeleteOptions(grace=0) if force else None
        if force:
            world.upset(one["spec"].get("nodeName"), "a pod was deleted by force")
        with suppress(StatusError):
            world.api.delete("pods", one["metadata"]["name"], "default", options)


@act("foreign", draw=lambda c: {"place": c.random(), "cpu": c.choice(("1", "200m"))}, weight=3)
def bind_foreign(world: World, *, number: int, place: float, cpu: str) -> None:
    """Another scheduler binds a pod, as a DaemonSet's."""
    name = list(world.nodes)[int(place * len(world.nodes))]
    made = pod(f"f{number}-0", cpu, "200Mi", 60.0)
    made["spec"]["schedulerName"] = "default-scheduler"
    made["spec"]["nodeName"] = name
    world.upset(name, "another scheduler has bound a pod there")
    with suppress(StatusError):
        world.api.create("pods", made, "default")


@act("cordon", draw=lambda c: {"place": c.random(), "on": c.random() < 0.4}, weight=2)
def cordon(world: World, *, number: int, place: float, on: bool) -> None:
    """A node takes no pods, or does again."""
    name = list(world.nodes)[int(place * len(world.nodes))]
    with suppress(StatusError):
        world.api.patch("nodes", name, {"spec": {"unschedulable": on or None}})


@act("sweep", draw=lambda c: {}, weight=3)
def sweep(world: World, *, number: int) -> None:
    """Pods that have ended are deleted."""
    for (namespace, name), obj in list(world.api.store.items("pods")):
        if obj["status"].get("phase") in ("Succeeded", "Failed"):
            with suppress(StatusError):
                world.api.delete("pods", name, namespace)
