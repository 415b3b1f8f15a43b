"""The drift alarm's memory: one line and one file for each kubelet version and configuration."""

from __future__ import annotations

import os
import resource
from typing import TYPE_CHECKING

from rte.nrt import case as cases
from rte.placement import drift
from rte.placement.drift import AdmissionOutcome, Meanwhile, Part
from rte.telemetry.cases import MOST_CASES, CaseBook
from tests.unit.placement.build import node, simple

if TYPE_CHECKING:
    from pathlib import Path

    import pytest


def case_of(version: str = "v1.35.4") -> drift.Case:
    got = AdmissionOutcome(parts={Part("main", "cpus"): 0b1100})
    prediction = drift.predict(node(version=version), simple("p", 2))
    return drift.judge(prediction, got, Meanwhile)


def test_a_kind_is_told_once_and_kept(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    book = CaseBook(tmp_path / "made")
    line = book.tell(case_of(), "n0")
    assert line.startswith("kubelet v1.35.4 of n0 did not do as predicted (other_zone): default/p ")
    assert book.tell(case_of(), "n1") == ""
    assert book.tell(case_of("v1.36.3"), "n1") != ""
    first, _ = sorted((tmp_path / "made").iterdir())
    assert cases.decode(first.read_text()).node == "n0"
    assert len(caplog.records) == 2


def test_what_was_kept_before_a_restart_is_not_told_again(tmp_path: Path) -> None:
    CaseBook(tmp_path).tell(case_of(), "n0")
    assert CaseBook(tmp_path).tell(case_of(), "n0") == ""


def test_without_a_folder_it_is_told_all_the_same(caplog: pytest.LogCaptureFixture) -> None:
    assert CaseBook(None).tell(case_of(), "n0")
    assert "--case-dir" in caplog.text


def test_a_folder_that_cannot_be_written_is_told(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "file").write_text("")
    assert CaseBook(tmp_path / "file" / "below").tell(case_of(), "n0")
    assert "cannot be kept" in caplog.text


def test_no_more_than_so_many_are_kept(tmp_path: Path) -> None:
    for number in range(MOST_CASES):
        path = tmp_path / f"old-{number}.json"
        path.write_text("")
        os.utime(path, (number, number))
    CaseBook(tmp_path).tell(case_of(), "n0")
    kept = {path.name for path in tmp_path.iterdir()}
    assert len(kept) == MOST_CASES
    assert "old-0.json" not in kept


def test_half_a_case_on_a_full_disk_is_not_taken_for_a_known_one(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100, hard))
    try:
        assert CaseBook(tmp_path).tell(case_of(), "n0")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert "cannot be kept" in caplog.text
    assert not list(tmp_path.iterdir())
    assert CaseBook(tmp_path).tell(case_of(), "n0")
    (kept,) = tmp_path.iterdir()
    assert cases.decode(kept.read_text()).node == "n0"
