"""Server-side apply: who owns what, what is taken away, what conflicts."""

from __future__ import annotations

import copy
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rte.sim.apiserver import API, StatusError, WriteOptions
from rte.sim.apiserver.schema import fieldsets
from rte.sim.apiserver.verbs.ownership import schema_of
from rte.sim.demo.cluster import crd

CONFIG = {
    "apiVersion": "v1",
    "kind": "ConfigMap",
    "metadata": {"name": "c"},
    "data": {"a": "1", "b": "2"},
}
DEPLOYMENT: dict[str, Any] = {
    "apiVersion": "apps/v1",
    "kind": "Deployment",
    "metadata": {"name": "web", "labels": {"team": "a"}},
    "spec": {
        "replicas": 2,
        "selector": {"matchLabels": {"app": "web"}},
        "template": {
            "metadata": {"labels": {"app": "web"}},
            "spec": {
                "containers": [
                    {
                        "name": "main",
                        "image": "i:1",
                        "env": [{"name": "A", "value": "1"}, {"name": "B", "value": "2"}],
                        "ports": [{"containerPort": 80}],
                    }
                ]
            },
        },
    },
}


def apply(api: API, body: dict[str, Any], manager: str = "kubectl", **more: Any) -> dict[str, Any]:
    resource = {"ConfigMap": "configmaps", "Deployment": "deployments"}[body["kind"]]
    name = body["metadata"]["name"]
    return api.apply(resource, name, body, "default", options=WriteOptions(manager=manager), **more)


def test_it_creates_and_then_changes_nothing(api: API) -> None:
    made = apply(api, CONFIG)
    again = apply(api, CONFIG)
    assert again["metadata"]["resourceVersion"] == made["metadata"]["resourceVersion"]
    (entry,) = made["metadata"]["managedFields"]
    assert (entry["manager"], entry["operation"]) == ("kubectl", "Apply")
    assert entry["fieldsV1"] == {"f:data": {"f:a": {}, "f:b": {}}}


def test_what_is_no_longer_applied_goes_unless_another_owns_it(api: API) -> None:
    apply(api, CONFIG)
    apply(api, {**CONFIG, "data": {"b": "2"}}, "other")
    after = apply(api, {**CONFIG, "data": {}})
    assert after["data"] == {"b": "2"}


def test_a_field_of_another_conflicts_and_can_be_taken(api: API) -> None:
    apply(api, CONFIG)
    changed = {**CONFIG, "data": {"a": "9", "b": "8"}}
    with pytest.raises(StatusError) as caught:
        apply(api, changed, "other")
    assert caught.value.status == 409
    assert caught.value.body["message"] == (
        'Apply failed with 2 conflicts: conflicts with "kubectl":\n- .data.a\n- .data.b'
    )
    taken = apply(api, changed, "other", force=True)
    assert taken["data"] == {"a": "9", "b": "8"}
    assert [entry["manager"] for entry in taken["metadata"]["managedFields"]] == ["other"]


def test_an_update_takes_the_fields_that_it_changes(api: API) -> None:
    apply(api, DEPLOYMENT)
    body = {"spec": {"replicas": 5}}
    api.patch("deployments", "web", body, "default", options=WriteOptions(manager="someone"))
    with pytest.raises(
        StatusError, match=r'conflict with "someone" using apps/v1: \.spec\.replicas'
    ):
        apply(api, DEPLOYMENT)


def test_a_program_without_a_name_counts_by_its_user_agent_where_fields_have_owners(
    api: API,
) -> None:
    api.create("configmaps", {"metadata": {"name": "c"}}, "default", WriteOptions(agent="tool"))
    assert "managedFields" not in api.get("configmaps", "c", "default")["metadata"]
    apply(api, CONFIG)
    api.patch(
        "configmaps", "c", {"data": {"a": "7"}}, "default", options=WriteOptions(agent="tool")
    )
    entries = api.get("configmaps", "c", "default")["metadata"]["managedFields"]
    assert {entry["manager"] for entry in entries} == {"kubectl", "tool"}


