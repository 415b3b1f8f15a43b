"""The drift alarm: who follows the rules never rings it, who does not always does."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from rte import placement
from rte.model import bits
from rte.model.node import Holding
from rte.placement import drift
from rte.placement.drift import AdmissionOutcome, Meanwhile, Part, Result, wording
from rte.placement.kubelet.admission import takes_devices_at_start
from tests.depth import scaled
from tests.unit.placement import build
from tests.unit.placement.build import GIB, GPU, container, filled, node, pod, pool, simple

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from rte.model.node import NodeState
    from rte.model.pod import Pod


def confirmed(
    before: NodeState,
    each: Pod,
    after: NodeState,
    pods: Mapping[str, Pod] | None = None,
    ended: Collection[str] = (),
) -> drift.Case:
    return drift.judge(
        drift.predict(before, each),
        AdmissionOutcome(parts=drift.parts_of(after, each.uid)),
        lambda: drift.meanwhile(before, after, each.uid, pods or {}, ended),
    )


def with_cpus(state: NodeState, uid: str, cpus: str) -> NodeState:
    """The state in which the pod's container got other CPUs."""
    held = {"main": replace_holding(state.holdings[uid]["main"], cpus=bits.parse_list(cpus))}
    return replace(state, holdings={**state.holdings, uid: held})


def replace_holding(holding: Holding, **changes: object) -> Holding:
    fields = {"cpus": holding.cpus, "memory": holding.memory, "devices": holding.devices}
    return Holding(**{**fields, **changes})


# What a kubelet that follows the rules does


@settings(max_examples=scaled(150), deadline=None)
@given(used=build.used_nodes(longest=4), each=build.pods("new"))
def test_an_admission_by_itself_comes_out_exactly(used, each):
    before, _ = used
    answer = placement.admit(before, each)
    assume(answer.admitted and answer.exact)
    assert confirmed(before, each, answer.state).result is Result.EXACT


@settings(max_examples=scaled(200), deadline=None)
@given(used=build.used_nodes(longest=4), data=st.data())
def test_whatever_happens_meanwhile_is_no_difference(used, data):
    """Other pods are admitted and held ones end in any order, and devices are picked at random."""
    before, active = used
    new = data.draw(build.pods("new"))
    others = {each.uid: each for each in (data.draw(build.pods(f"other-{n}")) for n in range(2))}
    ending = data.draw(st.lists(st.sampled_from(active), max_size=2, unique=True)) if active else []
    events = data.draw(st.permutations([*others, *ending, "new"]))
    state = before
    for uid in events:
        if uid in ending:
            state = placement.remove(state, uid)
            continue
        each = new if uid == "new" else others[uid]
        possible = placement.possible_states(state, each)
        if possible is None:
            assume(placement.admit(state, each).verdict != "uncertain")
            assume(uid != "new")
        else:
            state = data.draw(st.sampled_from(possible))
        if uid == "new":
            break
    case = confirmed(before, new, state, others)
    assert not case.result.is_difference, wording.headline(case)


def test_what_the_order_decides_is_exact_in_each_order_and_a_difference_in_none():
    before = filled(node(), simple("a", 5))
    first, second = simple("first", 2), simple("second", 2)
    swapped = filled(before, second, first)
    case = confirmed(before, first, swapped, {"second": second})
    assert case.result is Result.EXACT
    assert case.between.admitted == (second,)
    wrong = with_cpus(swapped, "first", "5,13")
    assert confirmed(before, first, wrong, {"second": second}).result is Result.OTHER_CPUS
    ended = filled(placement.remove(before, "a"), first)
    assert confirmed(before, simple("first", 2), ended).between.ended == ("a",)
    assert confirmed(before, simple("first", 2), ended).result is Result.EXACT


