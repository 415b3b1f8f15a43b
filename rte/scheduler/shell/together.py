"""The binds of a gang go before all else: between the first and the last its pods begin to run."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Collection

#: Nothing waits longer than this for binds that the API server does not answer.
_MOST_S = 1.0


class Together:
    """Binds of gangs that are under way.

    Decisions, solving in threads (they share the interpreter with the binds) and what is written
    for users (it shares the API server) wait for them with :meth:`over`.
    """

    def __init__(self) -> None:
        self.under_way: set[asyncio.Task[Any]] = set()

    def add(self, binds: Collection[asyncio.Task[Any]]) -> None:
        """Binds that were sent at once; a single one holds nothing up."""
        if len(binds) > 1:
            self.under_way.update(binds)

    async def over(self) -> None:
        """Until all have been answered, or have been waited for long enough."""
        while self.under_way:
            waited_for = set(self.under_way)
            await asyncio.wait(waited_for, timeout=_MOST_S)
            self.under_way -= waited_for
