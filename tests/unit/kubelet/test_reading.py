from __future__ import annotations

import asyncio
import json
import os
import time
from typing import TYPE_CHECKING, Any

import pytest

from rte import errors
from rte.kubelet import PLUGIN_DIR, statefiles
from rte.model.kubelet import Allocatable, ListedPod, StateFiles
from tests.checkpoints import sealed
from tests.unit.kubelet import samples

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

READERS: dict[str, Callable[[Path], Any]] = {
    "cpu_manager_state": statefiles.read_cpu_state,
    "memory_manager_state": statefiles.read_memory_state,
    "allocated_pods_state": statefiles.read_allocated_pods,
    "device-plugins/kubelet_internal_checkpoint": lambda folder: statefiles.read_device_checkpoint(
        folder / PLUGIN_DIR
    ),
}
every_file = pytest.mark.parametrize("name", READERS)


def write(path: Path, document: object) -> None:
    """As the kubelet does: a new file in the place of the old."""
    path.parent.mkdir(parents=True, exist_ok=True)
    new = path.with_name(f".{path.name}")
    new.write_text(document if isinstance(document, str) else json.dumps(sealed(document)))
    new.replace(path)


@pytest.fixture
def state_dir(tmp_path: Path) -> Path:
    for name, document in samples.ALL.items():
        write(tmp_path / name, document)
    return tmp_path


@every_file
def test_a_missing_file_is_absent_and_no_error(name: str, state_dir: Path) -> None:
    (state_dir / name).unlink()
    assert READERS[name](state_dir) is None
    files = statefiles.read_state_files(state_dir)
    assert [files.allocated, files.devices, files.cpu, files.memory].count(None) == 1


