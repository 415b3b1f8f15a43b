"""Whatever changes, in whatever order: no pod sleeps on while a node takes it.

Random clusters with every kind of rule (``tests/random_worlds``) change one object at a time; some
of their nodes have zones and a kubelet, by the exact model. After each change the machine comes to
rest, and what still waits is asked of all nodes afresh.
"""

from __future__ import annotations

import random
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from rte.scheduler.framework.writes import Step, Wait, WriteTarget
from rte.scheduler.loop import messages
from rte.scheduler.loop.room.plans import plans
from rte.scheduler.plugins.default_preemption import EvictionPlan
from rte.scheduler.shell.feeds import COLLECTIONS
from tests import random_worlds
from tests.depth import scaled
from tests.random_worlds import devices, nodes, pods, storage
from tests.random_worlds.words import APPS, NODES, PRIORITIES, PUSHY, TAINTS, TIERS, ZONE, ZONES
from tests.unit.scheduler.build import moment, state
from tests.unit.scheduler.desk import Desk, merge

if TYPE_CHECKING:
    from collections.abc import Callable

    from rte.scheduler.framework.objects import PodView

CHANGES = 25

_COLLECTIONS = {resource.plural: name for name, resource in reversed(COLLECTIONS.items())}


class Region(Desk):
    """A desk whose objects are those of a random world; provisioners and kubelets do their part."""

    def __init__(self, seed: int, *, zoned: int = 0, mortal: bool = False) -> None:
        super().__init__()
        self.mortal = mortal
        self.dead: set[str] = set()
        self.renewals = 0
        self.fails = False
        self.chooser = random.Random(seed)
        self.evicted: list[str] = []
        self.number = 0
        self.zoned = [f"n{number}" for number in range(zoned)]
        world = random_worlds.draw(self.chooser, waiting=0)
        statuses = dict(world.statuses)
        for path, item in (*world.namespaces, *world.objects):
            self.add(path, item, statuses.get(f"{path}/{item['metadata']['name']}"))
        for path in world.leaving:
            self.begin_to_end("uid-" + path.rpartition("/")[2])
        for name in self.zoned:
            self._give_zones(name)
            self.renew(name)

    def _give_zones(self, name: str) -> None:
        """The node has a kubelet, which meets its pods, and an agent."""
        policy = self.chooser.choice(("single-numa-node", "restricted", "best-effort"))
        self.kubelets[name] = state(policy=policy, scope=self.chooser.choice(("container", "pod")))
        if self.mortal and self.chooser.random() < 0.5:
            # Its managers give nothing out: whether its agent lives makes no difference.
            self.kubelets[name] = state(
                policy="none", cpu_policy="none", memory_policy="None", reserved_memory={}
            )
        amounts = {"cpu": "15", "memory": "31Gi", "pods": "110"}
        self.patch("nodes", name, {"status": {"allocatable": amounts}})
        for uid in self.keys("pods", lambda pod: pod["spec"].get("nodeName") == name):
            if self.objects["pods", uid]["status"]["phase"] == "Running":
                self.admit(uid)
        self.report(name)

    def renew(self, name: str) -> None:
        """The agent of the node lives."""
        if self.mortal and name not in self.dead:
            self.renewals += 1
            renewed = {"holderIdentity": "agent", "renewTime": f"{self.renewals}"}
            self.put("leases", name, {"metadata": {"name": name}, "spec": renewed})

    def pass_time(self, seconds: float) -> None:
        for name in self.zoned:
            self.renew(name)
        super().pass_time(seconds)

    def add(self, path: str, item: dict[str, Any], status: dict[str, Any] | None = None) -> None:
        """As the API server would store it."""
        parts = path.split("/")
        collection = _COLLECTIONS.get(parts[-1])
        if collection is None:
            return
        metadata = {**item["metadata"], "uid": f"uid-{item['metadata']['name']}"}
        key = metadata["name"]
        if COLLECTIONS[collection].namespaced:
            metadata["namespace"] = (
                metadata.get("namespace") or parts[parts.index("namespaces") + 1]
            )
            key = f"{metadata['namespace']}/{key}"
        item = {**item, "metadata": metadata, **({"status": status} if status else {})}
        if collection == "pods":
            key = metadata["uid"]
            item = _admitted(item)
        self.put(collection, key, item)

    def create(self) -> None:
        """A user creates a pod for our scheduler."""
        self.number += 1
        pod = pods.draw(self.chooser, f"waits-{self.number}", waits=True)
        pod["spec"]["schedulerName"] = "rte-scheduler"
        if self.zoned and self.chooser.random() < 0.5:
            amounts = {"cpu": self.chooser.choice("1246"), "memory": "2Gi"}
            pod["spec"]["containers"][0]["resources"] = {"requests": amounts, "limits": amounts}
            pod["spec"].pop("initContainers", None)
            pod["spec"].pop("resources", None)
        self.add("/api/v1/namespaces/default/pods", pod)

    def keys(self, collection: str, which: Callable[[dict[str, Any]], object] = bool) -> list[str]:
        """Keys of the objects of a collection, in their order."""
        return [
            key for (kind, key), obj in self.objects.items() if kind == collection and which(obj)
        ]

    def patch(self, collection: str, key: str, change: dict[str, Any]) -> None:
        self.put(collection, key, merge(self.objects[collection, key], change))

    # --- what others do ---

    def bind(self, effect: messages.Bind, *, answer: bool = True) -> None:
        if not self.fails:
            super().bind(effect, answer=answer)
            return
        self.fails = False
        self._undo(effect.writes)
        self._answer(messages.Bound(effect.pod.uid, messages.Outcome.REFUSED, message="no"))

    def _write(self, effect: messages.Bind) -> str:
        for write in effect.writes:
            while (step := write.next(self._found(write.target) or write.known)) is not None:
                if isinstance(step, Wait):
                    self._provide(write.target)
                else:
                    assert isinstance(step, Step), step
                    self._apply(write.target, step)
        return ""

    def _provide(self, target: WriteTarget) -> None:
        """The volume controller binds the claim, to a new volume where none names it."""
        claim = self.objects["claims", target.key]
        name = next(
            (
                key
                for key in self.keys("volumes")
                if (self.objects["volumes", key]["spec"].get("claimRef") or {}).get("name")
                == target.name
            ),
            f"made-{target.name}",
        )
        if ("volumes", name) not in self.objects:
            csi = {"driver": "slow.example.com", "volumeHandle": name}
            self.put("volumes", name, {"metadata": {"name": name}, "spec": {"csi": csi}})
        bound = {"spec": {**claim["spec"], "volumeName": name}, "status": {"phase": "Bound"}}
        annotations = {
            **claim["metadata"].get("annotations", {}),
            "pv.kubernetes.io/bind-completed": "yes",
        }
        metadata = {**claim["metadata"], "annotations": annotations}
        self.put("claims", target.key, {**claim, **bound, "metadata": metadata})

    def evict(self, effect: messages.Evict) -> None:
        self.evicted += [victim.uid for victim in effect.victims]
        super().evict(effect)

    def has_zones(self, uid: str) -> bool:
        """Whether the pod is on a node with zones."""
        return self.where(uid) in self.kubelets

    def settle(self) -> None:
        """Kubelets start what is bound and end who has to go; some time goes by."""
        for _ in range(50):
            for uid in self.keys("pods", _is_new):
                if self.has_zones(uid):
                    assert self.admit(uid) == "", uid
                else:
                    self.change(uid, phase="Running", startTime=moment())
            for uid in self.evicted:
                if ("pods", uid) in self.objects:
                    self.end(uid)
            self.evicted.clear()
            self.pass_time(5.0)
            if not self.keys("pods", _is_new) and not self.evicted:
                return
        raise AssertionError("the machine does not come to rest")


