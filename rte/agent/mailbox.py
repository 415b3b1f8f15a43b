"""Hand-over of observations: the latest one wins, and giving never waits."""

from __future__ import annotations

import asyncio
from typing import Generic, TypeVar

T = TypeVar("T")


class Mailbox(Generic[T]):
    """Holds at most one value; a newer one replaces it. One reader."""

    def __init__(self) -> None:
        self._value: T | None = None
        self._wake = asyncio.Event()

    def put(self, value: T) -> None:
        """Hand over ``value``; what was not taken yet is dropped."""
        self._value = value
        self._wake.set()

    def poke(self) -> None:
        """Wake the reader without a new value."""
        self._wake.set()

    def take(self) -> T | None:
        """The waiting value, if there is one."""
        value, self._value = self._value, None
        return value

    async def wait(self) -> None:
        """Until something was put or the mailbox was poked since the last wait."""
        await self._wake.wait()
        self._wake.clear()
