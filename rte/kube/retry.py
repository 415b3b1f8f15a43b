"""How requests are tried again: exponential waits with jitter, never before the server allows."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

import tenacity

from rte import errors

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

T = TypeVar("T")


def is_transient(error: BaseException) -> bool:
    """No answer, overload or a server's own failure: the same request may succeed later."""
    return isinstance(error, errors.KubeError) and (
        error.status in (0, 408, 429) or error.status >= 500
    )


async def until_answered(ask: Callable[[], Awaitable[T]], first_s: float, most_s: float) -> T:
    """What the API server answers, however long it takes; waits are those of :func:`wait`.

    Raises:
        errors.KubeError: an answer that will not be another one later.
    """

    async def send() -> T:
        return await ask()

    return await tenacity.AsyncRetrying(
        wait=wait(first_s, most_s),
        retry=tenacity.retry_if_exception(is_transient),
        reraise=True,
    )(send)


def wait(first_s: float = 0.1, most_s: float = 30.0) -> Callable[[tenacity.RetryCallState], float]:
    """Seconds: doubling from ``first_s`` to ``most_s``, half of it random; Retry-After wins."""
    backoff = tenacity.wait_exponential(multiplier=first_s, max=most_s)
    jitter = tenacity.wait_random(0.5, 1.0)

    def seconds(state: tenacity.RetryCallState) -> float:
        error = state.outcome.exception() if state.outcome else None
        asked = error.retry_after if isinstance(error, errors.KubeError) else 0.0
        return max(asked, backoff(state) * jitter(state))

    return seconds
