"""Recorded decisions of the ancestors: a sample here, and all of them where there are any."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest

from tests.conformance.__main__ import KINDS, kind_of, main, run

SAMPLES = Path(__file__).parent / "vectors"
RECORDED = Path(__file__).parents[2] / "shared" / "vectors"
RECORDED_FILES = [file for file in sorted(RECORDED.glob("*/*.jsonl.gz")) if kind_of(file) in KINDS]
MAX_SAMPLE_BYTES = 2_000_000
#: Share of cases that may go unanswered: expressions of CEL libraries that we cannot compile.
UNANSWERED = {"dra_cel": 0.01}


@pytest.mark.parametrize("kind", KINDS)
def test_every_sampled_case_is_decided_as_recorded(kind: str) -> None:
    passed, failed = run(kind, SAMPLES / f"{kind}.jsonl.gz")

    assert passed > 0
    assert failed == 0


@pytest.mark.vectors
@pytest.mark.skipif(not RECORDED_FILES, reason="only the samples are part of the repository")
@pytest.mark.parametrize("file", RECORDED_FILES, ids=lambda file: f"{file.parent.name}/{file.name}")
def test_every_recorded_case_is_decided_as_recorded(file: Path) -> None:
    passed, failed = run(kind_of(file), file)

    assert passed > 0
    assert failed <= UNANSWERED.get(kind_of(file), 0) * (passed + failed)


@pytest.mark.parametrize(
    ("file", "kind"),
    [
        ("nrt/nrt_filter.jsonl.gz", "nrt_filter"),
        ("kubelet/kubelet_merge_hints.jsonl.gz", "kubelet_merge_hints"),
        ("kubelet-1.37/merge_hints.jsonl.gz", "kubelet_merge_hints"),
    ],
)
def test_the_name_of_a_file_says_its_kind(file: str, kind: str) -> None:
    assert kind_of(Path(file)) == kind


def test_the_samples_stay_small() -> None:
    assert sum(file.stat().st_size for file in SAMPLES.iterdir()) <= MAX_SAMPLE_BYTES


def test_a_case_that_is_decided_otherwise_fails_the_run(tmp_path: Path, capsys) -> None:
    case = {"i": 7, "pods": [["a", "b"]], "sign": "pfp0v0010000000000000000", "checks": []}
    file = tmp_path / "podfingerprint.jsonl.gz"
    file.write_bytes(gzip.compress(json.dumps(case).encode()))

    assert main(["podfingerprint", str(file)]) == 1
    out, err = capsys.readouterr()
    assert out == "0 passed, 1 failed\n"
    assert "case 7: sign" in err


@pytest.mark.parametrize("words", [[], ["podfingerprint"], ["unheard-of", __file__]])
def test_wrong_usage_is_told(words: list[str], capsys) -> None:
    assert main(words) == 2
    assert "usage:" in capsys.readouterr().err
