"""Any bytes become a value within the budget, or the one error; in bounded time."""

from __future__ import annotations

import contextlib
import json
import time
from decimal import Decimal
from typing import Any

import msgspec
import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rte import errors
from rte.reader import jsontext
from rte.reader.jsontext import Int64, ReadBudget
from tests.depth import scaled

SMALL = ReadBudget(size=20_000, items=500)

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=60,
)


class Schema(msgspec.Struct):
    number: Int64 = 0
    table: dict[str, Int64] = {}
    rest: msgspec.Raw = msgspec.Raw(b"null")


def nested(levels: int, inner: str = "") -> str:
    return "[" * levels + inner + "]" * levels


@st.composite
def texts(draw: st.DrawFn) -> str | bytes:
    """JSON, nearly JSON, and anything."""
    text: str = draw(
        st.one_of(
            VALUES.map(json.dumps),
            st.text(),
            st.integers(0, 5000).map(nested),
            st.integers(0, 5000).map(lambda n: '{"a":' * n + "1" + "}" * n),
            st.integers(1, 6000).map(lambda n: "9" * n),
            st.integers(-(10**30), 10**30).map(lambda n: f'{{"number":1e{n},"rest":[1e{n}]}}'),
            st.sampled_from(['"\\ud83d\\ude00"', '"\\ud83d"', '"\ud83d"', "NaN", "[1e999]"]),
        )
    )
    if draw(st.booleans()):
        place = draw(st.integers(0, len(text)))
        text = text[:place] + draw(st.text(max_size=3)) + text[place:]
    return draw(st.sampled_from([text, text.encode(errors="surrogatepass")]))


def depth(value: object) -> int:
    deepest, todo = 0, [(value, 0)]
    while todo:
        inner, level = todo.pop()
        deepest = max(deepest, level)
        members = inner.values() if isinstance(inner, dict) else inner
        if isinstance(inner, dict | list):
            todo += [(member, level + 1) for member in members]  # type: ignore[union-attr]
    return deepest


@settings(max_examples=scaled(4000), deadline=None)
@given(texts())
def test_any_text_is_a_value_within_the_budget_or_the_one_error(text: str | bytes) -> None:
    began = time.process_time()
    try:
        value = jsontext.load(text, "text", SMALL)
    except errors.MalformedError as error:
        assert str(error).isprintable()
        assert len(str(error)) < 400
    else:
        assert depth(value) <= jsontext.MOST_DEPTH
        assert value is not None or b"null" in (
            text if isinstance(text, bytes) else text.encode(errors="replace")
        )
    for read in (
        lambda: jsontext.decode(text, Schema, "text", SMALL),
        lambda: jsontext.exact(
            text if isinstance(text, str) else text.decode(errors="replace"), "text", dict, SMALL
        ),
        lambda: jsontext.answer(
            text if isinstance(text, bytes) else text.encode(errors="replace"), "text"
        ),
    ):
        with contextlib.suppress(errors.MalformedError):
            read()
    assert time.process_time() - began < 0.5


@settings(max_examples=scaled(1000), deadline=None)
@given(VALUES)
def test_what_is_within_the_budget_is_read_as_it_is(value: Any) -> None:
    text = json.dumps(value)
    try:
        expected = orjson.loads(text)
        msgspec.convert(expected, Any)
    except orjson.JSONDecodeError:
        with pytest.raises(errors.MalformedError):
            jsontext.load(text, "text")
        return
    try:
        assert jsontext.load(text, "text") == expected
    except errors.MalformedError as error:
        assert error.limit == "64 bits"


@pytest.mark.parametrize("levels", [65, 900, 2000, 100_000])
def test_nesting_is_refused_with_its_limit(levels: int) -> None:
    with pytest.raises(errors.MalformedError) as caught:
        jsontext.load(nested(levels), "gang")
    assert "gang" in str(caught.value)
    assert levels > 1024 or caught.value.limit == "64 levels"
    with pytest.raises(errors.MalformedError):
        jsontext.exact(nested(levels), "gang", dict)


def test_64_levels_are_read() -> None:
    assert depth(jsontext.load(nested(64), "text")) == 63
    assert depth(jsontext.load(nested(64, "1"), "text")) == 64


def test_the_place_of_a_number_beyond_64_bits_is_told() -> None:
    with pytest.raises(errors.MalformedError) as caught:
        jsontext.load('{"a":[1,{"b":9223372036854775808}]}', "report")
    assert caught.value.where == "$.a[1].b"
    assert caught.value.limit == "64 bits"


def test_too_many_bytes_and_too_many_values_are_refused() -> None:
    with pytest.raises(errors.MalformedError, match="20000 bytes"):
        jsontext.load(" " * 20_001, "text", SMALL)
    with pytest.raises(errors.MalformedError, match="500 values"):
        jsontext.load("[" + "1," * 600 + "1]", "text", SMALL)


def test_a_schema_holds_numbers_to_64_bits() -> None:
    for number in ("9223372036854775808", "9" * 5000, "1e300", "-9223372036854775809"):
        with pytest.raises(errors.MalformedError):
            jsontext.decode(f'{{"number":{number}}}', Schema, "text")


def test_an_escaped_surrogate_pair_is_one_letter_and_half_of_one_is_refused() -> None:
    assert jsontext.load('"\\ud83d\\ude00"', "text") == "\U0001f600"
    for half in ('"\\ud83d"', '"\\ude00"', '"\ud83d"'):
        with pytest.raises(errors.MalformedError):
            jsontext.load(half, "text")


@pytest.mark.parametrize(
    "number", ["1e9999999999999999999999", "-1e400", "1e-9999999999999999999999"]
)
def test_a_number_out_of_every_range_keeps_its_place(number: str) -> None:
    value = jsontext.exact(f'{{"a":{number},"b":0.25}}', "groups", dict)
    assert not value["a"].is_finite()
    assert value["b"] == Decimal("0.25")
    assert jsontext.exact("[0e-99, 99999999999999999999]", "groups", dict) == [0, 2**63 - 1]


def test_an_answer_is_read_though_one_object_in_it_could_not_be() -> None:
    """What a claim carries for its driver is stored as text, as its author has written it."""
    items = [
        '{"metadata":{"name":"a"},"opaque":' + nested(3000) + "}",
        '{"metadata":{"name":"b"},"opaque":"\\ud800x \\\\ud800 \\ud83d\\ude00"}',
        '{"metadata":{"name":"c"},"opaque":[1e999,-1e999,5]}',
        '{"metadata":{"name":"d \\" ] } [ {"},"opaque":7}',
    ]
    value = jsontext.answer(('{"items":[' + ",".join(items) + "]}").encode(), "list")
    assert [item["metadata"]["name"] for item in value["items"]] == ["a", "b", "c", 'd " ] } [ {']
    assert value["items"][1]["opaque"] == "\ufffdx \\ud800 \U0001f600"
    assert value["items"][2]["opaque"] == [None, None, 5]
    assert value["items"][3]["opaque"] == 7


def test_half_an_answer_is_refused() -> None:
    for text in (b'{"items":[', b"", b"<html>", b'{"a":"' + b'\\"' * 5000):
        with pytest.raises(errors.MalformedError):
            jsontext.answer(text, "list")
