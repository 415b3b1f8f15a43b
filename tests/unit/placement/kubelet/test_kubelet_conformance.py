"""The runner over recorded cases of the real kubelet: it passes, and it can fail."""

import copy
import gzip
import json
from itertools import islice
from pathlib import Path

import pytest

from tests.conformance import kubelet, kubelet_picks, kubelet_restart

VECTORS = Path(__file__).parents[3] / "vectors"


def cases(kind, count):
    with gzip.open(VECTORS / f"kubelet_{kind}.jsonl.gz", "rt", encoding="utf-8") as lines:
        return [json.loads(line) for line in islice(lines, count)]


CHECKS = {
    "pod_admission": kubelet.check_kubelet_pod_admission,
    "take_by_topology": kubelet_picks.check_kubelet_take_by_topology,
    "merge_hints": kubelet_picks.check_kubelet_merge_hints,
    "restart": kubelet_restart.check_kubelet_restart,
}


@pytest.mark.parametrize(
    ("kind", "count"),
    [("pod_admission", 150), ("take_by_topology", 400), ("merge_hints", 400), ("restart", 60)],
)
def test_recorded_cases_pass(kind, count):
    assert [case["id"] for case in cases(kind, count) if CHECKS[kind](case)] == []


def changed(value):
    if isinstance(value, bool):
        return not value
    if isinstance(value, int):
        return value + 1
    if isinstance(value, str):
        return value + "x"
    if isinstance(value, list):
        return value[1:]
    return "other"


def test_every_recorded_answer_is_compared():
    answers = {
        "ok", "reason", "msg", "fail_by", "fail_ctr", "fail_hint", "shared", "mem",
        "shared_before_cleanup", "alloc", "trace", "pod_cpus", "pod_mem", "start_dev",
    }  # fmt: skip
    seen = set()
    for case in cases("pod_admission", 150):
        for number, step in enumerate(case["steps"]):
            for name in (step.keys() & answers) - seen:
                if step.get("msg_nondeterministic") and name in ("msg", "fail_by"):
                    continue
                other = copy.deepcopy(case)
                other["steps"] = other["steps"][: number + 1]
                other["steps"][number][name] = (
                    [{**step[name][0], "n": 1}]
                    if name in ("alloc", "trace")
                    else changed(step[name])
                )
                assert kubelet.check_kubelet_pod_admission(other), name
                seen.add(name)
    assert seen == answers


def test_a_restart_is_compared():
    seen = set()
    for case in cases("restart", 60):
        recorded = case["restart"]
        for name in recorded.keys() - {"steps"} - seen:
            other = {**case, "restart": {**recorded, name: changed(recorded[name])}}
            assert kubelet_restart.check_kubelet_restart(other), name
            seen.add(name)
        for number, step in enumerate(recorded["steps"]):
            for name in (step.keys() & {"ok", "shared", "mem", "msg", "pod_cpus"}) - seen:
                other = copy.deepcopy(case)
                other["restart"]["steps"][number][name] = changed(step[name])
                assert kubelet_restart.check_kubelet_restart(other), name
                seen.add(name)
    assert seen == {"start_error", "shared", "mem", "ok", "msg", "pod_cpus"}


@pytest.mark.parametrize(
    "name", ["effective_reserved_cpus", "initial_shared", "initial_mem", "start_error"]
)
def test_the_start_is_compared(name):
    case = next(case for case in cases("pod_admission", 150) if case.get("initial_mem"))
    assert kubelet.check_kubelet_pod_admission({**case, name: changed(case.get(name))})


@pytest.mark.parametrize("kind", list(CHECKS))
def test_unknown_fields_fail(kind):
    case = cases(kind, 1)[0]
    assert CHECKS[kind]({**case, "surprise": 1})


@pytest.mark.parametrize(
    ("kind", "name"),
    [("take_by_topology", "out"), ("merge_hints", "hint"), ("merge_hints", "admit")],
)
def test_results_are_compared(kind, name):
    case = next(case for case in cases(kind, 50) if name in case)
    assert CHECKS[kind]({**case, name: changed(case[name])})
