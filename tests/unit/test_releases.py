"""What differs between two releases is named by source, with the room that follows it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests import releases
from tests.documents import ROOT

if TYPE_CHECKING:
    from pathlib import Path

    import pytest


def tree(folder: Path, files: dict[str, str]) -> Path:
    for name, text in {"pkg/kubelet/cm/cpumanager/same.go": "package same", **files}.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return folder


def test_sources_that_differ_are_named_those_with_most_lines_first(tmp_path: Path) -> None:
    picker, qos = "pkg/kubelet/cm/cpumanager/pick.go", "pkg/apis/core/v1/helper/qos/qos.go"
    old = tree(tmp_path / "old", {picker: "a\nb", qos: "x", "pkg/proxy/far.go": "a"})
    new = tree(
        tmp_path / "new",
        {picker: "a\nc\nd", qos: "x\ny", "pkg/proxy/far.go": "b", f"{picker[:-3]}_test.go": "t"},
    )
    assert releases.differences(old, new) == [
        (picker, "rte/placement/kubelet/cpu", 3),
        (qos, "rte/k8s/podspec.py", 1),
    ]


def test_a_source_that_is_new_differs(tmp_path: Path) -> None:
    added = "pkg/features/kube_features.go"
    found = releases.differences(tree(tmp_path / "old", {}), tree(tmp_path / "new", {added: "a"}))
    assert [each.source for each in found] == [added]


def test_it_says_when_there_is_nothing_to_do(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = str(tree(tmp_path / "old", {}))
    assert releases.main([folder, folder]) == 0
    assert "nothing differs" in capsys.readouterr().out
    assert releases.main([folder]) == 2


def test_every_room_that_is_named_is_there() -> None:
    assert all((ROOT / room).exists() for room in releases.SOURCES.values())
