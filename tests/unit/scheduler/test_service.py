"""The scheduler at work on an API server and kubelets in this process, in fair weather and foul."""

from __future__ import annotations

import asyncio
import random
import threading
import time
from datetime import datetime, timedelta
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import pytest

from rte import errors
from rte.k8s.selectors import parse_text
from rte.kube.client import STRATEGIC_PATCH
from rte.scheduler.loop import messages, promises
from rte.scheduler.loop.gangs.decide import GangQuestion
from rte.scheduler.loop.machine import SchedulerMachine
from rte.scheduler.plugins import default_preemption as preemption
from rte.scheduler.shell import feeds, leader
from rte.scheduler.shell.binder import Binder
from rte.sim.apiserver import StatusError
from tests.unit.scheduler.town import Town, until

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from datetime import tzinfo
    from pathlib import Path

    from rte.placement.joint.gang import Answer
    from rte.scheduler.framework.objects import PodView
    from rte.scheduler.loop.messages import Bound, Effect, Event
    from rte.scheduler.shell.service import Scheduler


@pytest.fixture
async def town(tmp_path: Path) -> AsyncIterator[Town]:
    async with Town(tmp_path) as made:
        yield made


def patch(town: Town, resource: str, name: str, body: object, subresource: str = "") -> None:
    town.api.patch(resource, name, body, subresource=subresource)


def told(town: Town) -> list[str]:
    """Reasons of all events."""
    return [str(event["reason"]) for event in town.api.list("events").items]


async def test_a_pod_is_bound_and_runs(town: Town) -> None:
    await town.node("a")
    async with town.scheduler():
        town.pod("p", "4")
        await until(lambda: town.phase("p") == "Running")
        assert town.where("p") == "a"
        await until(lambda: "Scheduled" in told(town))


async def test_a_place_is_used_as_soon_as_it_appears(town: Town) -> None:
    await town.node("a", "1x8")
    async with town.scheduler() as scheduler:
        town.pod("first", "6")
        await until(lambda: town.phase("first") == "Running")
        town.pod("second", "6")
        await until(lambda: scheduler.queue.sizes()["unschedulable"] == 1)
        town.end("first")
        await until(lambda: town.phase("second") == "Running", 1.0)
    assert town.refusals == []


async def test_nothing_is_decided_while_the_pods_of_a_gang_are_bound(
    town: Town, monkeypatch: pytest.MonkeyPatch
) -> None:
    def marks(name: str) -> dict[str, str]:
        gang = "gang.scheduling.koordinator.sh"
        return {f"{gang}/name": name, f"{gang}/min-available": "3"}

    monkeypatch.setattr("rte.scheduler.shell.together._MOST_S", 60.0)
    await town.node("a", "2x16")
    under_way: set[str] = set()
    together: list[set[str]] = []
    bind = Binder.bind

    async def slowly(self: Binder, pod: PodView, node: str, *rest: Any) -> Bound:
        together.append({*under_way, pod.name})
        under_way.add(pod.name)
        await asyncio.sleep(0.02)
        try:
            return await bind(self, pod, node, *rest)
        finally:
            under_way.remove(pod.name)

    monkeypatch.setattr(Binder, "bind", slowly)
    async with town.scheduler():
        for name in ("x", "y"):
            for number in range(3):
                town.pod(f"{name}-{number}", "2", annotations=marks(name))
        await until(lambda: all(each["status"]["phase"] == "Running" for each in town.pods()))
    assert max(map(len, together)) == 3
    assert all(len({name[0] for name in names}) == 1 for names in together)


