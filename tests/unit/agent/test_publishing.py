"""The writer of the object: one write for each change, whatever breaks, and no write war."""

from __future__ import annotations

import asyncio
import copy
import logging
import time
from typing import TYPE_CHECKING, Any

import pytest

from rte import errors
from rte.agent import learn
from rte.agent.observer.messages import Observation
from rte.agent.publisher.machine import Publisher
from rte.agent.publisher.ownership import OWN_PREFIX, Tolerance
from rte.agent.publishing import Publishing
from rte.agent.stores import KubeStore
from rte.agent.timings import Timings
from rte.model.backoff import Backoff
from rte.sim.apiserver import StatusError
from rte.telemetry.effects import Readiness
from rte.telemetry.metrics import AgentMetrics

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from rte.kube.client import Client
    from rte.sim.apiserver import APIServer

NRTS = "noderesourcetopologies"
FAILURES = "rte_noderesourcetopology_write_failures_total"
TIMINGS = Timings(first_retry=0.01, last_retry=0.05, resync=3600)


def nrt(number: int, **annotations: str) -> dict[str, Any]:
    """An object that tells observation ``number``."""
    return {
        "apiVersion": "topology.node.k8s.io/v1alpha2",
        "kind": "NodeResourceTopology",
        "metadata": {
            "name": "n0",
            "annotations": {f"{OWN_PREFIX}node-state": str(number), **annotations},
        },
        "topologyPolicies": ["None"],
        "attributes": [{"name": "number", "value": str(number)}],
        "zones": [{"name": "node-0", "type": "Node"}],
    }


class Rig:
    """A sink at work on an API server, and what it did."""

    def __init__(
        self, client: Client, server: APIServer, ask_owner: Any = None, **options: Any
    ) -> None:
        self.server = server
        self.metrics = AgentMetrics()
        self.readiness = Readiness(published="not yet")
        self.machine = Publisher(**{"timings": TIMINGS, **options})
        self.store = KubeStore(client, "n0", ask_owner=ask_owner)
        self.sink = Publishing(
            self.store, self.machine, metrics=self.metrics, readiness=self.readiness
        )
        self.tasks = [asyncio.create_task(self.sink.run())]

    def follow(self) -> None:
        self.tasks.append(asyncio.create_task(self.store.follow(self.sink.feed)))

    def offer(self, obj: dict[str, Any]) -> None:
        self.sink.offer(Observation(obj, time.monotonic()))

    def stored(self) -> dict[str, Any] | None:
        try:
            return self.server.api.get(NRTS, "n0")
        except StatusError:
            return None

    def number(self) -> str:
        """The observation that is published."""
        obj = self.stored()
        annotations = obj["metadata"].get("annotations", {}) if obj else {}
        return annotations.get(f"{OWN_PREFIX}node-state", "")

    def count(self, name: str, **labels: str) -> float:
        return self.metrics.registry.get_sample_value(name, labels) or 0.0

    def writes(self) -> float:
        return sum(
            sample.value
            for metric in self.metrics.registry.collect()
            if metric.name == "rte_noderesourcetopology_writes"
            for sample in metric.samples
            if sample.name.endswith("_total")
        )

    def failures(self) -> float:
        return self.count(FAILURES, status="0")

    async def until(self, condition: Callable[[], bool], seconds: float = 30) -> None:
        """Wait for an event of the API server's store, by looking often."""
        async with asyncio.timeout(seconds):
            while not condition():
                await asyncio.sleep(0.002)

    async def published(self, number: int) -> None:
        await self.until(lambda: self.number() == str(number))
        await self.until(lambda: self.machine.is_current)

    async def watched(self) -> None:
        await self.until(lambda: bool(self.server.api.store.watches()))


@pytest.fixture
async def make(client: Client, bare_server: APIServer) -> AsyncIterator[Callable[..., Rig]]:
    made: list[Rig] = []

    def build(**options: Any) -> Rig:
        made.append(Rig(client, bare_server, **options))
        return made[-1]

    yield build
    tasks = [task for publisher in made for task in publisher.tasks]
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


@pytest.fixture
async def publisher(make: Callable[..., Rig], server: APIServer) -> Rig:
    return make()


async def test_the_first_observation_creates_the_object(publisher: Rig):
    assert publisher.readiness.reasons
    publisher.offer(nrt(1))
    await publisher.published(1)
    assert publisher.readiness.reasons == ()
    assert publisher.count(
        "rte_noderesourcetopology_writes_total", operation="create", trigger="start"
    )


