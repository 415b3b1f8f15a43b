"""CPU lists and maps, as the kernel writes them."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rte import errors
from rte.model import bits

sparse = st.sets(st.integers(0, 1200), max_size=60)
dense = st.sets(st.integers(0, 100), min_size=14)
sets = sparse | dense


@given(sets)
def test_a_list_survives_formatting_and_parsing(members):
    mask = bits.of(members)
    assert bits.parse_list(bits.format_list(mask)) == mask
    assert list(bits.members(mask)) == sorted(members)


@given(sets | st.sets(st.integers(0, 9000), min_size=100), st.integers(0, 120))
def test_sets_of_thousands_are_made_and_cut_as_small_ones_are(members, count):
    mask = bits.of(members)
    assert bits.of_ascending(sorted(members)) == mask
    assert bits.first(mask, count) == bits.of(sorted(members)[:count])


@given(sets)
def test_a_hexadecimal_map_is_read_by_32_bit_words(members):
    mask = bits.of(members)
    words, rest = [], mask
    while True:
        words.insert(0, f"{rest & 0xFFFFFFFF:08x}")
        rest >>= 32
        if not rest:
            break
    assert bits.parse_hex(",".join(words)) == mask


@given(st.text(max_size=40))
def test_garbage_is_a_parse_error_or_a_set_never_anything_else(text):
    for parse in (bits.parse_list, bits.parse_hex):
        try:
            assert parse(text) >= 0
        except errors.ParseError as error:
            assert "\n" not in str(error)


@pytest.mark.parametrize(
    ("text", "members"),
    [("", []), ("\n", []), ("0", [0]), ("0-3,8\n", [0, 1, 2, 3, 8]), ("0-7:2/4", [0, 1, 4, 5])],
)
def test_the_kernels_list_format(text, members):
    assert list(bits.members(bits.parse_list(text))) == members


@pytest.mark.parametrize(
    "text",
    [
        "a",
        "1-",
        "-1",
        "3-1",
        "1,,2",
        "0-7:0/4",
        "0-9999999",
        "0-65536",
        "1-0000005",
        "1 2",
        "²",
        "0-²",
    ],
)
def test_what_is_not_a_list_is_refused(text):
    with pytest.raises(errors.ParseError):
        bits.parse_list(text)


def test_the_lowest_member_of_nothing_is_minus_one():
    assert bits.lowest(0) == -1
    assert bits.lowest(0b1000) == 3
