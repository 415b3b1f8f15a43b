"""What differs between two releases of Kubernetes in the sources that rte's rules follow from.

``python -m tests.releases OLD NEW`` takes two folders of k8s.io/kubernetes, as `go mod download`
leaves them, and names each source that differs, with the room of rte that follows it. A release
from which nothing differs is an entry in ``NEWEST_PATCH`` of rte/placement/kubelet/releases.py, and
no more; for everything else there is a ``ReleaseChange`` to write, or a reason why not.
"""

from __future__ import annotations

import difflib
import sys
from pathlib import Path
from typing import NamedTuple

#: Folder or file of Kubernetes -> what of rte follows it.
SOURCES = {
    "pkg/kubelet/cm/topologymanager": "rte/placement/kubelet/merge.py",
    "pkg/kubelet/cm/cpumanager": "rte/placement/kubelet/cpu",
    "pkg/kubelet/cm/memorymanager": "rte/placement/kubelet/memory.py",
    "pkg/kubelet/cm/devicemanager": "rte/placement/kubelet/devices.py",
    "pkg/kubelet/cm/admission": "rte/placement/kubelet/admission.py",
    "pkg/kubelet/allocation": "rte/kubelet/statefiles.py",
    "pkg/kubelet/apis/podresources": "rte/kubelet/podresources.py",
    "pkg/kubelet/lifecycle": "rte/sim/kubelet/predicates.py",
    "pkg/apis/core/v1/helper/qos": "rte/k8s/podspec.py",
    "pkg/features/kube_features.go": "rte/placement/kubelet/rules.py",
    "pkg/scheduler/framework/plugins": "rte/scheduler/plugins",
    "pkg/scheduler/framework/preemption": "rte/scheduler/plugins/default_preemption.py",
}


class Difference(NamedTuple):
    """A source that is not the same; ``lines`` were added or taken away."""

    source: str
    room: str
    lines: int


def differences(old: Path, new: Path) -> list[Difference]:
    """Sources that differ, tests left out, those with most lines first."""
    out = []
    for source, room in SOURCES.items():
        names = {
            path.relative_to(root).as_posix()
            for root in (old, new)
            for path in _go_files(root / source)
        }
        for name in sorted(names):
            before, after = (_lines(root / name) for root in (old, new))
            if before != after:
                changed = difflib.unified_diff(before, after, n=0, lineterm="")
                count = sum(line[:1] in "+-" and line[:3] not in ("+++", "---") for line in changed)
                out.append(Difference(name, room, count))
    return sorted(out, key=lambda each: -each.lines)


def _go_files(path: Path) -> list[Path]:
    if path.is_file():
        return [path]
    return [each for each in path.rglob("*.go") if not each.name.endswith("_test.go")]


def _lines(path: Path) -> list[str]:
    return path.read_text(encoding="utf-8").splitlines() if path.is_file() else []


def main(words: list[str]) -> int:
    """0: nothing differs; 1: something does; 2: wrong usage."""
    folders = [Path(word) for word in words]
    if len(folders) != 2 or not all((folder / "pkg/kubelet").is_dir() for folder in folders):
        print("usage: python -m tests.releases OLD NEW (folders of k8s.io/kubernetes)")
        return 2
    found = differences(*folders)
    for each in found:
        print(f"{each.lines:>6} lines  {each.source}  ({each.room})")
    print(f"{len(found)} sources differ" if found else "nothing differs that a rule follows from")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
