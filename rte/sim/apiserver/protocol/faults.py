"""Trouble on purpose, for tests: failing calls, stalls, broken watches, lost history.

It sits before the protocol (a hook of :class:`rte.sim.apiserver.protocol.server.APIServer`), so the
API itself has no behaviour of its own for tests.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import TYPE_CHECKING

from rte.sim.apiserver import status

if TYPE_CHECKING:
    from rte.sim.apiserver.storage.store import Store


@dataclass
class _Failure:
    left: int
    code: int
    method: str
    path: str
    after: bool
    drop: bool


class Faults:
    """Switches; everything is off at first."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._failures: list[_Failure] = []
        self._running = asyncio.Event()
        self._running.set()
        self.delay_seconds = 0.0

    def fail_next(
        self,
        count: int = 1,
        code: int = 500,
        *,
        method: str = "",
        path: str = "",
        after: bool = False,
    ) -> None:
        """The next ``count`` calls (of a method, with ``path`` in their path) answer ``code``.

        With ``after`` the call takes effect first: the answer is lost, as on a time-out.
        """
        self._failures.append(_Failure(count, code, method, path, after, drop=False))

    def drop_next(
        self, count: int = 1, *, method: str = "", path: str = "", after: bool = False
    ) -> None:
        """The connection of the next ``count`` calls breaks without an answer."""
        self._failures.append(_Failure(count, 0, method, path, after, drop=True))

    def pause(self) -> None:
        """Hold every new call until :meth:`resume`."""
        self._running.clear()

    def resume(self) -> None:
        """Let calls through again."""
        self._running.set()

    def drop_watches(self, resource: str | None = None) -> int:
        """End all open watches (of one table, e.g. ``pods``); returns how many."""
        watches = self._store.watches(resource)
        for watch in watches:
            watch.stop()
        return len(watches)

    def compact(self) -> None:
        """Forget the history: a watch from an old version gets 410 from now on."""
        self._store.compact()

    async def gate(self, method: str, path: str) -> bool:
        """Pass one call, late or not at all; True when its answer has to be lost.

        Raises:
            status.StatusError: the call was chosen to fail.
            ConnectionAbortedError: its connection was chosen to break.
        """
        await self._running.wait()
        if self.delay_seconds:
            await asyncio.sleep(self.delay_seconds)
        for failure in self._failures:
            if failure.left > 0 and failure.method in ("", method) and failure.path in path:
                failure.left -= 1
                if failure.after:
                    return True
                self._raise(failure)
        return False

    @staticmethod
    def _raise(failure: _Failure) -> None:
        if failure.drop:
            raise ConnectionAbortedError
        details = {"retryAfterSeconds": 1} if failure.code in (429, 503, 504) else None
        raise status.StatusError(failure.code, "injected fault", details=details)
