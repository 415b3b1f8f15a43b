"""Questions that cost: one at a time, a little at a time, so that decisions go on beside them."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from typing import TYPE_CHECKING, Any, TypeVar

from rte.reader import jsontext
from rte.scheduler.front.access import CALLER, replace_handler
from rte.telemetry import doors, health

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Generator, Iterable

    from aiohttp import web

_T = TypeVar("_T")

#: Others get a turn after so much answering.
_SLICE_S = 0.005
#: Questions that wait or are answered, of one caller and of all.
_MOST_OF_CALLER, _MOST = 4, 16
#: Between two answers there is a rest as long as the last one took, at most this.
_MOST_REST_S = 2.0
#: A text this short is parsed in a slice.
_SHORT_BYTES = 16 << 10


class Turns:
    """Who asks when. One for all listeners of a process."""

    def __init__(self) -> None:
        self._turn = asyncio.Lock()
        self._waiting: Counter[str] = Counter()
        self._free_at = 0.0

    def protect(self, routes: Iterable[web.RouteDef]) -> list[web.RouteDef]:
        """The same routes, answered in turn; beyond the bounds with 429."""
        return [replace_handler(route, self._in_turn(route.handler)) for route in routes]

    def _in_turn(self, handler: Any) -> Callable[[web.Request], Awaitable[web.StreamResponse]]:
        async def wait(request: web.Request) -> web.StreamResponse:
            caller = request.get(CALLER) or request.remote or ""
            if self._waiting[caller] >= _MOST_OF_CALLER or self._waiting.total() >= _MOST:
                error = "too many questions wait already: try again in a second"
                response = health.json_response({"error": error}, status=429)
                response.headers["Retry-After"] = "1"
                return response
            self._waiting[caller] += 1
            try:
                async with self._turn:
                    now = time.monotonic()
                    if now < self._free_at:
                        await asyncio.sleep(self._free_at - now)
                        now = time.monotonic()
                    try:
                        answer: web.StreamResponse = await handler(request)
                        return answer
                    finally:
                        took = time.monotonic() - now
                        self._free_at = now + took + min(took, _MOST_REST_S)
            finally:
                self._waiting[caller] -= 1
                if not self._waiting[caller]:
                    del self._waiting[caller]

        return wait


async def in_slices(steps: Generator[None, None, _T]) -> _T:
    """The result of many small steps; others get a turn every few milliseconds."""
    while True:
        end = time.perf_counter() + _SLICE_S
        while time.perf_counter() < end:
            try:
                next(steps)
            except StopIteration as done:
                result: _T = done.value
                return result
        await asyncio.sleep(0)


async def gathered(items: Iterable[_T]) -> list[_T]:
    """All of them, each of which takes a while; others get a turn as above."""

    def steps() -> Generator[None, None, list[_T]]:
        found = []
        for each in items:
            found.append(each)
            yield
        return found

    return await in_slices(steps())


async def beside(work: Callable[[], _T]) -> _T:
    """The result of work in a thread, which leaves alone what others may change.

    A thread cannot be ended, so who is cancelled waits for it: the turn is over when it is.
    """
    working = asyncio.ensure_future(asyncio.to_thread(work))
    try:
        return await asyncio.shield(working)
    except asyncio.CancelledError:
        await asyncio.wait([working])
        raise


async def read_json(request: web.Request, what: str) -> Any:
    """The body of a request.

    Raises:
        errors.MalformedError: no JSON, or beyond the budget.
        web.HTTPException: the body is not taken.
    """
    body = await doors.read_body(request)
    if len(body) <= _SHORT_BYTES:
        return jsontext.load(body, what, jsontext.BODY)
    return await beside(lambda: jsontext.load(body, what, jsontext.BODY))
