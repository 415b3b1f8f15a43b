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


SMAPS = """\
7f00-7f10 r--p 00000000 00:1f 77 /usr/lib/x.so
Rss:                  64 kB
Anonymous:             0 kB
7f10-7f20 r-xp 00001000 00:1f 77 /usr/lib/x.so
Anonymous:             0 kB
VmFlags: rd ex mr mw me
7f20-7f30 r--p 00002000 00:1f 77 /usr/lib/x.so
Anonymous:             8 kB
7f30-7f40 rw-p 00003000 00:1f 77 /usr/lib/x.so
Anonymous:             0 kB
7f40-7f50 r--s 00000000 00:1f 78 /shared
Anonymous:             0 kB
7f50-7f60 r--p 00000000 00:00 0 [vvar]
Anonymous:             0 kB
7f60-7f70 r-xp 00000000 00:1f 79 /a path/with blanks.so
Anonymous:             0 kB
"""


def test_only_parts_of_files_that_are_as_they_lie_on_disk_are_let_go():
    """Not what was relocated, what may be written, what is shared, and what is no file."""
    parts = list(memory.unchanged_parts(SMAPS))
    assert parts == [(0x7F00, 0x7F10), (0x7F10, 0x7F20), (0x7F60, 0x7F70)]


LETTING_GO = """
import re, ssl, sys
from rte.agent import memory
memory.begin()
memory.import_http_client()
import grpc.aio, msgspec, orjson, rte.agent.daemon

def mapped():
    text = open("/proc/self/smaps_rollup").read()
    kinds = {line.split(":")[0]: line.split()[1] for line in text.splitlines()[1:]}
    return int(kinds["Rss"]) - int(kinds["Anonymous"])

before = mapped()
memory.let_go_of_code()
after = mapped()
assert len(ssl.create_default_context().get_ciphers()) > 1
assert orjson.loads(orjson.dumps({"a": [1.5, None]})) == {"a": [1.5, None]}
assert msgspec.json.decode(b"[1]") == [1]
grpc.insecure_channel("unix:/nowhere").close()
print(before, after)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="memory is told by /proc/self/smaps")
def test_what_the_start_alone_has_needed_of_libraries_is_no_part_of_the_agent_any_more():
    done = subprocess.run(
        [sys.executable, "-c", LETTING_GO], check=True, capture_output=True, text=True
    )
    before, after = map(int, done.stdout.split())
    assert after < before / 2


def test_what_was_touched_since_is_let_go_at_a_later_rest(monkeypatch: pytest.MonkeyPatch):
    """Each question to the kubelet brings back 6 MiB of gRPC's code."""
    now, times = [100.0], []
    monkeypatch.setattr(memory.time, "monotonic", lambda: now[0])
    monkeypatch.setattr(memory, "let_go_of_code", lambda: times.append(now[0]))
    rest = Rests()
    for now[0] in (100.0, 100.5, 110.0, 110.2, 111.1):
        rest()
    assert times == [100.0, 110.0, 111.1]