def _admitted(pod: dict[str, Any]) -> dict[str, Any]:
    """With what admission fills in."""
    spec = dict(pod["spec"])
    name = spec.get("priorityClassName")
    if name:
        policy = "PreemptLowerPriority" if name == PUSHY else "Never"
        spec |= {"priority": PRIORITIES[name], "preemptionPolicy": policy}
    if spec.get("runtimeClassName"):
        heavy = pods.HEAVY
        spec |= {"overhead": heavy["overhead"]["podFixed"], **heavy["scheduling"]}
    return {"status": {"phase": "Pending"}, **pod, "spec": spec}


def _is_new(pod: dict[str, Any]) -> bool:
    return bool(pod["spec"].get("nodeName")) and pod["status"].get("phase") == "Pending"


def _is_bound(pod: dict[str, Any]) -> bool:
    return bool(pod["spec"].get("nodeName"))


# --- what changes


def _some(region: Region, collection: str, which: Callable[[dict[str, Any]], object] = bool) -> str:
    return region.chooser.choice(region.keys(collection, which) or [""])


def _some_bare(region: Region) -> str:
    """A node without zones."""
    return _some(region, "nodes", lambda node: node["metadata"]["name"] not in region.kubelets)


def a_pod_ends(region: Region) -> None:
    uid = _some(region, "pods", _is_bound)
    if uid:
        region.end(uid)