def test_what_a_pod_that_is_gone_still_held_may_be_free_or_taken():
    """The API shows a forced deletion before the kubelet has seen it."""
    held = filled(node(), simple("gone", 2))
    before = replace(held, admitted=held.admitted - {"gone"})
    each = simple("p", 2)
    assert drift.predict(before, each).expected == drift.predict(node(), each).expected
    late, early = filled(held, each), filled(node(), each)
    assert late.holdings["p"] != early.holdings["p"]
    assert confirmed(before, each, placement.remove(late, "gone")).result is Result.EXACT
    assert confirmed(before, each, early).result is Result.EXACT
    wrong = with_cpus(early, "p", "7,15")
    assert confirmed(before, each, wrong).result.is_difference


def test_a_part_on_which_all_outcomes_agree_is_compared():
    """One container goes to zone 1, for its GPU; the CPUs of the other depend on who was first."""
    before = node(devices={GPU: pool(1)})
    one = pod("one", container("x", cpus=2, gpus=1), container("y", cpus=2))
    two = simple("two", 2, memory=0)
    after = filled(before, two, one)
    assert confirmed(before, one, after, {"two": two}).result is Result.EXACT
    wrong = {
        **after.holdings["one"],
        "x": replace_holding(after.holdings["one"]["x"], cpus=0b11 << 5),
    }
    case = confirmed(
        before, one, replace(after, holdings={**after.holdings, "one": wrong}), {"two": two}
    )
    assert case.result is Result.OTHER_CPUS
    assert case.differences == (Part("x", "cpus"),)


def test_memory_of_init_containers_that_was_given_back_is_no_difference():
    before = node()
    each = pod("p", container("i", "init", 2, memory=3), container(cpus=2, memory=1))
    after = placement.start(placement.admit(before, each).state, each)
    assert confirmed(before, each, after).result is Result.EXACT
    other = simple("other", 2)
    held = filled(before, each)
    started = filled(placement.start(held, each), other)
    case = confirmed(held, other, with_cpus(started, "other", "5"), {"p": each})
    assert case.between.started == (each,)


# What one that does not follow them does


def test_other_cpus_of_the_same_zone_are_found():
    before, each = node(), simple("p", 2)
    after = with_cpus(filled(before, each), "p", "2-3")
    case = confirmed(before, each, after)
    assert case.result is Result.OTHER_CPUS
    assert case.differences == (Part("main", "cpus"),)
    assert wording.headline(case) == (
        "default/p got cpus 2-3 in container main, predicted cpus 1,9"
    )


def test_another_zone_is_found():
    before, each = node(), simple("p", 2)
    case = confirmed(before, each, with_cpus(filled(before, each), "p", "4,12"))
    assert case.result is Result.OTHER_ZONE


def test_other_memory_and_other_devices_are_found():
    before, each = node(devices={GPU: pool(0, 1)}), simple("p", 2, gpus=1)
    after = filled(before, each)
    (block,) = after.holdings["p"]["main"].memory
    for changes, part in (
        ({"memory": (type(block)("memory", block.zones, block.size + 1),)}, "memory"),
        ({"devices": {GPU: 0b10}}, GPU),
    ):
        held = {"main": replace_holding(after.holdings["p"]["main"], **changes)}
        case = confirmed(before, each, replace(after, holdings={"p": held}))
        assert [found.what for found in case.differences] == [part]
    assert case.result is Result.OTHER_ZONE


def test_a_difference_is_found_beside_a_pod_that_may_have_come_first():
    before = filled(node(), simple("a", 7))
    each, beside = simple("p", 2), simple("q", 4)
    after = with_cpus(filled(before, each, beside), "p", "6-7")
    assert confirmed(before, each, after, {"q": beside}).result is Result.OTHER_CPUS
    alone = with_cpus(filled(before, each), "p", "6-7")
    assert confirmed(before, each, alone).result is Result.OTHER_CPUS


