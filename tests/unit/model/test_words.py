"""Zones and counts in words."""

from __future__ import annotations

import pytest

from rte.model import bits, words


@pytest.mark.parametrize(
    ("members", "text"),
    [(None, "no zone"), (0, "no zone"), (0b10, "zone 1"), (0b1011, "zones 0-1,3")],
)
def test_zones_are_called_zones(members: int | None, text: str) -> None:
    assert words.zones(members) == text


@pytest.mark.parametrize(
    ("count", "text"),
    [(0, "0 CPUs"), (1, "1 CPU"), (0.5, "0.5 CPUs"), (2, "2 CPUs"), (1_000_000, "1000000 CPUs")],
)
def test_one_is_singular(count: float, text: str) -> None:
    assert words.counted(count, "CPU") == text


def test_a_set_of_zones_is_named_by_its_members() -> None:
    assert words.zones(bits.of((2, 3))) == "zones 2-3"
