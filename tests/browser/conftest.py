"""A browser, and pages of a cluster that the test can change."""

from __future__ import annotations

import asyncio
import os
import shutil
import threading
from concurrent.futures import Future
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import pytest

from rte.view.serve import serve
from rte.view.source import ViewSource

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tests.unit.view.clusters import World

HERE = Path(__file__).parent

#: Other work may have the processor.
PATIENCE_S = 120


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if HERE in item.path.parents:
            item.add_marker(pytest.mark.browser)
            item.add_marker(pytest.mark.xdist_group("browser"))


@pytest.fixture
def chromium() -> Iterator[Any]:
    """Debian's Chromium, driven by Playwright, which keeps an event loop running: for one test."""
    from playwright.sync_api import sync_playwright

    binary = shutil.which("chromium") or shutil.which("chromium-browser")
    assert binary, "install Chromium: apt-get install chromium"
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=binary, args=["--no-sandbox"])
        yield browser
        browser.close()


@pytest.fixture
def open_page(chromium: Any) -> Iterator[Callable[..., Any]]:
    """Opens pages; the test fails when one of them meets an error or asks for anything outside."""
    pages, problems = [], []

    def open_(url: str, *, width: int = 1280, height: int = 900, **context: Any) -> Any:
        page = chromium.new_page(viewport={"width": width, "height": height}, **context)
        page.on("pageerror", lambda error: problems.append(str(error)))
        page.on(
            "console",
            # An answer of 400 is one: the page shows what it says.
            lambda told: (
                problems.append(told.text)
                if told.type == "error" and "status of 400" not in told.text
                else None
            ),
        )
        page.on(
            "request",
            lambda asked: (
                None
                if asked.url.startswith((url.split("#", maxsplit=1)[0].rpartition("/")[0], "data:"))
                else problems.append(f"asked for {asked.url}")
            ),
        )
        page.goto(url)
        pages.append(page)
        return page

    yield open_
    for page in pages:
        page.close()
    assert problems == []


class Served:
    """A world, served; every change of it is made where the server runs."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.source = ViewSource(world)
        self.url = ""
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever)
        self._tasks: list[asyncio.Task[None]] = []

    def __enter__(self) -> Self:
        self._thread.start()
        port: Future[int] = Future()

        def begin() -> None:
            self.source.look()
            self._tasks = [
                self._loop.create_task(self.source.run()),
                self._loop.create_task(serve("127.0.0.1:0", self.source, started=port.set_result)),
            ]

        self._loop.call_soon_threadsafe(begin)
        self.url = f"http://127.0.0.1:{port.result(PATIENCE_S)}/view"
        return self

    def change(self, what: Callable[[World], Any]) -> Any:
        """Change the world, and let listeners know at once."""

        async def there() -> Any:
            answer = what(self.world)
            self.source.look()
            return answer

        return asyncio.run_coroutine_threadsafe(there(), self._loop).result(PATIENCE_S)

    def __exit__(self, *_exc: object) -> None:
        async def end() -> None:
            for task in self._tasks:
                task.cancel()
            await asyncio.gather(*self._tasks, return_exceptions=True)

        asyncio.run_coroutine_threadsafe(end(), self._loop).result(PATIENCE_S)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()


@pytest.fixture
def serve_world() -> Iterator[Callable[[World], Served]]:
    """Serves a world until the test ends."""
    running: list[Served] = []

    def start(world: World) -> Served:
        served = Served(world).__enter__()
        running.append(served)
        return served

    yield start
    for served in running:
        served.__exit__()


@pytest.fixture
def picture() -> Callable[[Any, str], None]:
    """Keeps a screenshot where ``RTE_PICTURES`` says (docs/pictures is made by it)."""
    folder = os.environ.get("RTE_PICTURES")

    def keep(page: Any, name: str) -> None:
        shot = page.screenshot(path=Path(folder) / f"{name}.png" if folder else None)
        assert len(shot) > 10_000

    return keep
