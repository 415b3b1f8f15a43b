"""Gangs: all at once or not at all, by the rules of whoever describes them."""

from __future__ import annotations

import pytest

from rte.scheduler.loop import messages
from rte.scheduler.loop.gangs import unit as units
from rte.scheduler.loop.messages import Bound, Outcome
from tests.unit.scheduler.gangs.build import MARKS, Square

SOURCES = sorted(MARKS)


@pytest.mark.parametrize("source", SOURCES)
def test_a_gang_starts_when_all_its_pods_are_there_and_fit(source: str) -> None:
    desk = Square()
    desk.group("g", 3, source)
    uids = desk.members("g", ["7", "8"], source, 3)
    desk.pass_time(1.0)
    assert desk.placed(uids) == 0
    assert "waits for 1 more pod of gang default/" in desk.said(uids[0])
    uids += desk.members("g", ["8"], source, 3)
    assert desk.placed(uids) == 3
    desk.run_all()


@pytest.mark.parametrize("source", SOURCES)
def test_none_starts_where_one_finds_no_zone(source: str) -> None:
    desk = Square()
    desk.group("g", 5, source)
    # Four zones; node totals have room for all five.
    uids = desk.members("g", ["5"] * 5, source, 5)
    desk.pass_time(1.0)
    assert desk.placed(uids) == 0
    assert "5 pods of gang" in desk.said(uids[0])
    assert "4 find one; to blame: NUMA zones" in desk.said(uids[0])
    desk.node("n2")
    assert desk.placed(uids) == 5
    desk.run_all()


def test_all_binds_of_a_gang_are_under_way_at_once() -> None:
    desk = Square()
    desk.answers = False
    desk.group("g", 4)
    desk.members("g", ["7", "7", "7", "7"])
    assert len(desk.binds) == 4


def test_pods_that_first_fit_would_spoil_are_placed_by_search() -> None:
    desk = Square(1)
    desk.group("g", 3)
    # In turn, 3 goes to zone 0 (7 free), 4 beside it, and 8 to zone 1: other orders must do too.
    uids = desk.members("g", ["3", "8", "4"])
    assert desk.placed(uids) == 3
    desk.run_all()


def test_more_pods_than_needed_come_later_one_by_one() -> None:
    desk = Square(1)
    desk.group("g", 2)
    uids = desk.members("g", ["7", "8", "8"])
    assert desk.placed(uids) == 2
    desk.run_all()
    desk.node("n1")
    assert desk.placed(uids) == 3


def test_pods_that_run_count_for_the_number() -> None:
    desk = Square(2)
    desk.group("g", 3)
    first = desk.members("g", ["8"], node_name="n0")
    rest = desk.members("g", ["7", "8"])
    assert desk.placed([*first, *rest]) == 3


def test_a_pod_without_its_podgroup_waits_for_it() -> None:
    desk = Square()
    uids = desk.members("g", ["2", "2"])
    desk.pass_time(1.0)
    assert "there is no PodGroup default/g" in desk.said(uids[0])
    desk.group("g", 2)
    assert desk.placed(uids) == 2


def test_a_gang_starts_when_the_last_gate_is_gone() -> None:
    desk = Square()
    desk.group("g", 2)
    uids = desk.members("g", ["7"])
    uids += desk.members("g", ["7"], schedulingGates=[{"name": "example.com/later"}])
    assert desk.placed(uids) == 0
    obj = desk.objects["pods", uids[1]]
    spec = {key: value for key, value in obj["spec"].items() if key != "schedulingGates"}
    desk.put("pods", uids[1], {**obj, "spec": spec})
    assert desk.placed(uids) == 2


def test_a_smaller_number_lets_a_gang_start() -> None:
    desk = Square(1)
    desk.group("g", 3)
    uids = desk.members("g", ["7", "8", "8"])
    assert desk.placed(uids) == 0
    desk.group("g", 2)
    assert desk.placed(uids) == 2


def test_pods_of_a_basic_group_go_one_by_one() -> None:
    desk = Square(1)
    desk.group("g", None)
    uids = desk.members("g", ["7", "8", "8"])
    assert desk.placed(uids) == 2


