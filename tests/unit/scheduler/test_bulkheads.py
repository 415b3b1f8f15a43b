"""Whatever raises concerns one object or one unit: all others are served, and it is tried again."""

from __future__ import annotations

import copy
import itertools
import random
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from rte import nrt, placement
from rte.scheduler.cache import intake
from rte.scheduler.cache.cluster import Cluster
from rte.scheduler.cache.gangs import GangBook
from rte.scheduler.framework import objects
from rte.scheduler.framework.node import NodeEntry
from rte.scheduler.framework.profile import Profile
from rte.scheduler.loop import messages
from rte.scheduler.loop.binding import Binding
from rte.scheduler.loop.cycle import Cycle
from rte.scheduler.loop.gangs.gangs import Gangs
from rte.scheduler.loop.kubelets import KubeletWitness
from rte.scheduler.loop.machine import SchedulerMachine
from rte.scheduler.loop.room.making_room import MakingRoom
from rte.scheduler.loop.telling import Telling
from rte.scheduler.loop.waking import Fates
from rte.scheduler.plugins.zone_room import ZoneRoom
from rte.scheduler.queue.queue import SchedulingQueue
from rte.telemetry.effects import Measured, Said
from rte.telemetry.quarantine import FIRST_S, MOST_S, Quarantine
from tests.depth import scaled
from tests.unit.scheduler.build import machine, pod_object, state
from tests.unit.scheduler.desk import Desk
from tests.unit.scheduler.gangs.build import Square

if TYPE_CHECKING:
    from collections.abc import Callable

STORIES = scaled(40)


class Planted(Exception):  # noqa: N818 - it stands for any
    """What nobody has thought of."""


def plant(
    patch: pytest.MonkeyPatch,
    owner: Any,
    name: str,
    when: Callable[..., bool],
    error: type[Exception] = Planted,
) -> None:
    """The function raises where ``when`` of its arguments says so."""
    kept = getattr(owner, name)

    def raising(*args: Any, **options: Any) -> Any:
        if when(*args, **options):
            raise error("planted")
        return kept(*args, **options)

    patch.setattr(owner, name, raising)


def aside(desk: Desk) -> dict[str, float]:
    """``rte_quarantined`` by kind, where there are some."""
    found = {e.labels[0]: e.value for e in desk.told(Measured) if e.metric == "quarantined"}
    return {kind: value for kind, value in found.items() if value}


def said(desk: Desk, uid: str) -> str:
    return [e.message for e in desk.told(messages.Unschedulable) if e.pod.uid == uid][-1]


@pytest.mark.parametrize("error", [Planted, MemoryError, RecursionError, OverflowError])
def test_a_pod_that_cannot_be_taken_in_waits_with_the_reason(
    monkeypatch: pytest.MonkeyPatch, error: type[Exception]
) -> None:
    desk = Desk(faulty=True)
    desk.node("a")
    plant(monkeypatch, objects, "_gang", lambda obj, _: obj["metadata"]["name"] == "bad", error)
    bad, good = desk.pod("bad"), desk.pod("good")
    assert desk.where(good) == "a"
    assert not desk.where(bad)
    assert aside(desk) == {"pods": 1.0}
    desk.pass_time(1)
    assert f"put aside after an internal error ({error.__name__}" in said(desk, bad)
    desk.pass_time(FIRST_S)
    assert "tried again after 20 s" in said(desk, bad)


