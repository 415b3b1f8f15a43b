"""One virtual clock: an event loop whose time jumps to the next timer, and all that tells time.

Nothing sleeps and nothing runs in a thread, so hours of a cluster take seconds, and the same seed
gives the same history (with ``PYTHONHASHSEED`` fixed, which ``python -m tests.world`` sees to).
"""

from __future__ import annotations

import asyncio
import datetime as dt
import random
import secrets
import sys
import time
import uuid
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, Self

from tests.world.substitution import Substitutions

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.world.processes import Process

#: Whose code is running; tasks inherit it.
PROCESS: ContextVar[Process] = ContextVar("PROCESS")

#: Monotonic seconds and Unix time at which each world begins.
BEGIN_S = 1000.0
BEGIN_UNIX = 1_800_000_000.0

#: What reading the counter of a processor costs, so that work is seen to take time.
_COUNTER_S = 0.0002

#: So many callbacks without any time passing are a loop that never ends.
MOST_AT_ONCE = 400_000


class NeverEndsError(Exception):
    """Steps without end while no time passes, or nothing that could ever happen again."""


class _Jump:
    """Stands for a selector: instead of waiting, time passes."""

    def __init__(self, loop: Loop) -> None:
        self._loop = loop

    def select(self, timeout: float | None) -> list[Any]:
        loop = self._loop
        if timeout is None:
            raise NeverEndsError("nothing can happen any more: everybody waits for ever")
        loop.rounds += 1
        if timeout > 0:
            loop.now = max(loop.now, loop._scheduled[0].when())
            loop.rounds = 0
        elif loop.rounds > MOST_AT_ONCE:
            raise NeverEndsError(f"more than {MOST_AT_ONCE} rounds at one moment")
        return []

    def close(self) -> None:
        pass


class Loop(asyncio.BaseEventLoop):
    """An event loop without a selector. ``now``: monotonic seconds."""

    def __init__(self) -> None:
        super().__init__()
        self.now = BEGIN_S
        self.rounds = 0
        self._selector = _Jump(self)

    def time(self) -> float:
        return self.now

    def _process_events(self, event_list: object) -> None:
        pass

    def _write_to_self(self) -> None:
        pass

    def run_in_executor(self, executor: Any, func: Callable[..., Any], *args: Any) -> Any:
        """What a thread would do is done at once, and known a little later."""
        future = self.create_future()

        def done(value: Any, error: BaseException | None) -> None:
            if future.cancelled():
                return
            if error is not None:
                future.set_exception(error)
            else:
                future.set_result(value)

        try:
            value, error = func(*args), None
        except Exception as raised:  # noqa: BLE001 - handed on to who waits
            value, error = None, raised
        self.call_later(0.002, done, value, error)
        return future


class _WallClock(type(dt.datetime)):
    def __instancecheck__(cls, instance: object) -> bool:
        return isinstance(instance, dt.datetime)


class _Datetime(dt.datetime, metaclass=_WallClock):
    """``datetime`` whose ``now`` is the virtual wall clock of who asks."""

    clock: Clock

    @classmethod
    def now(cls, tz: dt.tzinfo | None = None) -> dt.datetime:
        return dt.datetime.fromtimestamp(cls.clock.unix(), tz or dt.UTC)


class Clock:
    """Virtual time for the whole process, while entered; seeds all chance."""

    def __init__(self, seed: int) -> None:
        self.loop = Loop()
        self._seed = seed
        self._counter = 0.0
        self._substituted = Substitutions()

    def now(self) -> float:
        """Monotonic seconds."""
        return self.loop.now

    def unix(self) -> float:
        """The wall clock of whose code is running."""
        process = PROCESS.get(None)
        skew = process.skew() if process is not None else 0.0
        return BEGIN_UNIX + self.loop.now - BEGIN_S + skew

    def true_unix(self) -> float:
        """The wall clock that nobody has set."""
        return BEGIN_UNIX + self.loop.now - BEGIN_S

    def _count(self) -> float:
        self._counter += _COUNTER_S
        return self.loop.now + self._counter

    def __enter__(self) -> Self:
        random.seed(self._seed)
        chance = random.Random(self._seed ^ 0x5EED)
        put = self._substituted.put
        put(time, "monotonic", self.now)
        put(time, "time", self.unix)
        put(time, "time_ns", lambda: int(self.unix() * 1e9))
        put(time, "perf_counter", self._count)
        put(time, "clock_gettime", lambda _: self.loop.now + 100_000.0)
        put(uuid, "uuid4", lambda: uuid.UUID(int=chance.getrandbits(128), version=4))
        put(secrets, "token_hex", lambda size=8: f"{chance.getrandbits(8 * size):0{2 * size}x}")
        put(secrets, "choice", chance.choice)
        _Datetime.clock = self
        for name, module in list(sys.modules.items()):
            if name.startswith("rte.") and getattr(module, "datetime", None) is dt.datetime:
                put(module, "datetime", _Datetime)
        asyncio.set_event_loop(self.loop)
        return self

    def __exit__(self, *_exc: object) -> None:
        asyncio.set_event_loop(None)
        self._substituted.undo()
        self.loop.close()
