"""Recorded decisions of the ancestors: a sample here, and all of them where there are any."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest

from tests.conformance.__main__ import KINDS, main, run

SAMPLES = Path(__file__).parent / "vectors"
RECORDED = Path(__file__).parents[2] / "shared" / "vectors"
MAX_SAMPLE_BYTES = 1_000_000
#: Share of cases that may go unanswered: expressions of CEL libraries that we cannot compile.
UNANSWERED = {"dra_cel": 0.03}


@pytest.mark.parametrize("kind", KINDS)
def test_every_sampled_case_is_decided_as_recorded(kind: str) -> None:
    passed, failed = run(kind, SAMPLES / f"{kind}.jsonl.gz")

    assert passed > 0
    assert failed == 0


@pytest.mark.vectors
@pytest.mark.skipif(not RECORDED.is_dir(), reason="only the samples are part of the repository")
@pytest.mark.parametrize("kind", KINDS)
def test_every_recorded_case_is_decided_as_recorded(kind: str) -> None:
    (file,) = RECORDED.glob(f"*/{kind}.jsonl.gz")

    passed, failed = run(kind, file)

    assert passed > 0
    assert failed <= UNANSWERED.get(kind, 0) * (passed + failed)


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
