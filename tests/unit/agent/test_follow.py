"""What tells of changes in the kubelet's directories, also where the kernel has no watch left."""

from __future__ import annotations

import asyncio
import errno
import os
import shutil
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import asyncinotify
import pytest

from rte.agent import follow
from rte.agent.follow import FileFollower, Signals
from rte.agent.observer.messages import KubeletChange
from rte.kubelet import PLUGIN_DIR
from rte.telemetry.metrics import AgentMetrics
from tests.unit.agent.kubelets import FIXTURES

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable
    from pathlib import Path


class Stingy(asyncinotify.Inotify):
    """As a kernel whose user has used up fs.inotify.max_user_watches."""

    left = 0

    def add_watch(self, path: Path, mask: Any) -> Any:
        if Stingy.left <= 0 and path.exists():
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        watch = super().add_watch(path, mask)
        Stingy.left -= 1
        return watch


@asynccontextmanager
async def following(directory: Path) -> AsyncIterator[Signals]:
    signals = Signals(AgentMetrics())
    follower = FileFollower(
        signals,
        state_dir=directory,
        plugin_dir=directory / PLUGIN_DIR,
        socket=None,
        retry_s=0.02,
        poll_s=0.01,
    )
    task = asyncio.create_task(follower.run())
    try:
        yield signals
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


def replace_file(path: Path, text: str) -> None:
    """As the kubelet does."""
    path.parent.mkdir(exist_ok=True)
    new = path.with_name(".new")
    new.write_text(text)
    new.replace(path)


async def told(signals: Signals) -> KubeletChange:
    assert await signals.wait(5)
    return signals.take()[0]


async def test_without_watches_it_polls_and_says_so_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
):
    monkeypatch.setattr(asyncinotify, "Inotify", Stingy)
    Stingy.left = 0
    caplog.set_level("INFO")
    async with following(tmp_path) as signals:
        for number in range(5):
            replace_file(tmp_path / "cpu_manager_state", str(number))
            assert KubeletChange.FILES in await told(signals)
        (line,) = [record.message for record in caplog.records]
        assert "max_user_watches" in line
        assert str(tmp_path) in line
        Stingy.left = 10
        async with asyncio.timeout(30):
            while len(caplog.records) < 2:
                await asyncio.sleep(0.01)
        signals.take()  # what may have changed before the watch began
        assert not await signals.wait(0.1)
        (tmp_path / "cpu_manager_state").write_text("{}")
        assert await told(signals) == KubeletChange.FILES


async def test_polling_tells_nothing_while_nothing_changes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(asyncinotify, "Inotify", Stingy)
    Stingy.left = 0
    file, socket = tmp_path / "cpu_manager_state", tmp_path / PLUGIN_DIR / "kubelet.sock"
    replace_file(file, "1")
    replace_file(socket, "")
    for path in (file, socket):
        os.utime(path, (1, 1))
    async with following(tmp_path) as signals:
        assert await told(signals) == KubeletChange.FILES | KubeletChange.SOCKET
        assert not await signals.wait(0.2)
        replace_file(socket, "")
        assert await told(signals) == KubeletChange.SOCKET


@pytest.mark.parametrize(
    ("file", "text"),
    [
        ("cpu/online", "0-14\n"),
        ("node/node1/meminfo", "Node 1 MemTotal:       99 kB\n"),
        ("node/node1/hugepages/hugepages-2048kB/nr_hugepages", "7\n"),
    ],
)
async def test_cpus_and_huge_pages_change_at_run_time(tmp_path: Path, file: str, text: str):
    sysfs = tmp_path / "sys"
    shutil.copytree(FIXTURES / "16-2s-hugepages/sys", sysfs, symlinks=True)
    signals = Signals(AgentMetrics())
    task = asyncio.create_task(
        follow.follow_machine(signals, lambda: follow.hardware(sysfs), every_s=0.01)
    )
    assert not await signals.wait(0.05)
    (sysfs / "devices/system" / file).write_text(text)
    assert await told(signals) == KubeletChange.MACHINE
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


def plug_out(sysfs: Path) -> None:
    (sysfs / "bus/pci/devices/0000:93:00.0").unlink()


def unbind(sysfs: Path) -> None:
    (sysfs / "bus/pci/devices/0000:13:00.0").resolve().joinpath("driver").unlink()


def lose_the_link(sysfs: Path) -> None:
    (sysfs / "bus/pci/devices/0000:14:00.1/net/ens1f1np1/operstate").write_text("down\n")


def slow_down(sysfs: Path) -> None:
    (sysfs / "bus/pci/devices/0000:14:00.1/net/ens1f1np1/speed").write_text("25000\n")


def move_into_a_container(sysfs: Path) -> None:
    """An interface that is in another network name space is not shown."""
    shutil.rmtree((sysfs / "bus/pci/devices/0000:14:01.0/net").resolve())


@pytest.mark.parametrize(
    "happens", [plug_out, unbind, lose_the_link, slow_down, move_into_a_container]
)
async def test_devices_change_at_run_time(tmp_path: Path, happens: Callable[[Path], None]):
    """They are looked at where they are published, for processing groups."""
    sysfs = tmp_path / "sys"
    shutil.copytree(FIXTURES / "16-2s-groups/sys", sysfs, symlinks=True)
    signals, plain = Signals(AgentMetrics()), follow.hardware(sysfs)
    task = asyncio.create_task(
        follow.follow_machine(signals, lambda: follow.hardware(sysfs, devices=True), every_s=0.01)
    )
    assert not await signals.wait(0.05)
    happens(sysfs)
    assert await told(signals) == KubeletChange.MACHINE
    assert follow.hardware(sysfs) == plain
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


async def test_one_directory_without_a_watch_is_enough_to_poll(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    (tmp_path / "device-plugins").mkdir()
    monkeypatch.setattr(asyncinotify, "Inotify", Stingy)
    Stingy.left = 1
    async with following(tmp_path) as signals:
        for number in range(5):
            replace_file(tmp_path / "device-plugins/kubelet_internal_checkpoint", str(number))
            assert await told(signals)
