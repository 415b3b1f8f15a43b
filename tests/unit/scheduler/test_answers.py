"""What the machine makes of the API's answers to its binds."""

from __future__ import annotations

import pytest

from rte.scheduler.loop import bulkheads, messages
from rte.scheduler.loop.messages import Bound, Outcome, Post
from rte.scheduler.loop.verdicts import explain
from tests.unit.scheduler.build import World
from tests.unit.scheduler.desk import Desk


def desk_with_bind() -> tuple[Desk, str]:
    """A pod is being bound to the only node; nobody has answered."""
    desk = Desk()
    desk.node("a")
    desk.answers = False
    uid = desk.pod("pod")
    assert [bind.node for bind in desk.binds] == ["a"]
    desk.binds.clear()
    return desk, uid


@pytest.mark.parametrize("outcome", [Outcome.REFUSED, Outcome.FAILED, Outcome.GONE])
def test_a_bind_that_comes_to_nothing_leaves_nothing_on_its_node(outcome: Outcome) -> None:
    desk, uid = desk_with_bind()
    entry = desk.machine.cluster.nodes["a"]
    assert entry.awaited.keys() == {uid}
    desk.handle(Bound(uid, outcome))
    assert not entry.awaited
    assert not entry.pods


def test_a_pod_that_the_api_has_no_longer_is_forgotten_before_its_watch_says_so() -> None:
    desk, uid = desk_with_bind()
    desk.handle(Bound(uid, Outcome.GONE))
    assert uid not in desk.machine.cluster.pods
    assert uid not in desk.machine.queue


def test_of_a_pod_that_was_deleted_while_it_was_bound_nothing_is_told() -> None:
    desk, uid = desk_with_bind()
    desk.delete("pods", uid)
    desk.handle(Bound(uid, Outcome.BOUND))
    assert not [post for post in desk.told(Post) if post.reason == "Scheduled"]


def test_a_bound_pod_is_told_of_once() -> None:
    desk, uid = desk_with_bind()
    desk.handle(Bound(uid, Outcome.BOUND))
    (post,) = [post for post in desk.told(Post) if post.reason == "Scheduled"]
    assert post.note == "Successfully assigned default/pod to a"
    assert {e.metric for e in desk.told(messages.Measured)} >= {"bind_seconds", "sli_seconds"}


def test_a_pod_that_fits_by_now_is_told_so() -> None:
    world = World()
    world.node("a")
    assert explain(world.pod(), world.cycle)[0] == "a node has just become available"


@pytest.mark.parametrize(
    "change",
    [
        {"metadata": {"annotations": {"a": "b"}}},
        {"metadata": {"labels": {"a": "b"}}},
        {"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z"}},
        {"spec": {"nodeName": "n"}},
        {"status": {"phase": "Failed"}},
    ],
)
def test_what_its_author_changes_makes_an_object_another_one(change: dict[str, object]) -> None:
    obj = {"metadata": {"resourceVersion": "1"}, "status": {"phase": "Pending"}}
    authored = bulkheads._authored(obj)
    assert bulkheads._authored({**obj, "metadata": {"resourceVersion": "2"}}) == authored
    assert bulkheads._authored({**obj, **change}) != authored
