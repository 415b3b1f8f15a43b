"""The shipped images, built from the Dockerfile without a registry; and what runs them.

The base is made of Debian packages (mmdebstrap), the Python packages are fetched by the lock, the
images are built by buildah and leave as one OCI archive.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml

from tests.cluster import builder
from tests.cluster.processes import ClusterError, note

if TYPE_CHECKING:
    from collections.abc import Sequence

ROOT = Path(__file__).parents[2]
PAUSE = Path(__file__).parent / "pause"
#: Debian packages of the field lane: command -> package.
TOOLS = {
    "buildah": "buildah", "mmdebstrap": "mmdebstrap", "runc": "runc",
}  # fmt: skip
#: The base holds Python and nothing else that the images need.
BASE_PACKAGES = ("ca-certificates", "python-is-python3", "python3", "python3-pip")
SUITE = "bookworm"
TARGETS = ("agent", "scheduler")
PAUSE_IMAGE = "localhost/pause:1"
#: Seconds since 1970: of all files and images (the Dockerfile's SOURCE_DATE_EPOCH).
EPOCH = "1767225600"
#: What the images are made from.
_SOURCES = ("Dockerfile", ".dockerignore", ".ci/runtime", ".ci/sbom", "pyproject.toml", "README.md",
            "LICENSE", "rte", "manifests/crd")  # fmt: skip


def names(tree: Path = ROOT) -> dict[str, str]:
    """Target -> the image's name as the manifests give it."""
    found = {}
    for target in TARGETS:
        text = (tree / "manifests" / target / "kustomization.yaml").read_text()
        (image,) = yaml.safe_load(text)["images"]
        found[target] = f"{image['newName']}:{image['newTag']}"
    return found


def archive(tree: Path = ROOT) -> Path:
    """The OCI archive of a tree's images, built where the cache lacks it.

    Raises:
        ClusterError: a tool is missing or a step fails.
    """
    folder = builder.cache_dir() / "images"
    folder.mkdir(parents=True, exist_ok=True)
    target = folder / f"{_digest(tree)}.tar"
    with builder.locked(folder / ".lock"):
        if not target.exists():
            # One tree's images are 200 MB; other trees may be at work.
            for old in sorted(folder.glob("*.tar"), key=lambda path: path.stat().st_mtime)[:-3]:
                old.unlink()
            build(target, tree)
        target.touch()
    return target


def sizes(tree: Path = ROOT) -> dict[str, float]:
    """Target -> MiB that a registry sends of its image."""
    found = {}
    with tarfile.open(archive(tree)) as tar:

        def load(name: str) -> Any:
            return json.loads(tar.extractfile(name).read())  # type: ignore[union-attr]

        by_name = {
            each["annotations"]["org.opencontainers.image.ref.name"].rpartition("/")[2]: each
            for each in load("index.json")["manifests"]
        }
        for target, name in names(tree).items():
            manifest = load(f"blobs/{by_name[name]['digest'].replace(':', '/')}")
            found[target] = sum(layer["size"] for layer in manifest["layers"]) / 2**20
    return found


def build(out: Path, tree: Path = ROOT) -> None:
    """Build the images into an OCI archive (a minute or two); the same bytes each time.

    Raises:
        ClusterError: a tool is missing or a step fails.
    """
    missing = sorted({package for tool, package in TOOLS.items() if not shutil.which(tool)})
    if missing:
        raise ClusterError(f"the images need {', '.join(missing)}: apt-get install them")
    base, wheels = _base(), _wheels(tree)
    note("building the images ...")
    with tempfile.TemporaryDirectory(prefix="rte-images-") as name:
        work = Path(name)
        store = ["--root", work / "store", "--runroot", work / "run"]
        # Overlays copy nothing; where they are not allowed, every step copies the whole tree.
        overlays = subprocess.run(
            ["buildah", *store, "--storage-driver", "overlay", "info"],
            capture_output=True, check=False,
        )  # fmt: skip
        store += ["--storage-driver", "vfs" if overlays.returncode else "overlay"]
        layers = f"--layers={'false' if overlays.returncode else 'true'}"

        def buildah(command: str, *args: str | Path) -> str:
            return _run("buildah", *store, command, *args)

        container = buildah("from", "scratch").strip()
        buildah("add", "-q", container, base, "/")
        buildah("commit", "-q", "--timestamp", EPOCH, "--rm", container, "localhost/base:1")
        for target, image in names(tree).items():
            buildah(
                "bud", "-q", "--timestamp", EPOCH, "--isolation", "chroot", layers,
                "--target", target,
                "--build-arg", "BASE=localhost/base:1", "--build-arg", "PIP_NO_INDEX=1",
                "--build-arg", "PIP_FIND_LINKS=/wheels", "--volume", f"{wheels}:/wheels:ro",
                "--tag", image, tree,
            )  # fmt: skip
            buildah("push", "-q", image, f"oci:{work / 'layout'}:docker.io/library/{image}")
        _build_pause(work / "pause")
        container = buildah("from", "scratch").strip()
        buildah("copy", "-q", container, work / "pause", "/pause")
        buildah("config", "--entrypoint", '["/pause"]', container)
        buildah("commit", "-q", "--timestamp", EPOCH, "--rm", container, PAUSE_IMAGE)
        buildah("push", "-q", PAUSE_IMAGE, f"oci:{work / 'layout'}:{PAUSE_IMAGE}")
        partial = out.with_name(f".{out.name}.partial")
        with tarfile.open(partial, "w") as tar:
            for entry in sorted((work / "layout").iterdir()):
                tar.add(entry, entry.name, filter=_at_epoch)
        partial.replace(out)


