"""Deployments, ReplicaSets, Jobs, garbage and namespaces, step by step without waiting."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from rte.sim.apiserver import API, DeleteOptions, StatusError
from rte.sim.controllers.daemonsets import DaemonSets
from rte.sim.controllers.deployments import Deployments
from rte.sim.controllers.garbage import Garbage
from rte.sim.controllers.jobs import Jobs
from rte.sim.controllers.namespaces import Namespaces
from rte.sim.controllers.replicasets import ReplicaSets
from rte.sim.controllers.statefulsets import StatefulSets

LABELS = {"app": "web"}


class World:
    """An API, its controllers and a clock."""

    def __init__(self) -> None:
        self.now = datetime(2026, 1, 1, tzinfo=UTC)
        self.api = API(clock=lambda: self.now)
        kinds = (
            Deployments, ReplicaSets, DaemonSets, StatefulSets, Jobs, Garbage, Namespaces,
        )  # fmt: skip
        self.controllers = [kind(self.api) for kind in kinds]

    def settle(self) -> list[float]:
        """Let all work until nothing changes; when they want to look again."""
        before = -1
        while before != self.api.store.revision:
            before = self.api.store.revision
            due = [each.sync() for each in self.controllers]
        return [seconds for seconds in due if seconds]

    def pods(self, *phases: str) -> list[dict[str, Any]]:
        found = self.api.list("pods").items
        return [pod for pod in found if not phases or pod["status"]["phase"] in phases]

    def set(self, pod: dict[str, Any], phase: str) -> None:
        ready = {"type": "Ready", "status": str(phase == "Running")}
        now = self.now.strftime("%Y-%m-%dT%H:%M:%SZ")
        body = {"status": {"phase": phase, "conditions": [{**ready, "lastTransitionTime": now}]}}
        name = pod["metadata"]["name"]
        self.api.patch("pods", name, body, "default", subresource="status")

    def run_all(self) -> None:
        for pod in self.pods("Pending"):
            self.set(pod, "Running")
        self.settle()

    def deploy(self, replicas: int = 3, **more: Any) -> None:
        container = {"name": "c", "image": "i:1"}
        template = {"metadata": {"labels": LABELS}, "spec": {"containers": [container]}}
        spec = {"replicas": replicas, "selector": {"matchLabels": LABELS}, "template": template}
        body = {"metadata": {"name": "web"}, "spec": {**spec, **more}}
        self.api.create("deployments", body, "default")
        self.settle()

    def deployment(self) -> dict[str, Any]:
        return self.api.get("deployments", "web", "default")

    def change(self, **spec: Any) -> None:
        self.api.patch("deployments", "web", {"spec": spec}, "default")
        self.settle()

    def image(self, name: str) -> None:
        self.change(template={"spec": {"containers": [{"name": "c", "image": name}]}})

    def job(self, **spec: Any) -> None:
        container = {"name": "c", "image": "i"}
        template = {"spec": {"restartPolicy": "Never", "containers": [container]}}
        body = {"metadata": {"name": "work"}, "spec": {"template": template, **spec}}
        self.api.create("jobs", body, "default")
        self.settle()

    def job_status(self) -> dict[str, Any]:
        return self.api.get("jobs", "work", "default")["status"]

    def conditions(self) -> list[str]:
        told = self.job_status().get("conditions") or ()
        return [one["type"] for one in told if one["status"] == "True"]


@pytest.fixture
def world() -> World:
    return World()


def test_a_deployment_makes_pods_through_a_replica_set(world: World) -> None:
    world.deploy(3)
    (each,) = world.api.list("replicasets").items
    assert each["metadata"]["ownerReferences"][0]["name"] == "web"
    owners = {pod["metadata"]["ownerReferences"][0]["uid"] for pod in world.pods()}
    assert owners == {each["metadata"]["uid"]}
    assert len(world.pods()) == 3
    told = world.deployment()
    assert told["status"]["observedGeneration"] == told["metadata"]["generation"] == 1
    assert told["status"]["unavailableReplicas"] == 3
    world.run_all()
    told = world.deployment()["status"]
    assert (told["readyReplicas"], told["availableReplicas"], told["updatedReplicas"]) == (3, 3, 3)
    assert {one["type"]: one["status"] for one in told["conditions"]} == {
        "Available": "True", "Progressing": "True",
    }  # fmt: skip


@pytest.mark.parametrize("phase", ["Failed", "Succeeded"])
def test_an_ended_pod_is_replaced(world: World, phase: str) -> None:
    world.deploy(2)
    world.run_all()
    world.set(world.pods()[0], phase)
    world.settle()
    assert len(world.pods("Pending", "Running")) == 2


def test_scaling_down_takes_what_serves_least(world: World) -> None:
    world.deploy(3)
    serving = world.pods()[1]
    world.set(serving, "Running")
    world.settle()
    world.change(replicas=1)
    assert [pod["metadata"]["name"] for pod in world.pods()] == [serving["metadata"]["name"]]


def test_a_rollout_never_falls_below_what_must_serve(world: World) -> None:
    world.deploy(4)
    world.run_all()
    world.image("i:2")
    steps = 0
    while world.deployment()["status"].get("updatedReplicas", 0) < 4 or world.pods("Pending"):
        told = world.deployment()["status"]
        assert told["replicas"] <= 5
        assert told.get("availableReplicas", 0) >= 3
        world.set(world.pods("Pending")[0], "Running")
        world.settle()
        steps += 1
        assert steps < 10
    images = {pod["spec"]["containers"][0]["image"] for pod in world.pods()}
    assert images == {"i:2"}
    revision = world.deployment()["metadata"]["annotations"]["deployment.kubernetes.io/revision"]
    assert revision == "2"


def test_going_back_uses_the_old_replica_set_again(world: World) -> None:
    world.deploy(1)
    world.run_all()
    first = world.api.list("replicasets").items[0]["metadata"]["name"]
    world.image("i:2")
    world.run_all()
    world.image("i:1")
    world.run_all()
    sizes = {
        each["metadata"]["name"]: each["spec"]["replicas"]
        for each in world.api.list("replicasets").items
    }
    assert sizes[first] == 1
    assert sum(sizes.values()) == 1


def test_recreate_starts_nothing_before_all_is_gone(world: World) -> None:
    world.deploy(2, strategy={"type": "Recreate"})
    world.run_all()
    assert len(world.pods("Running")) == 2
    world.image("i:2")
    assert {pod["spec"]["containers"][0]["image"] for pod in world.pods()} == {"i:2"}


def test_a_paused_deployment_keeps_its_pods(world: World) -> None:
    world.deploy(1)
    world.change(paused=True)
    world.image("i:2")
    assert {pod["spec"]["containers"][0]["image"] for pod in world.pods()} == {"i:1"}
    world.change(paused=None)
    world.run_all()
    assert {pod["spec"]["containers"][0]["image"] for pod in world.pods()} == {"i:2"}


def test_a_rollout_without_progress_is_told(world: World) -> None:
    world.deploy(1, progressDeadlineSeconds=60)
    (seconds,) = world.settle()
    assert seconds == 60
    world.now += timedelta(seconds=61)
    world.settle()
    told = {one["type"]: one for one in world.deployment()["status"]["conditions"]}
    assert told["Progressing"]["reason"] == "ProgressDeadlineExceeded"
    world.run_all()
    told = {one["type"]: one for one in world.deployment()["status"]["conditions"]}
    assert told["Progressing"]["reason"] == "NewReplicaSetAvailable"


def test_a_pod_is_available_after_its_time(world: World) -> None:
    world.deploy(1, minReadySeconds=30)
    world.run_all()
    assert "availableReplicas" not in world.deployment()["status"]
    assert 30 in world.settle()
    world.now += timedelta(seconds=31)
    world.settle()
    assert world.deployment()["status"]["availableReplicas"] == 1


def test_old_replica_sets_are_forgotten(world: World) -> None:
    world.deploy(1, revisionHistoryLimit=2)
    for number in range(2, 7):
        world.image(f"i:{number}")
        world.run_all()
    assert len(world.api.list("replicasets").items) == 3


@pytest.mark.parametrize(
    ("policy", "left"), [("Background", 0), ("Foreground", 0), ("Orphan", 2), (None, 0)]
)
def test_what_is_owned_goes_as_the_deletion_says(world: World, policy: str, left: int) -> None:
    world.deploy(2)
    world.api.delete("deployments", "web", "default", DeleteOptions(propagation=policy))
    world.settle()
    assert len(world.pods()) == left
    assert world.api.list("deployments").items == []
    assert len(world.api.list("replicasets").items) == (1 if left else 0)


def test_a_job_ends_when_enough_have_succeeded(world: World) -> None:
    world.job(completions=3, parallelism=2)
    assert len(world.pods()) == 2
    for _ in range(3):
        world.set(world.pods("Pending")[0], "Succeeded")
        world.settle()
    assert world.conditions() == ["SuccessCriteriaMet", "Complete"]
    assert world.job_status()["succeeded"] == 3
    assert "completionTime" in world.job_status()
    assert all("finalizers" not in pod["metadata"] for pod in world.pods())


def test_failures_are_tried_again_up_to_a_limit(world: World) -> None:
    world.job(backoffLimit=1)
    world.set(world.pods()[0], "Failed")
    world.settle()
    assert len(world.pods("Pending")) == 1
    world.set(world.pods("Pending")[0], "Failed")
    world.settle()
    assert world.conditions() == ["FailureTarget", "Failed"]
    assert world.job_status()["failed"] == 2
    assert world.pods("Pending") == []


def test_an_indexed_job_has_each_index_once(world: World) -> None:
    world.job(completions=3, parallelism=3, completionMode="Indexed")
    index = "batch.kubernetes.io/job-completion-index"
    assert sorted(pod["metadata"]["labels"][index] for pod in world.pods()) == ["0", "1", "2"]
    for pod in world.pods():
        world.set(pod, "Failed" if pod["metadata"]["labels"][index] == "1" else "Succeeded")
    world.settle()
    assert world.job_status()["completedIndexes"] == "0,2"
    (again,) = world.pods("Pending")
    assert again["metadata"]["labels"][index] == "1"
    world.set(again, "Succeeded")
    world.settle()
    assert world.job_status()["completedIndexes"] == "0-2"
    assert "Complete" in world.conditions()


def test_a_suspended_job_has_no_pods(world: World) -> None:
    world.job(suspend=True)
    assert world.pods() == []
    assert world.conditions() == ["Suspended"]
    world.api.patch("jobs", "work", {"spec": {"suspend": False}}, "default")
    world.settle()
    assert len(world.pods()) == 1
    assert world.conditions() == []


def test_a_job_ends_at_its_deadline_and_goes_after_its_time(world: World) -> None:
    world.job(activeDeadlineSeconds=10, ttlSecondsAfterFinished=20)
    assert world.settle() == [10]
    world.now += timedelta(seconds=11)
    world.settle()
    assert world.conditions() == ["FailureTarget", "Failed"]
    assert world.settle() == [20]
    world.now += timedelta(seconds=21)
    world.settle()
    assert world.api.list("jobs").items == []


def test_a_namespace_goes_with_all_that_is_in_it(world: World) -> None:
    world.api.create("namespaces", {"metadata": {"name": "x"}})
    world.settle()
    assert world.api.get("serviceaccounts", "default", "x")
    world.api.create("configmaps", {"metadata": {"name": "c"}}, "x")
    world.api.delete("namespaces", "x")
    world.settle()
    with pytest.raises(StatusError) as caught:
        world.api.get("namespaces", "x")
    assert caught.value.status == 404
    assert all(obj["metadata"]["namespace"] != "x" for obj in world.api.list("configmaps").items)


@pytest.mark.parametrize(
    ("kind", "change", "field"),
    [
        (
            "deployments",
            {"selector": {"matchLabels": {"other": "x"}}},
            "spec.template.metadata.labels",
        ),
        ("deployments", {"replicas": -1}, "spec.replicas"),
        ("deployments", {"strategy": {"type": "Odd"}}, "spec.strategy.type"),
        ("jobs", {"parallelism": -1}, "spec.parallelism"),
        ("jobs", {}, "spec.template.spec.restartPolicy"),
    ],
)  # fmt: skip
def test_what_the_api_server_refuses(world: World, kind: str, change: Any, field: str) -> None:
    template = {
        "metadata": {"labels": LABELS},
        "spec": {"containers": [{"name": "c", "image": "i"}]},
    }
    spec: dict[str, Any] = {"template": template}
    if kind == "deployments":
        spec["selector"] = {"matchLabels": LABELS}
    with pytest.raises(StatusError) as caught:
        world.api.create(kind, {"metadata": {"name": "w"}, "spec": {**spec, **change}}, "default")
    assert caught.value.status == 422
    assert field in {cause["field"] for cause in caught.value.body["details"]["causes"]}


def test_a_scale_is_read_and_written_by_itself(world: World) -> None:
    world.deploy(2)
    scale = world.api.scale("deployments", "web", "default")
    assert scale["spec"] == {"replicas": 2}
    assert scale["status"]["selector"] == "app=web"
    scale["spec"]["replicas"] = 5
    world.api.set_scale("deployments", "web", scale, "default")
    world.settle()
    assert len(world.pods()) == 5
    with pytest.raises(StatusError) as caught:
        world.api.set_scale("deployments", "web", {**scale, "spec": {"replicas": 1}}, "default")
    assert caught.value.status == 409


def template(image: str = "i:1", **spec: Any) -> dict[str, Any]:
    return {
        "metadata": {"labels": LABELS},
        "spec": {"containers": [{"name": "c", "image": image}], **spec},
    }


def add_node(world: World, name: str, **spec: Any) -> None:
    world.api.create("nodes", {"metadata": {"name": name, "labels": {"name": name}}, "spec": spec})


def start_daemons(world: World, **spec: Any) -> None:
    body = {"selector": {"matchLabels": LABELS}, "template": template(**spec)}
    world.api.create("daemonsets", {"metadata": {"name": "every"}, "spec": body}, "default")
    world.settle()


def nodes_named(world: World) -> list[str]:
    """The nodes that the affinities of the pods name."""
    out = []
    for pod in world.pods():
        affinity = pod["spec"]["affinity"]["nodeAffinity"]
        (term,) = affinity["requiredDuringSchedulingIgnoredDuringExecution"]["nodeSelectorTerms"]
        out += term["matchFields"][0]["values"]
    return sorted(out)


def test_a_daemon_set_has_a_pod_for_each_node_that_suits(world: World) -> None:
    add_node(world, "a")
    add_node(world, "b", taints=[{"key": "k", "effect": "NoSchedule"}])
    add_node(world, "c", unschedulable=True)
    start_daemons(world)
    assert nodes_named(world) == ["a", "c"]
    add_node(world, "d")
    world.settle()
    assert nodes_named(world) == ["a", "c", "d"]
    world.api.delete("nodes", "a")
    world.settle()
    assert nodes_named(world) == ["c", "d"]
    world.run_all()
    told = world.api.get("daemonsets", "every", "default")["status"]
    assert (told["desiredNumberScheduled"], told["numberReady"], told["numberAvailable"]) == (
        2, 2, 2,
    )  # fmt: skip


def test_a_daemon_set_heeds_the_node_selector(world: World) -> None:
    add_node(world, "a")
    add_node(world, "b")
    start_daemons(world, nodeSelector={"name": "b"})
    assert nodes_named(world) == ["b"]


def test_a_changed_daemon_set_renews_its_pods_one_at_a_time(world: World) -> None:
    for name in ("a", "b", "c"):
        add_node(world, name)
    start_daemons(world)
    world.run_all()
    world.api.patch("daemonsets", "every", {"spec": {"template": template("i:2")}}, "default")
    steps = 0
    while {pod["spec"]["containers"][0]["image"] for pod in world.pods("Running")} != {"i:2"}:
        world.settle()
        assert len(world.pods("Running")) >= 2
        world.run_all()
        steps += 1
        assert steps < 10
    shown = world.api.get("daemonsets", "every", "default")
    assert shown["metadata"]["annotations"]["deprecated.daemonset.template.generation"] == "2"
    assert shown["status"]["updatedNumberScheduled"] == 3


def start_numbered(world: World, replicas: int = 3, **more: Any) -> None:
    spec = {
        "replicas": replicas, "serviceName": "db", "selector": {"matchLabels": LABELS},
        "template": template(), **more,
    }  # fmt: skip
    world.api.create("statefulsets", {"metadata": {"name": "db"}, "spec": spec}, "default")
    world.settle()


def names(world: World) -> list[str]:
    return [pod["metadata"]["name"] for pod in world.pods()]


def test_a_stateful_set_makes_its_pods_in_order(world: World) -> None:
    start_numbered(world, 2)
    assert names(world) == ["db-0"]
    world.run_all()
    assert names(world) == ["db-0", "db-1"]
    world.run_all()
    told = world.api.get("statefulsets", "db", "default")["status"]
    assert (told["replicas"], told["readyReplicas"], told["updatedReplicas"]) == (2, 2, 2)
    assert world.pods()[1]["spec"]["hostname"] == "db-1"
    world.set(world.pods()[0], "Failed")
    world.settle()
    assert world.pods()[0]["status"]["phase"] == "Pending"


def test_a_stateful_set_shrinks_from_its_end(world: World) -> None:
    start_numbered(world, 3, podManagementPolicy="Parallel")
    assert names(world) == ["db-0", "db-1", "db-2"]
    world.run_all()
    world.api.patch("statefulsets", "db", {"spec": {"replicas": 1}}, "default")
    world.settle()
    assert names(world) == ["db-0"]


def test_a_changed_stateful_set_renews_its_pods_from_the_last_on(world: World) -> None:
    start_numbered(world, 2)
    world.run_all()
    world.run_all()
    change = {"spec": {"template": template("i:2")}}
    world.api.patch("statefulsets", "db", change, "default")
    world.settle()
    images = {
        pod["metadata"]["name"]: pod["spec"]["containers"][0]["image"] for pod in world.pods()
    }
    assert images == {"db-0": "i:1", "db-1": "i:2"}
    told = world.api.get("statefulsets", "db", "default")["status"]
    assert told["currentRevision"] != told["updateRevision"]
    for _ in range(3):
        world.run_all()
    told = world.api.get("statefulsets", "db", "default")["status"]
    assert told["currentRevision"] == told["updateRevision"]
    assert {pod["spec"]["containers"][0]["image"] for pod in world.pods()} == {"i:2"}


def test_each_pod_of_a_stateful_set_has_claims_of_its_own(world: World) -> None:
    claim = {"metadata": {"name": "data"}, "spec": {"accessModes": ["ReadWriteOnce"]}}
    start_numbered(world, 1, volumeClaimTemplates=[claim])
    assert world.api.get("persistentvolumeclaims", "data-db-0", "default")
    (volume,) = world.pods()[0]["spec"]["volumes"]
    assert volume["persistentVolumeClaim"] == {"claimName": "data-db-0"}


def test_what_no_controller_would_act_upon_is_refused(world: World) -> None:
    body = {"metadata": {"name": "often"}, "spec": {"schedule": "* * * * *"}}
    with pytest.raises(StatusError) as caught:
        world.api.create("cronjobs", body, "default")
    assert str(caught.value) == (
        'cronjobs.batch "often" is forbidden: no controller for cronjobs runs here, so nothing '
        "would come of it"
    )
    assert caught.value.status == 403