def test_a_refusal_against_all_that_was_possible_is_found():
    before, each = node(), simple("p", 2)
    case = drift.judge(
        drift.predict(before, each), AdmissionOutcome(reason="TopologyAffinityError"), Meanwhile
    )
    assert case.result is Result.REFUSED
    assert "was refused for TopologyAffinityError, predicted its admission" in wording.headline(
        case
    )


def test_an_admission_against_all_that_was_possible_is_found():
    before = filled(node(), simple("a", 6), simple("b", 7))
    each = simple("p", 4)
    assert not placement.admit(before, each).admitted
    got = AdmissionOutcome(parts={Part("main", "cpus"): 0b10})
    case = drift.judge(drift.predict(before, each), got, Meanwhile)
    assert case.result is Result.ADMITTED
    refused = AdmissionOutcome(reason="TopologyAffinityError")
    assert drift.judge(drift.predict(before, each), refused, Meanwhile).result is Result.EXACT


@pytest.mark.parametrize(
    "change",
    [
        {"epoch": "later"},
        {"kubelet_version": "v1.34.2"},
        {"devices": {GPU: pool(0)}},
    ],
)
def test_a_kubelet_that_became_another_makes_all_uncertain(change):
    before, each = node(), simple("p", 2)
    after = replace(with_cpus(filled(before, each), "p", "2-3"), **change)
    case = confirmed(before, each, after)
    assert case.result is Result.UNCERTAIN
    assert case.between.unknown


def test_what_cannot_be_predicted_is_uncertain_whatever_comes():
    before, each = replace(node(), kubelet_version="v1.99.0"), simple("p", 2)
    case = drift.judge(drift.predict(before, each), AdmissionOutcome(), Meanwhile)
    assert case.result is Result.UNCERTAIN
    assert not drift.is_explained(case)


def test_more_events_than_are_tried_make_all_uncertain():
    before = filled(node(), *(simple(f"a{number}", 1) for number in range(4)))
    each = simple("p", 2)
    after = with_cpus(filled(before, each), "p", "2-3")
    gone = {f"a{number}" for number in range(4)}
    assert confirmed(before, each, after, ended=gone).result is Result.UNCERTAIN


def test_what_the_pod_holds_as_a_whole_is_compared():
    before, each = node(), simple("p", 2)
    after = filled(before, each)
    whole = replace(after, pod_holdings={"p": Holding(cpus=0b110)})
    case = confirmed(before, each, whole)
    assert case.differences == (Part("", "cpus"),)
    assert "the pod as a whole" in wording.headline(case)


def test_devices_of_one_zone_set_are_interchangeable():
    before = node(devices={GPU: pool(0, 0, None)})
    each = simple("p", 2, gpus=1)
    after = filled(before, each)
    held = {"main": replace_holding(after.holdings["p"]["main"], devices={GPU: 0b10})}
    assert confirmed(before, each, replace(after, holdings={"p": held})).result is Result.EXACT
    held = {"main": replace_holding(after.holdings["p"]["main"], devices={GPU: 0b100})}
    case = confirmed(before, each, replace(after, holdings={"p": held}))
    assert case.result is Result.OTHER_ZONE
    assert case.got.parts[Part("main", GPU)] == ((GPU, None, 1),)


def test_devices_that_a_pod_takes_at_its_start_are_no_difference():
    """Pod-level resources under pod scope: admitted as one piece, without its devices."""
    before = node(
        devices={GPU: pool(0, 1)},
        version="v1.37.1",
        topology_scope="pod",
        feature_gates={"PodLevelResourceManagers": True},
    )
    stanza = {"cpu": 4000, "memory": 2 * GIB}
    each = pod("p", container(cpus=2, memory=1, gpus=1), pod_requests=stanza, pod_limits=stanza)
    assert takes_devices_at_start(before, each)
    admission = placement.admit(before, each)
    assert admission.admitted
    after = placement.start(admission.state, each)
    assert Part("main", GPU) in drift.parts_of(after, "p")
    assert confirmed(before, each, after).result is Result.EXACT
