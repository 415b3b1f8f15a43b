from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rte.nrt import numaplacement
from rte.nrt.numaplacement import PlacementError, RefusedData
from tests.conformance import consumers
from tests.depth import scaled

containers = st.tuples(*[st.text(max_size=4)] * 3)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0, "!"),
        (1, "#"),
        (63, "e"),
        (64, "f!"),
        (127, "fe"),
        (128, "g!"),
        (1663, "~e"),
        (1664, "gf!"),
        (40063, "~~e"),
    ],
)
def test_numbers_are_leb89(value: int, text: str) -> None:
    assert numaplacement._encode_number(value) == text
    assert consumers.decode_vector(text) == [value]


@given(
    st.integers(1, 8).flatmap(
        lambda zones: st.tuples(
            st.just(zones),
            st.dictionaries(containers, st.integers(0, zones - 1), max_size=200),
        )
    )
)
def test_placements_survive_their_encoding(case: tuple) -> None:
    zones, placements = case
    payload = numaplacement.encode(zones, placements.items())

    parsed = consumers.parse_metadata(payload.metadata(), payload.vectors)
    consumers.validate(parsed)

    # Containers may share a hash only when NUL in a name makes them one text: not in real names.
    if not any("\0" in part for container in placements for part in container):
        assert consumers.decode(parsed, placements) == placements


@given(st.text(), st.dictionaries(st.integers(-2, 9), st.text(max_size=6)), st.lists(containers))
@settings(max_examples=scaled(1000))
def test_garbage_is_refused_or_decoded_but_never_crashes(
    metadata: str, vectors: dict, ids: list
) -> None:
    for text in (metadata, f"npv0v001::ve=leb89::cc={len(ids)}::nn=4::bn=0::{metadata}"[:-2]):
        try:
            payload = consumers.parse_metadata(text, vectors)
            consumers.validate(payload)
            consumers.decode(payload, ids)
        except PlacementError as error:
            assert "\n" not in str(error)


@pytest.mark.parametrize(
    ("zone", "problem"),
    [
        (-1, RefusedData.UNKNOWN_AFFINITY),
        (-2, RefusedData.WRONG_AFFINITY),
        (2, RefusedData.WRONG_AFFINITY),
    ],
)
def test_a_zone_outside_the_node_is_refused(zone: int, problem: RefusedData) -> None:
    with pytest.raises(PlacementError) as caught:
        numaplacement.encode(2, [(("a", "b", "c"), zone)])

    assert caught.value.problem is problem
