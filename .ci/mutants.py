"""Mutation testing draws wrong programs that can be played, and plays them.

In CI, whose environment has the libraries that draw them: a user's fresh clone has not.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tools import mutants

ROOT = Path(__file__).parents[1]


@pytest.mark.parametrize("room", ["queue", "liveness"])
def test_a_seed_draws_the_same_mutants_and_none_twice(room: str) -> None:
    first, second = mutants.drawn(room, 12, 1), mutants.drawn(room, 12, 1)
    assert [one.key for one in first] == [one.key for one in second]
    assert len({one.key for one in first}) == 12
    for one in first:
        lines = one.source.splitlines()
        assert (ROOT / one.path).read_text() != one.source
        assert " ".join(lines[one.line - 1].split()) in one.key
    assert {one.key for one in first} != {one.key for one in mutants.drawn(room, 12, 2)}


def test_those_that_are_the_same_are_named_with_a_reason() -> None:
    for key, why in mutants.equivalents().items():
        path, function, *change = key.split(" | ")
        assert (ROOT / path).is_file()
        assert function
        assert {line[:2] for line in change} == {"- ", "+ "}
        assert " " in why


def test_the_tests_of_the_lease_find_what_is_wrong_with_it() -> None:
    command = [sys.executable, "-m", "tools.mutants", "--room", "lease", "--count", "10"]
    done = subprocess.run(
        [*command, "--bar", "0.7"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "10 mutants: " in done.stdout
