"""Build the Kubernetes binaries and the stand-in runtime as Go modules into a cache."""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import re
import shutil
import subprocess
import tempfile
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tests.cluster.processes import ClusterError, note

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

DEFAULT_VERSION = "1.35.4"
#: What a minor version stands for: patches that are proven to build and run here.
PROVEN = {"1.34": "1.34.10", "1.35": DEFAULT_VERSION, "1.36": "1.36.3"}
ETCD_VERSION = "3.6.6"
HELM_VERSION = "4.3.1"
COMMANDS = ("kube-apiserver", "kube-controller-manager", "kube-scheduler", "kubelet", "kubectl")
FAKECRI = Path(__file__).parent / "fakecri"


@dataclass(frozen=True)
class Binaries:
    """Where the binaries of one Kubernetes version lie."""

    version: str
    folder: Path
    fakecri: Path

    def path(self, name: str) -> Path:
        """The path of one of :data:`COMMANDS` or ``etcd``."""
        return self.folder / name


def cache_dir() -> Path:
    """The cache: ``RTE_CACHE``, or ``rte`` in the user's cache folder."""
    chosen = os.environ.get("RTE_CACHE")
    if chosen:
        return Path(chosen).absolute()
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "rte"


def full_version(text: str) -> str:
    """``1.35`` or ``v1.35.4`` -> ``1.35.4``.

    Raises:
        ClusterError: not a version, or a minor version without a proven patch.
    """
    version = text.removeprefix("v")
    version = PROVEN.get(version, version)
    if not re.fullmatch(r"1\.\d+\.\d+", version):
        known = ", ".join(PROVEN)
        raise ClusterError(f"Kubernetes version {text!r}: give a patch version, or one of {known}")
    return version


def build(version: str = DEFAULT_VERSION) -> Binaries:
    """The binaries of a version, built where the cache lacks them (5 minutes on two cores).

    Safe to call from several processes at once.

    Raises:
        ClusterError: Go is missing or a build fails.
    """
    version = full_version(version)
    folder = cache_dir() / f"kubernetes-{version}"
    folder.mkdir(parents=True, exist_ok=True)
    with _locked(folder / ".lock"):
        missing = [name for name in COMMANDS if not (folder / name).exists()]
        if missing:
            note(f"building {', '.join(missing)} {version} into {folder} (some minutes) ...")
            _build_kubernetes(version, missing, folder)
        if not (folder / "etcd").exists():
            note(f"building etcd {ETCD_VERSION} ...")
            _build_etcd(folder)
    return Binaries(version, folder, _fakecri())


def _build_kubernetes(version: str, names: list[str], folder: Path) -> None:
    minor = version.split(".")[1]
    with _workspace() as work:
        (work / "go.mod").write_text("module testbed\n")
        download = _go(work, "mod", "download", "-json", f"k8s.io/kubernetes@v{version}")
        upstream = Path(json.loads(download)["GoMod"]).read_text()
        # k8s.io/kubernetes replaces the libraries that it stages by folders of its own tree;
        # outside of it they are the published modules of the same release.
        staged = sorted(set(re.findall(r"(k8s\.io/[a-z0-9-]+) => \./staging", upstream)))
        lines = ["module testbed", *re.findall(r"^go .*$", upstream, re.MULTILINE)]
        lines += [f"require k8s.io/kubernetes v{version}"]
        lines += [f"replace {name} => {name} v0.{version.removeprefix('1.')}" for name in staged]
        (work / "go.mod").write_text("\n".join(lines) + "\n")
        packages = [f"k8s.io/kubernetes/cmd/{name}" for name in names]
        imports = "\n".join(f'\t_ "{package}"' for package in packages)
        (work / "tools.go").write_text(
            f"//go:build tools\n\npackage tools\n\nimport (\n{imports}\n)\n"
        )
        _go(work, "mod", "tidy", "-e")
        stamp = "-X k8s.io/component-base/version."
        flags = f"-s -w {stamp}gitVersion=v{version} {stamp}gitMajor=1 {stamp}gitMinor={minor}"
        output = work / "out"
        output.mkdir()
        # tidy -e leaves out what only some of the packages need.
        _go(work, "build", "-mod=mod", "-ldflags", flags, "-o", f"{output}/", *packages)
        for name in names:
            _publish(output / name, folder / name)


def _build_etcd(folder: Path) -> None:
    package = "go.etcd.io/etcd/server/v3"
    with _workspace() as work:
        (work / "go.mod").write_text("module testbed\n\ngo 1.24\n")
        (work / "tools.go").write_text(
            f'//go:build tools\n\npackage tools\n\nimport _ "{package}"\n'
        )
        _go(work, "get", f"{package}@v{ETCD_VERSION}")
        _go(work, "build", "-ldflags", "-s -w", "-o", "etcd", package)
        _publish(work / "etcd", folder / "etcd")


def helm() -> Path:
    """The helm command, built where the cache lacks it (two minutes).

    Raises:
        ClusterError: Go is missing or the build fails.
    """
    folder = cache_dir() / f"helm-{HELM_VERSION}"
    folder.mkdir(parents=True, exist_ok=True)
    with _locked(folder / ".lock"):
        if not (folder / "helm").exists():
            note(f"building helm {HELM_VERSION} ...")
            with _workspace() as work:
                (work / "go.mod").write_text("module testbed\n\ngo 1.24\n")
                _go(work, "get", f"helm.sh/helm/v4/cmd/helm@v{HELM_VERSION}")
                package = "helm.sh/helm/v4/cmd/helm"
                _go(work, "build", "-mod=mod", "-ldflags", "-s -w", "-o", "helm", package)
                _publish(work / "helm", folder / "helm")
    return folder / "helm"


def _fakecri() -> Path:
    """Our own runtime, keyed by its sources."""
    digest = hashlib.sha256()
    for source in sorted(FAKECRI.iterdir()):
        digest.update(source.name.encode() + b"\0" + source.read_bytes() + b"\0")
    folder = cache_dir() / f"fakecri-{digest.hexdigest()[:12]}"
    folder.mkdir(parents=True, exist_ok=True)
    with _locked(folder / ".lock"):
        if not (folder / "fakecri").exists():
            note("building fakecri ...")
            _go(FAKECRI, "build", "-mod=readonly", "-ldflags", "-s -w", "-o", folder / ".new", ".")
            _publish(folder / ".new", folder / "fakecri")
    return folder / "fakecri"


def _publish(built: Path, target: Path) -> None:
    # The cache may lie on another file system, and a half-copied binary must never carry its name.
    partial = target.with_name(f".{target.name}.partial")
    shutil.copy2(built, partial)
    partial.replace(target)


@contextmanager
def _workspace() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="rte-build-") as name:
        yield Path(name)


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    with path.open("w") as handle:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield


def _go(folder: Path, *args: str | Path, env: Mapping[str, str] | None = None) -> str:
    go = shutil.which("go")
    if go is None:
        raise ClusterError("the Kubernetes binaries are not built yet and `go` is not on PATH")
    settings: dict[str, Any] = {
        **os.environ,
        "CGO_ENABLED": "0",
        "GOFLAGS": "-buildvcs=false",
        "GOWORK": "off",
        **(env or {}),
    }
    command = [go, *(str(word) for word in args)]
    done = subprocess.run(
        command, cwd=folder, env=settings, capture_output=True, text=True, check=False
    )
    if done.returncode:
        last = "\n".join(done.stderr.strip().splitlines()[-20:])
        raise ClusterError(f"{' '.join(command)} failed:\n{last}")
    return done.stdout
