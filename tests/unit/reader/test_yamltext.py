"""YAML within a budget: what a few lines stand for is known before it is made."""

from __future__ import annotations

import json
import time
from typing import Any

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from rte import errors
from rte.reader import jsontext, yamltext
from rte.reader.jsontext import ReadBudget
from tests.depth import scaled

SMALL = ReadBudget(size=20_000, items=500)

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**63 - 1) | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=30,
)


def bomb(levels: int) -> str:
    """Each level holds the one before nine times."""
    lines = ["a0: &a0 [x,x,x,x,x,x,x,x,x]"]
    lines += [f"a{n}: &a{n} [{','.join([f'*a{n - 1}'] * 9)}]" for n in range(1, levels)]
    return "\n".join(lines)


@settings(max_examples=scaled(1500), deadline=None)
@given(
    st.one_of(
        st.text(alphabet="ab:-[]{},&*!|>'\"\n \t#?0x1e.", max_size=300),
        st.text(),
        st.binary(),
        VALUES.map(yaml.safe_dump),
    )
)
def test_any_text_is_documents_or_the_one_error(text: str | bytes) -> None:
    began = time.process_time()
    try:
        yamltext.load_all(text, "manifest", SMALL)
    except errors.MalformedError as error:
        assert str(error).isprintable()
        assert len(str(error)) < 500
    assert time.process_time() - began < 0.5


@settings(max_examples=scaled(400), deadline=None)
@given(VALUES)
def test_what_yaml_and_json_say_is_read(value: Any) -> None:
    assert yamltext.load(yaml.safe_dump(value), "manifest", jsontext.FILE) == value
    assert yamltext.load(json.dumps([value]), "manifest", jsontext.FILE) == [value]


@pytest.mark.parametrize("levels", [3, 9, 30, 60])
def test_aliases_cost_what_they_stand_for(levels: int) -> None:
    began = time.process_time()
    with pytest.raises(errors.MalformedError, match="500 values"):
        yamltext.load(bomb(levels), "manifest", SMALL)
    assert time.process_time() - began < 0.2


def test_an_alias_within_the_budget_is_read() -> None:
    text = "base: &b {cpu: 1}\npods: [*b, *b]\nmerged: {<<: *b, memory: 2}"
    value = yamltext.load(text, "manifest", SMALL)
    assert value["pods"] == [{"cpu": 1}, {"cpu": 1}]
    assert value["merged"] == {"cpu": 1, "memory": 2}


def test_whoever_wants_no_aliases_is_told_the_line_of_one() -> None:
    text = "base: &b {cpu: 1}\npods: [*b]"
    with pytest.raises(errors.MalformedError, match="line 2: write out"):
        yamltext.load_all(text, "manifest", SMALL, aliases=False)
    assert yamltext.load_all("a: &b 1", "manifest", SMALL, aliases=False) == [{"a": 1}]


@pytest.mark.parametrize(
    "text",
    [
        "a: &a [*a]",
        "a: *nowhere",
        "[" * 100_000,
        "- " * 5000 + "x",
        "{a: " * 5000 + "x" + "}" * 5000,
        "a: " + ":".join(["1"] * 4000),
        "a: 0x" + "f" * 4000,
        "a: " + "9" * 4000,
        "a: 99999999999999999999",
        "a: 2001-99-99",
        "? {a: [b]}\n: c",
        "a: !!python/object/apply:os.system [x]",
        "=",
        "a: b\n\tc: d",
        b"\xff\xfe\x00",
    ],
)
def test_what_cannot_be_read_is_the_one_error(text: str | bytes) -> None:
    began = time.process_time()
    with pytest.raises(errors.MalformedError):
        yamltext.load_all(text, "manifest", ReadBudget(size=1 << 20, items=5000))
    assert time.process_time() - began < 0.5


def test_json_is_read_as_json() -> None:
    """YAML's parser takes no escaped pair of surrogates."""
    assert yamltext.load('{"name": "\\ud83d\\ude00"}', "manifest", SMALL) == {"name": "\U0001f600"}
    assert yamltext.load_all('{"a": 1}\n---\n{"b": 2}', "manifest", SMALL) == [{"a": 1}, {"b": 2}]


def test_several_documents_where_one_is_wanted() -> None:
    with pytest.raises(errors.MalformedError, match="several documents"):
        yamltext.load("a: 1\n---\nb: 2", "configuration", SMALL)
    assert yamltext.load("", "configuration", SMALL) is None