def a_pod_completes(region: Region) -> None:
    uid = _some(region, "pods", _is_bound)
    if uid and not region.has_zones(uid):
        region.change(uid, phase="Succeeded")


def a_pod_begins_to_end(region: Region) -> None:
    uid = _some(region, "pods", _is_bound)
    if uid:
        region.begin_to_end(uid)


def a_pod_gets_other_labels(region: Region) -> None:
    uid = _some(region, "pods")
    if uid:
        labels = {"app": region.chooser.choice(APPS), "tier": region.chooser.choice((*TIERS, None))}
        region.patch("pods", uid, {"metadata": {"labels": labels}})


def a_pod_is_resized(region: Region) -> None:
    uid = _some(region, "pods", lambda pod: _is_bound(pod) and len(pod["spec"]["containers"]) == 1)
    if uid and not region.has_zones(uid):
        pod = region.objects["pods", uid]
        main = {**pod["spec"]["containers"][0], "resources": {"requests": {"cpu": "100m"}}}
        held = {"name": "main", "allocatedResources": {"cpu": "100m"}}
        held["resources"] = {"requests": {"cpu": "100m"}}
        status = {"containerStatuses": [held]}
        region.patch("pods", uid, {"spec": {"containers": [main]}, "status": status})


def a_pod_is_withdrawn(region: Region) -> None:
    uid = _some(region, "pods", lambda pod: not _is_bound(pod))
    if uid:
        region.delete("pods", uid)


def a_pod_runs_elsewhere(region: Region) -> None:
    region.number += 1
    pod = pods.draw(region.chooser, f"foreign-{region.number}", waits=False)
    pod["spec"]["nodeName"] = _some_bare(region)
    region.add("/api/v1/namespaces/default/pods", pod, {"phase": "Running"})


def a_node_gets_other_labels(region: Region) -> None:
    labels = {
        ZONE: region.chooser.choice((*ZONES, None)),
        "disk": region.chooser.choice(("ssd", "hdd", "", None)),
        "rank": str(region.chooser.randrange(1, 9)),
    }
    name = region.chooser.choice(sorted(labels))
    region.patch("nodes", _some(region, "nodes"), {"metadata": {"labels": {name: labels[name]}}})


def a_node_gets_other_taints(region: Region) -> None:
    taints = [{"key": region.chooser.choice(TAINTS), "effect": "NoSchedule"}]
    kept = taints if region.chooser.random() < 0.3 else []
    region.patch("nodes", _some(region, "nodes"), {"spec": {"taints": kept}})


def a_node_is_cordoned_or_not(region: Region) -> None:
    off = region.chooser.random() < 0.3
    region.patch("nodes", _some(region, "nodes"), {"spec": {"unschedulable": off}})


def a_node_has_more(region: Region) -> None:
    more = {"cpu": "8", "memory": "32Gi", "pods": "110", "example.com/card": "4"}
    name = region.chooser.choice(sorted(more))
    changed = {"status": {"allocatable": {name: more[name]}}}
    region.patch("nodes", _some_bare(region), changed)


