"""bench/placement: whose pod was rejected, and whether our scheduler could have known better."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from bench.lib.rejections import Arrival, Decision, Rejection, counts, decisions, judge

OURS = Arrival(pod="j1-0", uid="u1", placer="subject", node="n0", version=120)
FOREIGN = Arrival(pod="j2-0", uid="u2", placer="foreign", node="n0", version=110)
REJECTED = Rejection(arrival=OURS, reason="OutOfcpu", message="Pod was rejected")


def test_a_foreign_pod_that_came_after_what_we_knew_and_before_our_bind_is_an_excuse() -> None:
    (finding,) = judge([REJECTED], [OURS, FOREIGN], {"u1": 100})
    assert (finding.placer, finding.reason, finding.node) == ("ours", "OutOfcpu", "n0")
    assert (finding.seen, finding.bound, finding.excused) == (100, 120, True)
    assert finding.because == "foreign j2-0 at 110"


@pytest.mark.parametrize(
    "other",
    [
        pytest.param(replace(FOREIGN, version=100), id="the last change that we knew"),
        pytest.param(replace(FOREIGN, version=121), id="after our bind"),
        pytest.param(replace(FOREIGN, node="n1"), id="on another node"),
        pytest.param(replace(FOREIGN, placer="subject"), id="our own"),
        pytest.param(replace(FOREIGN, version=None), id="nobody knows when"),
    ],
)
def test_no_other_pod_is_an_excuse(other: Arrival) -> None:
    (finding,) = judge([REJECTED], [OURS, other], {"u1": 100})
    assert finding.excused is False


def test_what_cannot_be_told_is_not_excused() -> None:
    (unlogged,) = judge([REJECTED], [OURS, FOREIGN], {})
    unseen = replace(OURS, version=None)
    (missed,) = judge([replace(REJECTED, arrival=unseen)], [unseen, FOREIGN], {"u1": 100})
    assert unlogged.excused is missed.excused is False
    assert unlogged.because != missed.because


def test_foreign_pods_and_schedulers_that_tell_nothing_are_only_counted() -> None:
    foreign = replace(REJECTED, arrival=FOREIGN)
    found = judge([REJECTED, foreign, foreign], [OURS, FOREIGN], None)
    assert [each.excused for each in found] == [None, None, None]
    assert counts(found) == {"ours": {"OutOfcpu": 1}, "foreign": {"OutOfcpu": 2}}


def test_decisions_are_read_from_the_log_of_the_scheduler() -> None:
    line = {"event": "decided", "uid": "u1", "node": "n0", "pods_seen": 100}
    log = ["Traceback", json.dumps({"event": "in sync"}), json.dumps(line)]
    assert list(decisions(log)) == [Decision("u1", "n0", 100)]
