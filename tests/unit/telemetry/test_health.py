"""Listen addresses and readiness."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rte import errors
from rte.telemetry.doors import parse_address
from rte.telemetry.effects import Readiness
from rte.telemetry.health import Page


@pytest.mark.parametrize(
    ("text", "address"),
    [
        (":9101", ("", 9101)),
        ("127.0.0.1:0", ("127.0.0.1", 0)),
        ("[::1]:80", ("::1", 80)),
        ("host:65535", ("host", 65535)),
    ],
)
def test_addresses(text: str, address: tuple[str, int]):
    assert parse_address(text) == address


@given(st.text(max_size=20))
def test_garbage_is_a_usage_error_or_an_address(text: str):
    try:
        _, port = parse_address(text)
    except errors.UsageError as error:
        assert "expected HOST:PORT" in str(error)
    else:
        assert 0 <= port < 65536


def test_whoever_asks_for_metrics_again_and_again_gets_those_that_are_there():
    now, made = [100.0], []

    def exposition() -> bytes:
        now[0] += 0.25
        made.append(now[0])
        return b"%d" % len(made)

    page = Page(exposition, lambda: now[0])
    assert [page.text() for _ in range(100)] == [b"1"] * 100
    now[0] += 2.4
    assert page.text() == b"1"
    now[0] += 0.1
    assert page.text() == b"2"


def test_readiness_names_what_is_missing():
    readiness = Readiness(published="not yet")
    readiness.fails("source", "silent")
    assert readiness.reasons == ("published: not yet", "source: silent")
    readiness.met("published")
    readiness.met("source")
    readiness.met("never failed")
    assert readiness.reasons == ()
