"""What holds for every test: an asynchronous one leaves no task, a generated one can be repeated.

Property tests draw the same examples in each run, so that a change is judged by what it changed;
``HYPOTHESIS_PROFILE=explore`` looks for new ones. Tests run many event loops in one process, of
which grpc's poller goes on telling those that are closed: a program has one, and no such message.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
import os
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, settings

from tests.depth import scaled

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

if os.environ.pop("PYTHONDONTWRITEBYTECODE", ""):
    # Programs that tests start, and pytest's workers, compile what they import once and not each
    # anew, yet outside of the sources.
    os.environ["PYTHONPYCACHEPREFIX"] = str(Path(__file__).parents[1] / ".cache/pycache")

# Shared machines are slow at times: that says nothing of the code.
settings.register_profile(
    "explore",
    max_examples=scaled(100),
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.register_profile("steady", settings.get_profile("explore"), derandomize=True)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "steady"))


def _is_news_for_closed_loop(record: logging.LogRecord) -> bool:
    error = record.exc_info[1] if record.exc_info else None
    return (
        "PollerCompletionQueue._handle_events" in record.getMessage()
        and isinstance(error, RuntimeError)
        and str(error) == "Event loop is closed"
    )


logging.getLogger("asyncio").addFilter(lambda record: not _is_news_for_closed_loop(record))


#: Longer tests than others: begun last, they would be waited for in the end.
LONG = ("tests/world/", "tests/fuzz/")


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers() -> int:
    """``-n logical``: a process more than there are processors, as some tests wait."""
    has_affinity = hasattr(os, "sched_getaffinity")
    return 1 + (len(os.sched_getaffinity(0)) if has_affinity else os.cpu_count() or 1)


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    items.sort(key=lambda item: not item.nodeid.startswith(LONG))
    for item in items:
        if inspect.iscoroutinefunction(getattr(item, "function", None)):
            # First in line, so that it looks when all other fixtures have closed what they opened.
            item.fixturenames.insert(0, "no_task_left")  # type: ignore[attr-defined]


@pytest.fixture
async def no_task_left() -> AsyncIterator[None]:
    """Fails a test that ends while tasks of it are still running."""
    yield
    left = {task for task in asyncio.all_tasks() if task is not asyncio.current_task()}
    if left:
        # A gRPC server has stopped before its cancelled calls have taken notice.
        _, left = await asyncio.wait(left, timeout=1)
    assert not left, f"still running: {', '.join(task.get_name() for task in left)}"
