"""The three patch formats."""

from __future__ import annotations

import copy
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rte.sim.apiserver.schema import patch


@pytest.mark.parametrize(
    ("document", "operation", "result"),
    [  # RFC 6902, appendix A
        ({"foo": "bar"}, {"op": "add", "path": "/baz", "value": "q"}, {"baz": "q", "foo": "bar"}),
        ({"foo": ["a", "b"]}, {"op": "add", "path": "/foo/1", "value": "x"},
         {"foo": ["a", "x", "b"]}),
        ({"foo": ["a"]}, {"op": "add", "path": "/foo/-", "value": ["x"]}, {"foo": ["a", ["x"]]}),
        ({"baz": 1, "foo": 2}, {"op": "remove", "path": "/baz"}, {"foo": 2}),
        ({"foo": ["a", "b"]}, {"op": "remove", "path": "/foo/0"}, {"foo": ["b"]}),
        ({"baz": 1}, {"op": "replace", "path": "/baz", "value": 2}, {"baz": 2}),
        ({"a": {"b": 1}, "c": {}}, {"op": "move", "from": "/a/b", "path": "/c/d"},
         {"a": {}, "c": {"d": 1}}),
        ({"a": 1}, {"op": "copy", "from": "/a", "path": "/b"}, {"a": 1, "b": 1}),
        ({"/": 9, "~1": 10}, {"op": "test", "path": "/~01", "value": 10}, {"/": 9, "~1": 10}),
        ({"a": 1}, {"op": "replace", "path": "", "value": {"b": 2}}, {"b": 2}),
    ],
)  # fmt: skip
def test_json_patch(document: Any, operation: dict[str, Any], result: Any) -> None:
    assert patch.json_patch(copy.deepcopy(document), [operation]) == result


@pytest.mark.parametrize(
    "operation",
    [
        {"op": "remove", "path": "/none"}, {"op": "replace", "path": "/none", "value": 1},
        {"op": "test", "path": "/a", "value": 2}, {"op": "test", "path": "/a", "value": True},
        {"op": "add", "path": "/list/9", "value": 1}, {"op": "jump", "path": "/a"},
        {"op": "add", "path": "a", "value": 1}, {"op": "add", "path": "/a/b", "value": 1},
    ],
)  # fmt: skip
def test_json_patch_that_does_not_apply(operation: dict[str, Any]) -> None:
    with pytest.raises(patch.PatchError):
        patch.json_patch({"a": 1, "list": []}, [operation])


@pytest.mark.parametrize(
    ("document", "change", "result"),
    [  # RFC 7386, appendix A
        ({"a": "b"}, {"a": "c"}, {"a": "c"}), ({"a": "b"}, {"b": "c"}, {"a": "b", "b": "c"}),
        ({"a": "b"}, {"a": None}, {}), ({"a": "b", "b": "c"}, {"a": None}, {"b": "c"}),
        ({"a": ["b"]}, {"a": "c"}, {"a": "c"}), ({"a": "c"}, {"a": ["b"]}, {"a": ["b"]}),
        ({"a": {"b": "c"}}, {"a": {"b": "d", "c": None}}, {"a": {"b": "d"}}),
        ({"a": [{"b": "c"}]}, {"a": [1]}, {"a": [1]}), (["a"], {"a": 1}, {"a": 1}),
        ({"e": None}, {"a": 1}, {"e": None, "a": 1}), ({}, {"a": {"bb": {"ccc": None}}},
                                                       {"a": {"bb": {}}}),
    ],
)  # fmt: skip
def test_merge_patch(document: Any, change: Any, result: Any) -> None:
    assert patch.merge_patch(document, change) == result


_JSON = st.recursive(
    st.none() | st.booleans() | st.integers(0, 3) | st.text("ab", max_size=2),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text("ab", max_size=1), inner),
    max_leaves=6,
)


@given(st.dictionaries(st.text("ab", max_size=1), _JSON), st.dictionaries(st.text("ab"), _JSON))
def test_a_merge_patch_applied_twice_is_applied_once(document: Any, change: Any) -> None:
    once = patch.merge_patch(document, change)
    assert patch.merge_patch(once, change) == once


def pod(**spec: Any) -> dict[str, Any]:
    return {"spec": spec}


def test_lists_with_a_merge_key_merge_by_it() -> None:
    before = pod(containers=[{"name": "a", "image": "1"}, {"name": "b", "image": "1"}])
    change = pod(containers=[{"name": "b", "image": "2"}, {"name": "c", "image": "3"}])
    after = patch.strategic_merge(before, change, "core/v1.Pod")
    assert [(c["name"], c["image"]) for c in after["spec"]["containers"]] == [
        ("a", "1"), ("b", "2"), ("c", "3"),
    ]  # fmt: skip


def test_lists_without_one_are_replaced() -> None:
    before = {"spec": {"taints": [{"key": "a"}]}}
    after = patch.strategic_merge(before, {"spec": {"taints": [{"key": "b"}]}}, "core/v1.Node")
    assert after == {"spec": {"taints": [{"key": "b"}]}}


def test_sets_of_plain_values_grow() -> None:
    before = {"metadata": {"finalizers": ["a"]}}
    change = {"metadata": {"finalizers": ["b", "a"]}}
    after = patch.strategic_merge(before, change, "core/v1.Pod")
    assert sorted(after["metadata"]["finalizers"]) == ["a", "b"]


def test_directives() -> None:
    before = pod(containers=[{"name": "a"}, {"name": "b"}], nodeSelector={"x": "1"})
    change = pod(
        containers=[{"name": "a", "$patch": "delete"}], nodeSelector={"$patch": "replace", "y": "2"}
    )
    after = patch.strategic_merge(before, change, "core/v1.Pod")
    assert after == pod(containers=[{"name": "b"}], nodeSelector={"y": "2"})
    ordered = patch.strategic_merge(
        pod(containers=[{"name": "a"}, {"name": "b"}]),
        {"spec": {"$setElementOrder/containers": [{"name": "b"}, {"name": "a"}]}},
        "core/v1.Pod",
    )
    assert [c["name"] for c in ordered["spec"]["containers"]] == ["b", "a"]
    kept = patch.strategic_merge(
        {"metadata": {"finalizers": ["a", "b"]}},
        {"metadata": {"$deleteFromPrimitiveList/finalizers": ["a"]}},
        "core/v1.Pod",
    )
    assert kept["metadata"]["finalizers"] == ["b"]


def test_an_element_without_its_merge_key_is_refused() -> None:
    with pytest.raises(patch.PatchError, match="merge key"):
        patch.strategic_merge(pod(containers=[]), pod(containers=[{"image": "x"}]), "core/v1.Pod")
