"""The agent's garbage is collected at rests, not amid a reading."""

from __future__ import annotations

import gc
import os
import subprocess
import sys
import weakref
from typing import TYPE_CHECKING

import pytest

from rte.agent import memory
from rte.agent.memory import Rests

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


class Knot:
    """Garbage that only a collection finds."""

    def __init__(self) -> None:
        self.itself = self


@pytest.fixture(autouse=True)
def own_collector() -> Iterator[None]:
    """The collector as an agent's process begins with it, and afterwards as it was."""
    threshold = gc.get_threshold()
    gc.unfreeze()
    memory.begin()
    yield
    gc.set_threshold(*threshold)
    gc.unfreeze()


def test_a_rest_collects_what_has_become_garbage():
    rest = Rests()
    rest()
    knots = [weakref.ref(Knot()) for _ in range(3)]
    assert all(knot() for knot in knots)
    rest()
    assert not any(knot() for knot in knots)


def test_between_rests_as_much_as_a_reading_makes_waits():
    rest = Rests()
    rest()
    knot = weakref.ref(Knot())
    reading = [[number] for number in range(10_000)]
    assert knot() is not None
    assert len(reading) == 10_000


def test_without_rests_garbage_does_not_grow_for_ever():
    Rests()()
    knot = weakref.ref(Knot())
    flood = [[number] for number in range(50_000)]
    assert knot() is None
    assert len(flood) == 50_000


def test_what_the_start_left_is_not_looked_at_again():
    start = gc.get_objects()
    Rests()()
    assert gc.get_freeze_count() >= len(start) // 2


AUTHORITIES = """
import gc, ssl
from rte.agent import memory
memory.import_http_client()
known = [each for each in gc.get_objects() if isinstance(each, ssl.SSLContext)]
print(len(known) > 0, *{len(each.get_ca_certs()) for each in known})
print(len(ssl.create_default_context().get_ca_certs()))
"""


def test_the_http_client_brings_no_authorities_and_whoever_asks_still_gets_them(tmp_path: Path):
    """They are 2 MiB on each node, for connections that nobody makes."""
    authority = tmp_path / "ca.crt"
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256",
         "-nodes", "-subj", "/CN=ca", "-days", "1", "-keyout", "/dev/null", "-out", authority],
        check=True, capture_output=True,
    )  # fmt: skip
    environ = {**os.environ, "SSL_CERT_FILE": str(authority), "SSL_CERT_DIR": str(tmp_path / "no")}
    done = subprocess.run(
        [sys.executable, "-c", AUTHORITIES], env=environ, check=True, capture_output=True, text=True
    )
    assert done.stdout.splitlines() == ["True 0", "1"]
