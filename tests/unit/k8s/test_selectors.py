"""Selectors, node selector terms, tolerations: the API's rules."""

from __future__ import annotations

from typing import Any

import pytest

from rte import errors
from rte.k8s import selectors, wire
from rte.k8s.tolerations import taints_of, tolerates
from rte.k8s.wire import Taint


def matches(selector: Any, **labels: str) -> bool:
    return selectors.parse_selector(selector, "selector").matches(labels)


def test_an_absent_selector_matches_nothing_and_an_empty_one_everything() -> None:
    assert not matches(None, app="x")
    assert matches({}, app="x")
    assert matches({})


def test_equal_selectors_are_equal_whatever_their_order() -> None:
    one = {"matchLabels": {"a": "1", "b": "2"}}
    other = {
        "matchLabels": {"b": "2"},
        "matchExpressions": [{"key": "a", "operator": "In", "values": ["1"]}],
    }
    assert selectors.parse_selector(one, "s") == selectors.parse_selector(other, "s")
    assert len({selectors.parse_selector(text, "s") for text in (one, other)}) == 1


@pytest.mark.parametrize(
    ("operator", "values", "present", "absent"),
    [
        ("In", ["1"], True, False),
        ("NotIn", ["1"], False, True),
        ("Exists", None, True, False),
        ("DoesNotExist", None, False, True),
        ("Unheard", ["1"], False, False),
    ],
)
def test_operators(operator: str, values: Any, present: bool, absent: bool) -> None:
    selector = {"matchExpressions": [{"key": "a", "operator": operator, "values": values}]}
    assert matches(selector, a="1") is present
    assert matches(selector) is absent


def test_a_field_of_another_type_is_refused_by_name() -> None:
    with pytest.raises(errors.ParseError, match=r"matchLabels"):
        selectors.parse_selector({"matchLabels": {"a": 1}}, "selector")


@pytest.mark.parametrize(
    ("operator", "value", "taint", "tolerated"),
    [
        ("Lt", "10", "9", True),
        ("Lt", "10", "10", False),
        ("Gt", "10", "11", True),
        ("Gt", "10", "10", False),
        ("Gt", "-5", "-4", True),
        ("Gt", "x", "11", False),
        ("Gt", "10", "x", False),
        ("Gt", "010", "11", False),
        ("Gt", "10", "+11", False),
        ("Gt", "10", "9223372036854775808", False),
        ("Lt", "10", "", False),
        ("Unheard", "10", "10", False),
    ],
)
def test_tolerations_that_compare_numbers(
    operator: str, value: str, taint: str, tolerated: bool
) -> None:
    item = wire.Toleration(key="k", operator=operator, value=value, effect="NoSchedule")
    assert tolerates([item], Taint(key="k", value=taint, effect="NoSchedule")) is tolerated
    assert not tolerates([item], Taint(key="k", value=taint, effect="NoExecute"))


def test_taints_of_a_node_that_is_malformed() -> None:
    assert taints_of({"spec": None}) == ()
    with pytest.raises(errors.ParseError, match="taints"):
        taints_of({"spec": {"taints": [{"key": 1, "effect": "NoSchedule"}]}})


@pytest.mark.parametrize(
    ("text", "labels", "meant"),
    [
        ("pool=a", {"pool": "a"}, True),
        ("pool==a", {"pool": "b"}, False),
        ("pool!=a", {}, True),
        ("pool in (a, b), !gpu", {"pool": "b"}, True),
        ("pool in (a,b),!gpu", {"pool": "b", "gpu": ""}, False),
        ("pool notin (a)", {}, True),
        ("example.com/pool", {"example.com/pool": ""}, True),
        ("pool=", {"pool": ""}, True),
    ],
)
def test_a_selector_in_words_is_read_as_kubectl_does(
    text: str, labels: dict[str, str], meant: bool
) -> None:
    assert selectors.parse_text(text).matches("n", labels) is meant


@pytest.mark.parametrize("text", ["a=b,", "a=b c", "in (", "!a=b", ",", "a in", "a in (b", "=a"])
def test_a_malformed_selector_is_refused_in_one_line(text: str) -> None:
    with pytest.raises(errors.ParseError, match="cannot read"):
        selectors.parse_text(text)
