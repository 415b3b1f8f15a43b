"""Evictions, nominations and reservations over time: each ends when nothing speaks for it."""

from __future__ import annotations

from typing import Any

from rte.scheduler.loop import messages
from rte.scheduler.loop.messages import Evicted, Nominate
from rte.scheduler.loop.promises import EXTERNAL_S
from rte.scheduler.loop.room.plans import plan_on
from tests.unit.scheduler.build import machine, state
from tests.unit.scheduler.desk import Desk

ONE_ZONE = state(machine(zones=1))
DISK = {"nodeSelector": {"disk": "ssd"}}
SERVICE = [{"kind": "ReplicaSet", "name": "rs", "uid": "rs", "controller": True}]


def desk_with(*nodes: str, **options: Any) -> Desk:
    desk = Desk(**options)
    for name in nodes:
        desk.node(name, ONE_ZONE, labels={"disk": "ssd"})
    return desk


def nominated(desk: Desk) -> list[str]:
    return [effect.node for effect in desk.told(Nominate)]


def test_a_victim_that_ends_lets_the_pod_in() -> None:
    desk = desk_with("a")
    low = desk.pod("low", "6")
    desk.run_all()
    high = desk.pod("high", "6", priority=10)
    assert nominated(desk) == ["a"]
    assert desk.view(low).deleting
    desk.end(low)
    assert desk.where(high) == "a"
    assert desk.machine.cluster.nominations == {}


def test_an_eviction_that_leadership_interrupts_is_planned_again() -> None:
    """The lease is late for a moment between the plan and the first eviction."""
    desk = desk_with("a")
    low = desk.pod("low", "6")
    desk.run_all()
    desk.answers = False
    high = desk.pod("high", "6", priority=10)
    (first,) = desk.evictions
    desk.handle(Evicted(first.pod.uid, (), complete=False))
    assert desk.machine.cluster.nominations == {}
    assert len(desk.evictions) == 1
    desk.answers = True
    desk.evictions.clear()
    desk.pass_time(5.0)
    assert desk.view(low).deleting
    desk.end(low)
    assert desk.where(high) == "a"


def test_room_that_is_promised_to_others_keeps_nobody_from_making_his_own() -> None:
    """Their victim may take an hour to end; until then there is room that nobody else may have."""
    desk = desk_with("a", "b")
    desk.label("b", disk="hdd")
    desk.pod("on-a", "3", **DISK)
    desk.run_all()
    desk.pod("on-b", "6")
    desk.run_all()
    desk.pod("high", "6", priority=10, **DISK)
    desk.pod("next", "3", priority=10)
    assert desk.machine.cluster.nominations == {"uid-high": "a", "uid-next": "b"}


def test_who_could_evict_once_somebody_more_important_has_ended_does() -> None:
    """What is free is too little all the time, and so was what less important pods held."""
    desk = desk_with("a")
    important = desk.pod("important", "4", priority=20)
    desk.run_all()
    low = desk.pod("low", "3")
    desk.run_all()
    high = desk.pod("high", "6", priority=10)
    assert desk.machine.cluster.nominations == {}
    desk.end(important)
    desk.pass_time(2.0)
    assert desk.view(low).deleting
    desk.end(low)
    assert desk.where(high) == "a"


def test_who_could_evict_once_another_rule_has_changed_does() -> None:
    """Room is short first, so nobody has told that the namespace would have kept him away too."""
    desk = desk_with("a")
    term = {
        "topologyKey": "disk",
        "labelSelector": {"matchLabels": {"app": "high"}},
        "namespaceSelector": {"matchLabels": {"team": "red"}},
    }
    apart = {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}
    desk.put("namespaces", "default", {"metadata": {"name": "default", "labels": {"team": "red"}}})
    desk.pod("shy", "1", priority=20, affinity=apart)
    low = desk.pod("low", "6")
    desk.run_all()
    high = desk.pod("high", "6", priority=10, labels={"app": "high"})
    assert desk.machine.cluster.nominations == {}
    desk.put("namespaces", "default", {"metadata": {"name": "default", "labels": {}}})
    desk.pass_time(2.0)
    assert desk.view(low).deleting
    desk.end(low)
    assert desk.where(high) == "a"


