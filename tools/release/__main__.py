"""Make a release: ``python -m tools.release OUT``.

Wheel, sdist, images, chart, manifests, kubectl's plugin, bills of materials, notes, provenance and
checksums of one commit, into an empty folder. The same commit gives the same bytes. Needs what
requirements-dev.txt names; with images also the tools of ``python -m tests.cluster image``, apt and
readelf, and what ``--fetch`` gets. Once that is in the cache it needs no network.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import tomllib
from pathlib import Path
from typing import TYPE_CHECKING

from tests.cluster.processes import ClusterError
from tools.release import attest, boms, layouts, packs, parts

if TYPE_CHECKING:
    from collections.abc import Sequence

ROOT = Path(__file__).parents[2]


def main(argv: Sequence[str] | None = None) -> int:
    """0 = done, 1 = failed, and nothing is to be published."""
    parser = argparse.ArgumentParser(prog="python -m tools.release", description=__doc__)
    parser.add_argument("out", type=Path, metavar="OUT", nargs="?", help="an empty or a new folder")
    parser.add_argument("--commit", default="HEAD", help="what to release (default %(default)s)")
    parser.add_argument(
        "--url",
        default="https://example.com/rte",
        help="where the files are going to be, for krew's manifest (default %(default)s)",
    )
    parser.add_argument("--key", type=Path, help="an SSH key that signs SHA256SUMS")
    parser.add_argument(
        "--without-images",
        action="store_true",
        help="all but the images and their bills of materials: a dry run of some ten seconds",
    )
    parser.add_argument(
        "--fetch",
        action="store_true",
        help="make nothing, get what all of it is made of into the cache; needs a network",
    )
    args = parser.parse_args(argv)
    if (args.out is None) != args.fetch:
        parser.error("give either OUT or --fetch")
    try:
        fetch(args) if args.fetch else release(args)
    except (parts.ReleaseError, ClusterError) as error:
        print(f"release: {error}", file=sys.stderr)
        return 1
    return 0


def fetch(args: argparse.Namespace) -> None:
    """Get what a release is made of.

    Raises:
        ReleaseError: it is not to be had.
        ClusterError: an image could not be built.
    """
    with tempfile.TemporaryDirectory(prefix="rte-release-") as name:
        parts.tree_of(commit_of(args.commit), ROOT, Path(name))
        layouts.fetch(Path(name))


def commit_of(name: str) -> str:
    """Its whole hash.

    Raises:
        ReleaseError: there is no such commit.
    """
    return parts.run("git", "rev-parse", "--verify", f"{name}^{{commit}}", cwd=ROOT).strip()


def release(args: argparse.Namespace) -> None:
    """Make all of it, and say what is there.

    Raises:
        ReleaseError: a step or a check failed.
        ClusterError: an image could not be built.
    """
    out = args.out
    out.mkdir(parents=True, exist_ok=True)
    if any(out.iterdir()):
        raise parts.ReleaseError(f"{out} is not empty: give a new folder")
    if args.key:
        attest.check(args.key)
    commit = commit_of(args.commit)
    with tempfile.TemporaryDirectory(prefix="rte-release-") as name:
        tree = Path(name)
        parts.tree_of(commit, ROOT, tree)
        project = tomllib.loads((tree / "pyproject.toml").read_text())["project"]
        version = project["version"]
        files = python(tree, project, out)
        wheel = out / next(each for each in files if each.endswith(".whl"))
        files |= parts.chart(tree, version)
        files |= parts.manifests(tree, version)
        files |= parts.plugin(tree, wheel, version, args.url)
        files |= parts.notes(tree, version)
        if not args.without_images:
            files |= of_images(tree, version)
        needed = {
            each.name: packs.sha256(each.read_bytes()) for each in tree.glob("requirements*.txt")
        }
    parameters = {"version": version, "url": args.url, "images": not args.without_images}
    files["provenance.intoto.json"] = attest.provenance(files, commit, parameters, needed)
    files[attest.CHECKSUMS] = attest.checksums(files)
    for each, content in files.items():
        (out / each).write_bytes(content)
    if args.key:
        attest.sign(out, args.key)
    for path in sorted(out.iterdir()):
        print(f"{path.stat().st_size:>12,}  {path.name}")


def python(tree: Path, project: dict[str, object], out: Path) -> dict[str, bytes]:
    """Wheel and sdist (both are in the folder by then), and what they bring along."""
    wheel = parts.distributions(tree, out)
    files = {path.name: path.read_bytes() for path in out.iterdir()}
    extras = project["optional-dependencies"]
    direct = [*project["dependencies"], *extras["scheduler"], *extras["demo"]]
    direct = [line for line in direct if not line.startswith(f"{project['name']}[")]
    requirements = (tree / "requirements.txt").read_text()
    version = str(project["version"])
    root = boms.whole("application", "rte-numa", version, packs.sha256(files[wheel.name]))
    told = boms.of_wheel(root, requirements, direct)
    stem = f"rte-numa-{version}"
    return files | {f"{stem}.cdx.json": told, f"{stem}.spdx.json": boms.spdx(told)}


def of_images(tree: Path, version: str) -> dict[str, bytes]:
    """An OCI layout for each and each machine, and its bills of materials."""
    files = {}
    for image in layouts.all_of(tree):
        stem = f"rte-{image.target}-{version}-linux-{image.machine}"
        requirements = (tree / layouts.LOCKS[image.target]).read_text()
        root = boms.whole("container", f"rte-{image.target}", version, image.digest)
        told = boms.of_image(root, image.listed, requirements)
        files[f"{stem}.oci.tar"] = image.layout
        files[f"{stem}.cdx.json"], files[f"{stem}.spdx.json"] = told, boms.spdx(told)
        print(f"{stem}: {image.compressed / 2**20:.1f} MiB compressed", file=sys.stderr)
    return files


if __name__ == "__main__":
    sys.exit(main())