def test_all_pods_of_a_gang_are_where_the_topology_key_has_one_value() -> None:
    desk = Square(4)
    desk.group("g", 4, schedulingConstraints={"topology": [{"key": "rack"}]})
    desk.pod("other", "7")
    uids = desk.members("g", ["7", "8", "7", "8"])
    assert set(desk.places(uids)) == {"n2", "n3"}
    late = desk.members("g", ["1"])
    assert desk.places(late)[0] in ("", "n2", "n3")


def test_a_gang_is_in_one_value_of_the_narrowest_level_that_has_room() -> None:
    desk = Square(4)
    desk.pod("other", "7")
    level = {"topology.rte.dev/preferred-topology": "rack"}
    uids = desk.members("g", ["7", "8", "7", "8"], "koordinator", 4, annotations=level)
    assert set(desk.places(uids)) == {"n2", "n3"}


def test_a_gang_that_fits_in_no_level_starts_all_the_same() -> None:
    desk = Square(4)
    level = {"topology.rte.dev/preferred-topology": "rack, example.com/nobody-has-it"}
    uids = desk.members("g", ["8", "8", "8"], "koordinator", 3, annotations=level)
    assert desk.placed(uids) == 3
    assert len(set(desk.places(uids))) == 3


def test_a_gang_of_annotations_may_need_one_value() -> None:
    desk = Square(4)
    level = {"topology.rte.dev/required-topology": "rack"}
    uids = desk.members("g", ["8", "8", "8"], "koordinator", 3, annotations=level)
    assert desk.placed(uids) == 0
    two = desk.members("h", ["8", "8"], "koordinator", 2, annotations=level)
    assert set(desk.places(two)) in ({"n0", "n1"}, {"n2", "n3"})


def test_pods_of_a_basic_group_with_a_topology_key_go_where_the_first_went() -> None:
    desk = Square(4)
    desk.group("g", None, schedulingConstraints={"topology": [{"key": "rack"}]})
    uids = desk.members("g", ["8"])
    rack = {desk.places(uids)[0], {"n0": "n1", "n1": "n0"}[desk.places(uids)[0]]}
    uids += desk.members("g", ["8"]) + desk.members("g", ["8"])
    assert desk.placed(uids) == 2
    assert set(desk.places(uids)) == {"", *rack}


def test_koordinators_gangs_that_name_each_other_start_together() -> None:
    desk = Square(1)
    together = {"gang.scheduling.koordinator.sh/groups": '["default/a", "default/b"]'}
    one = desk.members("a", ["7"], "koordinator", 1, annotations=together)
    assert desk.placed(one) == 0
    two = desk.members("b", ["8", "8"], "koordinator", 2, annotations=together)
    assert desk.placed([*one, *two]) == 0
    desk.node("n1")
    assert desk.placed([*one, *two]) == 3


def test_a_failed_bind_is_made_good_before_anybody_else_is_served() -> None:
    desk = Square(1)
    desk.answers = False
    desk.group("g", 2)
    uids = desk.members("g", ["7", "8"])
    desk.bind(desk.binds.pop(0))
    failed = desk.binds.pop(0).pod.uid
    desk._answer(Bound(failed, Outcome.REFUSED, message="no"))
    desk.answers = True
    desk.pass_time(0.5)
    assert desk.placed(uids) == 2
    desk.run_all()


def test_a_gang_that_cannot_be_completed_is_released_after_a_time() -> None:
    desk = Square(1, gang_timeout=30.0)
    desk.group("g", 2)
    uids = desk.members("g", ["7", "8"])
    assert desk.admit(uids[0]) == ""
    desk.refuse(uids[1])
    desk.delete("pods", uids[1])
    # What takes its place, before a new pod comes, is not of the gang.
    desk.pass_time(3.0)
    desk.handle(messages.Reread("n0"))
    other = desk.pod("other", "8", priority=10)
    assert desk.where(other)
    again = desk.members("g", ["8"])
    desk.pass_time(20.0)
    assert not list(desk.told(messages.ReleaseGang))
    desk.pass_time(20.0)
    (released,) = desk.told(messages.ReleaseGang)
    assert [pod.uid for pod in released.pods] == [uids[0]]
    assert desk.placed(again) == 0


