"""Readings that fail in a row: what is told of them, and when it is looked again."""

from __future__ import annotations

import pytest

from rte import errors
from rte.agent.observer.published import Failures
from rte.agent.timings import DEFAULT
from rte.telemetry.effects import Measured, Said, SetReadiness

CPU = errors.ParseError("state file /var/lib/kubelet/cpu_manager_state", "{", "it ends too soon")
MEMORY = errors.ParseError("state file /var/lib/kubelet/memory_manager_state", "", "it is empty")
SILENT = errors.KubeletError("podresources does not answer")


def malformed(failures: Failures, *happened: errors.RteError | None) -> list[tuple[str, float]]:
    """The metric's changes by readings that fail so, or work (None)."""
    told = []
    for error in happened:
        effects = failures.failed(error, 0.0, is_young=False)[1] if error else failures.worked(0.0)
        told += [e for e in effects if isinstance(e, Measured) and e.metric == "malformed"]
    return [(each.labels[0], each.value) for each in told]


def test_the_file_that_is_damaged_is_named_until_it_is_read() -> None:
    assert malformed(Failures(DEFAULT), CPU, CPU, MEMORY, None, None) == [
        ("cpu_manager_state", 1.0),
        ("cpu_manager_state", 0.0),
        ("memory_manager_state", 1.0),
        ("memory_manager_state", 0.0),
    ]


def test_no_file_is_to_blame_where_the_kubelet_is_silent() -> None:
    assert malformed(Failures(DEFAULT), CPU, SILENT) == [
        ("cpu_manager_state", 1.0),
        ("cpu_manager_state", 0.0),
    ]


@pytest.mark.parametrize(
    ("error", "is_young", "wait"),
    [
        (CPU, False, DEFAULT.torn),
        (SILENT, False, DEFAULT.source),
        (SILENT, True, DEFAULT.readmission),
    ],
)
def test_when_it_is_looked_again(error: errors.RteError, is_young: bool, wait: float) -> None:
    assert Failures(DEFAULT).failed(error, 7.0, is_young=is_young)[0] == 7.0 + wait


def test_what_lasts_is_told_once_and_its_end_as_well() -> None:
    failures = Failures(DEFAULT)
    told = [failures.failed(CPU, now, is_young=False)[1] for now in (0.0, 0.5, 1.5, 2.5)]
    told.append(failures.worked(3.0))
    lines = [[e.text for e in effects if isinstance(e, Said)] for effects in told]
    why = f"a state file of the kubelet is damaged, will keep looking: {CPU}"
    assert lines == [[], [], [why], [], ["the kubelet is readable again"]]
    assert SetReadiness("reading", "a state file of the kubelet is damaged") in told[2]
    assert SetReadiness("reading") in told[4]
