"""What holds for every test: an asynchronous one leaves no task behind."""

from __future__ import annotations

import asyncio
import inspect
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import AsyncIterator


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if inspect.iscoroutinefunction(getattr(item, "function", None)):
            # First in line, so that it looks when all other fixtures have closed what they opened.
            item.fixturenames.insert(0, "no_task_left")  # type: ignore[attr-defined]


@pytest.fixture
async def no_task_left() -> AsyncIterator[None]:
    """Fails a test that ends while tasks of it are still running."""
    yield
    left = [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]
    assert not left, f"still running: {', '.join(task.get_name() for task in left)}"
