"""The agent's garbage is collected at rests, not amid a reading."""

from __future__ import annotations

import gc
import weakref
from typing import TYPE_CHECKING

import pytest

from rte.agent import memory
from rte.agent.memory import Rests

if TYPE_CHECKING:
    from collections.abc import Iterator


class Knot:
    """Garbage that only a collection finds."""

    def __init__(self) -> None:
        self.itself = self


@pytest.fixture(autouse=True)
def own_collector() -> Iterator[None]:
    """The collector as an agent's process begins with it, and afterwards as it was."""
    threshold = gc.get_threshold()
    gc.unfreeze()
    memory.begin()
    yield
    gc.set_threshold(*threshold)
    gc.unfreeze()


def test_a_rest_collects_what_has_become_garbage():
    rest = Rests()
    rest()
    knots = [weakref.ref(Knot()) for _ in range(3)]
    assert all(knot() for knot in knots)
    rest()
    assert not any(knot() for knot in knots)


def test_between_rests_as_much_as_a_reading_makes_waits():
    rest = Rests()
    rest()
    knot = weakref.ref(Knot())
    reading = [[number] for number in range(10_000)]
    assert knot() is not None
    assert len(reading) == 10_000


def test_without_rests_garbage_does_not_grow_for_ever():
    Rests()()
    knot = weakref.ref(Knot())
    flood = [[number] for number in range(50_000)]
    assert knot() is None
    assert len(flood) == 50_000


def test_what_the_start_left_is_not_looked_at_again():
    start = gc.get_objects()
    Rests()()
    assert gc.get_freeze_count() >= len(start) // 2
