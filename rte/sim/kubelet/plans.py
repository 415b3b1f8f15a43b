"""How long a container runs: told by its command or by annotations, as on the real test bed.

Commands are words: ``sleep SECONDS``, ``exit CODE``, ``true``, ``false``; anything else, and
``sleep infinity``, runs until it is stopped. A shell in front (``sh -c "sleep 5; exit 1"``) is
looked through. Annotations ``testbed.rte.dev/exit-after`` and ``exit-code`` (each with an optional
suffix ``.<container>``) win over the command.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

PREFIX = "testbed.rte.dev/"
_UNITS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0}
_SPAN = re.compile(r"(\d+(?:\.\d+)?)(ms|s|m|h)")


@dataclass(frozen=True, slots=True)
class ContainerPlan:
    """``seconds`` until the container ends by itself (None: never) and its exit code."""

    seconds: float | None = None
    code: int = 0


def of_container(container: Mapping[str, Any], annotations: Mapping[str, str]) -> ContainerPlan:
    """The plan of a container of the API."""
    words = [*(container.get("command") or ()), *(container.get("args") or ())]
    plan = parse_command(words)
    name = str(container["name"])
    after = _annotation(annotations, "exit-after", name)
    code = _annotation(annotations, "exit-code", name)
    seconds = plan.seconds if after is None else parse_span(after)
    return ContainerPlan(
        seconds, int(code) if code and re.fullmatch(r"\d{1,3}", code) else plan.code
    )


def parse_command(words: Sequence[str]) -> ContainerPlan:
    """Read a command."""
    if len(words) >= 3 and words[0].rpartition("/")[2] in ("sh", "bash") and words[1] == "-c":
        words = re.split(r"[\s;&]+", words[2].strip())
    seconds: float | None = None
    rest = iter(words)
    for word in rest:
        match word:
            case "true":
                return ContainerPlan(seconds or 0.0)
            case "false":
                return ContainerPlan(seconds or 0.0, 1)
            case "exit":
                code = next(rest, "0")
                return ContainerPlan(
                    seconds or 0.0, int(code) if re.fullmatch(r"\d{1,3}", code) else 1
                )
            case "sleep":
                text = next(rest, "")
                if not re.fullmatch(r"\d{1,9}(\.\d+)?", text):
                    return ContainerPlan()
                seconds = (seconds or 0.0) + float(text)
            case _:
                return ContainerPlan(seconds)
    return ContainerPlan(seconds)


def parse_span(text: str) -> float | None:
    """A Go duration (``1m30s``) in seconds; None for other text."""
    parts = list(_SPAN.finditer(text))
    if not parts or "".join(part[0] for part in parts) != text:
        return None
    return sum(float(part[1]) * _UNITS[part[2]] for part in parts)


def _annotation(annotations: Mapping[str, str], key: str, name: str) -> str | None:
    return annotations.get(f"{PREFIX}{key}.{name}") or annotations.get(PREFIX + key)