async def test_a_change_is_one_update_and_no_change_is_no_write(publisher: Rig):
    publisher.offer(nrt(1))
    await publisher.published(1)
    publisher.offer(nrt(1))
    publisher.offer(nrt(2))
    await publisher.published(2)
    publisher.offer(nrt(2))
    await asyncio.sleep(0.05)  # nothing is to happen
    assert publisher.writes() == 2


async def test_a_restarted_agent_does_not_write_what_is_there(make, server: APIServer):
    first = make()
    first.offer(nrt(1))
    await first.published(1)
    version = first.stored()["metadata"]["resourceVersion"]
    second = make()
    second.offer(nrt(1))
    await second.published(1)
    assert second.writes() == 0
    assert second.stored()["metadata"]["resourceVersion"] == version


async def test_changes_during_an_outage_are_one_write_of_the_last_state(
    publisher: Rig, server: APIServer
):
    publisher.offer(nrt(0))
    await publisher.published(0)
    server.faults.drop_next(1000)
    for number in range(1, 101):
        publisher.offer(nrt(number))
        await asyncio.sleep(0.002)
    failures = publisher.failures()
    # An attempt that began before the last offer must not be the one that gets through.
    await publisher.until(lambda: publisher.failures() > failures)
    assert publisher.number() == "0"
    assert publisher.machine.behind_since()
    server.faults._failures.clear()
    await publisher.published(100)
    assert publisher.writes() == 2


async def test_changes_coalesce_only_while_a_write_is_under_way(publisher: Rig, server: APIServer):
    publisher.offer(nrt(0))
    await publisher.published(0)
    server.faults.pause()
    for number in range(1, 51):
        publisher.offer(nrt(number))
        await asyncio.sleep(0.001)
    server.faults.resume()
    await publisher.published(50)
    assert publisher.writes() == 3  # the one that was under way, and the last


@pytest.mark.parametrize("code", [409, 410, 422, 429, 500, 503, 401, 403, 404, 413])
async def test_a_refused_write_is_tried_again_until_it_succeeds(
    publisher: Rig, server: APIServer, code: int
):
    publisher.offer(nrt(1))
    await publisher.published(1)
    failures = 1 if code in (429, 503) else 2  # their Retry-After is a whole second
    server.faults.fail_next(failures, code=code, method="PUT")
    publisher.offer(nrt(2))
    await publisher.until(lambda: publisher.number() == "2", 8)
    assert publisher.count(FAILURES, status=str(code)) == failures


async def test_a_write_whose_answer_was_lost_is_not_repeated(publisher: Rig, server: APIServer):
    publisher.offer(nrt(1))
    await publisher.published(1)
    server.faults.drop_next(method="PUT", after=True)
    publisher.offer(nrt(2))
    await publisher.published(2)
    assert publisher.count("rte_foreign_overwrites_total") == 0


async def test_a_crd_that_is_installed_later_ends_the_wait(
    make, bare_server: APIServer, crd: dict[str, Any], caplog: pytest.LogCaptureFixture
):
    publisher = make()
    publisher.follow()
    publisher.offer(nrt(1))
    await publisher.until(lambda: publisher.count(FAILURES, status="404") > 3)
    hints = [record for record in caplog.records if "CRD is not installed" in record.message]
    assert len(hints) == 1
    publisher.offer(nrt(2))
    bare_server.api.create("customresourcedefinitions", crd)
    await publisher.published(2)
    assert publisher.writes() == 1


@pytest.mark.parametrize(("code", "hint"), [(403, "check RBAC"), (401, "credentials")])
async def test_missing_rights_are_one_clear_line(
    publisher: Rig, server: APIServer, caplog: pytest.LogCaptureFixture, code: int, hint: str
):
    server.faults.fail_next(5, code=code)
    publisher.offer(nrt(1))
    await publisher.published(1)
    lines = [record for record in caplog.records if record.levelno >= logging.ERROR]
    assert len(lines) == 1
    assert hint in lines[0].message


async def test_an_object_deleted_by_hand_comes_back(publisher: Rig, server: APIServer):
    publisher.follow()
    publisher.offer(nrt(1))
    await publisher.published(1)
    await publisher.watched()
    server.api.delete(NRTS, "n0")
    await publisher.published(1)
    assert publisher.count("rte_foreign_overwrites_total") == 1


