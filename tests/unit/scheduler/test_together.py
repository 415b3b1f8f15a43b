"""Binds of a gang go first; what waits for them does not wait for ever."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from rte.scheduler.shell import together
from rte.scheduler.shell.together import Together

if TYPE_CHECKING:
    import pytest


async def answered(by: asyncio.Event) -> None:
    await by.wait()


async def test_over_is_when_the_last_bind_was_answered() -> None:
    binds, answers = Together(), [asyncio.Event(), asyncio.Event()]
    binds.add([asyncio.create_task(answered(each)) for each in answers])
    waits = asyncio.create_task(binds.over())
    answers[0].set()
    await asyncio.sleep(0)
    assert binds.under_way
    assert not waits.done()
    answers[1].set()
    await waits
    assert not binds.under_way


async def test_binds_of_a_further_gang_are_waited_for_too() -> None:
    binds, answers = Together(), [asyncio.Event(), asyncio.Event()]
    for each in answers:
        binds.add([asyncio.create_task(answered(each)) for _ in range(2)])
        waits = asyncio.create_task(binds.over())
        await asyncio.sleep(0)
    answers[0].set()
    await asyncio.sleep(0)
    assert not waits.done()
    answers[1].set()
    await waits


async def test_a_single_bind_holds_nothing_up() -> None:
    binds, never = Together(), asyncio.Event()
    task = asyncio.create_task(answered(never))
    binds.add([task])
    await binds.over()
    task.cancel()


async def test_without_an_answer_it_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(together, "_MOST_S", 0.01)
    binds, never = Together(), asyncio.Event()
    tasks = [asyncio.create_task(answered(never)) for _ in range(2)]
    binds.add(tasks)
    await binds.over()
    assert not binds.under_way
    for task in tasks:
        task.cancel()