def test_a_nomination_ends_when_its_node_will_not_do_any_more() -> None:
    desk = desk_with("a")
    low = desk.pod("low", "6")
    desk.run_all()
    high = desk.pod("high", "6", priority=10, **DISK)
    desk.label("a", disk="hdd")
    assert desk.machine.cluster.nominations == {}
    assert nominated(desk) == ["a", ""]
    desk.end(low)
    small = desk.pod("small", "4")
    assert (desk.where(small), desk.where(high)) == ("a", "")


def test_a_nomination_ends_with_its_node() -> None:
    desk = desk_with("a")
    desk.pod("low", "6")
    desk.run_all()
    high = desk.pod("high", "6", priority=10)
    desk.delete("nodes", "a")
    assert desk.machine.cluster.nominations == {}
    desk.node("b", ONE_ZONE)
    assert desk.where(high) == "b"


def test_victims_of_a_dying_node_are_not_waited_for_for_ever() -> None:
    """The kubelet of a is silent: its pod never ends. After its grace period b has to give."""
    desk = desk_with("a", "b")
    lows = {n: desk.pod(f"low-{n}", "6", terminationGracePeriodSeconds=20) for n in "ab"}
    desk.run_all()
    high = desk.pod("high", "6", priority=10)
    (first,) = nominated(desk)
    desk.pass_time(25.0)
    assert nominated(desk) == [first]
    desk.pass_time(10.0)
    (other,) = {"a", "b"} - {first}
    assert nominated(desk)[-1] == other
    ended = next(uid for uid in lows.values() if desk.where(uid) == other)
    desk.end(ended)
    assert desk.where(high) == other


def test_a_better_place_elsewhere_is_taken_and_the_promise_given_back() -> None:
    desk = desk_with("a")
    desk.pod("low", "6")
    desk.run_all()
    high = desk.pod("high", "6", priority=10)
    assert desk.machine.cluster.nominations == {high: "a"}
    desk.node("b", ONE_ZONE)
    assert desk.where(high) == "b"
    assert desk.machine.cluster.nominations == {}


def nominate(desk: Desk, uid: str, node: str) -> None:
    """Somebody else says where room is being made for the pod (``rte defrag --apply``)."""
    desk.change(uid, nominatedNodeName=node)


def test_room_that_somebody_else_makes_is_kept_from_the_eviction_to_the_bind() -> None:
    """The pod is known already when it is nominated, and nothing on the node ends yet."""
    desk = desk_with("a", preempts=False)
    moved = [desk.pod("first", "3"), desk.pod("second", "3")]
    desk.run_all()
    waiting = desk.pod("waiting", "6")
    nominate(desk, waiting, "a")
    desk.report("a")
    assert desk.machine.cluster.nominations == {waiting: "a"}
    thief = desk.pod("thief", "3")
    for uid in moved:
        desk.begin_to_end(uid)
        desk.end(uid)
        assert desk.where(thief) == ""
    assert desk.where(waiting) == "a"


def test_who_is_more_important_is_not_kept_away_by_a_nomination() -> None:
    desk = desk_with("a", preempts=False)
    moved = desk.pod("moved", "6")
    desk.run_all()
    nominate(desk, desk.pod("waiting", "6"), "a")
    desk.begin_to_end(moved)
    urgent = desk.pod("urgent", "6", priority=10)
    desk.end(moved)
    assert desk.where(urgent) == "a"


def test_a_nomination_of_others_is_withdrawn_by_them_or_moves() -> None:
    desk = desk_with("a", "b", preempts=False)
    desk.pod("one", "6"), desk.pod("two", "6")
    desk.run_all()
    waiting = desk.pod("waiting", "6")
    for node, found in (("a", {waiting: "a"}), ("b", {waiting: "b"}), ("", {}), ("gone", {})):
        nominate(desk, waiting, node)
        assert desk.machine.cluster.nominations == found