def test_a_pod_that_a_kubelet_refused_is_replaced_by_its_successor() -> None:
    desk = Square(2)
    desk.group("g", 2)
    uids = desk.members("g", ["7", "8"])
    assert desk.admit(uids[0]) == ""
    desk.refuse(uids[1])
    again = desk.members("g", ["8"])
    desk.delete("pods", uids[1])
    desk.pass_time(5.0)
    assert desk.placed(again) == 1
    assert not list(desk.told(messages.ReleaseGang))


def test_a_gang_whose_pods_end_one_by_one_is_left_alone() -> None:
    desk = Square(1, gang_timeout=10.0)
    desk.group("g", 2)
    uids = desk.members("g", ["7", "8"])
    desk.run_all()
    desk.change(uids[0], phase="Succeeded")
    desk.pass_time(60.0)
    desk.delete("pods", uids[0])
    desk.pass_time(60.0)
    assert not list(desk.told(messages.ReleaseGang))


def test_after_a_restart_in_the_middle_of_binds_the_gang_is_made_whole_first() -> None:
    desk = Square(1)
    desk.answers = False
    desk.group("g", 2)
    uids = desk.members("g", ["7", "8"])
    desk.bind(desk.binds.pop(0))
    rival = desk.pod("rival", "8", priority=100)
    assert desk.placed([*uids, rival]) == 1
    desk.answers = True
    desk.restart()
    assert desk.placed(uids) == 2
    assert not desk.where(rival)


def test_a_gang_does_not_wait_for_rules_between_its_own_pods() -> None:
    desk = Square(2)
    desk.group("g", 2)
    apart = {
        "podAntiAffinity": {
            "requiredDuringSchedulingIgnoredDuringExecution": [
                {
                    "labelSelector": {"matchLabels": {"app": "g"}},
                    "topologyKey": "kubernetes.io/hostname",
                }
            ]
        }
    }
    uids = desk.members("g", ["2", "2"], labels={"app": "g"}, affinity=apart)
    assert sorted(desk.places(uids)) == ["n0", "n1"]


def test_on_nodes_without_reports_totals_decide() -> None:
    desk = Square(0)
    desk.node("bare", bare=True, allocatable={"cpu": "8"})
    desk.group("g", 2)
    uids = desk.members("g", ["4", "5"])
    assert desk.placed(uids) == 0
    desk.node("bare2", bare=True, allocatable={"cpu": "8"})
    assert desk.placed(uids) == 2


@pytest.mark.parametrize(
    ("source", "kind"),
    [("podgroups", "PodGroupInitiallyScheduled"), ("podgroups-1.36", "PodGroupScheduled")],
)
def test_a_podgroup_says_which_zone_is_missing_and_when_it_was_scheduled(
    source: str, kind: str
) -> None:
    desk = Square(1)
    desk.group("g", 2, source)
    uids = desk.members("g", ["6", "9"])
    desk.pass_time(1.0)
    (said,) = desk.told(messages.GroupCondition)
    assert (said.kind, said.status, said.reason) == (kind, "False", "Unschedulable")
    assert "is short of 1 CPU " in said.message
    assert "zone 1 of n0" in said.message
    desk.delete("pods", uids[1])
    desk.members("g", ["8"])
    last = list(desk.told(messages.GroupCondition))[-1]
    assert (last.status, last.reason) == ("True", "Scheduled")


def test_what_cannot_be_read_of_a_gang_is_said() -> None:
    desk = Square()
    uids = desk.members("g", ["2"], "podgroups-coscheduling")
    desk.group("g", 0, "podgroups-coscheduling")
    desk.pass_time(1.0)
    assert "minMember" in desk.said(uids[0])
    assert any("minMember" in said.text for said in desk.told(messages.Said))


def test_pods_of_a_gang_wait_in_the_order_of_the_queue() -> None:
    square = Square(nodes=0)
    square.group("g", 3)
    low, high = square.members("g", ["2"], priority=0), square.members("g", ["2"], priority=5)
    low += square.members("g", ["2"], priority=0)
    (key,) = square.machine.cluster.gangs.pods
    tally = units.tally(square.machine.cluster, key, lambda _: True)
    assert not isinstance(tally, str)
    assert [pod.uid for pod in tally.waiting] == [*high, *low]
