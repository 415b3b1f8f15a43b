"""What users read: states before events, the newest one of each, a few on their way at a time."""

from __future__ import annotations

import asyncio
import contextlib
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from rte import errors
from rte.scheduler.report.reporter import Reporter
from rte.telemetry.quarantine import Quarantine
from tests.unit.scheduler.build import World, pod_object

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Mapping

    from rte.scheduler.framework.objects import PodView


class APIServer:
    """Notes what it is asked to write; answers at once, or once it may."""

    def __init__(self) -> None:
        self.begun: list[str] = []
        self.written: list[str] = []
        self.may_answer = asyncio.Event()
        self.may_answer.set()
        self.failures: list[int] = []
        self.at_once = self.most_at_once = 0

    async def patch(self, path: str, body: Mapping[str, Any], *, kind: str) -> None:
        assert kind == "application/strategic-merge-patch+json"
        status = body["status"]
        said = (status["conditions"][0] if "conditions" in status else status).copy()
        what = said.get("message") or said["nominatedNodeName"]
        await self._write(f"{path.split('/')[-2]}: {what}")

    async def create(self, path: str, body: Mapping[str, Any]) -> None:
        assert path == "/apis/events.k8s.io/v1/namespaces/default/events"
        await self._write(f"event of {body['regarding']['name']}: {body['note']}")

    async def _write(self, text: str) -> None:
        self.begun.append(text)
        self.at_once += 1
        self.most_at_once = max(self.most_at_once, self.at_once)
        await self.may_answer.wait()
        self.at_once -= 1
        if self.failures:
            raise errors.KubeError("no", status=self.failures.pop(0))
        self.written.append(text)


async def steps_aside() -> None:
    """For nothing."""


@contextlib.asynccontextmanager
async def reporting(
    api: Any, first: Callable[[], Awaitable[None]] = steps_aside
) -> AsyncIterator[Reporter]:
    faults = Quarantine()
    reporter = Reporter(
        api,
        "rte-scheduler",
        asyncio.get_running_loop().time,
        first,
        lambda kind, key: faults.guard(kind, key, 0.0),
    )
    task = asyncio.create_task(reporter.run())
    try:
        yield reporter
    finally:
        task.cancel()
        await asyncio.wait([task])


async def until(condition: Any) -> None:
    async with asyncio.timeout(30):
        while not condition():
            await asyncio.sleep(0.001)


async def steps(number: int = 50) -> None:
    for _ in range(number):
        await asyncio.sleep(0)


def pod(name: str) -> PodView:
    return World().pod(pod_object(name))


async def test_states_are_written_before_events_that_wait_for_longer() -> None:
    api = APIServer()
    async with reporting(api) as reporter:
        for number in range(50):
            reporter.event(pod(f"e{number}"), "Normal", "Scheduled", "bound")
        reporter.unschedulable(pod("a"), "no room")
        await until(lambda: len(api.written) == 52)
    assert api.begun[0] == "a: no room"


async def test_what_is_told_waits_for_what_matters_more() -> None:
    api, through = APIServer(), asyncio.Event()

    async def first() -> None:
        await through.wait()

    async with reporting(api, first) as reporter:
        reporter.unschedulable(pod("a"), "no room")
        reporter.unschedulable(pod("b"), "no room")
        await steps()
        assert not api.begun
        reporter.bound(pod("a"))
        through.set()
        await until(lambda: len(api.written) == 3)
    assert api.begun[0] == "b: no room"


async def test_of_several_states_of_a_pod_the_newest_is_written_and_keeps_its_turn() -> None:
    api = APIServer()
    async with reporting(api) as reporter:
        for text in ("old", "older than the newest", "newest"):
            reporter.unschedulable(pod("a"), text)
            reporter.unschedulable(pod("b"), text)
        reporter.nominate(pod("a"), "n1")
        await until(lambda: len(api.written) == 3 + 6)
    assert api.begun[:3] == ["a: newest", "b: newest", "a: n1"]


async def test_a_slow_write_holds_up_nobody_else_and_is_not_overtaken_by_its_successor() -> None:
    api = APIServer()
    api.may_answer.clear()
    async with reporting(api) as reporter:
        reporter.nominate(pod("a"), "n1")
        await steps()
        reporter.nominate(pod("a"), "n2")
        reporter.nominate(pod("b"), "n3")
        await steps()
        assert api.begun == ["a: n1", "b: n3"]
        api.may_answer.set()
        await until(lambda: len(api.written) == 3)
    assert api.written == ["a: n1", "b: n3", "a: n2"]


async def test_only_a_few_are_on_their_way_at_a_time() -> None:
    api = APIServer()
    api.may_answer.clear()
    async with reporting(api) as reporter:
        for number in range(40):
            reporter.nominate(pod(f"p{number}"), "n")
        await steps(200)
        api.may_answer.set()
        await until(lambda: len(api.written) == 40)
    assert api.most_at_once == 8


@pytest.mark.parametrize("status", [0, 429, 500, 503])
async def test_a_state_that_the_server_could_not_take_is_written_again(
    status: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("rte.scheduler.report.reporter._AGAIN_S", 0.01)
    api = APIServer()
    api.failures = [status, status]
    async with reporting(api) as reporter:
        reporter.nominate(pod("a"), "n1")
        await until(lambda: api.written)
    assert api.begun == ["a: n1"] * 3


@pytest.mark.parametrize("status", [403, 404, 409, 422])
async def test_a_state_that_the_server_refuses_is_given_up(
    status: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("rte.scheduler.report.reporter._AGAIN_S", 0.0)
    api = APIServer()
    api.failures = [status]
    async with reporting(api) as reporter:
        reporter.nominate(pod("a"), "n1")
        await until(lambda: not api.failures)
        reporter.nominate(pod("b"), "n1")
        await until(lambda: api.written)
        await steps()
    assert api.begun == ["a: n1", "b: n1"]


async def test_a_state_tried_again_does_not_replace_a_newer_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("rte.scheduler.report.reporter._AGAIN_S", 0.01)
    api = APIServer()
    api.failures = [503]
    async with reporting(api) as reporter:
        reporter.nominate(pod("a"), "n1")
        await until(lambda: not api.failures)
        reporter.nominate(pod("a"), "n2")
        await until(lambda: api.written)
        await steps()
    assert api.begun == ["a: n1", "a: n2"]


async def test_of_a_pod_that_is_bound_nobody_says_that_it_waits() -> None:
    api = APIServer()
    async with reporting(api) as reporter:
        reporter.unschedulable(pod("a"), "no room")
        reporter.unschedulable(pod("b"), "no room")
        reporter.bound(pod("a"))
        await until(lambda: len(api.written) == 3)
        await steps()
    assert sorted(api.begun) == ["b: no room", "event of a: no room", "event of b: no room"]


async def test_what_failed_before_a_pod_was_bound_is_not_tried_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("rte.scheduler.report.reporter._AGAIN_S", 0.01)
    api = APIServer()
    api.failures = [503]
    async with reporting(api) as reporter:
        reporter.unschedulable(pod("a"), "no room")
        await until(lambda: not api.failures)
        reporter.bound(pod("a"))
        await asyncio.sleep(0.05)
    assert [text for text in api.begun if "event" not in text] == ["a: no room"]


async def test_a_condition_that_says_so_already_is_not_written() -> None:
    api = APIServer()
    async with reporting(api) as reporter:
        told = replace(pod("a"), unschedulable=("no room", "2026-01-01T00:00:00Z"))
        reporter.unschedulable(told, "no room")
        await until(lambda: api.written)
        await steps()
    assert api.begun == ["event of a: no room"]