async def test_while_the_solver_works_everything_else_goes_on(
    town: Town, monkeypatch: pytest.MonkeyPatch
) -> None:
    solve, begun, goes_on = GangQuestion.solve, threading.Event(), threading.Event()

    def when_it_may(question: GangQuestion) -> Answer:
        begun.set()
        goes_on.wait(timeout=60.0)
        return solve(question)

    monkeypatch.setattr(GangQuestion, "solve", when_it_may)
    gang = "gang.scheduling.koordinator.sh"
    marks = {f"{gang}/name": "x", f"{gang}/min-available": "2"}
    await town.node("a", "2x16")
    async with town.scheduler() as scheduler:
        for number in range(2):
            town.pod(f"x-{number}", "2", annotations=marks)
        await until(begun.is_set)
        patch(town, "nodes", "a", {"metadata": {"labels": {"told": "meanwhile"}}})
        await until(lambda: "told" in scheduler.cluster.nodes["a"].info.labels)
        assert not town.where("x-0")
        goes_on.set()
        await until(lambda: all(each["status"]["phase"] == "Running" for each in town.pods()))


async def test_long_decisions_leave_requests_their_time(
    town: Town, monkeypatch: pytest.MonkeyPatch
) -> None:
    await town.node("a", "2x16")
    # Long enough for some steps on a machine that does other things as well.
    monkeypatch.setattr("rte.scheduler.shell.service._REST", 4.0)
    handle, steps, between = SchedulerMachine.handle, 0, list[int]()

    def slowly(self: SchedulerMachine, event: Event, now: float) -> list[Effect]:
        if isinstance(event, messages.Turn):
            between.append(steps)
            time.sleep(0.05)
        return handle(self, event, now)

    async def step() -> None:
        nonlocal steps
        while True:
            await asyncio.sleep(0)
            steps += 1

    monkeypatch.setattr(SchedulerMachine, "handle", slowly)
    stepping = asyncio.create_task(step())
    async with town.scheduler():
        for number in range(6):
            town.pod(f"p{number}", "2")
        await until(lambda: all(each["status"]["phase"] == "Running" for each in town.pods()))
    stepping.cancel()
    assert min(after - before for before, after in pairwise(between)) > 2


async def test_one_condition_and_one_event_say_why_a_pod_waits(town: Town) -> None:
    await town.node("a")
    await town.node("b")
    async with town.scheduler():
        town.pod("wide", "12")
        await until(lambda: town.condition("wide"))
        town.pod("other", "1")
        await until(lambda: town.phase("other") == "Running")
        await until(lambda: "FailedScheduling" in told(town))
    text = town.condition("wide")
    assert text.startswith("0/2 nodes are available: 2 TopologyAffinityError.")
    assert "The largest container asks for 12 CPUs in one zone; the largest free zone has 8" in text
    assert text.endswith("Of 4 NUMA zones: 4 without enough CPUs.")
    assert told(town).count("FailedScheduling") == 1


async def test_a_list_of_jobs_meets_no_refusal(town: Town) -> None:
    """More work than fits: jobs come, run for some milliseconds, and go."""
    rng = random.Random(7)
    for name in "abc":
        await town.node(name, start=0.01)
    async with town.scheduler():
        waiting = {f"j{n}" for n in range(60)}
        for name in sorted(waiting):
            cpus = [str(rng.choice([1, 2, 3, 4, 6])) for _ in range(rng.choice([1, 1, 2]))]
            town.pod(name, cpus)
        while waiting:
            await until(lambda: any(town.phase(name) == "Running" for name in waiting))
            for name in sorted(waiting):
                if town.phase(name) == "Running":
                    await asyncio.sleep(rng.random() * 0.01)
                    town.end(name)
                    waiting.discard(name)
    assert town.refusals == []


async def test_a_bind_whose_answer_is_lost_is_resolved_by_reading_back(town: Town) -> None:
    await town.node("a")
    async with town.scheduler() as scheduler:
        town.server.faults.drop_next(method="POST", path="/binding", after=True)
        town.pod("p", "4")
        await until(lambda: town.phase("p") == "Running")
        await until(lambda: not scheduler.cluster.assumed)
        assert len(scheduler.cluster.nodes["a"].pods) == 1


async def test_a_bind_that_did_not_arrive_is_sent_again(town: Town) -> None:
    await town.node("a")
    async with town.scheduler():
        town.server.faults.drop_next(2, method="POST", path="/binding")
        town.server.faults.fail_next(1, 500, method="POST", path="/binding")
        town.pod("p", "4")
        await until(lambda: town.phase("p") == "Running")


