"""The four verbs as kube-scheduler calls them, over HTTP."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

import pytest

from rte.scheduler.front.wakeups import WAKE_ANNOTATION
from rte.scheduler.plugins import default_preemption as preemption
from tests.unit.scheduler.test_malformed import damaged
from tests.unit.scheduler.town import until

if TYPE_CHECKING:
    from tests.unit.scheduler.conftest import Caller


async def test_filter_names_the_nodes_and_says_why_not_the_others(call: Caller) -> None:
    pod = call.pod("p", "8")
    answer = await call("filter", Pod=pod, NodeNames=["a", "b", "unknown"])
    assert answer["NodeNames"] == ["a", "unknown"]
    assert "Insufficient cpu" in answer["FailedNodes"]["b"]
    nodes = {"items": [{"metadata": {"name": "a"}}, {"metadata": {"name": "b"}}]}
    answer = await call("filter", Pod=pod, Nodes=nodes)
    assert [item["metadata"]["name"] for item in answer["Nodes"]["items"]] == ["a"]


async def test_prioritize_scores_from_zero_to_ten(call: Caller) -> None:
    answer = await call("prioritize", Pod=call.pod("p", "7"), NodeNames=["a", "b"])
    assert {item["Host"] for item in answer} == {"a", "b"}
    assert all(0 <= item["Score"] <= 10 for item in answer)


async def test_bind_goes_through_and_a_second_one_meets_what_the_first_took(call: Caller) -> None:
    first, second = call.pod("first", "7"), call.pod("second", "7")
    assert await call.bind(first, "b") == ""
    assert "Insufficient cpu" in await call.bind(second, "b")
    await until(lambda: call.town.phase("first") == "Running")
    assert call.town.where("second") == ""


async def test_pods_of_other_schedulers_are_not_bound(call: Caller) -> None:
    call.town.pod("other", "1", schedulerName="somebody-else")
    assert "somebody-else" in await call.bind(call.town.get("other"), "a")
    assert call.town.where("other") == ""


async def test_a_waiting_pod_is_woken_when_a_place_appears(call: Caller) -> None:
    first, second = call.pod("first", "7"), call.pod("second", "7")
    assert await call.bind(first, "b") == ""
    answer = await call("filter", Pod=second, NodeNames=["b"])
    assert answer["NodeNames"] == []
    call.town.end("first")

    def woken() -> bool:
        return WAKE_ANNOTATION in (call.town.get("second")["metadata"].get("annotations") or {})

    await until(woken)
    answer = await call("filter", Pod=second, NodeNames=["b"])
    assert answer["NodeNames"] == ["b"]


async def test_preempt_drops_victims_that_free_no_zone(call: Caller) -> None:
    call.town.api.create("priorityclasses", {"metadata": {"name": "urgent"}, "value": 10})
    small = call.pod("small", "1")
    large = call.pod("large", "6")
    assert await call.bind(small, "b") == ""
    await until(lambda: call.town.phase("small") == "Running")
    assert await call.bind(large, "b") == ""
    await until(lambda: call.town.phase("large") == "Running")
    pod = call.pod("urgent", "6", priorityClassName="urgent")
    uid = {name: call.town.get(name)["metadata"]["uid"] for name in ("small", "large")}
    proposal = {"b": {"Pods": [{"UID": uid["small"]}], "NumPDBViolations": 0}}
    node = call.scheduler.cluster.nodes["b"]
    await until(lambda: preemption.is_settled(node))
    answer = await call("preempt", Pod=pod, NodeNameToMetaVictims=proposal)
    assert answer["NodeNameToMetaVictims"]["b"]["Pods"] == [{"UID": uid["large"]}]


async def test_what_is_no_request_is_answered_with_an_error(call: Caller) -> None:
    answer = await call("filter", Pod={"metadata": 3}, NodeNames=["a"])
    assert "bad request" in answer["Error"]


@pytest.mark.parametrize("verb", ["filter", "prioritize", "preempt", "bind"])
async def test_damaged_requests_are_answered_with_an_error_text(call: Caller, verb: str) -> None:
    """Two hundred for each verb; what is still a request is answered as one."""
    rng = random.Random(verb)
    pod = call.pod("p", "2", nodeSelector={"disk": "fast"})
    meta = pod["metadata"]
    good = {
        "Pod": pod,
        "NodeNames": ["a", "b"],
        "NodeNameToMetaVictims": {"a": {"Pods": [{"UID": "u"}], "NumPDBViolations": 0}},
        "PodName": meta["name"],
        "PodNamespace": meta["namespace"],
        "PodUID": "another",
        "Node": "a",
    }
    if verb == "prioritize":
        del good["NodeNames"]
        good["Nodes"] = {"items": [{"metadata": {"name": "a"}}]}
    refused = 0
    for _ in range(200):
        answer = await call.raw(verb, damaged(rng, good))
        if isinstance(answer, dict) and answer.get("Error"):
            assert "\n" not in answer["Error"]
            refused += 1
    assert refused > 20
    for text in (b"", b"[]", b"3", b"{", b"\xff"):
        answer = await call.raw(verb, text)
        assert "bad request" in answer["Error"]
    call.town.pod("after", "2")
    await until(lambda: call.town.phase("after") == "Running")