def test_a_nomination_of_others_does_not_last_for_ever() -> None:
    desk = desk_with("a", preempts=False)
    desk.pod("stays", "6")
    desk.run_all()
    waiting = desk.pod("waiting", "6")
    nominate(desk, waiting, "a")
    desk.pass_time(EXTERNAL_S - 1)
    assert desk.machine.cluster.nominations == {waiting: "a"}
    desk.pass_time(2)
    assert desk.machine.cluster.nominations == {}
    assert nominated(desk) == [""]


def test_a_nomination_of_others_ends_where_even_an_empty_node_would_not_do() -> None:
    desk = desk_with("a", preempts=False)
    desk.pod("stays", "6")
    desk.run_all()
    waiting = desk.pod("waiting", "6", **DISK)
    nominate(desk, waiting, "a")
    desk.label("a", disk="hdd")
    assert desk.machine.cluster.nominations == {}


def test_our_own_plan_comes_before_a_nomination_of_others() -> None:
    desk = desk_with("a", "b")
    low = desk.pod("low", "6")
    desk.run_all()
    (where,) = (desk.where(low),)
    other = {"a": "b", "b": "a"}[where]
    desk.pod("full", "6", priority=100)
    desk.run_all()
    high = desk.pod("high", "6", priority=10)
    assert desk.machine.cluster.nominations == {high: where}
    nominate(desk, high, other)
    assert desk.machine.cluster.nominations == {high: where}
    desk.end(low)
    assert desk.where(high) == where


def test_a_successor_takes_up_the_nominations_of_the_one_before_it() -> None:
    desk = desk_with("a")
    low = desk.pod("low", "6")
    desk.run_all()
    desk.begin_to_end(low)
    waiting = {"phase": "Pending", "nominatedNodeName": "a"}
    high = desk.pod("high", "6", priority=10, status=waiting)
    assert desk.machine.cluster.nominations == {high: "a"}
    desk.end(low)
    assert desk.where(high) == "a"


def test_a_restart_forgets_no_nomination_of_others() -> None:
    desk = desk_with("a", preempts=False)
    desk.pod("moved", "6")
    desk.run_all()
    waiting = desk.pod("waiting", "6")
    nominate(desk, waiting, "a")
    desk.restart()
    desk.report("a")
    assert desk.machine.cluster.nominations == {waiting: "a"}


def test_our_own_evictions_count_before_the_budget_says_so() -> None:
    """Two preemptions in quick succession: the budget allows one disruption, not two."""
    desk = desk_with("a", "b")
    guarded = [desk.pod(f"db-{n}", "6", labels={"app": "db"}, priority=1) for n in range(2)]
    desk.run_all()
    budget = {
        "metadata": {"namespace": "default", "name": "db"},
        "spec": {"selector": {"matchLabels": {"app": "db"}}},
        "status": {"disruptionsAllowed": 1},
    }
    desk.put("budgets", "default/db", budget)
    desk.node("c", ONE_ZONE)
    dear = desk.pod("dear", "6", priority=5)
    desk.run_all()
    first, second = (desk.pod(f"high-{n}", "6", priority=10) for n in range(2))
    leaving = {uid for uid in (*guarded, dear) if desk.view(uid).deleting}
    assert len(leaving) == 2
    assert dear in leaving, "the second would have violated the budget"
    for uid in leaving:
        desk.end(uid)
    assert desk.where(first)
    assert desk.where(second)


def test_pods_that_the_budget_has_counted_already_violate_it_no_more() -> None:
    desk = desk_with("a")
    desk.pod("db", "6", labels={"app": "db"})
    desk.run_all()
    budget = {
        "metadata": {"namespace": "default", "name": "db"},
        "spec": {"selector": {"matchLabels": {"app": "db"}}},
        "status": {"disruptionsAllowed": 0, "disruptedPods": {"db": "2026-01-01T00:00:00Z"}},
    }
    desk.put("budgets", "default/db", budget)
    plan = plan_on(
        desk.machine.cycle,
        desk.machine.cluster,
        desk.view(desk.pod("high", "6", priority=10, preemptionPolicy="Never")),
        desk.machine.cluster.nodes["a"],
    )
    assert plan is not None
    assert plan.violations == 0