async def test_a_bind_that_is_refused_for_good_gives_the_place_back(town: Town) -> None:
    await town.node("a")
    async with town.scheduler() as scheduler:
        town.server.faults.fail_next(1, 403, method="POST", path="/binding")
        town.pod("p", "4")
        await until(lambda: town.phase("p") == "Running")
        assert scheduler.metrics.binds.labels("refused")._value.get() == 1
        await until(lambda: "FailedBinding" in told(town))


async def test_a_pod_that_is_bound_by_somebody_else_is_counted_there(town: Town) -> None:
    await town.node("a", "1x8")
    async with town.scheduler() as scheduler:
        town.pod("theirs", "6", schedulerName="other")
        target = {"kind": "Node", "name": "a"}
        town.api.bind("theirs", "default", {"metadata": {"name": "theirs"}, "target": target})
        town.pod("ours", "4")
        await until(lambda: scheduler.queue.sizes()["unschedulable"] == 1)
        assert town.where("ours") == ""
    assert town.refusals == []


async def test_watches_that_break_and_forget_are_taken_up_again(town: Town) -> None:
    await town.node("a", "1x8")
    async with town.scheduler() as scheduler:
        town.pod("old", "6")
        await until(lambda: town.phase("old") == "Running")
        town.pod("next", "6")
        await until(lambda: scheduler.queue.sizes()["unschedulable"] == 1)
        town.server.faults.pause()
        town.server.faults.drop_watches()
        town.end("old")
        town.server.faults.compact()
        town.server.faults.resume()
        await until(lambda: town.phase("next") == "Running")
    assert town.refusals == []


async def test_what_happened_while_nobody_scheduled_is_found_out(town: Town) -> None:
    """All state is in the API: the successor knows what its predecessor bound."""
    await town.node("a", "1x8")
    async with town.scheduler():
        town.pod("one", "6")
        await until(lambda: town.phase("one") == "Running")
    town.pod("two", "6")
    async with town.scheduler() as scheduler:
        await until(lambda: scheduler.queue.sizes()["unschedulable"] == 1)
        town.end("one")
        await until(lambda: town.phase("two") == "Running")
    assert town.refusals == []


async def test_a_rejected_pod_is_counted_and_its_node_read_afresh(town: Town) -> None:
    """A Node that promises more than its kubelet has: nobody can know."""
    await town.node("a", "2x8")
    async with town.scheduler() as scheduler:
        more = {"status": {"allocatable": {"cpu": "100"}}}
        patch(town, "nodes", "a", more, subresource="status")
        town.pod("p", "50", guaranteed=False)
        await until(lambda: town.phase("p") == "Failed")
        counted = scheduler.metrics.rejections.labels("OutOfcpu", "ours")._value
        await until(lambda: counted.get() == 1)
        await until(lambda: scheduler.cluster.nodes["a"].held_off)
        town.pod("q", "2")
        await until(lambda: town.phase("q") == "Running")
        assert not scheduler.cluster.nodes["a"].held_off


async def test_a_node_that_goes_away_takes_its_pods_and_no_more(town: Town) -> None:
    await town.node("a", "1x8")
    async with town.scheduler() as scheduler:
        town.pod("p", "6")
        await until(lambda: town.phase("p") == "Running")
        town.pod("q", "6")
        await until(lambda: scheduler.queue.sizes()["unschedulable"] == 1)
        await town.node("b", "1x8")
        await until(lambda: town.phase("q") == "Running")
        await town.leave("a")
        town.pod("r", "1")
        await until(lambda: town.phase("r") == "Running")
        assert town.where("r") == "b"


async def test_without_its_report_a_node_follows_plain_rules_again(town: Town) -> None:
    await town.node("a", "2x8")
    async with town.scheduler() as scheduler:
        town.paused.add("a")
        town.api.delete("noderesourcetopologies", "a")
        await until(lambda: scheduler.cluster.nodes["a"].report is None)
        town.pod("p", "7")
        await until(lambda: town.where("p") == "a")


