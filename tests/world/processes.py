"""One simulated process: its clock, its way to the API server, how it ends."""

from __future__ import annotations

import asyncio
import contextvars
import random
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from tests.world.clock import PROCESS

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Coroutine


@dataclass
class Link:
    """The way of one process to the API server, and what is wrong with it.

    Attributes:
        until: so long nothing goes through (virtual monotonic seconds); ``since``: from when on.
        refuses: while it is cut, connections fail at once; else nothing answers.
        slow_s: requests take so much longer.
        fails: (code, until, part of the path, chance) of answers instead of the right ones.
        loses: so many of the next answers to writes get lost.
        doubles: so many of the next writes arrive twice.
        crash: (writes from now, after) at which the process dies, before or after it took effect.
    """

    until: float = 0.0
    since: float = 0.0
    refuses: bool = False
    slow_s: float = 0.0
    slow_until: float = 0.0
    fails: tuple[int, float, str, float] | None = None
    loses: int = 0
    doubles: int = 0
    crash: tuple[int, bool] | None = None


@dataclass(eq=False)
class Process:
    """See the module.

    Attributes:
        name: in stories.
        machine: whose wall clock it reads; (offset in seconds) by name.
        dead: nothing of it reaches anybody any more; ``died``: since when (monotonic).
        requests, written: counts of what it sent.
        unsure_until: an answer got lost: until then a write without a change may be right.
    """

    name: str
    skews: dict[str, float]
    machine: str
    seed: int
    link: Link = field(default_factory=Link)
    dead: bool = True
    died: float = 0.0
    requests: int = 0
    writes: int = 0
    unsure_until: float = 0.0
    recent: list[float] = field(default_factory=list)
    task: asyncio.Task[Any] | None = None
    on_crash: Callable[[], None] = lambda: None
    ended: str = ""

    def __post_init__(self) -> None:
        self.chance = random.Random(f"{self.seed} {self.name}")
        self.context = contextvars.copy_context()
        self.context.run(PROCESS.set, self)

    def skew(self) -> float:
        """How far its wall clock is off."""
        return self.skews.get(self.machine, 0.0)

    def start(self, work: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
        """Run as this process."""
        self.dead = False
        self.ended = ""
        self.link.crash = None
        loop = asyncio.get_running_loop()
        self.task = loop.create_task(work, name=self.name, context=self.context)
        self.task.add_done_callback(self._done)
        return self.task

    def _done(self, task: asyncio.Task[Any]) -> None:
        if task.cancelled():
            return
        error = task.exception()
        if error is not None and not self.dead:
            self.ended = "".join(_lines(error))

    def die(self) -> None:
        """The power goes: nothing that it does from now on reaches anybody."""
        if not self.dead:
            self.died = time.monotonic()
        self.dead = True
        if self.task is not None:
            self.task.cancel()

    async def gone(self) -> None:
        """Until nothing of it runs."""
        if self.task is not None:
            await asyncio.wait([self.task])


def _lines(error: BaseException, depth: int = 0) -> list[str]:
    if isinstance(error, BaseExceptionGroup):
        return [line for one in error.exceptions for line in _lines(one, depth + 1)]
    import traceback

    return traceback.format_exception(error)


async def after(seconds: float, work: Awaitable[Any]) -> None:
    """Later."""
    await asyncio.sleep(seconds)
    await work
