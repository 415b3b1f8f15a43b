"""What CI checks beside the tests, as tests: so one pytest run tells all of it."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).parents[1]
VECTORS = ROOT.parent / "shared" / "vectors"
sys.path.insert(0, str(ROOT))

from tests.conformance.__main__ import KINDS  # noqa: E402

_FILES = {path.name.removesuffix(".jsonl.gz"): path for path in sorted(VECTORS.rglob("*.jsonl.gz"))}

Done = subprocess.CompletedProcess[str]


def _run(*argv: str | Path, cwd: Path = ROOT, shell: bool = False) -> Done:
    return subprocess.run(
        argv[0] if shell else [str(word) for word in argv],
        cwd=cwd,
        shell=shell,
        env={**os.environ, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )


@pytest.mark.parametrize(
    "command",
    [
        "ruff format --check .",
        "ruff check .",
        "mypy",
        "lint-imports --no-cache",
        "codespell",
        "python -m pip check",
    ],
)
def test_lint(command: str) -> None:
    done = _run(*command.split())
    assert done.returncode == 0, done.stdout


@pytest.mark.parametrize("name", ["requirements.txt", "requirements-dev.txt"])
def test_the_locked_requirements_are_pinned_with_hashes_and_name_no_url(name: str) -> None:
    text = (ROOT / name).read_text()
    assert "://" not in text
    assert "--index-url" not in text
    logical = re.sub(r"\\\n\s*", " ", text).splitlines()
    pinned = [line for line in logical if line and not line.startswith("#")]
    assert pinned
    assert all(re.match(r"[\w.-]+==\S+.* --hash=sha256:", line) for line in pinned)


@pytest.fixture(scope="session")
def conformance() -> Iterator[dict[str, Future[Done]]]:
    """The recorded cases of every kind, two files at a time (there are two cores)."""
    with ThreadPoolExecutor(max_workers=2) as pool:
        yield {
            kind: pool.submit(_run, sys.executable, "-m", "tests.conformance", kind, _FILES[kind])
            for kind in KINDS
            if kind in _FILES
        }


@pytest.mark.xdist_group("conformance")
@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind in _FILES])
def test_conformance(kind: str, conformance: dict[str, Future[Done]]) -> None:
    done = conformance[kind].result()
    assert done.returncode == 0, done.stdout
    assert re.search(r"^[1-9]\d* passed, 0 failed$", done.stdout, re.MULTILINE), done.stdout


def test_the_readmes_commands_work_in_a_fresh_clone(tmp_path: Path) -> None:
    """The first ends with an object on screen, the second passes the tests, without ../shared."""
    text = (ROOT / "README.md").read_text()
    blocks = re.findall(r"(?ms)^```sh\n(.*?)^```", text)
    assert len(blocks) >= 2
    clone = tmp_path / "clone"
    assert _run("git", "clone", "--quiet", ROOT, clone).returncode == 0
    first = _run(blocks[0], cwd=clone, shell=True)
    assert first.returncode == 0, first.stdout
    assert "NodeResourceTopology" in first.stdout
    second = _run(blocks[1], cwd=clone, shell=True)
    assert second.returncode == 0, second.stdout[-4000:]
    assert re.search(r"\d+ passed", second.stdout), second.stdout[-4000:]
