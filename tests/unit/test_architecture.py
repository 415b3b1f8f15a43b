"""ARCHITECTURE.md: short, and every file that it names is there."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
TEXT = (ROOT / "ARCHITECTURE.md").read_text()
#: What a newcomer asks, as the table words it.
QUESTIONS = [
    "a tainted node",
    "a new kubelet release",
    "back-off of a bind",
    "a lost Lease",
    "hugepages",
    "a new option",
    "a column of `kubectl get nrt`",
    "a new kind of device",
    "a tie between equal nodes",
    "a new metric",
    "watch answers 410",
    "a dead agent",
    "a foreign report",
    "a held-off node",
    "when podresources is asked",
]
ROWS = {
    cells[0].strip(): (cells[1], cells[2])
    for line in TEXT.splitlines()
    if len(cells := line.strip("|").split("|")) == 3
}


def test_it_is_read_in_one_sitting() -> None:
    assert len(TEXT.splitlines()) <= 150


@pytest.mark.parametrize("question", QUESTIONS)
def test_a_question_is_answered_by_one_file_that_holds_what_is_said(question: str) -> None:
    where, look_for = ROWS[question]
    path = re.findall(r"`([^`]+)`", where)[0]
    content = (ROOT / path).read_text()
    words = re.findall(r"`([^`]+)`", look_for)
    assert words
    assert [word for word in words if word not in content] == []


def test_every_room_and_file_that_is_named_is_there() -> None:
    """Files are named from the root, or after the folder that a paragraph is about."""
    named = set(re.findall(r"`((?:rte|tests|docs|fixtures|bench|manifests|\.ci)/[\w./-]+)`", TEXT))
    assert len(named) > 20
    assert [path for path in sorted(named) if not (ROOT / path).exists()] == []
    files = [f"/{path.relative_to(ROOT)}" for path in (ROOT / "rte").rglob("*.py")]
    inside = set(re.findall(r"`(\w+/[\w./-]+\.py)`", TEXT)) - named
    assert len(inside) > 30
    assert [path for path in inside if not any(file.endswith(f"/{path}") for file in files)] == []


def test_every_room_has_its_row() -> None:
    rooms = {path.name for path in (ROOT / "rte").iterdir() if (path / "__init__.py").exists()}
    rooms |= {path.name for path in (ROOT / "rte").glob("*.py") if not path.name.startswith("__")}
    told = set(re.findall(r"`rte/([\w.]+)`", TEXT))
    assert rooms - told == set()
