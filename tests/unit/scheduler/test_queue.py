"""Order, sleep and waiting times of the queue."""

from __future__ import annotations

import pytest

from rte.scheduler.framework.events import ClusterEvent, Help, Kind
from rte.scheduler.loop.messages import Due, Timers
from rte.scheduler.queue.queue import SchedulingQueue
from rte.scheduler.queue.waiting import EquivalenceClass, UnitKey
from tests.unit.scheduler.build import World


def names(queue: SchedulingQueue) -> list[str]:
    out = []
    while (group := queue.pop()) is not None:
        head = group.head()
        assert head is not None
        out.append(head.pod.name)
        queue.remove(head.pod.uid)
        queue.again(group)
    return out


def test_priority_goes_before_age_and_shape_does_not_matter() -> None:
    world, queue = World(), SchedulingQueue()
    for name, cpu, priority in (
        ("old", "1", 0),
        ("new", "2", 0),
        ("vip", "1", 9),
        ("late", "1", 0),
    ):
        pod = world.pod(name=name, cpu=cpu, priority=priority)
        queue.push(pod, UnitKey(shape=pod.shape.key))
    assert names(queue) == ["vip", "old", "new", "late"]


def test_a_group_sleeps_and_wakes_as_one() -> None:
    world, queue = World(), SchedulingQueue()
    pods = [world.pod(name=f"p{n}") for n in range(3)]
    for pod in pods:
        queue.push(pod, UnitKey(shape=pod.shape.key))
    group = queue.pop()
    assert group is not None
    queue.sleep(group, frozenset({"NodeResourcesFit"}), Kind.POD_GONE)
    newcomer = world.pod(name="p3")
    queue.push(newcomer, UnitKey(shape=newcomer.shape.key))
    assert queue.pop() is None
    assert queue.sizes() == {"active": 0, "backoff": 0, "unschedulable": 4}
    queue.wake([ClusterEvent(Kind.REPORT, "n")], lambda *_: True, lambda *_: None, 1)
    assert queue.pop() is None
    queue.wake([ClusterEvent(Kind.POD_GONE, "n")], lambda *_: False, lambda *_: None, 1)
    assert queue.pop() is None
    queue.wake([ClusterEvent(Kind.POD_GONE, "n")], lambda *_: True, lambda *_: None, 1)
    assert names(queue) == ["p0", "p1", "p2", "p3"]


def test_a_replica_that_does_not_lead_keeps_nothing_of_pods_that_have_left() -> None:
    world, queue = World(), SchedulingQueue()
    stays = world.pod(name="stays", cpu="1")
    queue.push(stays, UnitKey(shape=stays.shape.key))

    def come_and_go(times: int) -> int:
        for number in range(times):
            for cpu in ("1", "2"):
                pod = world.pod(name=f"p{number}", cpu=cpu)
                queue.push(pod, UnitKey(shape=pod.shape.key))
                queue.remove(pod.uid)
        return sum(map(len, queue._active.values()))

    assert come_and_go(400) <= come_and_go(200) + 80
    assert names(queue) == ["stays"]


def test_a_pod_that_leaves_is_not_tried() -> None:
    world, queue = World(), SchedulingQueue()
    first, second = world.pod(name="first"), world.pod(name="second")
    queue.push(first, UnitKey(shape=first.shape.key))
    queue.push(second, UnitKey(shape=second.shape.key))
    queue.remove(first.uid)
    assert names(queue) == ["second"]
    assert len(queue) == 0


def test_a_failed_bind_waits_twice_as_long_each_time_and_keeps_its_place() -> None:
    world, queue = World(), SchedulingQueue()
    pod, younger = world.pod(name="pod"), world.pod(name="younger")
    queue.push(pod, UnitKey(shape=pod.shape.key))
    waits = []
    for now in (0.0, 100.0, 200.0):
        waits.append(round(queue.back_off(pod, UnitKey(shape=pod.shape.key), now) - now, 6))
        assert queue.pop() is None
        assert queue.release(now + waits[-1] - 0.01) == pytest.approx(now + waits[-1])
        assert queue.release(now + waits[-1] + 0.01) is None
    assert waits == [0.1, 0.2, 0.4]
    queue.push(younger, UnitKey(shape=younger.shape.key))
    assert names(queue) == ["pod", "younger"]


def test_a_pod_whose_shape_changes_moves_to_another_group() -> None:
    world, queue = World(), SchedulingQueue()
    pod = world.pod(name="pod")
    queue.push(pod, UnitKey(shape=pod.shape.key))
    queue.push(pod, UnitKey(shape=b"other"))
    assert len(queue) == 1
    assert names(queue) == ["pod"]


def sleeper(world: World, queue: SchedulingQueue, name: str, **options: str) -> EquivalenceClass:
    """The group of one pod, refused at 0 s until a pod is gone."""
    pod = world.pod(name=name, **options)
    queue.push(pod, UnitKey(shape=pod.shape.key))
    group = queue.pop()
    assert group is not None
    queue.sleep(group, frozenset({"NodeResourcesFit"}), Kind.POD_GONE)
    group.seen = 7
    return group


def test_what_may_help_is_looked_at_after_a_rest_and_what_does_at_once() -> None:
    helps = {"may": Help.ANY, "does": Help.NAMED}
    for said, has_a_turn in ((("may",), False), (("may", "does"), True), (("does", "may"), True)):
        world, queue = World(), SchedulingQueue()
        sleeper(world, queue, "pod")
        events = [ClusterEvent(Kind.POD_GONE, name) for name in said]
        queue.wake(events, lambda event, _: helps[event.node], lambda *_: None, 8, 0.5)
        assert (queue.first(0.5) is not None) is has_a_turn
        assert queue.first(1.0) is not None


def test_once_another_replica_has_decided_all_nodes_are_looked_at_again() -> None:
    queue = SchedulingQueue()
    group = sleeper(World(), queue, "pod")
    queue.rouse_all()
    assert (group.seen, group.refused_by, group.was_refused) == (-1, frozenset(), False)
    assert names(queue) == ["pod"]


def test_a_sleeper_that_joins_sleepers_is_asked_about_with_them_once() -> None:
    world, queue = World(), SchedulingQueue()
    one, other = (sleeper(world, queue, name, cpu=cpu) for name, cpu in (("a", "1"), ("b", "2")))
    queue.regroup(one.first().uid, other.key)
    asked = []
    queue.wake(
        [ClusterEvent(Kind.POD_GONE, "n")],
        lambda _, group: asked.append(group) or Help.NONE,
        lambda *_: None,
        8,
    )
    assert asked == [other]
    assert queue.sizes()["unschedulable"] == 2


def test_room_for_sleepers_is_doubled_when_it_is_full() -> None:
    world, queue = World(), SchedulingQueue()
    for number in range(1, 41):
        sleeper(world, queue, f"p{number}", cpu=f"{number}m")
    (alike,) = queue._asleep.values()
    assert alike._needs.shape[1] == 64


def test_of_what_is_due_at_one_moment_the_first_set_comes_first() -> None:
    timers = Timers()
    assert timers.next() is None
    for due in (Due.TELL, Due.MINUTE, Due.ASIDE):
        timers.at(3.0, due)
    assert timers.next() == 3.0
    assert [what for what, _ in timers.due(3.0)] == [Due.TELL, Due.MINUTE, Due.ASIDE]
