"""Trees that stand for /sys and /proc: what is read, and that nothing outside is."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from rte.model.machine import CPUBasics
from rte.sysfs import procfs, tree

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """Two files in ``devices/cpu0``, links to them, and links that lead out of the tree."""
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside/id").write_text("secret")
    root = tmp_path / "root"
    (root / "devices/cpu0").mkdir(parents=True)
    (root / "devices/cpu0/id").write_text("7\n")
    (root / "devices/cpu0/list").write_text("0-3\n")
    (root / "devices/cpu0/same").symlink_to("id")
    (root / "devices/cpu0/out").symlink_to(tmp_path / "outside/id")
    (root / "bus").mkdir()
    (root / "bus/cpu0").symlink_to("../devices/cpu0")
    (root / "bus/mounted").symlink_to("/sys/devices/cpu0")
    (root / "bus/out").symlink_to(tmp_path / "outside")
    (root / "bus/up").symlink_to("../../outside")
    return root


@pytest.mark.parametrize(
    ("directory", "expected"),
    [
        ("devices/cpu0", ["7\n", None, "0-3\n", "7\n", None]),
        ("bus/cpu0", ["7\n", None, "0-3\n", "7\n", None]),
        ("bus/mounted", ["7\n", None, "0-3\n", "7\n", None]),
        ("bus/out", [None] * 5),
        ("bus/up", [None] * 5),
        ("bus/out/none", [None] * 5),
        ("nowhere", [None] * 5),
        ("nowhere/at/all", [None] * 5),
        ("devices/cpu0/id", [None] * 5),
    ],
)
def test_files_read_together_are_those_read_one_by_one(
    root: Path, directory: str, expected: list[str | None]
) -> None:
    names = ("id", "missing", "list", "same", "out")
    assert tree.Tree(root, "/sys").read_together(directory, *names) == expected
    one_by_one = tree.Tree(root, "/sys")
    assert [one_by_one.read_in(directory, name) for name in names] == expected


def test_an_attribute_longer_than_a_page_is_read_whole(root: Path) -> None:
    (root / "devices/cpu0/id").write_text("x" * 10_000)
    assert tree.Tree(root, "/sys").read("devices/cpu0/id") == "x" * 10_000
    assert tree.Tree(root, "/sys").read_together("devices/cpu0", "id") == ["x" * 10_000]


@pytest.mark.parametrize("piece", [1, 2, 7, 13, 60, 61, 1 << 16])
def test_sockets_are_counted_wherever_the_pieces_of_cpuinfo_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, piece: int
) -> None:
    blocks = [
        f"processor\t: {cpu}\nvendor_id\t: V\nphysical id\t: {cpu % 3 * 11}\nmodel name\t: M"
        for cpu in range(12)
    ]
    (tmp_path / "cpuinfo").write_text("\n\n".join(blocks))
    monkeypatch.setattr(tree, "_PIECE", piece)
    identity = procfs.read_identity(tree.Tree(tmp_path, "/proc"))
    assert identity == procfs.Identity(
        vendor="V", model="M", sockets=3, basics=CPUBasics(name="M", vendor="V")
    )
