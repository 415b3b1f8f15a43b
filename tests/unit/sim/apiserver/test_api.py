"""The API in process: what every verb does, beyond what the differential test draws."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from rte.sim.apiserver import API, DeleteOptions, Query, StatusError, WriteOptions
from rte.sim.apiserver.verbs.changing import JSON_PATCH, STRATEGIC_PATCH
from rte.sim.demo.cluster import crd

NRTS = "noderesourcetopologies"


def pod(name: str = "p", **spec: Any) -> dict[str, Any]:
    container = {"name": "c", "image": "i", "resources": {"limits": {"cpu": "1"}}}
    return {"metadata": {"name": name}, "spec": {"containers": [container], **spec}}


def nrt(name: str = "n1", available: Any = "4") -> dict[str, Any]:
    amounts = {"name": "cpu", "capacity": "4", "allocatable": "4", "available": available}
    return {
        "apiVersion": "topology.node.k8s.io/v1alpha2",
        "kind": "NodeResourceTopology",
        "metadata": {"name": name},
        "zones": [{"name": "node-0", "type": "Node", "resources": [amounts]}],
    }


def refusal(call: Any, *args: Any, **kwargs: Any) -> tuple[int, str]:
    with pytest.raises(StatusError) as caught:
        call(*args, **kwargs)
    return caught.value.status, caught.value.reason


def test_a_new_api_has_what_a_new_cluster_has(api: API) -> None:
    names = [o["metadata"]["name"] for o in api.list("namespaces").items]
    assert names == ["default", "kube-node-lease", "kube-public", "kube-system"]
    assert api.get("priorityclasses", "system-node-critical")["value"] == 2000001000


def test_every_write_has_a_new_version_and_no_write_has_none(api: API) -> None:
    first = api.create("configmaps", {"metadata": {"name": "a"}, "data": {"k": "1"}}, "default")
    same = api.update("configmaps", first, "default")
    assert same["metadata"]["resourceVersion"] == first["metadata"]["resourceVersion"]
    changed = api.update("configmaps", {**first, "data": {"k": "2"}}, "default")
    assert int(changed["metadata"]["resourceVersion"]) > int(first["metadata"]["resourceVersion"])
    assert refusal(api.update, "configmaps", {**first, "data": {}}, "default") == (409, "Conflict")


def test_pods_get_defaults_and_a_class(api: API) -> None:
    made = api.create("pods", pod(), "default")
    assert made["spec"]["containers"][0]["resources"]["requests"] == {"cpu": "1"}
    assert made["spec"]["schedulerName"] == "default-scheduler"
    assert made["spec"]["priority"] == 0
    assert made["status"] == {"phase": "Pending", "qosClass": "Burstable"}


def test_a_pod_is_bound_once(api: API) -> None:
    api.create("pods", pod(), "default")
    binding = {"metadata": {"name": "p"}, "target": {"kind": "Node", "name": "n1"}}
    api.bind("p", "default", binding)
    assert api.get("pods", "p", "default")["spec"]["nodeName"] == "n1"
    assert refusal(api.bind, "p", "default", binding) == (409, "Conflict")


def test_a_bound_pod_ends_by_its_kubelet_and_an_unbound_one_at_once(api: API) -> None:
    api.create("pods", pod("free"), "default")
    api.create("pods", pod("bound", nodeName="n1"), "default")
    assert api.delete("pods", "free", "default")[1]
    obj, gone = api.delete("pods", "bound", "default")
    assert not gone
    assert obj["metadata"]["deletionGracePeriodSeconds"] == 30
    obj, gone = api.delete("pods", "bound", "default", DeleteOptions(grace=5))
    assert (obj["metadata"]["deletionGracePeriodSeconds"], gone) == (5, False)
    assert api.delete("pods", "bound", "default", DeleteOptions(grace=60))[1] is False
    assert api.delete("pods", "bound", "default", DeleteOptions(grace=0))[1]
    assert refusal(api.get, "pods", "bound", "default") == (404, "NotFound")


def test_the_grace_period_is_counted_from_the_first_delete() -> None:
    now = datetime(2026, 1, 1, tzinfo=UTC)
    api = API(clock=lambda: now)
    api.create("pods", pod(nodeName="n1"), "default")
    api.delete("pods", "p", "default")
    now += timedelta(seconds=10)
    obj, _ = api.delete("pods", "p", "default", DeleteOptions(grace=20))
    assert obj["metadata"]["deletionTimestamp"] == "2026-01-01T00:00:20Z"


def test_finalizers_hold_an_object_until_the_last_is_gone(api: API) -> None:
    body = {"metadata": {"name": "n1", "finalizers": ["example.com/a"]}}
    api.create("nodes", body)
    _, gone = api.delete("nodes", "n1")
    assert not gone
    api.patch("nodes", "n1", {"metadata": {"finalizers": None}})
    assert refusal(api.get, "nodes", "n1") == (404, "NotFound")


def test_preconditions_guard_a_delete(api: API) -> None:
    api.create("nodes", {"metadata": {"name": "n1"}})
    for options in (DeleteOptions(uid="other"), DeleteOptions(version="1")):
        assert refusal(api.delete, "nodes", "n1", "", options) == (409, "Conflict")


def test_pages_show_one_moment(api: API) -> None:
    for name in "abcde":
        api.create("nodes", {"metadata": {"name": name}})
    page = api.list("nodes", Query(limit=2))
    assert page.remaining == 3
    api.delete("nodes", "c")
    api.create("nodes", {"metadata": {"name": "cc"}})
    rest = api.list("nodes", Query(limit=9, token=page.token))
    names = [o["metadata"]["name"] for o in (*page.items, *rest.items)]
    assert names == list("abcde")
    api.store.compact()
    assert refusal(api.list, "nodes", Query(limit=2, token=page.token)) == (410, "Expired")


def test_status_has_its_own_door(api: API) -> None:
    api.create("nodes", {"metadata": {"name": "n1"}, "spec": {"unschedulable": True}})
    body = {"spec": {"unschedulable": False}, "status": {"phase": "Running"}}
    after = api.patch("nodes", "n1", body, content_type=STRATEGIC_PATCH, subresource="status")
    assert after["spec"] == {"unschedulable": True}
    assert after["status"]["phase"] == "Running"
    after = api.patch("nodes", "n1", {"status": {"phase": "Gone"}}, content_type=STRATEGIC_PATCH)
    assert after["status"]["phase"] == "Running"


def test_dry_run_changes_nothing(api: API) -> None:
    before = api.store.revision
    api.create("pods", pod(), "default", WriteOptions(dry_run=True))
    assert api.store.revision == before


def test_an_eviction_asks_the_disruption_budget(api: API) -> None:
    labelled = pod(nodeName="n1")
    labelled["metadata"]["labels"] = {"app": "x"}
    api.create("pods", labelled, "default")
    api.patch("pods", "p", {"status": {"phase": "Running"}}, "default",
              content_type=STRATEGIC_PATCH, subresource="status")  # fmt: skip
    budget = {"metadata": {"name": "b"}, "spec": {"selector": {"matchLabels": {"app": "x"}}}}
    api.create("poddisruptionbudgets", budget, "default")
    assert refusal(api.evict, "p", "default") == (429, "TooManyRequests")
    allows = {"status": {"disruptionsAllowed": 1, "observedGeneration": 1}}
    api.patch("poddisruptionbudgets", "b", allows, "default", subresource="status")
    api.evict("p", "default")
    ending = api.get("pods", "p", "default")
    assert ending["metadata"]["deletionTimestamp"]
    left = api.get("poddisruptionbudgets", "b", "default")
    assert left["status"]["disruptionsAllowed"] == 0


def test_overhead_is_the_runtime_classs(api: API) -> None:
    assert refusal(api.create, "pods", pod(overhead={"cpu": "1"}), "default") == (403, "Forbidden")
    fixed = {"cpu": "250m"}
    api.create(
        "runtimeclasses",
        {"metadata": {"name": "kata"}, "handler": "kata", "overhead": {"podFixed": fixed}},
    )
    made = api.create("pods", pod(runtimeClassName="kata"), "default")
    assert made["spec"]["overhead"] == fixed


def test_events_are_the_same_in_both_groups(api: API) -> None:
    event = {
        "metadata": {"name": "e"}, "involvedObject": {"kind": "Pod", "namespace": "default"},
        "reason": "R", "message": "m",
    }  # fmt: skip
    api.create("events", event, "default")
    new = api.get(api.resource("events", "events.k8s.io", "v1"), "e", "default")
    assert (new["note"], new["apiVersion"]) == ("m", "events.k8s.io/v1")


class TestCustomResources:
    @pytest.fixture(autouse=True)
    def _install(self, api: API) -> None:
        api.create("customresourcedefinitions", crd())

    def test_the_schema_is_enforced(self, api: API) -> None:
        assert refusal(api.create, NRTS, nrt(available=True)) == (422, "Invalid")
        body = nrt()
        del body["zones"]
        assert refusal(api.create, NRTS, body) == (422, "Invalid")
        assert refusal(api.get, "unheardofs", "x") == (404, "NotFound")

    def test_unknown_fields_are_pruned_with_a_warning(self, api: API) -> None:
        options = WriteOptions()
        made = api.create(NRTS, {**nrt(), "extra": 1}, options=options)
        assert "extra" not in made
        assert options.warnings == ['unknown field "extra"']

    def test_an_update_needs_the_present_version(self, api: API) -> None:
        api.create(NRTS, nrt())
        assert refusal(api.update, NRTS, nrt(available="3")) == (422, "Invalid")

    def test_a_guarded_json_patch_fails_when_the_object_has_moved_on(self, api: API) -> None:
        made = api.create(NRTS, nrt())
        version = made["metadata"]["resourceVersion"]
        guard = {"op": "test", "path": "/metadata/resourceVersion", "value": version}
        write = {"op": "replace", "path": "/zones/0/resources/0/available", "value": "3"}
        after = api.patch(NRTS, "n1", [guard, write], content_type=JSON_PATCH)
        assert after["metadata"]["generation"] == 2
        again = refusal(api.patch, NRTS, "n1", [guard, write], content_type=JSON_PATCH)
        assert again == (422, "Invalid")

    def test_both_versions_show_the_same_object(self, api: API) -> None:
        api.create(NRTS, nrt())
        old = api.resource(NRTS, "topology.node.k8s.io", "v1alpha1")
        assert api.get(old, "n1")["apiVersion"] == "topology.node.k8s.io/v1alpha1"

    def test_without_its_definition_nothing_is_left(self, api: API) -> None:
        api.create(NRTS, nrt())
        api.delete("customresourcedefinitions", crd()["metadata"]["name"])
        assert refusal(api.get, NRTS, "n1") == (404, "NotFound")