@every_file
def test_an_empty_or_half_written_file_is_an_error_with_its_path(
    name: str, state_dir: Path
) -> None:
    whole = (state_dir / name).read_text()
    for text in ("", whole[: len(whole) // 2]):
        (state_dir / name).write_text(text)
        with pytest.raises(errors.ParseError) as caught:
            statefiles.read_state_files(state_dir)
        assert str(state_dir / name) in str(caught.value)
        assert "\n" not in str(caught.value)


@every_file
def test_an_unreadable_file_is_an_error_with_its_path(name: str, state_dir: Path) -> None:
    (state_dir / name).unlink()
    (state_dir / name).mkdir()  # permissions do not stop a test that runs as root
    with pytest.raises(errors.KubeletError, match="Is a directory") as caught:
        statefiles.read_state_files(state_dir)
    assert str(state_dir / name) in str(caught.value)


@every_file
def test_a_pipe_in_place_of_a_file_is_an_error_and_waits_for_nobody(
    name: str, state_dir: Path
) -> None:
    (state_dir / name).unlink()
    os.mkfifo(state_dir / name)
    with pytest.raises(errors.RteError, match=name) as caught:
        statefiles.read_state_files(state_dir)
    assert "\n" not in str(caught.value)


def test_a_directory_without_state_is_an_empty_view(tmp_path: Path) -> None:
    assert statefiles.read_state_files(tmp_path) == StateFiles()


def test_a_missing_directory_says_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(errors.KubeletError, match="--kubelet-state-dir"):
        statefiles.read_state_files(tmp_path / "none")


def test_only_what_changed_is_read_again(state_dir: Path) -> None:
    for name in READERS:
        os.utime(state_dir / name, (1e9, 1e9))
    first = statefiles.read_state_files(state_dir)
    assert statefiles.read_state_files(state_dir, first) == first
    write(state_dir / "cpu_manager_state", {"policyName": "static", "defaultCpuSet": "0-7"})
    second = statefiles.read_state_files(state_dir, first)
    assert second.cpu is not None
    assert second.cpu.default == 0xFF
    assert second.memory is first.memory
    assert second.devices is first.devices
    assert second.allocated is first.allocated


def test_a_file_that_goes_away_is_forgotten(state_dir: Path) -> None:
    first = statefiles.read_state_files(state_dir)
    (state_dir / "memory_manager_state").unlink()
    assert statefiles.read_state_files(state_dir, first).memory is None


def test_the_set_is_of_one_moment(state_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A pod that is admitted while the files are read is in all of them or in none."""
    read_memory = statefiles.read_memory_state

    def admit_meanwhile(directory: Path) -> Any:
        monkeypatch.setattr(statefiles, "read_memory_state", read_memory)
        old = read_memory(directory)
        cpus = samples.CPU_STATE["entries"] | {"uid-c": {"main": "5"}}
        write(directory / "cpu_manager_state", samples.CPU_STATE | {"entries": cpus})
        data = json.loads(samples.ALLOCATED_PODS["data"])
        data["entries"]["uid-c"] = {"ContainerResources": {"main": {}}}
        write(directory / "allocated_pods_state", {"data": json.dumps(data)})
        return old

    monkeypatch.setattr(statefiles, "read_memory_state", admit_meanwhile)
    files = statefiles.read_state_files(state_dir)
    assert files.allocated is not None
    assert files.cpu is not None
    assert "uid-c" in files.allocated.pods
    assert "uid-c" in files.cpu.entries


def test_files_that_never_rest_are_not_taken(
    state_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    read_cpu = statefiles.read_cpu_state

    def disturb(directory: Path) -> Any:
        write(directory / "cpu_manager_state", samples.CPU_STATE)
        return read_cpu(directory)

    monkeypatch.setattr(statefiles, "read_cpu_state", disturb)
    with pytest.raises(errors.InconsistentStateError, match="kept changing"):
        statefiles.read_state_files(state_dir)


class Kubelet:
    """A podresources source; ``meanwhile`` runs during each List."""

    def __init__(self, meanwhile: Callable[[], None] = lambda: None) -> None:
        self.meanwhile = meanwhile
        self.lists = 0

    async def list(self) -> tuple[ListedPod, ...]:
        self.lists += 1
        await asyncio.sleep(0)
        self.meanwhile()
        return (ListedPod(namespace="ns", name=f"list-{self.lists}"),)

    async def allocatable(self) -> Allocatable | None:
        return Allocatable(cpus=0xFE)


async def test_a_view_joins_files_and_podresources(state_dir: Path) -> None:
    view, files = await statefiles.read_view(state_dir, Kubelet(), version="v1.35.4", epoch="e")
    assert view.coherent
    assert (view.version, view.epoch) == ("v1.35.4", "e")
    assert files is not None
    assert view.cpu is files.cpu
    assert view.pods is not None
    assert view.allocatable == Allocatable(cpus=0xFE)


async def test_a_view_without_podresources_or_without_files(state_dir: Path) -> None:
    view, _ = await statefiles.read_view(state_dir, None)
    assert (view.pods, view.allocatable) == (None, None)
    assert view.cpu is not None
    view, files = await statefiles.read_view(None, Kubelet())
    assert files is None
    assert view.cpu is None
    assert view.coherent
    assert view.pods is not None


async def test_podresources_is_asked_again_when_the_files_changed(state_dir: Path) -> None:
    def once() -> None:
        if kubelet.lists == 1:
            write(state_dir / "cpu_manager_state", samples.CPU_STATE)

    kubelet = Kubelet(once)
    view, _ = await statefiles.read_view(state_dir, kubelet)
    assert view.coherent
    assert view.pods is not None
    assert view.pods[0].name == "list-2"


async def test_a_view_of_a_kubelet_that_never_rests_says_so(state_dir: Path) -> None:
    kubelet = Kubelet(lambda: write(state_dir / "cpu_manager_state", samples.CPU_STATE))
    view, _ = await statefiles.read_view(state_dir, kubelet, attempts=3)
    assert not view.coherent
    assert kubelet.lists == 3


def test_the_epoch_changes_when_a_kubelet_makes_its_socket_anew(tmp_path: Path) -> None:
    plugins = tmp_path / PLUGIN_DIR
    sockets = tmp_path / "kubelet.sock", plugins / "kubelet.sock"
    assert statefiles.kubelet_epoch(sockets[0], plugins) == ""
    for path in reversed(sockets):
        path.parent.mkdir(exist_ok=True)
        path.write_text("")
        first = statefiles.kubelet_epoch(sockets[0], plugins)
        assert first
        assert statefiles.kubelet_epoch(sockets[0], plugins) == first
        path.unlink()
        path.write_text("")
        os.utime(path, (1, 1))
        assert statefiles.kubelet_epoch(sockets[0], plugins) not in ("", first)


def test_two_versions_in_one_tick_of_the_clock_with_one_inode_are_told_apart(
    state_dir: Path,
) -> None:
    path = state_dir / "cpu_manager_state"
    first = {"policyName": "static", "defaultCpuSet": "0-3", "entries": {}}
    path.write_text(json.dumps(sealed(first)).ljust(100))
    # However slow this test runs, what is read comes within a tick of the file's time.
    soon = time.time_ns() + 60_000_000_000
    os.utime(path, ns=(soon, soon))
    status = path.stat()
    files = statefiles.read_state_files(state_dir)
    path.write_text(json.dumps(sealed(first | {"defaultCpuSet": "0-2"})).ljust(100))
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))
    assert (path.stat().st_ino, path.stat().st_size) == (status.st_ino, status.st_size)
    after = statefiles.read_state_files(state_dir, files)
    assert after.cpu is not None
    assert after.cpu.default == 0b111


def test_the_device_managers_folder_may_lie_elsewhere(state_dir: Path, tmp_path: Path) -> None:
    """As with a kubelet whose --root-dir is not the usual one."""
    elsewhere = tmp_path / "elsewhere"
    (state_dir / PLUGIN_DIR).rename(elsewhere)
    assert statefiles.read_state_files(state_dir).devices is None
    files = statefiles.read_state_files(state_dir, plugin_dir=elsewhere)
    assert files.devices is not None