async def test_an_object_deleted_with_its_node_comes_back_with_the_new_owner(make, server):
    async def ask() -> str:
        return "second"

    publisher = make(ask_owner=ask)
    obj = nrt(1)
    obj["metadata"]["ownerReferences"] = [
        {"apiVersion": "v1", "kind": "Node", "name": "n0", "uid": "first"}
    ]
    publisher.offer(obj)
    await publisher.published(1)
    assert publisher.stored()["metadata"]["ownerReferences"][0]["uid"] == "second"


async def test_where_it_may_not_be_adopted_the_rest_is_written_all_the_same(
    publisher: Rig, server: APIServer, caplog: pytest.LogCaptureFixture
):
    """OwnerReferencesPermissionEnforcement, on by default on OpenShift."""
    refused: list[Any] = []

    def enforce(obj: dict[str, Any], old: dict[str, Any]) -> None:
        if obj["metadata"].get("ownerReferences") != old["metadata"].get("ownerReferences"):
            refused.append(obj)
            raise StatusError(403, "cannot set an ownerRef on a resource you can't delete")

    server.api.create(NRTS, {**nrt(0), "zones": []})
    update = server.api.update

    def guarded(resource: Any, obj: dict[str, Any], *args: Any, **options: Any) -> Any:
        enforce(obj, server.api.get(NRTS, "n0"))
        return update(resource, obj, *args, **options)

    server.api.update = guarded  # type: ignore[method-assign]
    for number in (1, 2):
        wanted = nrt(number)
        wanted["metadata"]["ownerReferences"] = [
            {"apiVersion": "v1", "kind": "Node", "name": "n0", "uid": "u"}
        ]
        publisher.offer(wanted)
        await publisher.published(number)
    assert len(refused) == 1
    assert "ownerReferences" not in (publisher.stored() or {})["metadata"]
    assert [record for record in caplog.records if "allow delete" in record.message]


async def test_a_missing_node_is_not_told_as_a_missing_crd(
    make: Any, server: APIServer, caplog: pytest.LogCaptureFixture
):
    there = False

    async def ask() -> str:
        if not there:
            raise learn.no_such_node("n0", errors.KubeError("nodes n0 not found", status=404))
        return ""

    publisher = make(ask_owner=ask)
    publisher.offer(nrt(1))
    await publisher.until(lambda: publisher.count(FAILURES, status="404") > 0)
    there = True
    await publisher.published(1)
    (line,) = [r.message for r in caplog.records if r.levelno >= logging.ERROR]
    assert "node is not registered" in line
    assert "--node-name" in line
    assert "CRD" not in line


async def test_our_part_is_repaired_and_the_rest_left_alone(publisher: Rig, server: APIServer):
    publisher.follow()
    publisher.offer(nrt(1))
    await publisher.published(1)
    await publisher.watched()
    obj = copy.deepcopy(server.api.get(NRTS, "n0"))
    obj["metadata"]["labels"] = {"mine": "yes"}
    obj["zones"] = [{"name": "wrong", "type": "Node"}]
    server.api.update(NRTS, obj)
    await publisher.until(lambda: publisher.stored()["zones"][0]["name"] == "node-0")
    assert publisher.stored()["metadata"]["labels"] == {"mine": "yes"}


async def test_foreign_labels_are_no_reason_to_write(publisher: Rig, server: APIServer):
    publisher.follow()
    publisher.offer(nrt(1))
    await publisher.published(1)
    await publisher.watched()
    obj = copy.deepcopy(server.api.get(NRTS, "n0"))
    obj["metadata"]["labels"] = {"mine": "yes"}
    server.api.update(NRTS, obj)
    publisher.offer(nrt(2))
    await publisher.published(2)
    assert publisher.writes() == 2
    assert publisher.count("rte_foreign_overwrites_total") == 0


async def _rival(publisher: Rig, rounds: int) -> None:
    """Puts its own zones in again as soon as they are overwritten."""
    for _ in range(rounds):
        obj = copy.deepcopy(publisher.server.api.get(NRTS, "n0"))
        obj["zones"] = [{"name": "theirs", "type": "Node"}]
        publisher.server.api.update(NRTS, obj)
        try:
            await publisher.until(lambda: publisher.stored()["zones"][0]["name"] == "node-0", 0.5)
        except TimeoutError:
            return


