from __future__ import annotations

import asyncio
import errno
import io
import json
import os
import stat
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import yaml

from rte import errors
from rte.agent import stores
from rte.agent.observer.messages import Observation
from rte.agent.publisher.machine import Publisher
from rte.agent.publishing import Publishing
from rte.agent.settings import Output, SinkKind, SinkSetting
from rte.agent.timings import Timings
from rte.telemetry.effects import Readiness
from rte.telemetry.metrics import AgentMetrics
from tests.unit.agent.kubelets import FIXTURES

if TYPE_CHECKING:
    from collections.abc import Callable

DOCUMENT = {"kind": "NodeResourceTopology", "zones": [{"name": "node-0", "cpu": "12"}], "a": "null"}


def test_json_and_yaml_say_the_same_and_keep_text_as_text() -> None:
    assert json.loads(stores.render(DOCUMENT, Output.JSON)) == DOCUMENT
    assert yaml.safe_load(stores.render(DOCUMENT, Output.YAML)) == DOCUMENT
    assert stores.render(DOCUMENT, Output.JSON).endswith(b"}\n")


def test_stdout_gets_the_text_as_it_is() -> None:
    stream = io.BytesIO()

    stores.write_stdout(b"text\n", stream)

    assert stream.getvalue() == b"text\n"


def test_a_file_is_replaced_whole_and_readable_for_all(tmp_path) -> None:
    path = tmp_path / "nrt.json"
    path.write_text("old")
    inode = path.stat().st_ino

    stores.write_file(path, b"new")

    assert path.read_text() == "new"
    assert path.stat().st_ino != inode
    assert stat.S_IMODE(path.stat().st_mode) == 0o644
    assert [entry.name for entry in tmp_path.iterdir()] == ["nrt.json"]


def test_a_link_to_the_file_stays_a_link(tmp_path) -> None:
    (tmp_path / "real").mkdir()
    target, link = tmp_path / "real" / "nrt.json", tmp_path / "nrt.json"
    link.symlink_to(target)

    stores.write_file(link, b"new")

    assert link.is_symlink()
    assert target.read_text() == "new"


@pytest.mark.parametrize("place", ["absent/nrt.json", "taken"])
def test_a_place_that_cannot_be_written_is_one_line_and_leaves_nothing(tmp_path, place) -> None:
    (tmp_path / "taken").mkdir()

    with pytest.raises(errors.RteError, match=r"cannot write .*: ") as caught:
        stores.write_file(tmp_path / place, b"new")

    assert "\n" not in str(caught.value)
    assert [entry.name for entry in tmp_path.iterdir()] == ["taken"]


def a_state(number: int) -> Observation:
    kind = {"apiVersion": "topology.node.k8s.io/v1alpha2", "kind": "NodeResourceTopology"}
    return Observation({**kind, "metadata": {"name": "n0"}, "zones": [{"name": str(number)}]}, 0.0)


async def test_a_disk_that_was_full_has_the_last_state_once_there_is_room(tmp_path, monkeypatch):
    path, metrics, readiness = tmp_path / "nrt.json", AgentMetrics(), Readiness(published="not yet")
    publishing = Publishing(
        stores.LocalStore(SinkSetting(SinkKind.FILE, path), Output.JSON),
        Publisher(Timings(first_retry=0.01, last_retry=0.01)),
        metrics=metrics,
        readiness=readiness,
    )
    full = asyncio.Event()
    fsync = os.fsync

    def write(descriptor: int) -> None:
        if full.is_set():
            raise OSError(errno.ENOSPC, "No space left on device")
        fsync(descriptor)

    async def until(condition: Callable[[], bool]) -> None:
        async with asyncio.timeout(30):
            while not condition():
                await asyncio.sleep(0.005)

    def failures() -> float:
        name = "rte_noderesourcetopology_write_failures_total"
        return metrics.registry.get_sample_value(name, {"status": "0"}) or 0.0

    monkeypatch.setattr(stores.os, "fsync", write)
    task = asyncio.create_task(publishing.run())
    publishing.offer(a_state(1))
    await until(lambda: path.exists() and not readiness.reasons)
    full.set()
    publishing.offer(a_state(2))
    await until(lambda: failures() >= 2)
    assert readiness.reasons == (f"published: cannot write {path}: No space left on device",)
    full.clear()
    await until(lambda: not readiness.reasons)
    assert json.loads(path.read_text())["zones"] == [{"name": "2"}]
    assert path.read_bytes() == stores.render(a_state(2).object, Output.JSON)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


@pytest.mark.parametrize("once", [True, False], ids=["oneshot", "daemon"])
def test_standard_output_on_a_full_disk_is_one_line_and_no_traceback(once: bool) -> None:
    machine = FIXTURES / "4-desktop-no-smt"
    command = [
        sys.executable, "-m", "rte", "run", f"--sysfs-root={machine / 'sys'}",
        f"--procfs-root={machine / 'proc'}", "--sink=stdout", "--node-name=n0",
        "--metrics-listen=off", *(["--oneshot"] if once else []),
    ]  # fmt: skip
    with Path("/dev/full").open("wb") as full:
        process = subprocess.Popen(command, stdout=full, stderr=subprocess.PIPE, text=True)
        line = process.stderr.readline()
        if not once:
            process.terminate()
        _, rest = process.communicate(timeout=30)
    assert "cannot write to standard output: No space left on device" in line
    assert "Traceback" not in rest
    assert process.returncode == int(once)


def test_an_agent_without_a_kubelet_has_nothing_to_complain_of(tmp_path) -> None:
    machine, out = FIXTURES / "4-desktop-no-smt", tmp_path / "nrt.json"
    process = subprocess.Popen(
        [sys.executable, "-m", "rte", "run", f"--sysfs-root={machine / 'sys'}",
         f"--procfs-root={machine / 'proc'}", f"--sink=file:{out}", "--node-name=n0",
         "--metrics-listen=off"],
        stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    deadline = time.monotonic() + 30
    while not out.exists() and time.monotonic() < deadline:
        time.sleep(0.02)
    process.terminate()
    _, log = process.communicate(timeout=30)
    assert json.loads(out.read_text())["zones"]
    assert not log
    assert process.returncode == 0
