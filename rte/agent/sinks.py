"""Sinks of a NodeResourceTopology besides the API server: standard output and a file."""

from __future__ import annotations

import logging
import os
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

import orjson

from rte import errors
from rte.agent.settings import Output

if TYPE_CHECKING:
    from collections.abc import Mapping

    from rte.agent.observer.messages import Observation
    from rte.agent.settings import Sink
    from rte.telemetry.health import Readiness
    from rte.telemetry.metrics import AgentMetrics

logger = logging.getLogger(__name__)


class LocalSink:
    """Writes each new state to standard output or a file.

    Args:
        sink: which.
        output: text form.
    """

    def __init__(
        self, sink: Sink, output: Output, metrics: AgentMetrics, readiness: Readiness
    ) -> None:
        self._path = sink.path
        self._output = output
        self._metrics = metrics
        self._readiness = readiness
        self._written = b""
        self._failing = False

    def offer(self, observation: Observation) -> None:
        """Write it, unless it is there; a failure is told once and tried again with the next."""
        text = render(observation.object, self._output)
        if text == self._written:
            return
        try:
            if self._path is not None:
                write_file(self._path, text)
            else:
                write_stdout(text)
        except errors.RteError as error:
            if not self._failing:
                logger.warning("%s; will try again with the next change", error)
            self._failing = True
            return
        self._written, self._failing = text, False
        self._metrics.writes.labels("write", "change").inc()
        self._metrics.publish_seconds.observe(time.monotonic() - observation.noticed)
        self._metrics.last_publish.set_to_current_time()
        self._readiness.met("published")

    def trust(self, until: float) -> None:
        """Nobody is told whether it is to be trusted."""


def render(obj: Mapping[str, Any], output: Output) -> bytes:
    """The object as text that ends with a line feed; equal objects give equal text."""
    if output is Output.YAML:
        import yaml  # here: it costs start-up time, and JSON does without

        text = yaml.safe_dump(obj, sort_keys=False, allow_unicode=True, width=4096)
        return f"---\n{text}".encode()
    return orjson.dumps(obj, option=orjson.OPT_INDENT_2 | orjson.OPT_APPEND_NEWLINE)


def write_stdout(text: bytes, stream: BinaryIO | None = None) -> None:
    """Write the whole text at once."""
    out = stream or sys.stdout.buffer
    out.write(text)
    out.flush()


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