def test_items_of_lists_have_owners_of_their_own(api: API) -> None:
    apply(api, DEPLOYMENT)
    sidecar = copy.deepcopy(DEPLOYMENT)
    sidecar["spec"] = {
        "template": {"spec": {"containers": [{"name": "log", "image": "log:1"}]}},
        "selector": DEPLOYMENT["spec"]["selector"],
    }
    del sidecar["metadata"]["labels"]
    after = apply(api, sidecar, "injector")
    containers = after["spec"]["template"]["spec"]["containers"]
    assert [one["name"] for one in containers] == ["main", "log"]
    fewer = copy.deepcopy(DEPLOYMENT)
    del fewer["spec"]["template"]["spec"]["containers"][0]["env"][1]
    del fewer["metadata"]["labels"]
    after = apply(api, fewer)
    main, log = after["spec"]["template"]["spec"]["containers"]
    assert main["env"] == [{"name": "A", "value": "1"}]
    assert log["image"] == "log:1"
    assert "labels" not in after["metadata"]


def test_kubectl_apply_may_go_on_from_its_own_side(api: API) -> None:
    """What was applied here becomes what was applied last, where that is noted at all."""
    key = "kubectl.kubernetes.io/last-applied-configuration"
    body = {**CONFIG, "metadata": {"name": "c", "annotations": {key: "{}"}}}
    api.create("configmaps", body, "default")
    noted = apply(api, CONFIG)["metadata"]["annotations"][key]
    assert orjson.loads(noted) == CONFIG
    assert key not in (apply(api, DEPLOYMENT)["metadata"].get("annotations") or {})


def test_fields_that_do_not_exist_are_refused_by_name(api: API) -> None:
    with pytest.raises(StatusError, match=r"\.dta: field not declared in schema") as caught:
        apply(api, {**CONFIG, "dta": {}})
    assert caught.value.status == 500


def test_an_applier_must_have_a_name(api: API) -> None:
    with pytest.raises(StatusError, match="fieldManager: Required value"):
        apply(api, CONFIG, "")


def test_a_dry_run_changes_nothing(api: API) -> None:
    options = WriteOptions(manager="kubectl", dry_run=True)
    shown = api.apply("configmaps", "c", CONFIG, "default", options=options)
    assert shown["data"] == CONFIG["data"]
    assert api.list("configmaps").items == []


def test_custom_resources_merge_by_their_own_schema(api: API) -> None:
    api.create("customresourcedefinitions", crd())
    nrt = {
        "apiVersion": "topology.node.k8s.io/v1alpha2",
        "kind": "NodeResourceTopology",
        "metadata": {"name": "n"},
        "zones": [{"name": "node-0", "type": "Node"}],
    }
    for manager, options in (("a", {}), ("b", {"force": True})):
        after = api.apply(
            "noderesourcetopologies", "n", nrt, options=WriteOptions(manager=manager), **options
        )
    assert after["zones"] == nrt["zones"]


values = st.dictionaries(st.sampled_from("abcd"), st.sampled_from("123"), max_size=4)


@given(values, values)
def test_a_merge_has_what_was_applied_and_keeps_the_rest(
    live: dict[str, str], applied: dict[str, str]
) -> None:
    schema = schema_of(API().resource("configmaps"))
    merged = fieldsets.merge({"data": live}, {"data": applied}, schema)["data"]
    assert merged == {**live, **applied}
    difference = fieldsets.compare({"data": live}, {"data": merged}, schema)
    assert {path[-1][2:] for path in difference.changed} - {"data"} == {
        key for key, value in applied.items() if live.get(key) != value
    }
    assert not difference.removed


names = st.lists(st.sampled_from("abcdef"), unique=True, max_size=6)


@given(names, names)
def test_keyed_lists_merge_by_item_and_keep_the_order_of_both(
    live: list[str], applied: list[str]
) -> None:
    schema = {
        "type": "array",
        "x-kubernetes-list-type": "map",
        "x-kubernetes-list-map-keys": ["name"],
        "items": {"type": "object", "properties": {"name": {}, "x": {}}},
    }
    before = [{"name": name, "x": 1} for name in live]
    merged = fieldsets.merge(before, [{"name": name} for name in applied], schema)
    got = [one["name"] for one in merged]
    assert sorted(got) == sorted({*live, *applied})
    assert [name for name in got if name in applied] == applied
    assert all(one.get("x") == 1 for one in merged if one["name"] in live)


@given(
    st.lists(
        st.lists(st.sampled_from(["f:a", "f:b", 'k:{"n":"x"}', "v:1"]), min_size=1, max_size=4).map(
            tuple
        )
    )
)
def test_sets_of_fields_survive_their_notation(paths: list[tuple[str, ...]]) -> None:
    assert set(fieldsets.from_fields(fieldsets.to_fields(paths))) == set(paths)
