"""Carries out what has to stand before a bind, and undoes it when the decision fails.

All writes of a decision go side by side. What came of a request without an answer is found out by
reading the object; a conflict is resolved by asking the write what is left to do about the object
as it is now. A replica that loses the Lease stops and leaves everything as it stands: the next one
finds it.
"""

from __future__ import annotations

import asyncio
import logging
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from rte import errors
from rte.kube import retry
from rte.kube.client import JSON, MERGE_PATCH
from rte.scheduler.cache.intake import key_of
from rte.scheduler.framework.writes import Impossible, Step, Wait
from rte.scheduler.loop.messages import Gone, Seen
from rte.scheduler.shell.feeds import COLLECTIONS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from rte.kube.client import Client
    from rte.scheduler.framework.writes import Found, RequiredWrite, WriteTarget

logger = logging.getLogger(__name__)

#: kube-scheduler's bindTimeoutSeconds: a decision whose writes take longer is undone.
TIMEOUT_S = 600.0

#: Between requests that fail, and between looks at an object that somebody else has to change
#: (watches tell of that at once; a look is for those that tell nothing).
_FIRST_S, _MOST_S = 0.05, 1.0
#: So often in a row the API server may fail to carry a step out.
_TRIES = 6
_FIRST_LOOK_S, _MOST_LOOK_S = 0.5, 10.0


@dataclass(frozen=True, kw_only=True, slots=True)
class Carried:
    """What became of the writes of a decision.

    Attributes:
        why: what stands in the way; empty: all stand.
        abandoned: we are not the active replica any more.
        written: the objects as the API has them now.
    """

    why: str = ""
    abandoned: bool = False
    written: tuple[Seen | Gone, ...] = ()


class _NotActiveError(Exception):
    """We are not the active replica any more."""