async def test_who_overwrites_us_again_and_again_does_not_get_a_write_war(
    make, server: APIServer, caplog: pytest.LogCaptureFixture
):
    publisher = make(tolerance=Tolerance(repairs=3, reacts_s=600.0))
    publisher.follow()
    publisher.offer(nrt(1))
    await publisher.published(1)
    await publisher.watched()
    await _rival(publisher, 20)
    assert publisher.count("rte_sharing") == 1
    assert publisher.writes() == 7  # the creation, three repairs, the first three while sharing
    assert any("stop one of the two writers" in record.message for record in caplog.records)
    publisher.offer(nrt(2))
    await publisher.until(lambda: publisher.number() == "2")
    assert publisher.stored()["zones"][0]["name"] == "node-0"


async def test_when_the_rival_is_gone_the_whole_object_is_maintained_again(make, server: APIServer):
    publisher = make(tolerance=Tolerance(repairs=1, quiet_s=0.3))
    publisher.follow()
    publisher.offer(nrt(1))
    await publisher.published(1)
    await publisher.watched()
    await _rival(publisher, 10)
    assert publisher.count("rte_sharing") == 1
    await publisher.until(
        lambda: (
            publisher.count("rte_sharing") == 0
            and publisher.stored()["zones"][0]["name"] == "node-0"
        )
    )


async def test_a_rival_that_strips_our_annotations_gets_them_back_at_a_slow_pace(make, server):
    publisher = make(
        tolerance=Tolerance(repairs=0, reacts_s=600.0, reactions=1, waits=Backoff(0.2, 0.2))
    )
    publisher.follow()
    publisher.offer(nrt(1))
    await publisher.published(1)
    await publisher.watched()
    began = time.monotonic()
    stripped = 0
    while time.monotonic() - began < 1.0:
        if publisher.number() == "1":
            obj = copy.deepcopy(server.api.get(NRTS, "n0"))
            obj["metadata"]["annotations"] = {}
            server.api.update(NRTS, obj)
            stripped += 1
        await asyncio.sleep(0.005)
    assert 2 <= stripped <= 8  # every 0.2 s, as the pace of this test says


async def test_what_the_server_does_not_store_is_not_written_for_ever(
    publisher: Rig, server: APIServer, caplog: pytest.LogCaptureFixture
):
    obj = nrt(1)
    obj["zones"][0]["unknown"] = "pruned by the schema"
    publisher.offer(obj)
    await publisher.published(1)
    publisher.offer({**obj, "attributes": []})
    await publisher.until(lambda: not publisher.stored().get("attributes"))
    await asyncio.sleep(0.05)  # nothing more is to happen
    assert publisher.writes() == 2
    assert any("does not store all" in record.message for record in caplog.records)


async def test_a_resync_reads_afresh_and_repairs_what_no_watch_told(make, server: APIServer):
    publisher = make(timings=Timings(first_retry=0.01, last_retry=0.05, resync=0.1))
    publisher.offer(nrt(1))
    await publisher.published(1)
    obj = copy.deepcopy(server.api.get(NRTS, "n0"))
    obj["zones"] = [{"name": "wrong", "type": "Node"}]
    server.api.update(NRTS, obj)
    await publisher.until(lambda: publisher.stored()["zones"][0]["name"] == "node-0")


async def test_the_last_observation_is_flushed_at_the_end(publisher: Rig, server: APIServer):
    publisher.offer(nrt(1))
    await publisher.published(1)
    publisher.tasks[0].cancel()
    await asyncio.gather(*publisher.tasks, return_exceptions=True)
    publisher.offer(nrt(2))
    await publisher.sink.flush()
    assert publisher.number() == "2"


async def test_a_write_that_the_end_cut_off_is_looked_at_afresh(
    publisher: Rig, client: Client, monkeypatch: pytest.MonkeyPatch
):
    publisher.offer(nrt(1))
    await publisher.published(1)
    stored, update = asyncio.Event(), client.update

    async def unanswered(*args: Any) -> Any:
        await update(*args)
        stored.set()
        await asyncio.Event().wait()

    with monkeypatch.context() as patch:
        patch.setattr(client, "update", unanswered)
        publisher.offer(nrt(2))
        await stored.wait()
        publisher.tasks[0].cancel()
        await asyncio.gather(*publisher.tasks, return_exceptions=True)
    assert publisher.number() == "2"
    assert not publisher.machine.is_current
    await publisher.sink.flush()
    assert publisher.machine.is_current
