"""The object at the API server: read, written, and watched for what others do to it."""

from __future__ import annotations

import asyncio
import logging
import random
from contextlib import aclosing
from typing import TYPE_CHECKING

from rte import errors
from rte.agent.publisher import messages
from rte.kube.resources import NRTS
from rte.kube.watch import watch

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from rte.kube.client import Client
    from rte.kube.watch import WatchEvent
    from rte.reader.json import JsonObject

logger = logging.getLogger(__name__)

#: Between attempts to watch the object, half of it random.
_WATCH_AGAIN_S = 10.0


class KubeStore:
    """One NodeResourceTopology at the API server; every call may raise errors.KubeError.

    Args:
        client: the API server.
        name: of the object.
        ask_owner: learns the UID of the Node as it is now.
        tell_owner: takes that UID: what is offered from now on belongs to it.
    """

    def __init__(
        self,
        client: Client,
        name: str,
        *,
        ask_owner: Callable[[], Awaitable[str]] | None = None,
        tell_owner: Callable[[str], None] = lambda _: None,
    ) -> None:
        self._client = client
        self._name = name
        self._ask_owner = ask_owner
        self._tell_owner = tell_owner

    async def get(self) -> JsonObject:
        """The object as it is stored."""
        stored: JsonObject = await self._client.get(NRTS.path(self._name))
        return stored

    async def owner_uid(self) -> str:
        """UID of the Node as it is now; empty where it is not known."""
        uid = await self._ask_owner() if self._ask_owner else ""
        if uid:
            self._tell_owner(uid)
        return uid

    async def write(self, request: messages.WriteReport) -> JsonObject:
        """Create or update it; what is stored by now."""
        stored: JsonObject
        if request.operation == "create":
            stored = await self._client.create(NRTS.path(), request.body)
        else:
            stored = await self._client.update(NRTS.path(self._name), request.body)
        return stored

    async def follow(self, tell: Callable[[messages.Watched], None]) -> None:
        """Watch the object, so that what others do to it is noticed; until cancelled."""
        while True:
            try:
                events = watch(
                    self._client, NRTS.path(), field_selector=f"metadata.name={self._name}"
                )
                async with aclosing(events):
                    async for event in events:
                        tell(_watched(event))
            except errors.KubeError as error:
                # The publisher tells what is wrong; without this watch it repairs at a resync.
                logger.debug("own object is not watched: %s", error)
            await asyncio.sleep(_WATCH_AGAIN_S * random.uniform(0.5, 1.0))  # noqa: S311


def _watched(event: WatchEvent) -> messages.Watched:
    """What a watch of one object tells: the object, or that it is gone."""
    obj: JsonObject | None = event.object
    if event.kind == "LISTED":
        obj = next(iter(event.object.get("items") or ()), None)
    newest = obj or event.object
    version = str((newest.get("metadata") or {}).get("resourceVersion") or "")
    is_gone, listed = event.kind == "DELETED", event.kind == "LISTED"
    return messages.Watched(None if is_gone else obj, version, listed)