def a_node_comes_back_new(region: Region) -> None:
    name = f"n{region.chooser.randrange(len(region.zoned), NODES)}"
    if ("nodes", name) in region.objects:
        region.delete("nodes", name)
        for uid in region.keys("pods", lambda pod: pod["spec"].get("nodeName") == name):
            region.delete("pods", uid)
    else:
        region.add("/api/v1/nodes", nodes.node(region.chooser, name))


def a_driver_attaches_more(region: Region) -> None:
    name = f"n{region.chooser.randrange(NODES)}"
    region.add("/apis/storage.k8s.io/v1/csinodes", storage.csi_node(region.chooser, name))


def a_claim_comes_or_goes(region: Region) -> None:
    name = region.chooser.choice(("missing", "open-1", "open-4", "open-6", "bound-1"))
    key = f"default/{name}"
    if ("claims", key) in region.objects:
        region.delete("claims", key)
    else:
        made = storage.claim(region.chooser, name, region.chooser.choice(("late", "by-hand")))
        region.add("/api/v1/namespaces/default/persistentvolumeclaims", made)


def a_claim_is_bound(region: Region) -> None:
    key = _some(region, "claims", lambda claim: not claim["spec"].get("volumeName"))
    if key:
        namespace, name = key.split("/")
        region._provide(WriteTarget("claims", name, namespace))


def a_volume_is_released(region: Region) -> None:
    key = _some(region, "volumes", lambda volume: volume["spec"].get("claimRef"))
    if key:
        change = {"spec": {"claimRef": None}, "status": {"phase": "Available"}}
        region.patch("volumes", key, change)


def a_class_is_the_default_one_or_not(region: Region) -> None:
    key = _some(region, "classes")
    if key:
        told = region.chooser.choice(("true", "false"))
        name = "storageclass.kubernetes.io/is-default-class"
        region.patch("classes", key, {"metadata": {"annotations": {name: told}}})


def a_driver_does_not_tell_its_capacity(region: Region) -> None:
    key = _some(region, "drivers")
    if key:
        region.patch("drivers", key, {"spec": {"storageCapacity": region.chooser.random() < 0.5}})


def a_volume_comes_or_goes(region: Region) -> None:
    name = f"free-{region.chooser.randrange(5)}"
    if ("volumes", name) in region.objects:
        region.delete("volumes", name)
    else:
        made = storage.volume(region.chooser, name, "by-hand")
        region.add("/api/v1/persistentvolumes", made)


def there_is_more_storage(region: Region) -> None:
    number = region.chooser.randrange(6)
    path = "/apis/storage.k8s.io/v1/namespaces/default/csistoragecapacities"
    region.add(path, storage.capacity(region.chooser, number))


def a_namespace_gets_other_labels(region: Region) -> None:
    name = region.chooser.choice(sorted(random_worlds.NAMESPACES))
    labels = {"team": region.chooser.choice(("blue", "red", None)), "env": None}
    if ("namespaces", name) in region.objects:
        region.patch("namespaces", name, {"metadata": {"labels": labels}})
    else:
        region.put("namespaces", name, {"metadata": {"name": name, "labels": labels}})


def a_slice_changes(region: Region) -> None:
    key = _some(region, "slices")
    if key and region.chooser.random() < 0.3:
        region.delete("slices", key)
        return
    name = f"n{region.chooser.randrange(NODES)}"
    for made in devices.slices_of(region.chooser, name):
        region.add("/apis/resource.k8s.io/v1/resourceslices", made)


def a_device_class_comes_or_goes(region: Region) -> None:
    if ("device-classes", "missing") in region.objects:
        region.delete("device-classes", "missing")
    else:
        made = {"metadata": {"name": "missing"}, "spec": {}}
        region.add("/apis/resource.k8s.io/v1/deviceclasses", made)


def a_device_claim_is_released(region: Region) -> None:
    key = _some(region, "device-claims")
    if key:
        region.put("device-claims", key, {**region.objects["device-claims", key], "status": {}})


