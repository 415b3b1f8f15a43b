"""Label and field selectors."""

from __future__ import annotations

import pytest

from rte.k8s.selectors import parse_selector
from rte.sim.apiserver.status import StatusError
from rte.sim.apiserver.storage import selectors


@pytest.mark.parametrize(
    ("text", "labels", "matches"),
    [
        ("", {}, True), ("a", {"a": ""}, True), ("a", {}, False), ("!a", {}, True),
        ("a=b", {"a": "b"}, True), ("a==b", {"a": "c"}, False), ("a!=b", {}, True),
        ("a in (b, c)", {"a": "c"}, True), ("a in (b)", {}, False), ("a notin (b)", {}, True),
        ("a notin (b,c)", {"a": "b"}, False), ("x.y/a=b,c", {"x.y/a": "b", "c": "1"}, True),
        ("a>3", {"a": "4"}, True), ("a<3", {"a": "4"}, False), ("a>3", {"a": "x"}, False),
        ("a=", {"a": ""}, True), ("a in ()", {"a": ""}, True),
    ],
)  # fmt: skip
def test_labels(text: str, labels: dict[str, str], matches: bool) -> None:
    wanted = selectors.parse_labels(text)
    assert all(item.accepts(labels.get(item.key)) for item in wanted) == matches


@pytest.mark.parametrize("text", ["a in (", "a in", "=b", "a,", "a b", "a=b c", "a in (b", "!"])
def test_other_text_is_no_label_selector(text: str) -> None:
    with pytest.raises(StatusError) as caught:
        selectors.parse_labels(text)
    assert caught.value.status == 400


def test_fields() -> None:
    wanted = selectors.parse_fields(r"a=b\,c,d!=e", {"a", "d"}.__contains__)
    assert [(w.field, w.equal, w.value) for w in wanted] == [("a", True, "b,c"), ("d", False, "e")]


@pytest.mark.parametrize("text", ["xx", "unknown=1"])
def test_bad_field_selectors(text: str) -> None:
    with pytest.raises(StatusError) as caught:
        selectors.parse_fields(text, {"known"}.__contains__)
    assert caught.value.status == 400


def test_label_selector_objects() -> None:
    selector = {"matchLabels": {"a": "1"}, "matchExpressions": [{"key": "b", "operator": "Exists"}]}
    wanted = parse_selector(selector, "selector")
    assert wanted.matches({"a": "1", "b": "2"})
    assert not wanted.matches({"a": "1"})
    assert not parse_selector(None, "selector").matches({})
    assert selectors.text(wanted) == "a=1,b"
