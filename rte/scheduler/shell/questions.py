"""Questions of the machines are answered beside the decisions, in threads."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from rte.scheduler.loop.messages import Question


async def find_out(
    run: Callable[[Callable[[], Any]], Awaitable[Any]], question: Question
) -> Any | Exception:
    """The answer, or what finding it out has raised: that concerns who is asked about alone."""
    try:
        return await run(question.find_out)
    except Exception as error:  # noqa: BLE001 - the machine puts that aside
        return error
