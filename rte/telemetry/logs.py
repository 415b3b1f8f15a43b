"""Structured logs on stderr: one line per event, as ``key=value`` text or as JSON.

Everywhere else ``logging.getLogger(__name__)`` is used as it is; fields go into ``extra``.
"""

import logging
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import StrEnum
from typing import Annotated, TextIO

import orjson

from rte.options import Flag, Syntax, one_of

#: What every record has; all else in a record was given as ``extra``.
_STANDARD = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName"}
_BARE = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-/:+@%,")


class Level(StrEnum):
    """The least severe events that are written."""

    DEBUG = "debug"
    INFO = "info"
    WARNING = "warning"
    ERROR = "error"


class Format(StrEnum):
    """Form of a line."""

    TEXT = "text"
    JSON = "json"


@dataclass(frozen=True, kw_only=True)
class LogSettings:
    """What can be set for logs."""

    level: Annotated[
        Level,
        Syntax(one_of(Level), "LEVEL"),
        Flag("least severe events that are logged: debug, info, warning, error"),
    ] = Level.INFO
    format: Annotated[Format, Syntax(one_of(Format), "text|json"), Flag("form of a log line")] = (
        Format.TEXT
    )


def setup(settings: LogSettings, stream: TextIO | None = None) -> None:
    """Send all logs of this process to ``stream`` (stderr); replaces an earlier setup."""
    handler = logging.StreamHandler(stream or sys.stderr)
    handler.setFormatter(Formatter(settings.format))
    root = logging.getLogger()
    for old in list(root.handlers):
        root.removeHandler(old)
    root.addHandler(handler)
    root.setLevel(settings.level.upper())


class Formatter(logging.Formatter):
    """One line per record: time, level, event, logger, the extra fields, and the error if any."""

    def __init__(self, form: Format) -> None:
        super().__init__()
        self._format = form

    def format(self, record: logging.LogRecord) -> str:
        """The line, without its end."""
        fields = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "event": record.getMessage(),
            "logger": record.name,
            **{key: value for key, value in vars(record).items() if key not in _STANDARD},
        }
        if record.exc_info and record.exc_info[1] is not None:
            fields["error"] = repr(record.exc_info[1])
            fields["traceback"] = self.formatException(record.exc_info)
        return _json(fields) if self._format is Format.JSON else _text(fields)


def _json(fields: Mapping[str, object]) -> str:
    plain = {key: _plain(value) for key, value in fields.items()}
    return orjson.dumps(plain).decode()


def _plain(value: object) -> str | int | float | None:
    """A value that JSON has; text in valid Unicode."""
    if value is None or isinstance(value, bool | float):
        return value
    if isinstance(value, int) and -(2**63) <= value < 2**63:
        return value
    return str(value).encode(errors="backslashreplace").decode()


def _text(fields: Mapping[str, object]) -> str:
    return " ".join(f"{key}={_quoted(value)}" for key, value in fields.items())


def _quoted(value: object) -> str:
    text = str(_plain(value))
    return text if text and _BARE.issuperset(text) else orjson.dumps(text).decode()