def waiting_for_the_zone(desk: Desk) -> str:
    """A pod that needs a whole zone of node a, where small ones run."""
    for number in range(2):
        desk.pod(f"small-{number}", "3")
    desk.run_all()
    return desk.pod("large", "7")


def test_a_reservation_that_comes_to_nothing_lapses() -> None:
    desk = desk_with("a", reserve_after=60.0)
    large = waiting_for_the_zone(desk)
    desk.pass_time(62.0)
    assert desk.machine.cluster.nominations == {large: "a"}
    other = desk.pod("other", "1")
    assert desk.where(other) == ""
    desk.pass_time(125.0)
    assert desk.machine.cluster.nominations == {}
    assert desk.where(other) == "a"


def test_a_reservation_lasts_while_its_node_drains() -> None:
    desk = desk_with("a", reserve_after=60.0)
    large = waiting_for_the_zone(desk)
    desk.pass_time(62.0)
    desk.pass_time(100.0)
    desk.end("uid-small-0")
    desk.pass_time(100.0)
    assert desk.machine.cluster.nominations == {large: "a"}
    desk.end("uid-small-1")
    assert desk.where(large) == "a"
    assert desk.machine.cluster.nominations == {}


def test_each_of_those_who_wait_has_its_turn() -> None:
    """One node, one reservation: it goes from the first to the second when it lapses."""
    desk = desk_with("a", reserve_after=60.0)
    first = waiting_for_the_zone(desk)
    second = desk.pod("second", "6")
    desk.pass_time(62.0)
    assert desk.machine.cluster.nominations == {first: "a"}
    desk.pass_time(122.0)
    assert desk.machine.cluster.nominations == {second: "a"}


def test_a_node_full_of_services_is_not_waited_for() -> None:
    desk = Desk(reserve_after=60.0)
    desk.node("services", ONE_ZONE)
    uid = desk.pod("service", "6")
    obj = desk.objects["pods", uid]
    metadata = {**obj["metadata"], "ownerReferences": SERVICE}
    desk.put("pods", uid, {**obj, "metadata": metadata})
    desk.run_all()
    desk.node("jobs", ONE_ZONE, labels={"kind": "jobs"})
    desk.pod("job", "6", restartPolicy="Never", nodeSelector={"kind": "jobs"})
    desk.run_all()
    large = desk.pod("large", "7")
    desk.pass_time(62.0)
    assert desk.machine.cluster.nominations == {large: "jobs"}


def test_ordinary_pods_are_let_in_while_a_node_drains() -> None:
    desk = desk_with("a", reserve_after=60.0)
    desk.node("a", ONE_ZONE, allocatable={"cpu": "7500m"})
    large = waiting_for_the_zone(desk)
    desk.pass_time(62.0)
    assert desk.machine.cluster.nominations == {large: "a"}
    ordinary = desk.pod("ordinary", "400m", guaranteed=False, mem="1Mi")
    assert desk.where(ordinary) == "a"
    # Another would take of the total what the large pod will need.
    late = desk.pod("late", "400m", guaranteed=False, mem="1Mi")
    assert desk.where(late) == ""
    for number in range(2):
        desk.end(f"uid-small-{number}")
    assert desk.where(large) == "a"


def test_higher_priorities_need_not_wait_for_a_reservation() -> None:
    desk = desk_with("a", reserve_after=60.0, preempts=False)
    waiting_for_the_zone(desk)
    desk.pass_time(62.0)
    urgent = desk.pod("urgent", "1", priority=10)
    assert desk.where(urgent) == "a"


def test_nothing_of_a_promise_is_left_when_the_pod_is_gone() -> None:
    desk = desk_with("a", reserve_after=60.0)
    large = waiting_for_the_zone(desk)
    desk.pass_time(62.0)
    desk.end(large)
    assert desk.machine.cluster.nominations == {}
    assert not any(entry.nominated for entry in desk.machine.cluster.nodes.values())
    assert list(desk.machine.queue) == []
    assert any(isinstance(effect, messages.Post) for effect in desk.effects)


