"""Devices of DRA: where a pod may go for their sake, and which it gets."""

from __future__ import annotations

from typing import Any

import pytest

from rte.scheduler.loop import messages
from tests.unit.scheduler.build import machine, state
from tests.unit.scheduler.desk import Desk
from tests.unit.scheduler.gpus import claim, consumers, gpu_class, held, slice_of, uses

#: A pod that a controller keeps running: it does not end by itself.
LASTING: dict[str, Any] = {
    "restartPolicy": "Always",
    "owners": [{"kind": "ReplicaSet", "name": "r", "uid": "r", "controller": True}],
}


class Site(Desk):
    """A desk with GPUs."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.put("device-classes", "gpu", gpu_class())

    def gpus(self, name: str, *zones: int | None, **more: Any) -> None:
        self.put("slices", f"{name}-gpus", slice_of(name, zones or (0, 0, 1, 1), **more))

    def claim(self, name: str, count: int = 1, **more: Any) -> None:
        self.put("device-claims", f"default/{name}", claim(name, count, uid=f"u-{name}", **more))

    def user(self, name: str, cpu: Any = "2", *, wish: str = "", **more: Any) -> str:
        """A pod with a claim of its own name."""
        return self.pod(name, cpu, **uses(name, wish=wish), **more)

    def devices(self, name: str) -> list[str]:
        return held(self.objects["device-claims", f"default/{name}"])

    def waits(self, uid: str) -> str:
        """Why a pod waits."""
        assert not self.where(uid)
        return self.machine.why(self.view(uid))


@pytest.fixture
def site() -> Site:
    made = Site()
    made.node("n", state(machine(zones=2, cpus=8)))
    made.gpus("n")
    return made


def test_a_claim_is_allocated_and_reserved_before_the_bind(site: Site) -> None:
    site.claim("p")
    uid = site.user("p")
    assert site.where(uid) == "n"
    obj = site.objects["device-claims", "default/p"]
    assert held(obj) == ["gpu-0"]
    assert consumers(obj) == ["p"]
    assert obj["metadata"]["finalizers"] == ["resource.kubernetes.io/delete-protection"]


def test_no_device_is_given_twice_before_the_api_shows_the_first(site: Site) -> None:
    site.answers = False
    for name in "ab":
        site.claim(name, 2)
    site.node("m", state(machine(zones=2, cpus=8)))
    site.user("a", wish="none", guaranteed=False)
    site.user("b", wish="none", guaranteed=False)
    site.claim("c")
    third = site.user("c", wish="none", guaranteed=False)
    assert [bind.pod.name for bind in site.binds] == ["a", "b"]
    assert "2 node(s) without free devices for the pod's claims" in site.waits(third)


def test_devices_are_taken_in_the_zone_of_the_cpus(site: Site) -> None:
    first = site.pod("first", "6", **LASTING)
    site.admit(first)
    site.claim("p")
    site.user("p", "4")
    assert site.devices("p") == ["gpu-2"]


def test_a_pod_that_prefers_alignment_goes_where_it_is_aligned(site: Site) -> None:
    site.gpus("n", 1, 1)
    site.node("m", state(machine(zones=2, cpus=8)))
    site.gpus("m", 0)
    site.claim("p")
    assert site.where(site.user("p")) == "m"
    site.claim("q")
    # Nothing of the kind is left: it goes across zones rather than wait.
    site.run_all()
    assert site.where(site.user("q")) == "n"


def test_a_pod_that_requires_alignment_waits_for_it(site: Site) -> None:
    site.gpus("n", 1)
    site.claim("p")
    uid = site.user("p", wish="required")
    assert "no free devices in the zones of its CPUs and memory (zone 0)" in site.waits(uid)
    site.gpus("n", 0)
    assert site.where(uid) == "n"


def test_zones_that_may_still_change_are_waited_for(site: Site) -> None:
    job = site.pod("job", "6", restartPolicy="Never")
    site.admit(job)
    site.claim("p")
    uid = site.user("p", "4", wish="required")
    assert "are not certain yet" in site.waits(uid)
    site.end(job)
    assert site.where(uid) == "n"
    assert site.devices("p") == ["gpu-0"]


def test_zones_beside_pods_that_stay_are_certain(site: Site) -> None:
    service = site.pod("service", "6", **LASTING)
    site.admit(service)
    site.claim("p")
    uid = site.user("p", "4", wish="required")
    assert site.where(uid) == "n"
    assert site.devices("p") == ["gpu-2"]


def test_nobody_disturbs_a_pod_whose_devices_are_chosen(site: Site) -> None:
    site.claim("p")
    first = site.user("p", "4", wish="required")
    assert site.where(first) == "n"
    other = site.pod("other", "4")
    assert "in flight is not confirmed yet" in site.waits(other)
    site.admit(first)
    assert site.where(other) == "n"


def test_claims_that_are_not_in_order_are_named(site: Site) -> None:
    uid = site.user("p")
    assert 'resourceclaim "p" not found' in site.waits(uid)
    site.claim("p", deletionTimestamp="2026-01-01T00:00:00Z")
    assert 'resourceclaim "p" is being deleted' in site.waits(uid)
    site.claim("p")
    assert site.where(uid) == "n"


def test_a_claim_of_a_template_is_waited_for(site: Site) -> None:
    entry = {"name": "gpus", "resourceClaimTemplateName": "t"}
    uid = site.pod("p", resourceClaims=[entry])
    assert 'waiting for a resourceclaim to be made for "gpus"' in site.waits(uid)
    owner = {"kind": "Pod", "name": "p", "uid": uid, "controller": True}
    site.claim("p-gpus-x", ownerReferences=[owner])
    site.change(uid, resourceClaimStatuses=[{"name": "gpus", "resourceClaimName": "p-gpus-x"}])
    assert site.where(uid) == "n"
    assert site.devices("p-gpus-x") == ["gpu-0"]


def test_a_claim_that_is_missing_does_not_hold_up_pods_like_it(site: Site) -> None:
    entry = {"name": "gpus", "resourceClaimTemplateName": "t"}
    first = site.pod("a", resourceClaims=[entry])
    second = site.pod("b", resourceClaims=[entry])
    owner = {"kind": "Pod", "name": "b", "uid": second, "controller": True}
    site.claim("b-gpus", ownerReferences=[owner])
    site.change(second, resourceClaimStatuses=[{"name": "gpus", "resourceClaimName": "b-gpus"}])
    assert (site.where(first), site.where(second)) == ("", "n")


def test_a_wish_that_is_none_is_told(site: Site) -> None:
    site.claim("p")
    uid = site.user("p", wish="always")
    assert '"always", not one of required, preferred, none' in site.waits(uid)


def test_a_pod_shares_what_another_has(site: Site) -> None:
    site.claim("shared")
    site.node("m", state(machine(zones=2, cpus=8)))
    one = site.pod("a", "2", **uses("shared"))
    site.run_all()
    two = site.pod("b", "2", **uses("shared"))
    assert (site.where(one), site.where(two)) == ("n", "n")
    assert consumers(site.objects["device-claims", "default/shared"]) == ["a", "b"]


def test_pods_share_a_device_by_capacity_until_it_is_used_up(site: Site) -> None:
    memory = {"value": "80Gi", "requestPolicy": {"default": "10Gi"}}
    site.gpus("n", 0, capacity={"memory": memory}, allowMultipleAllocations=True)
    for name in "abc":
        made = claim(name, uid=f"u-{name}")
        made["spec"]["devices"]["requests"][0]["exactly"]["capacity"] = {
            "requests": {"memory": "30Gi"}
        }
        site.put("device-claims", f"default/{name}", made)
        site.user(name, wish="none", guaranteed=False)
    results = [
        site.objects["device-claims", f"default/{name}"]["status"]["allocation"]["devices"][
            "results"
        ][0]
        for name in "ab"
    ]
    assert [one["consumedCapacity"] for one in results] == [{"memory": str(30 << 30)}] * 2
    assert results[0]["shareID"] != results[1]["shareID"]
    assert "1 node(s) without free devices" in site.waits("uid-c")


def test_devices_come_back_with_the_claim(site: Site) -> None:
    site.gpus("n", 0)
    site.claim("p")
    site.admit(site.user("p"))
    site.claim("q")
    uid = site.user("q")
    assert "1 node(s) without free devices for the pod's claims" in site.waits(uid)
    site.delete("device-claims", "default/p")
    assert site.where(uid) == "n"


def test_a_driver_that_goes_away_takes_its_devices_along(site: Site) -> None:
    site.delete("slices", "n-gpus")
    site.claim("p")
    uid = site.user("p")
    assert "without free devices" in site.waits(uid)
    site.gpus("n")
    assert site.where(uid) == "n"


def test_a_pool_that_is_not_complete_has_no_devices(site: Site) -> None:
    site.gpus("n", 0, count=2)
    site.claim("p")
    assert "without free devices" in site.waits(site.user("p"))


TEN = "[0, 1, 2, 3, 4, 5, 6, 7, 8, 9]"
MILLION = (
    f"{TEN}.all(a, {TEN}.all(b, {TEN}.all(c, {TEN}.all(d, {TEN}.all(e, {TEN}.all(f, true))))))"
)


@pytest.mark.parametrize(
    ("expression", "told"),
    [
        ("device.fans > 2", "cannot place"),
        ('device.attributes["x"].y == 1', "not found in map"),
        (MILLION, "budget exceeded"),
    ],
    ids=["does not compile", "fails", "costs too much"],
)
def test_an_expression_that_fails_is_told_and_never_taken_for_false(
    site: Site, expression: str, told: str
) -> None:
    site.claim("p", expression=expression)
    assert told in site.waits(site.user("p"))


def test_a_claim_that_was_allocated_binds_the_pod_to_its_node(site: Site) -> None:
    site.node("m", state(machine(zones=2, cpus=8)))
    site.gpus("m")
    site.claim("p")
    obj = site.objects["device-claims", "default/p"]
    result = {"request": "gpus", "driver": "gpu.example.com", "pool": "m", "device": "gpu-1"}
    term = {"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["m"]}]}
    allocation = {
        "devices": {"results": [result]},
        "nodeSelector": {"nodeSelectorTerms": [term]},
    }
    site.put("device-claims", "default/p", {**obj, "status": {"allocation": allocation}})
    assert site.where(site.user("p")) == "m"
    assert site.devices("p") == ["gpu-1"]


def left_over(site: Site, node: str) -> None:
    """An attempt before has given the claim of pod ``p`` a device of that node."""
    site.claim("p")
    obj = site.objects["device-claims", "default/p"]
    result = {"request": "gpus", "driver": "gpu.example.com", "pool": node, "device": "gpu-1"}
    term = {"matchFields": [{"key": "metadata.name", "operator": "In", "values": [node]}]}
    status = {
        "allocation": {
            "devices": {"results": [result]},
            "nodeSelector": {"nodeSelectorTerms": [term]},
        },
        "reservedFor": [{"resource": "pods", "name": "p", "uid": "uid-p"}],
    }
    site.put("device-claims", "default/p", {**obj, "status": status})


def test_what_an_attempt_before_has_left_is_finished(site: Site) -> None:
    site.node("m", state(machine(zones=2, cpus=8)))
    site.gpus("m")
    left_over(site, "m")
    assert site.where(site.user("p")) == "m"
    assert site.devices("p") == ["gpu-1"]


def test_what_an_attempt_before_has_left_is_freed_where_it_stands_in_the_way(site: Site) -> None:
    left_over(site, "gone")
    assert site.where(site.user("p")) == "n"
    assert site.devices("p") == ["gpu-0"]


def test_what_is_being_freed_is_not_built_on(site: Site) -> None:
    left_over(site, "m")
    site.answers = False
    uid = site.user("p")
    (effect,) = site.undoing
    site.node("m", state(machine(zones=2, cpus=8)))
    site.gpus("m")
    assert site.binds == []
    site.undoing.clear()
    site.answers = True
    site.take_back(effect)
    site.pass_time(1)
    assert site.where(uid)
    assert consumers(site.objects["device-claims", "default/p"]) == ["p"]


def test_a_claim_that_somebody_else_allocates_meanwhile_is_a_conflict(site: Site) -> None:
    site.answers = False
    site.claim("p")
    uid = site.user("p")
    (bind,) = site.binds
    site.binds.clear()
    obj = site.objects["device-claims", "default/p"]
    result = {"request": "gpus", "driver": "gpu.example.com", "pool": "n", "device": "gpu-3"}
    status = {"allocation": {"devices": {"results": [result]}}}
    site.put("device-claims", "default/p", {**obj, "status": status})
    site.answers = True
    site.bind(bind)
    told = [post.note for post in site.told(messages.Post)]
    assert any("was allocated by somebody else meanwhile" in note for note in told)
    site.pass_time(5)
    assert site.where(uid) == "n"
    assert site.devices("p") == ["gpu-3"]


def test_a_pod_waits_a_while_for_a_node_where_it_is_aligned() -> None:
    site = Site(patience=10.0)
    site.node("n", state(machine(zones=2, cpus=8)))
    site.gpus("n", 1)
    site.claim("p")
    uid = site.user("p")
    assert "without free devices in the zones" in site.waits(uid)
    site.pass_time(9)
    assert not site.where(uid)
    site.pass_time(2)
    assert site.where(uid) == "n"


def test_a_place_where_it_is_aligned_is_taken_at_once() -> None:
    site = Site(patience=10.0)
    site.node("n", state(machine(zones=2, cpus=8)))
    site.gpus("n", 1)
    site.claim("p")
    uid = site.user("p")
    site.pass_time(1)
    site.gpus("n", 1, 0)
    assert site.where(uid) == "n"
    assert site.devices("p") == ["gpu-1"]


def test_a_device_class_serves_an_extended_resource(site: Site) -> None:
    uid = site.pod("p", extra={"example.com/gpu": "2"})
    assert "Insufficient example.com/gpu" in site.waits(uid)
    site.put("device-classes", "gpu", gpu_class(extendedResourceName="example.com/gpu"))
    assert site.where(uid) == "n"
    told = site.objects["pods", uid]["status"]["extendedResourceClaimStatus"]
    made = site.objects["device-claims", f"default/{told['resourceClaimName']}"]
    assert held(made) == ["gpu-0", "gpu-1"]
    assert told["requestMappings"] == [
        {
            "containerName": "c0",
            "resourceName": "example.com/gpu",
            "requestName": "container-0-request-1",
        }
    ]


def test_a_claim_for_an_extended_resource_that_was_left_over_is_freed(site: Site) -> None:
    site.gpus("n", 0)
    site.put("device-classes", "gpu", gpu_class(extendedResourceName="example.com/gpu"))
    name = "p-extended-resources-uid-p"
    owner = {"kind": "Pod", "name": "p", "uid": "uid-p", "controller": True}
    result = {"request": "x", "driver": "gpu.example.com", "pool": "n", "device": "gpu-0"}
    left = claim(name, uid="u", ownerReferences=[owner])
    status = {"allocation": {"devices": {"results": [result]}}}
    site.put("device-claims", f"default/{name}", {**left, "status": status})
    uid = site.pod("p", extra={"example.com/gpu": "1"})
    assert site.where(uid) == "n"
    assert site.devices(name) == ["gpu-0"]


def test_a_device_plugin_is_asked_before_a_class(site: Site) -> None:
    site.put("device-classes", "gpu", gpu_class(extendedResourceName="example.com/gpu"))
    site.node("m", bare=True, allocatable={"example.com/gpu": "1"})
    site.delete("slices", "n-gpus")
    uid = site.pod("p", "1", guaranteed=False, extra={"example.com/gpu": "1"})
    assert site.where(uid) == "m"
    assert "extendedResourceClaimStatus" not in site.objects["pods", uid]["status"]