def test_it_is_tried_again_later_and_each_time_after_longer(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    desk = Desk(faulty=True)
    desk.node("a")
    tries: list[float] = []

    def note(_self: Cycle, pod: Any) -> bool:
        tries.extend([desk.now] * (pod.name == "bad" and not pod.shape.malformed))
        return pod.name == "bad" and not pod.shape.malformed

    with monkeypatch.context() as patch:
        plant(patch, Cycle, "problem", note)
        bad = desk.pod("bad")
        desk.pass_time(2000)
    waits = [round(b - a) for a, b in itertools.pairwise(tries)]
    assert waits[:6] == [10, 20, 40, 80, 160, 300]
    assert max(waits) == MOST_S
    desk.pass_time(MOST_S)
    assert desk.where(bad) == "a"
    assert aside(desk) == {}


def test_a_change_by_its_author_tries_it_at_once_and_what_we_write_does_not(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    desk = Desk(faulty=True)
    desk.node("a")
    plant(monkeypatch, Cycle, "problem", lambda _, pod: pod.labels.get("bad") == "yes")
    bad = desk.pod("bad", labels={"bad": "yes"})
    faults = sum(e.metric == "faults" for e in desk.told(Measured))
    condition = {"type": "PodScheduled", "status": "False", "message": "put aside"}
    desk.change(bad, conditions=[condition])
    assert faults == sum(e.metric == "faults" for e in desk.told(Measured)) == 1
    obj = desk.objects["pods", bad]
    desk.put("pods", bad, {**obj, "metadata": {**obj["metadata"], "labels": {}}})
    assert desk.where(bad) == "a"
    assert aside(desk) == {}


def test_the_traceback_is_told_once(monkeypatch: pytest.MonkeyPatch) -> None:
    desk = Desk(faulty=True)
    desk.node("a")
    plant(monkeypatch, Cycle, "problem", lambda _, pod: not pod.shape.malformed)
    for number in range(5):
        desk.pod(f"p{number}", str(1 + number))
    desk.pass_time(100)
    lines = [each for each in desk.told(Said) if each.level == "error"]
    assert len(lines) == 5
    assert [each.error is not None for each in lines] == [True] + [False] * 4


def test_replicas_that_raise_one_after_the_other_are_put_aside_together(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    desk = Desk(faulty=True)
    desk.node("a")
    desk.turns = 0
    tried: list[str] = []

    def note(_self: Cycle, pod: Any) -> bool:
        tried.extend([pod.name] * (not pod.shape.malformed))
        return pod.name.startswith("bad") and not pod.shape.malformed

    plant(monkeypatch, Cycle, "problem", note)
    for number in range(50):
        desk.pod(f"bad-{number:02}", "3")
    good = desk.pod("good", "2")
    desk.turns = 9_999
    desk.handle(messages.Tick())
    assert desk.where(good) == "a"
    assert [name for name in tried if name.startswith("bad")] == ["bad-00", "bad-01"]


def test_a_node_about_which_one_pod_raises_is_refused_to_that_pod_alone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    desk = Desk(faulty=True)
    desk.node("a")
    plant(
        monkeypatch,
        Profile,
        "evaluate",
        lambda _, shape, node: node.name == "a" and shape.pod.name == "odd",
    )
    odd, other = desk.pod("odd", "3"), desk.pod("other", "2")
    assert desk.where(other) == "a"
    desk.pass_time(1)
    assert "node(s) about which this pod causes an internal error" in said(desk, odd)
    desk.node("b")
    assert desk.where(odd) == "b"


def test_a_report_about_which_every_decision_raises_is_not_trusted(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    desk = Desk(faulty=True)
    desk.node("a")
    desk.node("b")

    def forged(entry: NodeEntry) -> bool:
        return entry.name == "a" and entry.report is not None and not entry.report.broken

    with monkeypatch.context() as patch:
        plant(patch, NodeEntry, "outlook", forged, KeyError)
        desk.report("a")
        zoned = [desk.pod(f"z{number}", "7") for number in range(3)]
        plain = [desk.pod(f"p{number}", "1", guaranteed=False) for number in range(6)]
        assert [desk.where(uid) for uid in zoned].count("b") == 2
        assert "a" in {desk.where(uid) for uid in plain}
        assert aside(desk)["reports"] == 1
    desk.pass_time(2 * FIRST_S)
    assert "a" in {desk.where(uid) for uid in zoned}
    assert "reports" not in aside(desk)


def test_a_pod_on_a_node_about_which_everything_raises_does_not_take_the_node_away(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    desk = Desk(faulty=True)
    desk.node("a")

    def poisoned(_self: Profile, _shape: Any, node: NodeEntry) -> bool:
        return any(pod.annotations for pod in node.pods.values())

    for number in range(5):
        desk.pod(f"r{number}", "500m", node_name="a", guaranteed=False)
    desk.pod(
        "foreign",
        "500m",
        node_name="a",
        guaranteed=False,
        schedulerName="other",
        annotations={"topology.rte.dev/allocation": "{}"},
    )
    plant(monkeypatch, Profile, "evaluate", poisoned)
    good = desk.pod("good")
    assert desk.where(good) == "a"
    entry = desk.machine.cluster.nodes["a"]
    assert entry.report is not None
    assert not entry.report.broken
    assert entry.used["cpu"] == 6 * 500 + 2000
    assert aside(desk)["pods"] == 1


def test_what_could_not_be_taken_in_and_a_list_lacks_does_not_come_back(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    desk = Desk(faulty=True)
    desk.node("a")
    with monkeypatch.context() as patch:
        plant(patch, Cluster, "set_pod", lambda _, pod, *__: pod.name == "p")
        uid = desk.pod("p", "1")
    assert aside(desk)["pods"] == 1
    del desk.objects["pods", uid]
    desk.handle(messages.Listed("pods", frozenset(), desk.version + 1))
    desk.pass_time(4 * FIRST_S)
    assert uid not in desk.machine.cluster.pods
    assert "pods" not in aside(desk)


def test_a_report_that_was_put_aside_does_not_replace_a_newer_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    desk = Desk(faulty=True)
    desk.node("a")

    def forged(entry: NodeEntry) -> bool:
        return entry.report is not None and not entry.report.broken

    with monkeypatch.context() as patch:
        plant(patch, NodeEntry, "outlook", forged, KeyError)
        desk.pod("p", "1")
        assert aside(desk)["reports"] == 1
        broken = copy.deepcopy(desk.objects["reports", "a"])
        broken["metadata"]["annotations"] = {nrt.NODE_STATE_ANNOTATION: "{"}
        desk.put("reports", "a", broken)
    desk.pass_time(4 * FIRST_S)
    entry = desk.machine.cluster.nodes["a"]
    assert entry.report is not None
    assert entry.report.state is None


@pytest.mark.parametrize("bare", [False, True])
def test_what_is_gone_while_it_is_aside_does_not_come_back(
    monkeypatch: pytest.MonkeyPatch, bare: bool
) -> None:
    desk = Desk(faulty=True)
    desk.node("a", bare=bare)
    desk.pod("there", "1", node_name="a")
    with monkeypatch.context() as patch:
        plant(patch, Profile, "evaluate", lambda _, __, node: node.name == "a")
        uid = desk.pod("p", "1")
        assert aside(desk)
    entry = desk.machine.cluster.nodes["a"]
    if bare:
        assert entry.info is None
    else:
        assert entry.report.broken
        desk.delete("reports", "a")
    desk.delete("nodes", "a")
    desk.pass_time(4 * FIRST_S)
    left = desk.machine.cluster.nodes.get("a")
    assert left is None or (left.info is None and left.report is None)
    assert not desk.where(uid)


def test_a_half_made_reservation_is_given_back(monkeypatch: pytest.MonkeyPatch) -> None:
    """The third of four pods raises when it is placed: none has its place, and none is bound."""
    square = Square(faulty=True, nodes=2)
    calls: list[str] = []

    def third(_self: Binding, force: Any, *_: Any) -> bool:
        calls.append(force.pod.name)
        return len(calls) == 3

    plant(monkeypatch, Binding, "_enforce", third)
    square.group("g", 4)
    uids = square.members("g", ["3"] * 4)
    assert square.placed(uids) == 0
    assert square.machine.cluster.assumed == {}
    assert square.machine.binding.in_force == {}
    other = square.pod("other", "6")
    assert square.where(other)
    square.pass_time(2 * FIRST_S)
    assert square.placed(uids) == 4


def test_a_gang_whose_question_cannot_be_answered_is_put_aside() -> None:
    square = Square(faulty=True, nodes=1)
    square.solves = False
    square.group("g", 2)
    uids = square.members("g", ["2", "2"])
    asked = square.questions.pop()
    square.handle(messages.Solved(asked.number, MemoryError()))
    assert square.where(square.pod("other"))
    assert aside(square) == {"pods": 2.0}
    square.solves = True
    square.pass_time(2 * FIRST_S)
    assert square.placed(uids) == 2


def test_the_end_of_the_process_passes_through(monkeypatch: pytest.MonkeyPatch) -> None:
    desk = Desk(faulty=True)
    desk.node("a")
    plant(monkeypatch, Cycle, "decide", lambda *_, **__: True, KeyboardInterrupt)  # type: ignore[arg-type]
    with pytest.raises(KeyboardInterrupt):
        desk.pod("p")


def test_what_is_remembered_is_bounded() -> None:
    quarantine = Quarantine()
    for number in range(10_100):
        quarantine.put("pods", str(number), Planted("x" * 10_000), 0.0)
        assert all(len(e.text) < 400 for e in quarantine.effects if isinstance(e, Said))
        quarantine.effects.clear()
    assert len(quarantine._faults) == 10_000
    assert len(quarantine._told) == 1_000


#: Everything that takes part in intake, decisions, room making and telling.
ANYWHERE: tuple[tuple[Any, str], ...] = (
    *((Cluster, name) for name in ("set_pod", "_place", "_lift", "assume", "nominate")),
    *((Cluster, name) for name in ("set_report", "set_node", "remove_pod", "unnominate")),
    *((GangBook, name) for name in ("on_pod", "declare", "gang")),
    *((SchedulingQueue, name) for name in ("push", "sleep", "decided")),
    *((Cycle, name) for name in ("decide", "problem", "around", "check", "helps", "why")),
    (ZoneRoom, "placed"),
    *((Profile, name) for name in ("evaluate", "score", "annotations", "refused_around", "helps")),
    *((Binding, name) for name in ("place", "reserve", "came_true", "_enforce")),
    *((Gangs, name) for name in ("look", "decide", "refused", "second", "helps", "why")),
    *((MakingRoom, name) for name in ("step", "review", "wants", "refused", "evicted", "reserve")),
    *((KubeletWitness, name) for name in ("reported", "refused")),
    *((Telling, name) for name in ("due", "refused", "why")),
    *((NodeEntry, name) for name in ("outlook", "zone_bound")),
    (Fates, "key"),
    (intake.Intake, "seen"),
    (intake.Intake, "gone"),
)


@pytest.mark.parametrize("seed", range(STORIES))
def test_faults_anywhere_end_nothing_and_leave_nothing_behind(
    monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    """Any function raises now and then, at its begin or at its end. Once none does any more, the
    machine comes to what one knows that has read the API afresh.
    """
    rng = random.Random(seed)
    square = Square(faulty=True, nodes=3, gang_timeout=0.0)
    with monkeypatch.context() as patch:
        for owner, name in rng.sample(ANYWHERE, 12):
            _raise_now_and_then(patch, rng, owner, name)
        for number in range(40):
            _something_happens(square, rng, number)
    square.pass_time(3 * MOST_S)
    for _ in range(100):
        if not square.machine.cluster.assumed:
            break
        square.pass_time(1)
    known = square.machine.cluster
    faults = [each.text for each in square.told(Said) if each.level == "error"]
    if any(text.startswith("retractions") for text in faults):
        # A second fault while the first was cleared away: it ends nothing, but may leave something.
        return
    assert aside(square) == {}
    assert not any(pod.shape.malformed for pod in known.pods.values())
    reader = SchedulerMachine("rte-scheduler")
    for (collection, _), obj in square.objects.items():
        reader.handle(messages.Seen(collection, obj), square.now)
    fresh = reader.cluster
    assert {u: p.node for u, p in known.pods.items()} == {u: p.node for u, p in fresh.pods.items()}
    for name, entry in fresh.nodes.items():
        mine = known.nodes[name]
        assert mine.pods.keys() == entry.pods.keys()
        assert +mine.used == +entry.used, name
        assert mine.info == entry.info
        assert mine.report is not None
        assert mine.report.state == (entry.report and entry.report.state)
    assert known.priorities == fresh.priorities
    assert known.nominations.keys() <= {u for u, p in known.pods.items() if not p.node}
    assert {k: set(v) for k, v in known.gangs.pods.items() if v} == {
        k: set(v) for k, v in fresh.gangs.pods.items() if v
    }
    waiting = [pod for pod in known.pods.values() if not pod.node and not pod.gang]
    for pod in waiting:
        assert pod.uid in square.machine.queue, pod.key
        assert square.machine.cycle.decide(pod).node is None, pod.key


def _raise_now_and_then(
    patch: pytest.MonkeyPatch, rng: random.Random, owner: Any, name: str
) -> None:
    kept = getattr(owner, name)

    def moody(*args: Any, **options: Any) -> Any:
        mood = rng.random()
        if mood < 0.03:
            raise rng.choice((Planted, KeyError, MemoryError, RecursionError))("before")
        found = kept(*args, **options)
        if mood > 0.97:
            raise Planted("after")
        return found

    patch.setattr(owner, name, moody)


def _something_happens(square: Square, rng: random.Random, number: int) -> None:
    pods = sorted(key for kind, key in square.objects if kind == "pods")
    match rng.randrange(8):
        case 0 | 1 | 2:
            options = {"priority": rng.choice((0, 0, 10)), "guaranteed": rng.random() < 0.6}
            square.pod(f"p{number}", str(rng.randint(1, 6)), **options)
        case 3:
            square.group(f"g{number}", 2)
            square.members(f"g{number}", [str(rng.randint(1, 4))] * 2)
        case 4 if pods:
            square.end(rng.choice(pods))
        case 5:
            square.report(f"n{rng.randrange(3)}")
        case 6 if pods:
            obj = square.objects["pods", rng.choice(pods)]
            labels = {"changed": str(number)}
            square.put(
                "pods",
                obj["metadata"]["uid"],
                {**obj, "metadata": {**obj["metadata"], "labels": labels}},
            )
        case _:
            square.pass_time(rng.choice((0.5, 5, 30)))
    for uid in square.bound():
        if square.where(uid) in square.kubelets and rng.random() < 0.5:
            name = square.where(uid)
            if uid not in square.kubelets[name].admitted and uid in square.machine.cluster.pods:
                view = objects.read_pod(square.objects["pods", uid], Cluster().shapes)
                _meet(square, uid, view)


def _meet(square: Square, uid: str, view: Any) -> None:
    """The kubelet admits or refuses a pod that was bound to it."""
    name = square.where(uid)
    admission = placement.admit(square.kubelets[name], view.shape.as_pod(uid))
    square.kubelets[name] = admission.state
    if admission.verdict == "admitted":
        admitted = admission.state.admitted | {uid}
        square.kubelets[name] = replace(admission.state, admitted=admitted)
        square.change(uid, phase="Running")
        square.report(name)
    else:
        square.refuse(uid, str(admission.reason))


def test_the_pods_of_these_tests_are_bound_when_nothing_raises() -> None:
    desk = Desk(faulty=True)
    desk.node("a", state(machine(cpus=8)))
    obj = pod_object("p", "2")
    desk.put("pods", obj["metadata"]["uid"], obj)
    assert desk.where(obj["metadata"]["uid"]) == "a"
