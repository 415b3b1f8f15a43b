"""A kubelet's refusal is evidence."""

from __future__ import annotations

from tests.unit.scheduler.desk import Desk


def rejected(desk: Desk, seconds: float, cpu: str = "4") -> int:
    """Such pods come one after the other, as from a controller; every one is refused."""
    number = count = 0
    end = desk.now + seconds
    uid = ""
    while desk.now < end:
        if not uid:
            number += 1
            uid = desk.pod(f"p-{desk.now}-{number}", cpu)
        if desk.where(uid):
            count += 1
            desk.refuse(uid)
            desk.delete("pods", uid)
            uid = ""
        else:
            desk.pass_time(1.0)
    if uid:
        desk.delete("pods", uid)
    return count


def test_a_node_without_a_report_is_left_alone_longer_after_each_refusal() -> None:
    desk = Desk()
    desk.node("bare", bare=True)
    assert rejected(desk, 90.0) <= 4
    assert rejected(desk, 600.0) <= 4


def test_smaller_pods_and_ordinary_ones_are_not_kept_away() -> None:
    desk = Desk()
    desk.node("bare", bare=True)
    rejected(desk, 5.0, "4")
    assert desk.where(desk.pod("small", "2")) == "bare"
    assert desk.where(desk.pod("ordinary", "4", guaranteed=False)) == "bare"
    assert desk.where(desk.pod("large", "5")) == ""


def test_evidence_makes_a_node_the_last_resort() -> None:
    desk = Desk()
    desk.node("bare", bare=True)
    rejected(desk, 5.0)
    desk.pass_time(60.0)
    desk.node("other", bare=True, allocatable={"cpu": "8"})
    # The emptier node would be liked better, but it has refused such a pod.
    assert desk.where(desk.pod("first", "4")) == "other"
    assert desk.where(desk.pod("second", "4")) == "other"
    assert desk.where(desk.pod("third", "4")) == "bare"


def test_a_report_ends_the_guessing() -> None:
    desk = Desk()
    desk.node("n", bare=True)
    rejected(desk, 5.0)
    waiting = desk.pod("waiting", "4")
    assert desk.where(waiting) == ""
    desk.node("n")
    assert desk.where(waiting) == "n"


def test_refusals_by_totals_say_nothing_of_zones() -> None:
    desk = Desk()
    desk.node("bare", bare=True)
    uid = desk.pod("p", "4")
    desk.refuse(uid, "OutOfcpu")
    desk.delete("pods", uid)
    assert desk.where(desk.pod("q", "4")) == "bare"


def test_ended_pods_of_a_node_without_a_report_are_forgotten() -> None:
    desk = Desk()
    desk.node("bare", bare=True)
    for number in range(200):
        uid = desk.pod(f"p{number}", guaranteed=False, cpu="1m", mem="1", node_name="bare")
        desk.delete("pods", uid)
        desk.now += 10.0
    assert len(desk.machine.cluster.nodes["bare"].gone) <= 31
