"""Where the object is kept: at the API server, in a file, or nowhere but on standard output."""

from __future__ import annotations

import asyncio
import logging
import os
import random
import sys
import tempfile
from contextlib import aclosing
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

import orjson

from rte import errors
from rte.agent.publisher import messages
from rte.agent.settings import Output
from rte.kube.resources import NRTS

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from rte.agent.publisher.messages import WriteReport
    from rte.agent.settings import SinkSetting
    from rte.kube.client import Client
    from rte.kube.watch import WatchEvent
    from rte.reader.json import Json, JsonObject

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
        self._name, self._path = name, NRTS.path(name)
        self._ask_owner = ask_owner
        self._tell_owner = tell_owner

    async def get(self) -> JsonObject:
        """The object as it is stored."""
        stored: JsonObject = await self._client.get(self._path)
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
            stored = await self._client.update(self._path, request.body)
        return stored

    async def follow(self, tell: Callable[[messages.Watched], None]) -> None:
        """Watch the object, so that what others do to it is noticed; until cancelled."""
        from rte.kube.watch import watch  # without an API server no HTTP client is loaded

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


class LocalStore:
    """Standard output or a file as the place of the object.

    Args:
        sink: which.
        output: text form.
    """

    def __init__(self, sink: SinkSetting, output: Output) -> None:
        self._path = sink.path
        self._output = output
        self._stored: JsonObject | None = None

    async def get(self) -> JsonObject:
        """What was written last.

        Raises:
            errors.KubeError: status 404: nothing was, or the file has been replaced.
        """
        if self._stored is None or not await asyncio.to_thread(self._is_there, self._stored):
            raise errors.KubeError("nothing was written yet", status=404)
        return self._stored

    async def owner_uid(self) -> str:
        """A file has no owner."""
        return ""

    async def write(self, request: WriteReport) -> JsonObject:
        """Write the whole object; a disk that hangs holds up nothing else.

        Raises:
            errors.RteError: it cannot be written.
            BrokenPipeError: nobody reads standard output any more.
        """
        text = render(request.wanted, self._output)
        if self._path is not None:
            await asyncio.to_thread(write_file, self._path, text)
        else:
            await asyncio.to_thread(write_stdout, text)
        self._stored = request.wanted
        return self._stored

    def _is_there(self, stored: Json) -> bool:
        try:
            return self._path is None or self._path.read_bytes() == render(stored, self._output)
        except OSError:
            return False


def render(obj: Json, output: Output) -> bytes:
    """The object as text that ends with a line feed; equal objects give equal text."""
    if output is Output.YAML:
        import yaml  # here: it costs start-up time, and JSON does without

        text = yaml.safe_dump(obj, sort_keys=False, allow_unicode=True, width=4096)
        return f"---\n{text}".encode()
    return orjson.dumps(obj, option=orjson.OPT_INDENT_2 | orjson.OPT_APPEND_NEWLINE)


def write_stdout(text: bytes, stream: BinaryIO | None = None) -> None:
    """Write the whole text, past the buffer: what fails is not written again at the end.

    Raises:
        errors.RteError: it cannot be written.
        BrokenPipeError: nobody reads it any more.
    """
    out = stream or sys.stdout.buffer
    out = getattr(out, "raw", out)
    rest = memoryview(text)
    try:
        while rest:
            rest = rest[out.write(rest) :]
    except BrokenPipeError:
        raise
    except OSError as error:
        raise errors.RteError(f"cannot write to standard output: {error.strerror}") from error


def write_file(path: Path, text: bytes) -> None:
    """Replace a file atomically: a reader sees the old text or the new, also after a power cut.

    Mode 0644. A symbolic link is followed, so that the link stays.

    Raises:
        errors.RteError: the file cannot be written; the one that was there is untouched.
    """
    target = Path(os.path.realpath(path))
    try:
        descriptor, name = tempfile.mkstemp(prefix=f".{target.name}.", dir=target.parent)
        temporary = Path(name)
        try:
            with os.fdopen(descriptor, "wb") as file:
                file.write(text)
                file.flush()
                os.fchmod(file.fileno(), 0o644)
                os.fsync(file.fileno())
            temporary.replace(target)
        except BaseException:
            temporary.unlink(missing_ok=True)
            raise
        _sync_directory(target.parent)
    except OSError as error:
        raise errors.RteError(f"cannot write {path}: {error.strerror}") from error


def _sync_directory(directory: Path) -> None:
    descriptor = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