async def test_malformed_reports_and_annotations_harm_only_what_needs_them(town: Town) -> None:
    rng = random.Random(3)
    await town.node("a", "2x8")
    async with town.scheduler() as scheduler:
        town.paused.add("a")
        key = "topology.rte.dev/node-state"
        good = town.api.get("noderesourcetopologies", "a")["metadata"]["annotations"][key]
        for number in range(60):
            cut = rng.randrange(len(good))
            text = rng.choice(
                [good[:cut], good[:cut] + rng.choice('{}[]":,x9-') + good[cut + 1 :], "", "null"]
            )
            body = {"metadata": {"annotations": {key: text}}}
            patch(town, "noderesourcetopologies", "a", body)
            if number % 20 == 0:
                await asyncio.sleep(0.01)
        patch(town, "noderesourcetopologies", "a", {"metadata": {"annotations": {key: "{"}}})
        await until(lambda: scheduler.cluster.nodes["a"].report.broken)
        annotations = {"scheduling.koordinator.sh/resource-spec": "{"}
        town.pod("pinned", "2", annotations=annotations)
        town.pod("ordinary", "2", guaranteed=False, annotations=annotations)
        await until(lambda: town.phase("ordinary") == "Running")
        await until(lambda: "malformed NodeResourceTopology" in town.condition("pinned"))
        assert town.where("pinned") == ""
        town.paused.discard("a")
        await until(lambda: town.phase("pinned") == "Running")


async def test_preemption_makes_room_in_the_zone(town: Town) -> None:
    await town.node("a", "2x8")
    town.api.create("priorityclasses", {"metadata": {"name": "urgent"}, "value": 10})
    async with town.scheduler():
        town.pod("low0", "7")
        town.pod("low1", "4")
        town.pod("low2", "3")
        await until(lambda: all(town.phase(f"low{n}") == "Running" for n in range(3)))
        town.pod("high", "6", priorityClassName="urgent")
        await until(lambda: town.phase("high") == "Running")
        assert town.phase("low1") == "Running"
        with pytest.raises(StatusError):
            town.get("low0")
    assert town.refusals == []


def deletions(town: Town) -> list[str]:
    """Pods that the scheduler has evicted, as its events tell."""
    items = town.api.list("events").items
    named = [e.get("regarding") or e.get("involvedObject") for e in items]
    return sorted(
        n["name"] for n, e in zip(named, items, strict=True) if e["reason"] == "Preempted"
    )


async def test_no_victim_is_chosen_before_the_pods_in_flight_are_confirmed(town: Town) -> None:
    """The agent lags: low1 and low2 run, and nobody can know yet in which zone."""
    await town.node("a", "2x8")
    for name, value in (("some", 1), ("urgent", 10)):
        town.api.create("priorityclasses", {"metadata": {"name": name}, "value": value})
    async with town.scheduler() as scheduler:
        town.pod("low0", "7")
        await until(lambda: preemption_is_possible(scheduler, 1))
        town.paused.add("a")
        # Of equal pods the one that has started later would go: that depends on the second.
        town.pod("low1", "4", priorityClassName="some")
        await until(lambda: town.phase("low1") == "Running")
        town.pod("high", "6", priorityClassName="urgent")
        attempts = scheduler.metrics.preemption_attempts._value
        await until(lambda: attempts.get() > 0)
        assert [town.phase(name) for name in ("low0", "low1")] == ["Running", "Running"]
        town.paused.discard("a")
        await until(lambda: town.phase("high") == "Running")
        await until(lambda: deletions(town) == ["low0"])
        assert town.phase("low1") == "Running"
    assert town.refusals == []


def preemption_is_possible(scheduler: Scheduler, pods: int) -> bool:
    """So many pods are on node a, and all are confirmed."""
    entry = scheduler.cluster.nodes["a"]
    return len(entry.pods) == pods and preemption.is_settled(entry)


