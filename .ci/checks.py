"""What CI checks beside the tests, as tests: so one pytest run tells all of it."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
Done = subprocess.CompletedProcess[str]
#: As somebody has it who knows nothing of CI.
ELSEWHERE = {name: value for name, value in os.environ.items() if name != "RTE_DEPTH"}


def _run(*argv: str | Path, cwd: Path = ROOT, shell: bool = False) -> Done:
    return subprocess.run(
        argv[0] if shell else [str(word) for word in argv],
        cwd=cwd,
        shell=shell,
        env={**ELSEWHERE, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )


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


def test_the_documentation_is_built_without_a_network_and_loads_nothing_from_elsewhere(
    tmp_path: Path,
) -> None:
    """Strictly: a link, an anchor or a page that is missing is an error."""
    done = _run(
        "unshare",
        "--net",
        "--",
        sys.executable,
        "-m",
        "mkdocs",
        "build",
        "--strict",
        "--quiet",
        "--site-dir",
        tmp_path,
    )
    assert done.returncode == 0, done.stdout
    pages = list(tmp_path.rglob("*.html"))
    assert len(pages) > 25
    for page in pages:
        loaded = re.findall(
            r"<(?:link|script|img|iframe|source)\b[^>]*?\b(?:src|href)=\"([^\"]+)", page.read_text()
        )
        assert not [url for url in loaded if re.match(r"(\w+:)?//", url)], page
    for style in tmp_path.rglob("*.css"):
        assert not re.search(r"(url\(|@import)\s*[\"']?(https?:)?//", style.read_text()), style


@pytest.mark.parametrize("name", ["requirements.txt", "requirements-dev.txt"])
def test_the_locked_requirements_are_pinned_with_hashes_and_name_no_url(name: str) -> None:
    text = (ROOT / name).read_text()
    assert "://" not in text
    assert "--index-url" not in text
    logical = re.sub(r"\\\n\s*", " ", text).splitlines()
    pinned = [line for line in logical if line and not line.startswith("#")]
    assert pinned
    assert all(re.match(r"[\w.-]+==\S+.* --hash=sha256:", line) for line in pinned)


@pytest.mark.xdist_group("lane")
def test_lanes_of_tests_are_kept_apart(request: pytest.FixtureRequest) -> None:
    """Cluster tests of a lane share processes and images; pytest-xdist tells it by the name."""
    in_lanes = bool(getattr(request.config.option, "loadgroup", False))
    assert request.node.nodeid.endswith("@lane") == in_lanes
