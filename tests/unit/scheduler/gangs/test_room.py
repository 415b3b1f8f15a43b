"""Room for gangs: evictions and reservations as a unit."""

from __future__ import annotations

import pytest

from rte.scheduler.loop import messages
from rte.scheduler.loop.promises import EXTERNAL_S
from tests.unit.scheduler.gangs.build import Square


def victims(desk: Square) -> set[str]:
    return {pod.uid for effect in desk.told(messages.Evict) for pod in effect.victims}


def test_a_gang_evicts_only_what_stands_in_the_way_of_all_its_pods() -> None:
    desk = Square(2)
    low = [desk.pod(f"low{n}", "7") for n in range(4)]
    desk.run_all()
    desk.group("g", 2)
    uids = desk.members("g", ["7", "8"], priority=10)
    assert len(victims(desk)) == 2
    assert desk.placed(uids) == 0
    for uid in sorted(victims(desk)):
        desk.end(uid)
    assert desk.placed(uids) == 2
    desk.run_all()
    assert len(victims(desk) & set(low)) == 2


def test_nobody_is_evicted_where_that_does_not_make_room_for_the_whole_gang() -> None:
    desk = Square(1)
    desk.pod("low", "7")
    desk.pod("high", "8", priority=100)
    desk.run_all()
    desk.group("g", 2)
    desk.members("g", ["7", "8"], priority=10)
    assert victims(desk) == set()


def test_the_room_that_was_made_is_kept_for_the_whole_gang() -> None:
    desk = Square(1)
    low = [desk.pod(f"low{n}", cpu) for n, cpu in enumerate("78")]
    desk.run_all()
    desk.group("g", 2)
    uids = desk.members("g", ["7", "8"], priority=10)
    assert victims(desk) == set(low)
    desk.end(low[0])
    rival = desk.pod("rival", "2", priority=5)
    assert not desk.where(rival)
    desk.end(low[1])
    assert desk.placed(uids) == 2


def test_room_that_somebody_else_makes_is_kept_for_the_gang() -> None:
    """As ``rte defrag --apply`` does it: each pod of the gang is nominated."""
    desk = Square(1, preempts=False)
    moved = [desk.pod(f"moved{n}", cpu) for n, cpu in enumerate("78")]
    desk.run_all()
    desk.group("g", 2)
    uids = desk.members("g", ["7", "8"])
    for uid in uids:
        desk.change(uid, nominatedNodeName="n0")
    assert desk.machine.cluster.nominations == dict.fromkeys(uids, "n0")
    rival = desk.pod("rival", "2")
    for uid in moved:
        desk.end(uid)
        assert not desk.where(rival)
    assert desk.placed(uids) == 2
    assert desk.machine.cluster.nominations == {}


def test_room_that_somebody_else_makes_for_a_gang_is_withdrawn_or_lapses() -> None:
    desk = Square(2, preempts=False)
    for number in range(4):
        desk.pod(f"stays{number}", "7")
    desk.run_all()
    desk.group("g", 2)
    uids = desk.members("g", ["7", "8"])
    for uid in uids:
        desk.change(uid, nominatedNodeName="n0")
    desk.change(uids[0], nominatedNodeName="n1")
    assert desk.machine.cluster.nominations == {uids[0]: "n1", uids[1]: "n0"}
    desk.change(uids[0], nominatedNodeName=None)
    assert desk.machine.cluster.nominations == {uids[1]: "n0"}
    desk.pass_time(EXTERNAL_S + 2)
    assert desk.machine.cluster.nominations == {}


@pytest.mark.parametrize("lapses", [True, False])
def test_room_that_was_made_before_the_pod_was_known_as_one_of_a_gang_ends_too(
    lapses: bool,
) -> None:
    """A basic group's pods go one by one, until the group is a gang."""
    desk = Square(1, preempts=False)
    for number in range(2):
        desk.pod(f"stays{number}", "7")
    desk.run_all()
    desk.group("g", None)
    (uid,) = desk.members("g", ["7"])
    desk.change(uid, nominatedNodeName="n0")
    assert desk.machine.cluster.nominations == {uid: "n0"}
    desk.group("g", 2)
    if lapses:
        desk.pass_time(EXTERNAL_S + 2)
    else:
        desk.change(uid, nominatedNodeName=None)
    assert desk.machine.cluster.nominations == {}


def test_victims_that_do_not_end_are_not_waited_for_for_ever() -> None:
    desk = Square(1)
    low = [desk.pod(f"low{n}", cpu) for n, cpu in enumerate("78")]
    desk.run_all()
    desk.group("g", 2)
    desk.members("g", ["7", "8"], priority=10)
    desk.end(low[0])
    rival = desk.pod("rival", "2", priority=5)
    desk.pass_time(45.0)
    assert not desk.machine.cluster.nominations
    assert desk.where(rival)


