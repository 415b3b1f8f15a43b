"""How many cases are tried by the tests that draw or seed their own: one knob, ``RTE_DEPTH``.

1 is the depth that CI has (``.ci/run``); more looks further. Without it a fifth is tried, so that
the fast tests take two minutes on two cores.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from collections.abc import Iterable

T = TypeVar("T")
DEPTH = float(os.environ.get("RTE_DEPTH", "0.2"))
#: However little depth is asked for, this many are tried.
LEAST = 5


def scaled(cases: int) -> int:
    """How many to try where CI tries ``cases``."""
    return max(min(cases, LEAST), round(cases * DEPTH))


def sampled(cases: Iterable[T]) -> list[T]:
    """The long cases that are played: all in CI, else each fifth, the first always."""
    every = list(cases)
    return every[:: max(1, round(1 / min(1.0, DEPTH)))]
