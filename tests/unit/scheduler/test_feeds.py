"""What is read beside the watches."""

from __future__ import annotations

from contextlib import nullcontext
from typing import Any

import pytest

from rte.scheduler.loop.messages import Seen
from rte.scheduler.shell.feeds import Feeds


def report(version: int) -> dict[str, Any]:
    return {"metadata": {"name": "n", "resourceVersion": str(version)}}


class Api:
    """Answers with a report of that version, and no pods."""

    def __init__(self, version: int) -> None:
        self.version = version

    async def get(self, path: str, **_: str) -> Any:
        if path.endswith("/n"):
            return report(self.version)
        return {"metadata": {}, "items": []}


@pytest.mark.parametrize(("watched", "told"), [(8, False), (7, True), (6, True)])
async def test_an_answer_that_the_watch_has_overtaken_is_no_report(
    watched: int, told: bool
) -> None:
    delivered: list[Any] = []
    bulkhead: Any = nullcontext
    feeds = Feeds(Api(7), delivered.append, ("", ""), bulkhead=bulkhead)  # type: ignore[arg-type]
    await feeds._take_page("reports", [report(watched)], {})
    delivered.clear()
    await feeds.resync_node("n")
    assert (Seen("reports", report(7)) in delivered) is told
