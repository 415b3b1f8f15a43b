"""Case files: everything that a replay needs, and nothing that another release could not read."""

from __future__ import annotations

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rte import errors, placement
from rte.nrt import case as cases
from rte.placement import drift
from rte.placement.drift import AdmissionOutcome, Meanwhile, Part
from tests.depth import scaled
from tests.unit.placement import build
from tests.unit.placement.build import GPU, node, pool, simple


def a_case(before=None, each=None) -> cases.CaseFile:
    before = before or node(devices={GPU: pool(0, 1, None, ())})
    each = each or simple("p", 2, gpus=1)
    got = AdmissionOutcome(parts={Part("main", "cpus"): 0b1100})
    case = drift.judge(drift.predict(before, each), got, Meanwhile)
    return cases.CaseFile(case=case, node="n0", recorded="2026-01-01T00:00:00Z", rte="1.2.3")


@settings(max_examples=scaled(60), deadline=None)
@given(used=build.used_nodes(longest=3), each=build.pods("new"), data=st.data())
def test_a_case_survives_its_file(used, each, data):
    before, active = used
    prediction = drift.predict(before, each)
    other = data.draw(build.pods("other"))
    between = Meanwhile(
        admitted=(other,), ended=tuple(active[:1]), started=(), unknown=data.draw(st.booleans())
    )
    got = prediction.expected or AdmissionOutcome(reason="TopologyAffinityError")
    judged = drift.judge(prediction, got, lambda: between)
    file = cases.CaseFile(case=judged, node="n", recorded="now", rte="1")
    text = cases.encode(file)
    again = cases.decode(text)
    assert "\n" not in text
    assert cases.encode(again) == text
    assert again.case.got == got
    assert again.case.prediction.pod == each
    assert again.case.prediction.expected == prediction.expected
    if placement.admit(before, each).exact:
        assert drift.replay(again.case).prediction.expected == prediction.expected
    assert drift.is_explained(again.case) == drift.is_explained(judged)


def test_the_name_tells_kubelet_and_configuration():
    one, same = a_case(), a_case(each=simple("q", 3))
    assert one.id == same.id
    assert one.id.startswith("v1.35.4-")
    assert a_case(node(policy="none")).id != one.id
    assert a_case(node(version="v1.36.3")).id != one.id


@pytest.mark.parametrize(
    "change",
    [
        {"rteCase": 2},
        {"before": {}},
        {"before": None},
        {"pod": {"uid": 3}},
        {"got": {"containers": {"main": {"cpus": "x"}}}},
        {"result": "unheard of"},
    ],
)
def test_what_is_no_case_gives_one_line(change):
    document = {**json.loads(cases.encode(a_case())), **change}
    with pytest.raises(errors.ParseError) as caught:
        cases.decode(json.dumps(document))
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("text", ["", "{", "[]", "3", "{}", b"\xff"])
def test_what_is_no_json_gives_one_line(text):
    with pytest.raises(errors.ParseError):
        cases.decode(text)


def test_keys_of_newer_releases_are_left_alone():
    document = json.loads(cases.encode(a_case()))
    document["later"] = 1
    document["pod"]["later"] = 1
    document["got"]["later"] = 1
    assert cases.decode(json.dumps(document)).node == "n0"


def test_a_refused_pod_is_replayed():
    before, each = node(), simple("p", 2)
    got = AdmissionOutcome(reason="TopologyAffinityError")
    judged = drift.judge(drift.predict(before, each), got, Meanwhile)
    file = cases.CaseFile(case=judged, node="n", recorded="now", rte="1")
    again = cases.decode(cases.encode(file)).case
    assert again.result is drift.Result.REFUSED
    assert not drift.is_explained(again)
    assert placement.admit(again.prediction.before, each).admitted
