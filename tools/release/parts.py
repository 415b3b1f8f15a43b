"""Wheel and sdist, chart, manifests, kubectl's plugin, notes: each made of a commit's tree."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

import yaml

from tools.release import oci, packs


class ReleaseError(Exception):
    """One line that says what is wrong and what to do."""


def run(*command: str | Path, cwd: Path | None = None, **env: str) -> str:
    """What a command prints.

    Raises:
        ReleaseError: it failed, with the end of what it said.
    """
    words = [str(word) for word in command]
    done = subprocess.run(
        words, cwd=cwd, env={**os.environ, **env}, capture_output=True, text=True, check=False
    )
    if done.returncode:
        said = "\n".join((done.stdout + done.stderr).strip().splitlines()[-15:])
        raise ReleaseError(f"{' '.join(words[:5])} failed:\n{said}")
    return done.stdout


def tree_of(commit: str, repository: Path, out: Path) -> None:
    """What the commit holds: nothing that lies about in the checkout gets into a release."""
    with tempfile.NamedTemporaryFile(suffix=".tar") as archive:
        run("git", "archive", "--output", archive.name, commit, cwd=repository)
        run("tar", "-C", out, "-xf", archive.name)


def distributions(tree: Path, out: Path) -> Path:
    """The wheel's path. Both are checked, and the sdist builds that very wheel.

    Raises:
        ReleaseError: a check failed.
    """
    env = {"SOURCE_DATE_EPOCH": str(packs.EPOCH), "PIP_NO_INDEX": "1"}
    build = (sys.executable, "-m", "build", "--no-isolation")
    with tempfile.TemporaryDirectory() as name:
        run(*build, "--wheel", "--outdir", name, tree, **env)
        (direct,) = Path(name).glob("*.whl")
        run(*build, "--outdir", out, tree, **env)  # the sdist, and the wheel from it
        (wheel,) = out.glob("*.whl")
        (sdist,) = out.glob("*.tar.gz")
        if (direct.name, direct.read_bytes()) != (wheel.name, wheel.read_bytes()):
            raise ReleaseError("the sdist builds another wheel than the tree: a file is missing")
    run(sys.executable, "-m", "twine", "check", "--strict", wheel, sdist)
    run(sys.executable, "-m", "check_wheel_contents", "--no-config", "--toplevel", "rte", wheel)
    return wheel


def chart(tree: Path, version: str) -> dict[str, bytes]:
    """As ``helm package`` names it, and as a registry has it."""
    folder = tree / "manifests/chart"
    told = yaml.safe_load((folder / "Chart.yaml").read_text())
    if {told["version"], told["appVersion"]} != {version}:
        raise ReleaseError(f"manifests/chart/Chart.yaml: version and appVersion are not {version}")
    archive = packs.tar_gz(packs.below(folder, told["name"]))
    return {
        f"{told['name']}-{version}.tgz": archive,
        f"{told['name']}-chart-{version}.oci.tar": oci.of_chart(told, archive),
    }


def manifests(tree: Path, version: str) -> dict[str, bytes]:
    """All trees of kustomize; the chart comes by itself.

    Raises:
        ReleaseError: an image of rte is of another version.
    """
    files = packs.below(tree / "manifests", f"rte-manifests-{version}")
    for name, text in files.items():
        asked = re.findall(rb"image: rte-(?:agent|scheduler):(\S+)|newTag: (\S+)", text)
        if other := {(tag or new).decode() for tag, new in asked} - {version}:
            raise ReleaseError(f"{name} asks for {', '.join(sorted(other))}, not for {version}")
    kept = {name: text for name, text in files.items() if name.split("/")[1] != "chart"}
    # The folder is unpacked beside no chart: what links there comes as a file.
    return {f"rte-manifests-{version}.tar.gz": packs.tar_gz(kept)}


def plugin(tree: Path, wheel: Path, version: str, url: str) -> dict[str, bytes]:
    """The archive for krew and its manifest; one for Linux and macOS, nothing in it is compiled."""
    folder = tree / "packaging/krew"
    held = {
        "kubectl-rte": (folder / "kubectl-rte").read_bytes(),
        "LICENSE": (tree / "LICENSE").read_bytes(),
        wheel.name: wheel.read_bytes(),
    }
    archive = packs.tar_gz(held, executable=["kubectl-rte"])
    told = (folder / "rte.yaml").read_text().partition("\n")[2]
    told = told.replace("VERSION", version).replace("URL", f"{url}/kubectl-rte.tar.gz")
    told = told.replace("SHA256", packs.sha256(archive))
    return {"kubectl-rte.tar.gz": archive, "rte.yaml": told.encode()}


def notes(tree: Path, version: str) -> dict[str, bytes]:
    """What the changelog tells of this version.

    Raises:
        ReleaseError: nothing.
    """
    text = (tree / "CHANGELOG.md").read_text()
    found = re.search(rf"(?ms)^## {re.escape(version)}\b[^\n]*\n(.*?)(?=^## |\Z)", text)
    if not found or not found[1].strip():
        raise ReleaseError(f"CHANGELOG.md has no section '## {version}' that says anything")
    return {"RELEASE-NOTES.md": f"# rte {version}\n\n{found[1].strip()}\n".encode()}