async def test_one_preemption_is_in_force_for_a_pod_at_a_time(town: Town) -> None:
    """A victim takes its time, and everything changes meanwhile: nobody else has to go."""
    await town.node("a", "1x8", stop=30.0)
    await town.node("b", "1x8", stop=30.0)
    town.api.create("priorityclasses", {"metadata": {"name": "urgent"}, "value": 10})
    async with town.scheduler() as scheduler:
        for name in ("low0", "low1"):
            town.pod(name, "6", terminationGracePeriodSeconds=60)
        await until(lambda: all(town.phase(f"low{n}") == "Running" for n in range(2)))
        await until(lambda: all(map(preemption.is_settled, scheduler.cluster.nodes.values())))
        # The API takes the eviction and its answer is lost; then no watch tells of it.
        town.server.faults.drop_next(method="DELETE", path="/pods/", after=True)
        town.pod("high", "6", priorityClassName="urgent")
        await until(lambda: len(deletions(town)) == 1)
        attempts = scheduler.metrics.preemption_victims._sum
        for turn in range(20):
            seen = scheduler.cluster.sequence
            patch(town, "nodes", "ab"[turn % 2], {"metadata": {"labels": {"turn": str(turn)}}})
            await until(lambda seen=seen: scheduler.cluster.sequence > seen)
        (victim,) = deletions(town)
        assert attempts.get() == 1
        town.end(victim)
        await until(lambda: town.phase("high") == "Running")
        (other,) = {"low0", "low1"} - {victim}
        assert town.phase(other) == "Running"
        assert len(scheduler.queue) == 0
    assert town.refusals == []