class RequiredWriter:
    """Brings objects into the state that decisions need.

    Args:
        client: the API server.
        left_s: asked right before each request: seconds for which we surely are the active
            replica, 0 when too few are left to begin.
        timeout_s: of one request.
        clock: seconds of a monotonic clock.
        slots: how many requests are under way at a time; see :class:`Binder`.
    """

    def __init__(
        self,
        client: Client,
        *,
        left_s: Callable[[], float],
        timeout_s: float,
        clock: Callable[[], float],
        slots: asyncio.Semaphore,
    ) -> None:
        self._client = client
        self._slots = slots
        self._left_s = left_s
        self._timeout_s = timeout_s
        self._clock = clock
        self._waiting: dict[tuple[str, str], asyncio.Future[None]] = {}

    async def carry_out(self, writes: Sequence[RequiredWrite]) -> Carried:
        """Have all of them stand; returns when they do, or when one cannot."""
        failed: asyncio.Future[Carried] = asyncio.get_running_loop().create_future()
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(self._bring(write, failed)) for write in writes]
        outcome = failed.result() if failed.done() else Carried()
        return replace(outcome, written=tuple(filter(None, (task.result() for task in tasks))))

    async def undo(self, writes: Sequence[RequiredWrite]) -> tuple[Seen | Gone, ...]:
        """Take back whatever the objects have of them; the objects as the API has them now."""
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(self._take_back(write)) for write in writes]
        return tuple(filter(None, (task.result() for task in tasks)))

    def told(self, event: object) -> None:
        """Something was watched: who waits for that object looks at it."""
        if not self._waiting:
            return
        if isinstance(event, Seen):
            key = event.collection, key_of(event.collection, event.obj.get("metadata") or {})
        elif isinstance(event, Gone):
            key = event.collection, event.key
        else:
            return
        changed = self._waiting.pop(key, None)
        if changed is not None:
            changed.set_result(None)

    async def _bring(
        self, write: RequiredWrite, failed: asyncio.Future[Carried]
    ) -> Seen | Gone | None:
        """One write, until it stands or any of its decision has failed."""
        target, found, answered = write.target, write.known, False
        until = self._clock() + TIMEOUT_S
        looks, pauses = _doubling(_FIRST_LOOK_S, _MOST_LOOK_S), _Pauses()
        outcome = None
        try:
            while not failed.done():
                match write.next(found):
                    case None:
                        break
                    case Impossible(why):
                        outcome = Carried(why=why)
                    case Wait(why) if self._clock() > until:
                        outcome = Carried(why=why)
                    case Wait():
                        found, answered = await self._changed(target, failed, next(looks)), True
                    case Step() as step:
                        found, answered = await self._step(target, step, found, pauses), True
                if outcome is not None:
                    break
        except _NotActiveError:
            outcome = Carried(why="another replica decides now", abandoned=True)
        except errors.KubeError as error:
            outcome = Carried(why=str(error))
        if outcome is not None and not failed.done():
            failed.set_result(outcome)
        return _event(target, found) if answered else None

    async def _take_back(self, write: RequiredWrite) -> Seen | Gone | None:
        pauses = _Pauses()
        try:
            found = await self._read(write.target)
            while (step := write.undo(found)) is not None:
                found = await self._step(write.target, step, found, pauses)
        except (errors.KubeError, _NotActiveError) as error:
            logger.warning("%s stays as it was written: %s", write.target.key, error)
            return None
        return _event(write.target, found)

    async def _changed(
        self, target: WriteTarget, failed: asyncio.Future[Carried], seconds: float
    ) -> Found:
        """The object after a watch has told of it, or after a while."""
        key = target.collection, target.key
        changed = self._waiting.setdefault(key, asyncio.get_running_loop().create_future())
        await asyncio.wait((changed, failed), timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
        if not changed.done():
            self._waiting.pop(key, None)
        return await self._read(target)

    async def _step(self, target: WriteTarget, step: Step, found: Found, pauses: _Pauses) -> Found:
        """The object after the step, or, where that has failed for now, as it is."""
        try:
            return await self._send(target, step, found)
        except errors.KubeError as error:
            # It has changed, is there already, is gone, or the request had no answer.
            transient = retry.is_transient(error)
            if not (transient or error.status in (404, 409)):
                raise
            logger.warning("%s %s: %s; reading it", step.verb, target.key, error)
            pauses.failures = pauses.failures + 1 if transient else 0
            if pauses.failures >= _TRIES:
                raise
            await asyncio.sleep(max(next(pauses.seconds), error.retry_after))
        return await self._read(target)

    async def _read(self, target: WriteTarget) -> Found:
        """The object, however long the API takes to answer; None: it is not there."""
        path = COLLECTIONS[target.collection].path(target.name, target.namespace)

        async def ask() -> Found:
            async with self._slots:
                answer: Found = await self._client.request("GET", path, timeout_s=self._time())
                return answer

        try:
            return await retry.until_answered(ask, _FIRST_S, _MOST_S)
        except errors.KubeError as error:
            if error.status == 404:
                return None
            raise

    async def _send(self, target: WriteTarget, step: Step, found: Found) -> Found:
        resource = COLLECTIONS[target.collection]
        path = resource.path(target.name, target.namespace, step.subresource)
        metadata = (found or {}).get("metadata") or {}
        guard = {key: metadata[key] for key in ("uid", "resourceVersion") if metadata.get(key)}
        body: Mapping[str, Any]
        match step.verb:
            case "create":
                method, path, body = "POST", resource.path(namespace=target.namespace), step.body
            case "delete":
                method, body = "DELETE", {"preconditions": guard}
            case _:
                own = step.body.get("metadata") or {}
                method, body = "PATCH", {**step.body, "metadata": {**own, **guard}}
        kind = MERGE_PATCH if step.verb == "patch" else JSON
        async with self._slots:
            answer: Found = await self._client.request(
                method, path, body=body, content_type=kind, timeout_s=self._time()
            )
        return None if step.verb == "delete" else answer

    def _time(self) -> float:
        """Seconds for a request."""
        left = self._left_s()
        if left <= 0:
            raise _NotActiveError("another replica decides now")
        return min(self._timeout_s, left)


class _Pauses:
    """Between the steps of one write; ``failures``: of the API server, in a row."""

    def __init__(self) -> None:
        self.seconds = _doubling(_FIRST_S, _MOST_S)
        self.failures = 0


def _event(target: WriteTarget, found: Found) -> Seen | Gone:
    if found is None:
        return Gone(target.collection, target.key)
    return Seen(target.collection, found)


def _doubling(first: float, most: float) -> Iterator[float]:
    while True:
        yield first
        first = min(most, 2 * first)
