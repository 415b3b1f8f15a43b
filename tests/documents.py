"""The commands that the documentation tells a user to type."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[1]
PAGES = ("README.md", "CONTRIBUTING.md", *sorted(f"docs/{p.name}" for p in ROOT.glob("docs/*.md")))
#: With those of the site's start, concepts and guides, which are not typed on a cluster.
EVERY_PAGE = (*PAGES, *sorted(str(p.relative_to(ROOT)) for p in ROOT.glob("docs/*/**/*.md")))

_PROGRAMS = "rte|kubectl|helm|oc|python|python3|openssl|printf|kube-scheduler|docker|buildah|export"
_COMMAND = re.compile(rf"(?:[A-Z_]+=\S+ +)*(?:\.venv/bin/)?(?:{_PROGRAMS})(?=[ \n]).*", re.DOTALL)
_FENCED = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_INDENTED = re.compile(r"^ {4}(\S.*)$", re.MULTILINE)
_INLINE = re.compile(r"`([^`\n]+)`")


@dataclass(frozen=True, slots=True)
class Command:
    """One command as it is written.

    Attributes:
        named: the prose only names it, with flags at most; it is not to be typed as it stands.
    """

    page: str
    text: str
    named: bool


def commands(page: str) -> list[Command]:
    """All of a page, in its order: blocks, lines after a prompt, and what the prose names."""
    text = (ROOT / page).read_text()
    found: list[tuple[int, str, bool]] = []

    def take(pattern: re.Pattern[str]) -> None:
        """Find commands there, and look at the place no more."""
        nonlocal text
        for match in pattern.finditer(text):
            found.extend((match.start(), line, pattern is not _INLINE) for line in _lines(match))
        text = pattern.sub(lambda match: " " * len(match[0]), text)

    for pattern in (_FENCED, _INDENTED, _INLINE):
        take(pattern)
    found.sort(key=lambda item: item[0])
    return [Command(page, line, not block and is_name(line)) for _, line, block in found]


def blocks(page: str, language: str) -> list[str]:
    """The fenced blocks of a language, as they are written."""
    found = _FENCED.finditer((ROOT / page).read_text())
    return [match[2] for match in found if match[1] == language]


def is_name(text: str) -> bool:
    """Whether that is a program, a subcommand and flags without values."""
    words = [word for word in text.split() if not word.startswith("-")]
    return len(words) <= 2 and "=" not in text


def _lines(match: re.Match[str]) -> list[str]:
    """The commands of one place, without prompts, comments and what they print."""
    if match.re is not _FENCED:
        return _commands_of([match[1]])
    lines = match[2].replace("\\\n", "").splitlines()
    if match[1] == "sh":
        return [_uncommented(line) for line in lines if line.strip()]
    return [_uncommented(line[2:]) for line in lines if line.startswith("$ ")]


def _commands_of(lines: list[str]) -> list[str]:
    return [_uncommented(line) for line in lines if _COMMAND.fullmatch(line)]


def _uncommented(line: str) -> str:
    return re.sub(r"\s+#.*$", "", " ".join(line.split()))
