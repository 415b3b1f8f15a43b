"""A case in words."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rte.model import bits, words
from rte.placement.drift.parts import CPUS, MEMORY

if TYPE_CHECKING:
    from rte.placement.drift.case import Case
    from rte.placement.drift.outcome import AdmissionOutcome
    from rte.placement.drift.parts import Held, Part


def headline(case: Case) -> str:
    """One line: what the kubelet did, and what was predicted, of the first difference."""
    pod = case.prediction.pod
    expected = case.prediction.expected
    name = f"{pod.namespace}/{pod.name}"
    if case.got.reason:
        return f"{name} was refused for {case.got.reason}, predicted {verdict(expected)}"
    if not case.differences or expected is None or expected.reason:
        return f"{name} was admitted, predicted {verdict(expected)}"
    first, more = case.differences[0], len(case.differences) - 1
    return (
        f"{name} got {held(first, case.got.parts.get(first))} in {place(first)}, "
        f"predicted {held(first, expected.parts.get(first))}"
        + (f", and {more} more" if more else "")
    )


def verdict(outcome: AdmissionOutcome | None) -> str:
    """The answer alone."""
    if outcome is None:
        return "nothing for certain"
    return f"a refusal for {outcome.reason}" if outcome.reason else "its admission"


def place(part: Part) -> str:
    """Who holds it."""
    return f"container {part.container}" if part.container else "the pod as a whole"


def held(part: Part, value: Held | None) -> str:
    """What is held of a part, in units."""
    if value is None:
        return f"no {part.what}"
    if isinstance(value, int):
        return f"{CPUS} {bits.format_list(value)}"
    rows = [
        f"{amount} of {resource} in {words.zones(zones)}"
        if part.what == MEMORY
        else f"{amount} {resource} of {words.zones(zones)}"
        for resource, zones, amount in value
    ]
    return " + ".join(rows)
