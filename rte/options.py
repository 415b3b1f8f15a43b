"""How a program says what can be set for it: annotated fields of a frozen dataclass.

    poll_interval: Annotated[Seconds, Flag("time between looks at everything")] = 60.0

The type says how a value is written, the :class:`Flag` what it means, the field's name and default
the rest. :mod:`rte.config` makes flags, variables, keys of the file and their documentation of it.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TypeAlias, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable
    from enum import StrEnum

_M = TypeVar("_M", bound="StrEnum")

YES = ("true", "yes", "on", "1")
NO = ("false", "no", "off", "0")


@dataclass(frozen=True, slots=True)
class Syntax:
    """How one value is written.

    Attributes:
        parse: from text; raises ValueError saying what was expected.
        value: what it is called in ``--help``; a flag without value is empty.
        unset: how a default is documented that is none.
        negated: the flag takes no value and has a counterpart ``--no-...``.
    """

    parse: Callable[[str], object]
    value: str
    unset: str = "none"
    negated: bool = False


@dataclass(frozen=True, slots=True)
class Flag:
    """What a field means.

    Attributes:
        help: one line.
        value: what the value is called in ``--help``, if not as its :class:`Syntax` says.
        default: documented where the field's own default does not say it.
        commands: that have it; empty: those of its program.
        short: one-letter flag.
        variables: further environment variables, weaker than the derived one.
        key: in the file, and for the variable, where the flag means something else elsewhere.
    """

    help: str
    value: str = ""
    default: str = ""
    commands: tuple[str, ...] = ()
    short: str = ""
    variables: tuple[str, ...] = ()
    key: str = ""


def text(value: str) -> str:
    """Any text."""
    return value


def path(value: str) -> Path:
    """A path, not empty."""
    if not value or "\0" in value:
        raise ValueError("expected a path")
    return Path(value)


def switch(value: str) -> bool:
    """On or off."""
    if value.lower() in YES:
        return True
    if value.lower() in NO:
        return False
    raise ValueError("expected true or false")


def seconds(value: str) -> float:
    """A positive number of seconds."""
    number = _number(value)
    if not (0 < number < math.inf):
        raise ValueError("expected a positive number of seconds")
    return number


def amount(value: str) -> float:
    """A number, not negative."""
    number = _number(value)
    if not (0 <= number < math.inf):
        raise ValueError("expected 0 or a positive number")
    return number


def _number(value: str) -> float:
    try:
        return float(value)
    except ValueError:
        return math.nan


def name(value: str) -> str:
    """Any text but none."""
    if not value:
        raise ValueError("expected a name")
    return value


def one_of(kind: type[_M]) -> Callable[[str], _M]:
    """A member of an enumeration, by its value."""

    def parse(value: str) -> _M:
        try:
            return kind(value)
        except ValueError:
            raise ValueError("expected one of " + ", ".join(kind)) from None

    return parse


def listen(value: str) -> str:
    """``HOST:PORT``, ``:PORT``, or ``off``."""
    if not value or value.lower() in NO:
        return ""
    port = value.rpartition(":")[2]
    if ":" not in value or not (port.isascii() and port.isdigit() and int(port) < 65536):
        raise ValueError("expected HOST:PORT or off")
    return value


def namespace(value: str) -> str:
    """A namespace, or ``off``."""
    if value.lower() in NO:
        return ""
    if not re.fullmatch(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?", value):
        raise ValueError("expected the name of a namespace or off")
    return value


Text: TypeAlias = Annotated[str, Syntax(name, "NAME")]
File: TypeAlias = Annotated[Path | None, Syntax(path, "F")]
Folder: TypeAlias = Annotated[Path | None, Syntax(path, "DIR")]
Seconds: TypeAlias = Annotated[float, Syntax(seconds, "SECONDS")]
Amount: TypeAlias = Annotated[float, Syntax(amount, "SECONDS")]
Listen: TypeAlias = Annotated[str, Syntax(listen, "HOST:PORT|off", unset="off")]
#: Given as ``--name true``, as ``--name``, or as ``--name`` and ``--no-name``.
Bool: TypeAlias = Annotated[bool, Syntax(switch, "true|false")]
Presence: TypeAlias = Annotated[bool, Syntax(switch, "")]
Switch: TypeAlias = Annotated[bool, Syntax(switch, "", negated=True)]
