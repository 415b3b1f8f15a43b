"""Globs with the semantics of Go's ``filepath.Match``, as the other exporters' configuration."""

from __future__ import annotations

import re
from functools import lru_cache

from rte import errors


def matches(glob: str, text: str) -> bool:
    """Whether the whole text matches; ``*`` and ``?`` stop at a slash.

    Raises:
        errors.ParseError: the glob is malformed.
    """
    return compile_glob(glob).fullmatch(text) is not None


@lru_cache(maxsize=1024)
def compile_glob(glob: str) -> re.Pattern[str]:
    """Translate a glob.

    Raises:
        errors.ParseError: the glob is malformed.
    """
    out: list[str] = []
    rest = glob
    while rest:
        char, rest = rest[0], rest[1:]
        if char == "*":
            out.append("[^/]*")
        elif char == "?":
            out.append("[^/]")
        elif char == "[":
            text, rest = _class(glob, rest)
            out.append(text)
        elif char == "\\":
            char, rest = _character(glob, "\\" + rest, "\\")
            out.append(re.escape(char))
        else:
            out.append(re.escape(char))
    return re.compile("".join(out), re.DOTALL)


def _class(glob: str, rest: str) -> tuple[str, str]:
    negated = rest.startswith("^")
    rest = rest.removeprefix("^")
    ranges: list[str] = []
    while not (rest.startswith("]") and ranges):
        low, rest = _character(glob, rest, "\\-]")
        high = low
        if rest.startswith("-"):
            high, rest = _character(glob, rest[1:], "\\-]")
        # Go takes a backward range for one that matches nothing.
        ranges.append(f"{re.escape(low)}-{re.escape(high)}" if low <= high else "")
    body = "".join(ranges)
    if not body:
        return (r"[\s\S]" if negated else r"(?!)"), rest[1:]
    return f"[{'^' if negated else ''}{body}]", rest[1:]


def _character(glob: str, rest: str, special: str) -> tuple[str, str]:
    """One character of a class or an escaped one, as ``getEsc`` in path/filepath/match.go."""
    if not rest or (rest[0] in special and rest[0] != "\\"):
        raise errors.ParseError("glob", glob)
    if rest[0] == "\\":
        rest = rest[1:]
        if not rest:
            raise errors.ParseError("glob", glob, "nothing after the last \\")
    return rest[0], rest[1:]