def test_who_evicts_one_pod_of_a_gang_that_is_disrupted_whole_evicts_all() -> None:
    desk = Square(2)
    desk.group("g", 2, disruptionMode={"all": {}})
    gang = desk.members("g", ["7", "7"])
    desk.run_all()
    rest = [desk.pod(f"rest{n}", "7", priority=50) for n in range(2)]
    desk.run_all()
    assert all(map(desk.where, [*gang, *rest]))
    desk.pod("large", "6", priority=10)
    assert victims(desk) == set(gang)


def test_a_gang_that_is_disrupted_whole_stays_where_one_of_its_pods_is_too_important() -> None:
    desk = Square(1)
    desk.group("g", 2, disruptionMode={"all": {}})
    one = desk.members("g", ["7"], node_name="n0")
    two = desk.members("g", ["8"], node_name="n0", priority=100)
    desk.run_all()
    desk.group("h", 1)
    desk.members("h", ["6"], priority=10)
    assert victims(desk) == set()
    assert desk.placed([*one, *two]) == 2


def test_small_pods_do_not_starve_a_gang_and_it_does_not_starve_them() -> None:
    desk = Square(1, reserve_after=30.0)
    desk.group("g", 2)
    small = [desk.pod(f"s{number}", "5") for number in range(2)]
    desk.run_all()
    gang = desk.members("g", ["7", "8"])
    # One small pod ends whenever the next one is there: never both zones are free by themselves.
    started = 0.0
    for number in range(12):
        small.append(desk.pod(f"t{number}", "5"))
        desk.pass_time(10.0)
        gone = next((uid for uid in small if desk.where(uid)), None)
        if gone is not None:
            small.remove(gone)
            desk.end(gone)
            desk.run_all()
        if desk.placed(gang) == 2 and not started:
            started = desk.now
    assert started
    # Small pods go on when the gang has ended.
    for uid in gang:
        desk.end(uid)
    desk.pass_time(5.0)
    assert sum(1 for uid in small if desk.where(uid)) == 2


def test_a_reservation_under_which_nothing_ends_gives_way_to_others() -> None:
    desk = Square(1, reserve_after=30.0)
    desk.pod("long", "5")
    desk.run_all()
    desk.group("g", 2)
    desk.members("g", ["7", "8"])
    desk.pass_time(40.0)
    assert desk.machine.cluster.nominations
    small = desk.pod("small", "5")
    assert not desk.where(small)
    desk.pass_time(70.0)
    assert desk.where(small)


def test_a_gang_that_lacks_cpus_is_tried_again_when_somebody_may_be_evicted_for_it() -> None:
    desk = Square(1)
    for name, cpus in (("a", "7"), ("b", "8")):
        desk.pod(name, cpus, node_name="n0", priority=10)
    desk.run_all()
    desk.group("g", 2)
    uids = desk.members("g", ["7", "8"], priority=5)
    desk.end("uid-a")
    desk.pod("low", "7", node_name="n0", priority=0)
    desk.run_all()
    assert desk.placed(uids) == 0
    desk.end("uid-b")
    assert victims(desk) == {"uid-low"}
    desk.end("uid-low")
    assert desk.placed(uids) == 2


HARD = "requiredDuringSchedulingIgnoredDuringExecution"


def term(app: str) -> list[dict[str, object]]:
    selector = {"matchLabels": {"app": app}}
    return [{"labelSelector": selector, "topologyKey": "kubernetes.io/hostname"}]


def test_whom_a_gang_wants_to_be_with_stays() -> None:
    desk = Square(1)
    desk.pod("mate", "5", labels={"app": "mate"})
    desk.pod("other", "5", priority=100)
    desk.run_all()
    desk.group("g", 2)
    near = {"podAffinity": {HARD: term("mate")}}
    desk.members("g", ["3", "3"], priority=10, affinity=near)
    desk.pass_time(5)
    assert victims(desk) == set()


def test_others_go_for_a_gang_where_its_company_stays() -> None:
    desk = Square(1)
    desk.pod("mate", "1", labels={"app": "mate"})
    low = desk.pod("low", "7")
    desk.run_all()
    desk.group("g", 2)
    near = {"podAffinity": {HARD: term("mate")}}
    uids = desk.members("g", ["5", "6"], priority=10, affinity=near)
    desk.pass_time(5)
    assert victims(desk) == {low}
    desk.end(low)
    assert desk.placed(uids) == 2


def test_whom_a_gang_wants_to_be_apart_from_goes() -> None:
    desk = Square(1)
    rival = desk.pod("rival", "1", labels={"app": "rival"})
    desk.pod("other", "1")
    desk.run_all()
    desk.group("g", 2)
    far = {"podAntiAffinity": {HARD: term("rival")}}
    uids = desk.members("g", ["2", "2"], priority=10, affinity=far)
    desk.pass_time(5)
    assert victims(desk) == {rival}
    desk.end(rival)
    assert desk.placed(uids) == 2
