"""The fold over hints gives what the kubelet's walk over every choice of hints gives."""

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rte.placement.kubelet import merge, outcome

POLICIES = ["best-effort", "restricted", "single-numa-node"]


def test_policy_none_admits_without_a_hint():
    assert merge.merge("none", [{"cpu": []}], 0b11) == ((None, False), True)


@pytest.mark.parametrize("policy", POLICIES)
def test_pods_that_nobody_has_an_opinion_on_are_admitted(policy):
    hint, admitted = merge.merge(policy, [None, {}, {"memory": None}], 0b11)
    assert hint == ((None if policy == "single-numa-node" else 0b11), True)
    assert admitted


@pytest.mark.parametrize(
    ("policy", "admitted"),
    [("best-effort", True), ("restricted", False), ("single-numa-node", False)],
)
def test_what_cannot_be_satisfied_is_only_admitted_by_best_effort(policy, admitted):
    assert merge.merge(policy, [{"cpu": []}], 0b11)[1] is admitted


def test_smallest_mask_wins_among_preferred():
    hints = {"cpu": [(0b01, True), (0b10, True), (0b11, False)]}
    assert merge.merge("restricted", [hints, None, None], 0b11) == ((0b01, True), True)


def test_preferred_needs_equal_affinities():
    providers = [{"gpu": [(0b10, True), (0b11, False)]}, {"cpu": [(0b01, True), (0b11, False)]}]
    assert merge.merge("restricted", providers, 0b11) == ((0b01, False), False)


def test_closest_zones_win_before_smaller_masks():
    near = {0: [10, 30, 20], 1: [30, 10, 20], 2: [20, 20, 10]}
    hints = {"cpu": [(0b011, True), (0b101, True), (0b111, False)]}
    assert merge.merge("best-effort", [hints], 0b111, near)[0] == (0b101, True)
    assert merge.merge("best-effort", [hints], 0b111)[0] == (0b011, True)


def test_distances_of_zones_with_gaps_cannot_be_predicted():
    with pytest.raises(outcome.Unpredictable, match="gaps"):
        merge.merge("best-effort", [{"cpu": [(0b101, True)]}], 0b101, {0: [10, 20], 2: [20, 10]})


MASKS = st.integers(1, 15)
HINTS = st.lists(
    st.tuples(st.one_of(st.none(), MASKS, MASKS, MASKS), st.booleans()), max_size=5, unique=True
)
PROVIDERS = st.lists(
    st.one_of(
        st.none(),
        st.dictionaries(st.sampled_from(["a", "b"]), st.one_of(st.none(), HINTS), max_size=2),
    ),
    max_size=3,
)


@given(policy=st.sampled_from(POLICIES), providers=PROVIDERS, all_zones=st.sampled_from([7, 15]))
def test_folding_equals_the_walk_over_every_choice(policy, providers, all_zones):
    assert merge.merge(policy, providers, all_zones) == by_every_choice(
        policy, providers, all_zones
    )


def by_every_choice(policy, providers, all_zones):
    """HintMerger.Merge: candidate after candidate against the best one so far."""
    lists = []
    for provider in providers:
        if not provider:
            lists.append([(None, True)])
        for hints in (provider or {}).values():
            lists.append([(None, True)] if hints is None else hints or [(None, False)])
    if policy == "single-numa-node":
        lists = [
            [(m, p) for m, p in hints if p and (m is None or m.bit_count() == 1)] for hints in lists
        ]
    needed = max(
        (min((m.bit_count() for m, _ in hints if m is not None), default=0) for hints in lists),
        default=0,
    )
    best = None
    for choice in itertools.product(*lists):
        masks = [mask for mask, _ in choice if mask is not None]
        merged = all_zones
        for mask in masks:
            merged &= mask
        candidate = (merged, len(set(masks)) < 2 and all(preferred for _, preferred in choice))
        if merged and (best is None or is_better(candidate, best, needed)):
            best = candidate
    best = best or (all_zones, False)
    if policy == "single-numa-node" and best[0] == all_zones:
        best = (None, best[1])
    return best, best[1] or policy == "best-effort"


def is_better(candidate, current, needed):
    if candidate[1] != current[1]:
        return candidate[1]
    width, old = candidate[0].bit_count(), current[0].bit_count()
    narrower = (width, candidate[0]) < (old, current[0])
    if current[1] or old > needed:
        return narrower
    if old == needed:
        return width == needed and narrower
    if width > needed:
        return False
    return width > old or (width == old and narrower)
