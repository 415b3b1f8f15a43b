"""Questions that cost: in turn, a little at a time."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING

import pytest
from aiohttp import web
from aiohttp.test_utils import TestClient, TestServer

from rte.scheduler.front import turns
from rte.scheduler.front.access import CALLER
from rte.scheduler.front.turns import Turns

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Generator


class Desk:
    """A route behind turns, whose answers wait until they are let go."""

    def __init__(self) -> None:
        self.at_once, self.most_at_once, self.answered = 0, 0, 0
        self.go_on = asyncio.Event()

    async def answer(self, _: web.Request) -> web.Response:
        self.at_once += 1
        self.most_at_once = max(self.most_at_once, self.at_once)
        await self.go_on.wait()
        self.at_once -= 1
        self.answered += 1
        return web.Response()


@web.middleware
async def named(request: web.Request, handler: object) -> web.StreamResponse:
    request[CALLER] = request.query["who"]
    answer: web.StreamResponse = await handler(request)  # type: ignore[operator]
    return answer


@pytest.fixture
def desk() -> Desk:
    return Desk()


@pytest.fixture
async def client(desk: Desk) -> AsyncIterator[TestClient]:  # type: ignore[type-arg]
    app = web.Application(middlewares=[named])
    app.add_routes(Turns().protect([web.get("/", desk.answer)]))
    async with TestClient(TestServer(app)) as made:
        yield made


async def ask(client: TestClient, who: str) -> int:  # type: ignore[type-arg]
    async with client.get("/", params={"who": who}) as answer:
        return answer.status


async def asked(client: TestClient, *callers: str) -> list[int]:  # type: ignore[type-arg]
    """Statuses of questions at the same time."""
    return await asyncio.gather(*(ask(client, who) for who in callers))


async def test_questions_are_answered_one_at_a_time(client, desk: Desk) -> None:
    desk.go_on.set()
    assert await asked(client, *"abcdefgh") == [200] * 8
    assert desk.most_at_once == 1


async def refused(asking: list[asyncio.Task[int]], number: int) -> None:
    """When so many have been refused."""
    async with asyncio.timeout(10):
        while sum(task.done() for task in asking) < number:
            await asyncio.sleep(0.01)
    assert {task.result() for task in asking if task.done()} == {429}


async def test_a_caller_waits_with_few_questions_and_leaves_room_for_others(client, desk) -> None:
    greedy = [asyncio.create_task(ask(client, "greedy")) for _ in range(40)]
    await refused(greedy, 36)
    other = asyncio.create_task(ask(client, "other"))
    desk.go_on.set()
    assert await other == 200
    assert sorted(await asyncio.gather(*greedy)) == [200] * 4 + [429] * 36


async def test_all_callers_together_wait_with_a_bounded_number(client, desk: Desk) -> None:
    crowd = [asyncio.create_task(ask(client, f"caller-{number}")) for number in range(40)]
    await refused(crowd, 24)
    desk.go_on.set()
    assert sorted(await asyncio.gather(*crowd)) == [200] * 16 + [429] * 24


async def test_small_steps_leave_the_loop_to_others() -> None:
    def steps() -> Generator[None, None, str]:
        for _ in range(50):
            end = time.perf_counter() + 0.002
            while time.perf_counter() < end:
                pass
            yield
        return "done"

    ticks = 0

    async def tick() -> None:
        nonlocal ticks
        while True:
            ticks += 1
            await asyncio.sleep(0)

    ticking = asyncio.create_task(tick())
    assert await turns.in_slices(steps()) == "done"
    ticking.cancel()
    assert ticks > 50 * 0.002 / 0.005 / 2


async def test_who_is_cancelled_waits_for_the_thread() -> None:
    ended = asyncio.Event()
    loop = asyncio.get_running_loop()

    def work() -> None:
        asyncio.run_coroutine_threadsafe(asyncio.sleep(0.1), loop).result(10)
        loop.call_soon_threadsafe(ended.set)

    asking = asyncio.create_task(turns.beside(work))
    await asyncio.sleep(0.01)
    asking.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asking
    async with asyncio.timeout(1):
        await ended.wait()


async def test_between_two_answers_there_is_a_rest() -> None:
    async def slow(_: web.Request) -> web.Response:
        await asyncio.sleep(0.1)
        return web.Response()

    app = web.Application(middlewares=[named])
    app.add_routes(Turns().protect([web.get("/", slow)]))
    async with TestClient(TestServer(app)) as client:
        began = time.monotonic()
        assert await asked(client, "a", "b", "c") == [200] * 3
        assert time.monotonic() - began > 0.49
