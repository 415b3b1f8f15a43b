"""Sinks of a NodeResourceTopology besides the API server: standard output and a file."""

from __future__ import annotations

import asyncio
import os
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

import orjson

from rte import errors
from rte.agent.settings import Output

if TYPE_CHECKING:
    from rte.agent.publisher.messages import WriteReport
    from rte.agent.settings import SinkSetting
    from rte.reader.json import Json, JsonObject


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