def a_device_claim_comes_or_goes(region: Region) -> None:
    name = f"claim-{region.chooser.randrange(8)}"
    key = f"default/{name}"
    if ("device-claims", key) in region.objects and region.chooser.random() < 0.5:
        region.delete("device-claims", key)
    elif ("device-claims", key) not in region.objects:
        some = _some(region, "device-claims")
        if some:
            made = region.objects["device-claims", some]
            metadata = {**made["metadata"], "name": name, "uid": f"uid-{name}-{region.version}"}
            region.put("device-claims", key, {**made, "metadata": metadata, "status": {}})


def the_next_bind_fails(region: Region) -> None:
    region.fails = True


def an_agent_dies(region: Region) -> None:
    if region.mortal:
        region.dead.add(region.chooser.choice(region.zoned))
        for _ in range(12):
            region.pass_time(5.0)


def an_agent_lives(region: Region) -> None:
    if region.dead:
        name = region.chooser.choice(sorted(region.dead))
        region.dead.discard(name)
        region.renew(name)


def a_kubelet_admits_its_pods_again(region: Region) -> None:
    if region.mortal:
        name = region.chooser.choice(region.zoned)
        known = region.kubelets[name]
        region.kubelets[name] = replace(known, synced=not known.synced)
        region.report(name)


def a_budget_allows_one_more(region: Region) -> None:
    key = _some(region, "budgets")
    if key:
        region.patch("budgets", key, {"status": {"disruptionsAllowed": 2}})


def the_scheduler_restarts(region: Region) -> None:
    region.restart()


CHANGING = (
    a_pod_ends, a_pod_ends, a_pod_completes, a_pod_begins_to_end, a_pod_gets_other_labels,
    a_pod_is_resized, a_pod_is_withdrawn, a_pod_runs_elsewhere, a_node_gets_other_labels,
    a_node_gets_other_taints, a_node_is_cordoned_or_not, a_node_has_more, a_node_comes_back_new,
    a_driver_attaches_more, a_claim_comes_or_goes, a_claim_is_bound, a_volume_comes_or_goes,
    there_is_more_storage, a_namespace_gets_other_labels, a_slice_changes,
    the_scheduler_restarts,
    a_device_class_comes_or_goes, a_device_claim_is_released, a_budget_allows_one_more,
    a_volume_is_released, a_class_is_the_default_one_or_not, a_driver_does_not_tell_its_capacity,
    a_device_claim_comes_or_goes, the_next_bind_fails, an_agent_dies, an_agent_lives,
    a_kubelet_admits_its_pods_again,
)  # fmt: skip


@pytest.mark.parametrize(("zoned", "mortal"), [(0, False), (6, False), (6, True)])
@pytest.mark.parametrize("seed", range(scaled(30)))
def test_nobody_sleeps_on_while_a_node_takes_him(seed: int, zoned: int, mortal: bool) -> None:
    region = Region(seed, zoned=zoned, mortal=mortal)
    for _ in range(60):
        region.create()
    region.settle()
    story = ["the beginning"]
    for _ in range(CHANGES):
        _nobody_is_forgotten(region, story)
        change = region.chooser.choice(CHANGING)
        story.append(change.__name__)
        change(region)
        if region.chooser.random() < 0.3:
            region.create()
        region.settle()
    _nobody_is_forgotten(region, story)
    assert len(region.keys("pods", _is_bound)) > NODES


def _nobody_is_forgotten(region: Region, story: list[str]) -> None:
    machine = region.machine
    for record in machine.queue:
        pod = record.pod
        if machine.cycle.problem(pod).reason:
            continue
        around = machine.cycle.around(pod)
        entries = [entry for entry in machine.cluster.nodes.values() if entry.info is not None]
        fits = [e.name for e in entries if not machine.cycle.check(e, pod, around).reason]
        assert not fits, (story[-1], pod.name, fits)
        assert not _could_evict(region, pod) or pod.uid in machine.cluster.promises, (
            story[-1],
            pod.name,
        )


def _could_evict(region: Region, pod: PodView) -> bool:
    machine = region.machine
    found = plans(machine.cycle, machine.cluster, pod) if pod.preempts else ()
    return any(isinstance(plan, EvictionPlan) for plan in found)
