"""A core without NHD and Koordinator: their folders gone, their entry points too."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
#: What the entry points name and nothing else needs.
PARTS = (
    "rte/placement/groups/nhd",
    "rte/placement/koordinator",
    "rte/scheduler/plugins/device_share.py",
    "rte/scheduler/plugins/koordinator.py",
    "rte/scheduler/front/nhd_stats.py",
    "rte/cli/imports.py",
    "rte/cli/nhd.py",
)
#: Of its tests: requests and places, whole scheduling cycles, commands.
TESTS = (
    "tests/unit/placement/groups/test_place.py",
    "tests/unit/placement/groups/test_cluster.py",
    "tests/unit/scheduler/test_scores.py",
)
POD = """\
apiVersion: v1
kind: Pod
metadata: {name: pinned}
spec:
  containers:
  - name: main
    resources: {limits: {cpu: "2", memory: 1Gi}}
"""


@pytest.fixture(scope="module")
def core(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The package and its tests as they would be without those parts."""
    root = tmp_path_factory.mktemp("core")
    shutil.copytree(ROOT / "rte", root / "rte", ignore=shutil.ignore_patterns("__pycache__"))
    left_out = shutil.ignore_patterns("__pycache__", "vectors", "cluster")
    shutil.copytree(ROOT / "tests", root / "tests", ignore=left_out)
    for part in PARTS:
        path = root / part
        shutil.rmtree(path) if path.is_dir() else path.unlink()
    info = root / "rte_numa-0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: rte-numa\nVersion: 0\n")
    (info / "entry_points.txt").write_text("[console_scripts]\nrte = rte.__main__:main\n")
    return root


def run(core: Path, *words: str) -> subprocess.CompletedProcess[str]:
    """Python there, with that package and no other."""
    environment = {**os.environ, "PYTHONPATH": str(core)}
    return subprocess.run(
        [sys.executable, *words],
        cwd=core,
        env=environment,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )


def test_every_part_is_named_by_an_entry_point() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    named = {
        value.partition(":")[0].replace(".", "/")
        for group, entries in project["entry-points"].items()
        for value in entries.values()
        if group.startswith("rte.")
    }

    for path in named:
        assert any(f"{path}.py".startswith(part) for part in PARTS), path


def test_its_commands_are_there_and_no_others(core: Path) -> None:
    told = run(core, "-m", "rte", "--help")
    unknown = run(core, "-m", "rte", "import", "nhd", "triad", "job.cfg")

    assert told.returncode == 0, told.stderr
    assert "simulate" in told.stdout
    assert "NHD" not in told.stdout
    assert (unknown.returncode, unknown.stdout) == (2, "")
    assert "unknown command import" in unknown.stderr


def test_what_it_lacks_is_told(core: Path) -> None:
    (core / "record").write_text('{"version": 1, "pod": "u", "node": "n"}')
    told = run(core, "-m", "rte", "render", "triad", "record", "--allocation", "record")

    assert told.returncode == 2
    assert "nhd is not installed" in told.stderr


def test_it_decides(core: Path) -> None:
    (core / "pod.yaml").write_text(POD)
    told = run(core, "-m", "rte", "simulate", "-f", "pod.yaml", "--machine", "2x8*2")

    assert told.returncode == 0, told.stderr
    assert "1 pod placed" in told.stdout


def test_its_tests_pass(core: Path) -> None:
    told = run(core, "-m", "pytest", "-q", "-p", "no:cacheprovider", *TESTS)

    assert told.returncode == 0, told.stdout[-4000:]
    assert "passed" in told.stdout
