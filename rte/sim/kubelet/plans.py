"""How long a container runs: told by its command or by annotations, as on the real test bed.

Commands are words: ``sleep SECONDS``, ``exit CODE``, ``true``, ``false``, and programs that end at
once (``date``, ``echo``). Anything else runs until it is stopped, but in a pod of a Job, where it
ends at once: Jobs are there to end. ``sleep infinity`` goes on there too. A shell in front
(``sh -c "sleep 5; exit 1"``) is looked through. Annotations ``testbed.rte.dev/exit-after`` and
``exit-code`` (each with an optional suffix ``.<container>``) win over the command.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

PREFIX = "testbed.rte.dev/"
_SHORT = (
    "true", "cat", "date", "df", "echo", "env", "free", "hostname", "id", "ls", "nproc", "printenv",
    "printf", "ps", "pwd", "uname", "uptime", "whoami",
)  # fmt: skip
_UNITS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0}
_SPAN = re.compile(r"(\d+(?:\.\d+)?)(ms|s|m|h)")


@dataclass(frozen=True, slots=True)
class ContainerPlan:
    """``seconds`` until the container ends by itself (None: never) and its exit code."""

    seconds: float | None = None
    code: int = 0


def of_container(pod: Mapping[str, Any], container: Mapping[str, Any]) -> ContainerPlan:
    """The plan of a container of a pod of the API."""
    plan = parse_command([*(container.get("command") or ()), *(container.get("args") or ())])
    metadata = pod["metadata"]
    owners = metadata.get("ownerReferences") or ()
    if plan.seconds is None and any(owner["kind"] == "Job" for owner in owners):
        plan = ContainerPlan(0.0)
    annotations, name = metadata.get("annotations") or {}, str(container["name"])
    after = _annotation(annotations, "exit-after", name)
    code = _annotation(annotations, "exit-code", name)
    seconds = plan.seconds if after is None else parse_span(after)
    return ContainerPlan(
        None if seconds == math.inf else seconds,
        int(code) if code and re.fullmatch(r"\d{1,3}", code) else plan.code,
    )


def parse_command(words: Sequence[str]) -> ContainerPlan:
    """Read a command; endless sleep is infinite, and None what is not known to end."""
    commands = [list(words)] if words else []
    if len(words) >= 3 and words[0].rpartition("/")[2] in ("sh", "bash") and words[1] == "-c":
        commands = [part.split() for part in re.split(r"[;&\n]+", words[2]) if part.strip()]
    if not commands:
        return ContainerPlan()
    seconds, code = 0.0, 0
    while commands:
        name, *rest = commands.pop(0)
        match name.rpartition("/")[2], rest:
            case "sleep", ["infinity", *_]:
                return ContainerPlan(math.inf)
            case "sleep", [text, *_] if re.fullmatch(r"\d{1,9}(\.\d+)?", text):
                seconds, code = seconds + float(text), 0
                commands = [rest[1:], *commands] if rest[1:] else commands
            case "exit", _:
                text = rest[0] if rest else str(code)
                return ContainerPlan(seconds, int(text) if re.fullmatch(r"\d{1,3}", text) else 1)
            case "false", _:
                code = 1
            case program, _ if program in _SHORT:
                code = 0
            case _:
                return ContainerPlan(seconds or None)
    return ContainerPlan(seconds, code)


def parse_span(text: str) -> float | None:
    """A Go duration (``1m30s``) in seconds; None for other text."""
    parts = list(_SPAN.finditer(text))
    if not parts or "".join(part[0] for part in parts) != text:
        return None
    return sum(float(part[1]) * _UNITS[part[2]] for part in parts)


def _annotation(annotations: Mapping[str, str], key: str, name: str) -> str | None:
    return annotations.get(f"{PREFIX}{key}.{name}") or annotations.get(PREFIX + key)