async def test_an_eviction_that_is_forbidden_is_tried_again_later_and_not_for_ever(
    town: Town, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(promises, "AGAIN_S", 0.1)
    await town.node("a", "1x8")
    town.api.create("priorityclasses", {"metadata": {"name": "urgent"}, "value": 10})
    async with town.scheduler() as scheduler:
        town.pod("low", "6")
        await until(lambda: town.phase("low") == "Running")
        town.server.faults.fail_next(1, 403, method="DELETE", path="/pods/low")
        town.pod("high", "6", priorityClassName="urgent")
        await until(lambda: any(record.preempt_after for record in scheduler.queue))
        assert scheduler.cluster.nominations == {}
        await until(lambda: town.phase("high") == "Running")


async def test_victims_are_told_why_they_go(town: Town) -> None:
    await town.node("a", "1x8", stop=1.0)
    town.api.create("priorityclasses", {"metadata": {"name": "urgent"}, "value": 10})
    async with town.scheduler():
        town.pod("low", "6", terminationGracePeriodSeconds=2)
        await until(lambda: town.phase("low") == "Running")
        town.pod("high", "6", priorityClassName="urgent")
        await until(lambda: town.get("low")["metadata"].get("deletionTimestamp"))
        conditions = {c["type"]: c for c in town.get("low")["status"]["conditions"]}
        assert conditions["DisruptionTarget"]["status"] == "True"
        assert conditions["DisruptionTarget"]["reason"] == "PreemptionByScheduler"
        assert "Ready" in conditions, "those of others stay"
        await until(lambda: town.phase("high") == "Running")


async def test_a_renewal_that_is_late_holds_an_eviction_up_and_no_more(town: Town) -> None:
    await town.node("a", "1x8")
    town.api.create("priorityclasses", {"metadata": {"name": "urgent"}, "value": 10})
    async with town.scheduler() as scheduler:
        town.pod("low", "6")
        await until(lambda: preemption_is_possible(scheduler, 1))
        asked: list[str] = []
        may_evict = scheduler._may_evict

        def late_once(uid: str) -> bool:
            asked.append(uid)
            return len(asked) > 1 and may_evict(uid)

        scheduler._evictor._may_evict = late_once
        town.pod("high", "6", priorityClassName="urgent")
        await until(lambda: asked)
        await until(lambda: town.phase("high") == "Running")


async def test_conditions_of_others_stay_when_a_verdict_is_written(town: Town) -> None:
    await town.node("a", "1x8")
    async with town.scheduler() as scheduler:
        town.pod("p", "40")
        # Our view of the pod is older than the condition of the other controller.
        quota = {"type": "example.com/quota", "status": "True"}
        town.api.patch(
            "pods", "p", {"status": {"conditions": [quota]}}, "default",
            content_type=STRATEGIC_PATCH, subresource="status",
        )  # fmt: skip
        await until(lambda: town.condition("p"))
        types = {c["type"] for c in town.get("p")["status"]["conditions"]}
        assert types >= {"PodScheduled", "example.com/quota"}
        assert scheduler.queue.sizes()["unschedulable"] == 1


async def test_two_replicas_one_active(town: Town) -> None:
    await town.node("a")
    lease = {"leader_elect": True, "lease_seconds": 1.0, "renew_seconds": 0.2}
    async with town.scheduler(**lease) as first:
        await until(first.is_active)
        async with town.scheduler(**lease) as second:
            town.pod("p", "2")
            await until(lambda: town.phase("p") == "Running")
            assert not second.is_active()
            # The active one falls silent, as after kill -9: it neither renews nor gives up.
            first.leader._renew_s = 1e9
            first.leader._until = 0.0
            await until(second.is_active, 3.0)
            town.pod("q", "2")
            await until(lambda: town.phase("q") == "Running")
            assert not first.is_active()


async def test_a_leader_that_cannot_renew_stops_before_its_lease_ends(town: Town) -> None:
    await town.node("a")
    lease = {"leader_elect": True, "lease_seconds": 0.6, "renew_seconds": 0.1}
    async with town.scheduler(**lease) as scheduler:
        await until(scheduler.is_active)
        town.server.faults.fail_next(10_000, 503, path="/leases/")
        await until(lambda: not scheduler.is_active(), 1.0)
        town.pod("p", "2")
        await asyncio.sleep(0.2)
        assert town.where("p") == ""


async def test_a_pod_that_came_while_the_lease_ran_low_is_placed_once_it_is_renewed(
    town: Town,
) -> None:
    await town.node("a")
    lease = {"leader_elect": True, "lease_seconds": 30.0, "renew_seconds": 1.0}
    async with town.scheduler(**lease) as scheduler:
        await until(scheduler.is_active)
        scheduler.leader._until = time.monotonic() + 5.0  # ours, but too short for a bind
        town.pod("p", "2")
        await until(lambda: len(scheduler.queue) == 1 and not scheduler._wake.is_set())
        assert town.where("p") == ""
        await until(lambda: town.phase("p") == "Running", 3.0)


async def test_nothing_of_a_pod_is_left_when_it_has_gone(town: Town) -> None:
    """A month of pods must not fill the memory: all tables are empty in the end."""
    await town.node("a", "2x8")
    await town.node("b", "1x8", policy="none", cpu_policy="none", memory_policy="None")
    async with town.scheduler() as scheduler:
        for turn in range(6):
            names = [f"r{turn}-{n}" for n in range(8)]
            for name in names:
                town.pod(name, "3", guaranteed=name.endswith(("0", "3", "7")), labels={"n": name})
            town.pod(f"wide-{turn}", "99")
            await until(lambda names=names: any(town.phase(n) == "Running" for n in names))
            for name in [*names, f"wide-{turn}"]:
                town.end(name)
            await until(lambda: not town.pods())
        await until(lambda: not scheduler.cluster.pods and not scheduler.cluster.assumed)
        assert len(scheduler.queue) == 0
        machine = scheduler.machine
        await until(lambda: not machine.queue.records and not machine.binding.in_force)
        assert not any(entry.awaited for entry in scheduler.cluster.nodes.values())
        assert all(not e.pods and not +e.used for e in scheduler.cluster.nodes.values())
        assert not +scheduler.cluster.priorities
        scheduler.cluster.collect(0.0)
        assert len(scheduler.cluster.shapes) == 0
    assert town.refusals == []


async def test_a_wall_clock_that_jumps_changes_nothing(
    town: Town, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Jumping(datetime):
        @classmethod
        def now(cls, tz: tzinfo | None = None) -> datetime:  # type: ignore[override]
            return datetime.now(tz) + timedelta(days=random.choice([-400, 0, 400]))

    for module in (leader, feeds):
        monkeypatch.setattr(module, "datetime", Jumping)
    await town.node("a")
    labels = {"app.kubernetes.io/name": "rte-agent"}
    lease = {
        "metadata": {"name": "a", "labels": labels},
        "spec": {"holderIdentity": "a", "renewTime": "2026-01-01T00:00:00.000000Z"},
    }
    town.api.create("leases", lease, "rte-agents")
    options = {"leader_elect": True, "lease_seconds": 3.0, "renew_seconds": 0.2}
    async with town.scheduler(**options) as first:
        await until(first.is_active)
        async with town.scheduler(**options) as second:
            # What a Lease says of time is doubted once; its next renewal shows that it lives.
            spec = {"spec": {"renewTime": "2026-01-01T00:00:09.000000Z"}}
            town.api.patch("leases", "a", spec, "rte-agents")
            for number in range(10):
                town.pod(f"p{number}", "1")
                await until(lambda number=number: town.phase(f"p{number}") == "Running")
                await asyncio.sleep(0.1)
                assert first.is_active()
                assert not second.is_active()


async def test_a_takeover_lists_all_pods_only_where_it_must(town: Town) -> None:
    """Watches tell all that the replica before it did, and where nothing moves that it is all."""
    await town.node("n")
    async with town.scheduler() as scheduler:
        town.pod("first", "1")
        await until(lambda: town.phase("first") == "Running")
        lists: list[str] = []
        real, stream = scheduler.client.get, scheduler.client.stream

        async def get(path: str, **query: str) -> dict[str, Any]:
            answer = await real(path, **query)
            if path == "/api/v1/pods":
                lists.append(query.get("limit") or "none")
                if moving:
                    town.pod("next", "1")
            return answer

        scheduler.client.get = get  # type: ignore[method-assign]
        moving = True
        await scheduler.feeds.relist()
        assert lists == ["none"]
        moving = False
        await until(lambda: town.phase("next") == "Running")
        town.api.create("leases", {"metadata": {"name": "newer"}}, "default")
        await scheduler.feeds.relist()
        assert lists == ["none", "none"]

        def refused(*args: Any, **options: Any) -> Any:
            raise errors.KubeError("no watch for you", status=500)

        scheduler.client.stream = refused  # type: ignore[method-assign]
        town.api.create("leases", {"metadata": {"name": "newest"}}, "default")
        await scheduler.feeds.relist()
        assert lists[2:] == ["none", "500"]
        scheduler.client.stream = stream  # type: ignore[method-assign]


async def test_two_pools_share_a_cluster(town: Town) -> None:
    """Each has a Lease of its own; a node that changes pools takes its report along."""
    for name, letter in (("one", "a"), ("two", "b")):
        await town.node(name)
        town.api.patch("nodes", name, {"metadata": {"labels": {"pool": letter}}})
    pools = {
        letter: {
            "scheduler_name": f"pool-{letter}",
            "nodes": parse_text(f"pool={letter}"),
            "leader_elect": True,
        }
        for letter in "ab"
    }
    async with town.scheduler(**pools["a"]) as first, town.scheduler(**pools["b"]) as second:
        await until(lambda: first.is_active() and second.is_active())
        town.pod("p", "6", schedulerName="pool-a")
        town.pod("q", "6", schedulerName="pool-b")
        await until(lambda: (town.where("p"), town.where("q")) == ("one", "two"))
        town.pod("more", "6", schedulerName="pool-a")
        await until(lambda: town.where("more") == "one")
        town.pod("waits", "6", schedulerName="pool-a")
        await until(lambda: "of another pool" in str(town.condition("waits")))
        town.api.patch("nodes", "two", {"metadata": {"labels": {"pool": "a"}}})
        await until(lambda: town.phase("waits") == "Running")
        assert town.where("waits") == "two"
    assert town.refusals == []
