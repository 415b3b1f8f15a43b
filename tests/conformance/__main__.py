"""``python -m tests.conformance [--answers] KIND FILE``: recorded cases of real code.

KIND is one of :data:`KINDS`. Ends with ``N passed, N failed``; exit code 1 on any failure, 2 on
wrong usage. With ``--answers`` nothing is judged: what we answer is printed, one JSON a case.
"""

from __future__ import annotations

import gzip
import importlib
import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator

#: kind -> module in this package that defines ``check_<kind>(case) -> list[str]`` (differences).
#: A new kind is a new row; its files are then found by their names (:func:`kind_of`).
KINDS = {
    "kubelet_pod_admission": "kubelet",
    "kubelet_take_by_topology": "kubelet_picks",
    "kubelet_merge_hints": "kubelet_picks",
    "kubelet_restart": "kubelet_restart",
    "kubelet_state_files": "state_files",
    "nrt_filter": "zones",
    "nrt_filter_crash": "zones",
    "nrt_score": "zones",
    "nrt_score_crash": "zones",
    "nrt_score_outofrange": "zones",
    "podfingerprint": "codecs",
    "podfingerprint_pods": "codecs",
    "numaplacement": "codecs",
    "rte_case": "cases",
    "koordlet_report": "koordlet",
    "koordinator_takecpus": "koordinator",
    "koordinator_numa_policy": "koordinator",
    "joint_gang": "joint",
    "groups_small": "groups",
    "groups_large": "groups",
    "groups_nhd": "groups",
    "groups_triad": "groups",
    "groups_koordinator": "groups",
    "groups_request": "groups",
    "dra_alloc": "dra",
    "dra_alloc_gates": "dra",
    "dra_alloc_135": "dra",
    "dra_cel": "dra",
    "joint_fit": "joint",
    "joint_defrag": "joint",
    "scheduler_verdicts": "scheduler",
}
#: Kinds whose module defines ``answer_<kind>(case)`` as well.
ANSWERING = ("scheduler_verdicts",)
MAX_SHOWN = 20
#: First bytes of a compressed file; others (a case file of the drift alarm) are read as they are.
GZIP = b"\x1f\x8b"


def kind_of(file: Path) -> str:
    """The kind of a recorded file: its stem, with the subject of its folder in front where the stem
    lacks it (``kubelet-1.37/restart.jsonl.gz`` is ``kubelet_restart``).
    """
    stem = file.name.removesuffix(".jsonl.gz")
    subject = file.parent.name.partition("-")[0]
    return stem if stem in KINDS else f"{subject}_{stem}"


def cases(file: Path) -> Iterator[dict[str, Any]]:
    """The cases of a file, compressed or not."""
    opener = gzip.open if file.read_bytes()[:2] == GZIP else open
    with opener(file, "rt", encoding="utf-8") as lines:
        yield from map(json.loads, lines)


def function(kind: str, what: str) -> Any:
    """What a kind's module defines for it: ``check`` or ``answer``."""
    return getattr(importlib.import_module(f"tests.conformance.{KINDS[kind]}"), f"{what}_{kind}")


def run(kind: str, file: Path, *, quiet: bool = False) -> tuple[int, int]:
    """Run every case of a file; returns (passed, failed)."""
    check = function(kind, "check")
    passed = failed = 0
    for number, case in enumerate(cases(file)):
        try:
            differences = check(case)
        except Exception as error:  # noqa: BLE001 - a crash is a failed case, named like one
            differences = [f"raised {type(error).__name__}: {error}"]
        if not differences:
            passed += 1
            continue
        failed += 1
        if not quiet and failed <= MAX_SHOWN:
            name = case.get("id", case.get("i", number))
            print(f"{kind} case {name}: " + "; ".join(differences[:5]), file=sys.stderr)
    return passed, failed


def main(argv: list[str]) -> int:
    answers = argv[:1] == ["--answers"]
    argv = argv[answers:]
    known = ANSWERING if answers else KINDS
    if len(argv) != 2 or argv[0] not in known or not Path(argv[1]).is_file():
        print(
            "usage: python -m tests.conformance [--answers] KIND FILE\n"
            f"KIND: {', '.join(KINDS)}; with --answers: {', '.join(ANSWERING)}",
            file=sys.stderr,
        )
        return 2
    if answers:
        answer = function(argv[0], "answer")
        for case in cases(Path(argv[1])):
            print(json.dumps(answer(case)))
        return 0
    passed, failed = run(argv[0], Path(argv[1]))
    print(f"{passed} passed, {failed} failed")
    return 1 if failed or not passed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
