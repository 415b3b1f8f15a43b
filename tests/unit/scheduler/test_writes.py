"""What stands before a bind is written side by side, and undone when anything after it fails."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pytest

from rte.kube import credentials
from rte.kube.client import Client
from rte.scheduler.framework.plugin import Annotate, Reserve
from rte.scheduler.framework.writes import Impossible, Reserved, Step, Wait, WriteTarget
from rte.scheduler.loop.messages import Bound, Gone, Outcome, Seen
from rte.scheduler.shell.binder import WIDTH
from rte.scheduler.shell.writer import RequiredWriter
from tests.unit.scheduler.build import node_object
from tests.unit.scheduler.desk import Desk
from tests.unit.scheduler.town import Town, until

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping
    from pathlib import Path

    from rte.scheduler.framework.node import NodeEntry
    from rte.scheduler.framework.objects import PodView
    from rte.scheduler.framework.status import Status
    from rte.scheduler.framework.writes import Found

TAKEN_BY = "example.com/taken-by"


@dataclass
class Taken:
    """A node is taken by a pod: an annotation that only one can have."""

    node: str
    pod: str
    found: Any = None
    waits_for: str = ""

    @property
    def target(self) -> WriteTarget:
        return WriteTarget("nodes", self.node)

    @property
    def known(self) -> Found:
        return self.found

    def next(self, found: Found) -> Step | Wait | Impossible | None:
        if found is None:
            return Impossible("the node is gone")
        annotations = found["metadata"].get("annotations") or {}
        holder = annotations.get(TAKEN_BY)
        if holder == self.pod:
            missing = self.waits_for and self.waits_for not in annotations
            return Wait(f"no {self.waits_for} in time") if missing else None
        if holder:
            return Impossible(f"taken by {holder}")
        return Step("patch", {"metadata": {"annotations": {TAKEN_BY: self.pod}}})

    def undo(self, found: Found) -> Step | None:
        if found is None or (found["metadata"].get("annotations") or {}).get(TAKEN_BY) != self.pod:
            return None
        return Step("patch", {"metadata": {"annotations": {TAKEN_BY: None}}})


@dataclass
class Made:
    """A claim that the pod needs is made, and deleted when the decision fails."""

    name: str

    @property
    def target(self) -> WriteTarget:
        return WriteTarget("claims", self.name, "default")

    @property
    def known(self) -> Found:
        return None

    def next(self, found: Found) -> Step | None:
        spec = {
            "accessModes": ["ReadWriteOnce"],
            "resources": {"requests": {"storage": "1Gi"}},
        }
        return None if found else Step("create", {"metadata": {"name": self.name}, "spec": spec})

    def undo(self, found: Found) -> Step | None:
        return Step("delete") if found else None


class Bench:
    """A town of two nodes without kubelets, and a writer."""

    def __init__(self, town: Town, client: Client) -> None:
        self.town = town
        self.left_s = 10.0
        self.now = 0.0
        self.writer = RequiredWriter(
            client, left_s=lambda: self.left_s, timeout_s=2.0, clock=lambda: self.now,
            slots=asyncio.Semaphore(WIDTH),
        )  # fmt: skip
        for name in "ab":
            town.api.create("nodes", {"metadata": {"name": name}})

    def taken(self, node: str, pod: str = "p", **options: Any) -> Taken:
        return Taken(node, pod, self.town.api.get("nodes", node), **options)

    def holder(self, node: str) -> str | None:
        return (self.town.api.get("nodes", node)["metadata"].get("annotations") or {}).get(TAKEN_BY)

    def annotate(self, node: str, **annotations: str) -> None:
        self.town.api.patch("nodes", node, {"metadata": {"annotations": annotations}})


@pytest.fixture
async def bench(tmp_path: Path) -> AsyncIterator[Bench]:
    async with Town(tmp_path) as town, Client(credentials.load(tmp_path / "kubeconfig", {})) as api:
        yield Bench(town, api)


async def test_writes_stand_and_are_undone(bench: Bench) -> None:
    writes = [bench.taken("a"), Made("c")]
    carried = await bench.writer.carry_out(writes)
    assert not carried.why
    assert bench.holder("a") == "p"
    assert [event.collection for event in carried.written] == ["nodes", "claims"]
    undone = await bench.writer.undo(writes)
    assert bench.holder("a") is None
    assert undone[1] == Gone("claims", "default/c")


async def test_one_that_cannot_stand_names_the_reason_and_the_others_are_undone(
    bench: Bench,
) -> None:
    bench.annotate("b", **{TAKEN_BY: "q"})
    writes = [bench.taken("a"), bench.taken("b")]
    carried = await bench.writer.carry_out(writes)
    assert (carried.why, carried.abandoned) == ("taken by q", False)
    await bench.writer.undo(writes)
    assert (bench.holder("a"), bench.holder("b")) == (None, "q")


async def test_a_conflict_is_looked_at_again(bench: Bench) -> None:
    harmless, harmful = bench.taken("a"), bench.taken("b")
    bench.annotate("a", other="change")
    bench.annotate("b", **{TAKEN_BY: "q"})
    assert not (await bench.writer.carry_out([harmless])).why
    assert (await bench.writer.carry_out([harmful])).why == "taken by q"


@pytest.mark.parametrize("after", [False, True])
async def test_a_lost_answer_is_found_out(bench: Bench, after: bool) -> None:
    bench.town.server.faults.drop_next(2, method="PATCH", after=after)
    assert not (await bench.writer.carry_out([bench.taken("a")])).why
    bench.town.server.faults.drop_next(1, method="POST", after=after)
    assert not (await bench.writer.carry_out([Made("c")])).why


async def test_a_refusal_by_the_api_is_told(bench: Bench) -> None:
    bench.town.server.faults.fail_next(code=403, method="PATCH")
    assert "403" in (await bench.writer.carry_out([bench.taken("a")])).why


async def test_what_others_have_to_do_is_waited_for_and_seen_at_once(bench: Bench) -> None:
    work = asyncio.create_task(bench.writer.carry_out([bench.taken("a", waits_for="ready")]))
    await until(lambda: bench.holder("a") == "p")
    bench.annotate("a", ready="yes")
    bench.writer.told(Seen("nodes", bench.town.api.get("nodes", "a")))
    carried = await work
    assert not carried.why


async def test_a_wait_ends_with_its_time_or_with_another_failure(bench: Bench) -> None:
    work = asyncio.create_task(bench.writer.carry_out([bench.taken("a", waits_for="ready")]))
    await until(lambda: bench.holder("a") == "p")
    bench.now = 601.0
    assert (await work).why == "no ready in time"
    bench.now = 0.0
    bench.annotate("b", **{TAKEN_BY: "q"})
    writes = [bench.taken("a", waits_for="ready"), bench.taken("b")]
    assert (await bench.writer.carry_out(writes)).why == "taken by q"


async def test_only_the_active_replica_writes(bench: Bench) -> None:
    bench.left_s = 0.0
    writes = [bench.taken("a")]
    carried = await bench.writer.carry_out(writes)
    assert carried.abandoned
    await bench.writer.undo(writes)
    assert bench.holder("a") is None


class Taking(Reserve, Annotate):
    """Takes the node for the pod before the bind, and says on the pod which one."""

    name = "Taking"

    def __init__(self) -> None:
        self.promises: list[str] = []

    def reserve(self, pod: PodView, node: NodeEntry) -> Reserved | None:
        self.promises.append(pod.name)
        found = {"metadata": {"name": node.name}}
        return Reserved([Taken(node.name, pod.name, found)], pod.name)

    def unreserve(self, reserved: Reserved) -> None:
        self.promises.remove(reserved.promise)

    def annotations(self, pod: PodView, node: NodeEntry, status: Status) -> Mapping[str, str]:
        return {"example.com/on": node.name}


async def test_a_plugin_writes_before_the_bind(bench: Bench) -> None:
    town, plugin = bench.town, Taking()
    await town.node("n")
    async with town.scheduler() as scheduler:
        scheduler.cycle.profile.reserves = scheduler.cycle.profile.annotators = (plugin,)
        town.pod("p")
        await until(lambda: town.where("p") == "n")
        assert bench.holder("n") == "p"
        assert town.get("p")["metadata"]["annotations"]["example.com/on"] == "n"
        await until(lambda: not plugin.promises)


async def test_a_bind_that_the_api_refuses_takes_the_writes_back(bench: Bench) -> None:
    town, plugin = bench.town, Taking()
    await town.node("n")
    async with town.scheduler() as scheduler:
        scheduler.cycle.profile.reserves = scheduler.cycle.profile.annotators = (plugin,)
        town.server.faults.fail_next(1000, code=403, method="POST", path="/binding")
        town.pod("p")
        await until(
            lambda: "FailedBinding" in [str(e["reason"]) for e in town.api.list("events").items]
        )
        town.end("p")
        await until(lambda: bench.holder("n") is None and not plugin.promises)


def test_what_was_written_is_known_before_its_promise_ends() -> None:
    desk = Desk()
    desk.answers = False
    desk.node("n")
    plugin = Taking()
    desk.machine.cycle.profile.reserves = desk.machine.cycle.profile.annotators = (plugin,)
    uid = desk.pod("p")
    (bind,) = desk.binds
    assert bind.annotations == {"example.com/on": "n"}
    assert [write.target for write in bind.writes] == [WriteTarget("nodes", "n")]
    known: list[bool] = []
    nodes = desk.machine.cluster.nodes
    plugin.unreserve = lambda _: known.append("m" in nodes)  # type: ignore[method-assign]
    written = Seen("nodes", node_object("m", {"cpu": "1"}))
    desk.handle(Bound(uid, Outcome.BOUND, written=(written,)))
    assert known == [True]


async def test_a_write_that_fails_is_given_up_after_a_few_tries(bench: Bench) -> None:
    bench.town.server.faults.fail_next(100, code=500, method="PATCH")
    carried = await bench.writer.carry_out([bench.taken("a")])
    assert "500" in carried.why
    assert bench.holder("a") is None