def _at_epoch(entry: tarfile.TarInfo) -> tarfile.TarInfo:
    entry.mtime = int(EPOCH)
    return entry


def _base() -> Path:
    """A tree of Debian packages as a tar, made where the cache lacks it."""
    key = hashlib.sha256(" ".join((SUITE, EPOCH, *BASE_PACKAGES)).encode()).hexdigest()[:12]
    target = builder.cache_dir() / f"base-{key}.tar"
    if not target.exists():
        note("making the base image from Debian packages ...")
        partial = target.with_name(f"partial-{target.name}")
        sources = [
            str(path)
            for path in (Path("/etc/apt/sources.list"), *Path("/etc/apt/sources.list.d").iterdir())
            if path.exists() and path.suffix in (".list", ".sources")
        ]
        unneeded = [
            f"--dpkgopt=path-exclude=/usr/share/{name}/*" for name in ("doc", "locale", "man")
        ]
        _run(
            "mmdebstrap", "--quiet", "--variant=minbase", *unneeded,
            f"--include={','.join(BASE_PACKAGES)}", SUITE, partial, *sources,
            env={**os.environ, "SOURCE_DATE_EPOCH": EPOCH},
        )  # fmt: skip
        partial.replace(target)
    return target


def _wheels(tree: Path) -> Path:
    """The locked packages as wheels; nobody is asked for those that are there."""
    folder = builder.cache_dir() / "wheels"
    folder.mkdir(exist_ok=True)
    for name in ("requirements.txt", "requirements-agent.txt", "requirements-build.txt"):
        command = [
            sys.executable, "-m", "pip", "download", "--quiet", "--require-hashes",
            "--only-binary", ":all:", "--requirement", tree / name, "--dest", folder,
        ]  # fmt: skip
        try:
            _run(*command, "--no-index", "--find-links", folder)
        except ClusterError:
            _run(*command)
    return folder


def _build_pause(target: Path) -> None:
    settings = {**os.environ, "CGO_ENABLED": "0", "GOFLAGS": "-buildvcs=false", "GOWORK": "off"}
    _run("go", "build", "-ldflags", "-s -w", "-o", target, ".", cwd=PAUSE, env=settings)


def _digest(tree: Path) -> str:
    digest = hashlib.sha256()
    paths = [tree / name for name in _SOURCES] + sorted(tree.glob("requirements*.txt"))
    files = [
        file
        for path in [*paths, PAUSE]
        for file in ([path] if path.is_file() else sorted(path.rglob("*")))
        if file.is_file() and "__pycache__" not in file.parts
    ]
    digest.update(EPOCH.encode())
    for file in files:
        name = file.relative_to(PAUSE if PAUSE in file.parents else tree)
        digest.update(str(name).encode() + b"\0" + file.read_bytes() + b"\0")
    return digest.hexdigest()[:16]


def _run(*command: str | Path, **options: object) -> str:
    words = [str(word) for word in command]
    done = subprocess.run(words, capture_output=True, text=True, check=False, **options)  # type: ignore[call-overload]
    if done.returncode:
        last = "\n".join((done.stderr or done.stdout).strip().splitlines()[-20:])
        raise ClusterError(f"{' '.join(words[:4])} ... failed:\n{last}")
    return str(done.stdout)


def containerd_config(folder: Path) -> str:
    """containerd's configuration for a node's folder."""
    return f"""\
version = 2
root = "{folder}/containerd/root"
state = "{folder}/containerd/state"
[grpc]
  address = "{folder}/cri.sock"
[plugins."io.containerd.nri.v1.nri"]
  disable = false
  socket_path = "{folder}/nri/nri.sock"
  plugin_path = "{folder}/nri/plugins"
  plugin_config_path = "{folder}/nri/conf.d"
[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = "{PAUSE_IMAGE}"
  # Raising the score of a sandbox is not allowed here.
  restrict_oom_score_adj = true
  cdi_spec_dirs = ["{folder}/cdi"]
  # Else files in a folder of the host stay behind.
  netns_mounts_under_state_dir = true
[plugins."io.containerd.grpc.v1.cri".cni]
  conf_dir = "{folder}/cni"
  bin_dir = "{folder}/cni-bin"
[plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
  runtime_type = "io.containerd.runc.v2"
[plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc.options]
  BinaryName = "{Path(__file__).parent / "runc-unpinned"}"
"""


def import_command(folder: Path, images: Path) -> Sequence[str | Path]:
    """Hands an archive to the containerd of a node's folder."""
    return [
        builder.containerd() / "ctr",
        "-a",
        folder / "cri.sock",
        "-n",
        "k8s.io",
        "images",
        "import",
        images,
    ]
