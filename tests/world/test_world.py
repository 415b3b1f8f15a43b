"""The whole cluster in one clock holds what it promises, and notices when it does not."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from tests.depth import scaled
from tests.world import play  # noqa: F401 - registers what can happen
from tests.world.acts import KINDS, Story, draw_story
from tests.world.planted import PLANTS, missing

_ROOT = Path(__file__).parents[2]
_STORIES = sorted((Path(__file__).parent / "stories").glob("*.txt"))


def _run(*arguments: str) -> subprocess.CompletedProcess[str]:
    """As a user types it; the order of sets is fixed there, so it always comes out the same."""
    environ = {**os.environ, "PYTHONHASHSEED": "0", "PYTHONPATH": str(_ROOT)}
    return subprocess.run(
        [sys.executable, "-m", "tests.world", *arguments],
        cwd=_ROOT, env=environ, capture_output=True, text=True, check=False,
    )  # fmt: skip


def test_every_planted_fault_has_its_name() -> None:
    assert missing() == []


def test_planted_faults_have_names_of_their_own() -> None:
    assert len({plant.name for plant in PLANTS}) == len(PLANTS)


def test_a_story_is_written_and_read(tmp_path: Path) -> None:
    story = draw_story(3, 0.2, nodes=4)
    story.write(tmp_path / "story.txt", ["what was found"])

    assert Story.read(tmp_path / "story.txt") == story


def test_each_fault_comes_in_an_hour() -> None:
    drawn = {one.what for one in draw_story(1, 1.0).acts}

    assert drawn == {kind.name for kind in KINDS.values() if kind.weight}


def test_a_cluster_goes_through_faults_and_nothing_is_lost(tmp_path: Path) -> None:
    played = _run(
        "--seed",
        "1",
        "--hours",
        "0.2",
        "--nodes",
        "3",
        "--shrink",
        "0",
        "--keep",
        str(tmp_path / "s"),
    )

    assert played.returncode == 0, played.stdout + played.stderr


#: Found within seconds, one of each sort; CI plays all of them, others the first two.
_SAMPLE = (
    "the queue wakes nobody",
    "pods that go wake nobody",
)


def test_planted_faults_are_found() -> None:
    sample = _SAMPLE[: scaled(len(_SAMPLE))]
    played = _run("--planted", *sample, "--minutes", "2", "--nodes", "3")

    assert played.returncode == 0, played.stdout + played.stderr


def test_what_was_found_once_is_mended() -> None:
    for story in _STORIES:
        played = _run(str(story))

        assert played.returncode == 0, f"{story.stem}: {played.stdout[-3000:]}{played.stderr}"