def test_who_is_being_evicted_for_one_pod_makes_room_for_the_next_as_well() -> None:
    """Before the API shows the first eviction nobody else is evicted for what it leaves over."""
    desk = Desk()
    desk.node("a", bare=True, allocatable={"cpu": "8"})
    for name in ("low", "other"):
        desk.pod(name, "4", guaranteed=False, priority=1)
    desk.answers = False
    desk.pod("first", "3", guaranteed=False, priority=10)
    desk.pod("second", "1", guaranteed=False, priority=10)
    assert [len(eviction.victims) for eviction in desk.evictions] == [1]
    assert set(desk.machine.cluster.nominations) == {"uid-first", "uid-second"}


def test_two_pods_that_need_room_have_each_victim_evicted_once() -> None:
    desk = Desk()
    desk.node("a", bare=True, allocatable={"cpu": "8"})
    for name in ("low", "other"):
        desk.pod(name, "4", guaranteed=False, priority=1)
    desk.answers = False
    for name in ("first", "second"):
        desk.pod(name, "4", guaranteed=False, priority=10)
    evicted = [victim.name for eviction in desk.evictions for victim in eviction.victims]
    assert sorted(evicted) == ["low", "other"]
    assert set(desk.machine.cluster.nominations) == {"uid-first", "uid-second"}


def test_an_eviction_that_failed_leaves_no_room_to_count_on() -> None:
    desk = Desk()
    desk.node("a", bare=True, allocatable={"cpu": "4"})
    desk.pod("low", "4", guaranteed=False, priority=1)
    desk.answers = False
    desk.pod("first", "3", guaranteed=False, priority=10)
    (eviction,) = desk.evictions
    entry = desk.machine.cluster.nodes["a"]
    assert entry.leaving == {"uid-low"}
    desk.handle(Evicted(eviction.pod.uid, (), complete=False))
    assert entry.leaving == frozenset()


def test_who_ends_on_the_nominated_node_for_other_reasons_is_not_waited_for() -> None:
    """A new replica finds the nomination of the one before; the node is cordoned since."""
    desk = desk_with("a", "b")
    for name in "ab":
        low = desk.pod(f"low-{name}", "6", node_name=name)
        desk.admit(low)
    desk.node("a", ONE_ZONE, unschedulable=True)
    leaving = desk.objects["pods", "uid-low-a"]
    metadata = {**leaving["metadata"], "deletionTimestamp": "2026-01-01T01:00:00Z"}
    spec = {**leaving["spec"], "terminationGracePeriodSeconds": 3600}
    desk.put("pods", "uid-low-a", {**leaving, "metadata": metadata, "spec": spec})
    told = {"phase": "Pending", "nominatedNodeName": "a"}
    desk.pod("high", "6", priority=10, status=told)
    desk.pass_time(5.0)
    assert desk.view("uid-low-b").deleting


def test_whoever_may_gain_by_a_node_is_looked_at_however_many_come_before() -> None:
    """More nodes than are asked again in some seconds, and ten who want one that is not there."""
    desk = Desk()
    for number in range(150):
        desk.node(f"n{number}", bare=True)
        desk.pod(f"high-{number}", "10", guaranteed=False, priority=100, node_name=f"n{number}")
        desk.pod(f"low-{number}", "6", guaranteed=False, node_name=f"n{number}")
    for number in range(30):
        where = {"elsewhere": str(number)}
        desk.pod(f"w{number}", "12", guaranteed=False, priority=10, nodeSelector=where)
    last = desk.pod("last", "12", guaranteed=False, priority=10)
    desk.pass_time(20.0)
    assert not list(desk.told(messages.Evict))
    desk.end("uid-high-7")
    desk.pass_time(6.0)
    assert [(each.pod.uid, each.node) for each in desk.told(messages.Evict)] == [(last, "n7")]
