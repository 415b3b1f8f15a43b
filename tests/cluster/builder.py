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
    from collections.abc import Collection, Iterator, Sequence

DEFAULT_VERSION = "1.37.1"
#: What a minor version stands for: patches that are proven to build and run here.
PROVEN = {"1.34": "1.34.8", "1.35": "1.35.4", "1.36": "1.36.4", "1.37": DEFAULT_VERSION}
#: How many minor versions a kubelet may be older than the API server (Kubernetes' version skew
#: policy); newer it must not be.
MAX_SKEW = 3
ETCD_VERSION = "3.6.6"
HELM_VERSION = "4.3.1"
#: A release with the Node Resource Interface, which distributions' packages may lack (before 1.7).
CONTAINERD_VERSION = "2.1.4"
MULTUS_VERSION = "4.2.3"
KUEUE_VERSION = "0.17.0"
CONTAINERD_PROGRAMS = ("containerd", "containerd-shim-runc-v2", "ctr")
KUBELET, ETCD = "kubelet", "etcd"
#: All that a cluster runs.
PROGRAMS = (
    "kube-apiserver", "kube-controller-manager", "kube-scheduler", KUBELET, "kubectl", ETCD,
)  # fmt: skip
FAKECRI = Path(__file__).parent / "fakecri"


@dataclass(frozen=True)
class _Patch:
    """Text of a file of k8s.io/kubernetes, and what the test bed puts in its place."""

    file: str
    before: str
    after: str


#: By minor version. Containers have no cgroups here. A kubelet 1.36 takes every pod whose init
#: containers have ended for resized, and dies of the configuration of a cgroup that is not there.
_PATCHES = {
    36: _Patch(
        "pkg/kubelet/cm/pod_container_manager_linux.go",
        "func (m *podContainerManagerNoop) GetPodCgroupConfig(_ *v1.Pod, _ v1.ResourceName) "
        "(*ResourceConfig, error) {\n\treturn nil, nil\n",
        "func (m *podContainerManagerNoop) GetPodCgroupConfig(_ *v1.Pod, _ v1.ResourceName) "
        "(*ResourceConfig, error) {\n\treturn &ResourceConfig{Memory: new(int64), "
        "CPUQuota: new(int64), CPUPeriod: new(uint64), CPUShares: new(uint64)}, nil\n",
    ),
}


@dataclass(frozen=True)
class Binaries:
    """Where the binaries of one Kubernetes version lie."""

    version: str
    folder: Path
    fakecri: Path

    def path(self, name: str) -> Path:
        """The path of one of :data:`PROGRAMS`."""
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


def kubelet_version(text: str, api_server: str) -> str:
    """The full version of a kubelet that may join a cluster.

    Raises:
        ClusterError: as :func:`full_version`, or the API server does not support that kubelet.
    """
    version = full_version(text)
    age = minor_of(api_server) - minor_of(version)
    if not 0 <= age <= MAX_SKEW:
        raise ClusterError(
            f"kubelet {version}: an API server {api_server} supports kubelets of its own minor "
            f"version and of the {MAX_SKEW} before it"
        )
    return version


def minor_of(version: str) -> int:
    """``1.35.4`` -> 35."""
    return int(version.split(".")[1])


def build(version: str = DEFAULT_VERSION, programs: Collection[str] = PROGRAMS) -> Binaries:
    """The binaries of a version, built where the cache lacks them (5 minutes on two cores).

    Safe to call from several processes at once.

    Args:
        programs: which of :data:`PROGRAMS` are needed; a node alone needs its kubelet.

    Raises:
        ClusterError: Go is missing or a build fails.
    """
    version = full_version(version)
    folder = cache_dir() / f"kubernetes-{version}"
    folder.mkdir(parents=True, exist_ok=True)
    with locked(folder / ".lock"):
        missing = [name for name in programs if not (folder / name).exists()]
        commands = [name for name in missing if name != ETCD]
        if commands:
            note(f"building {', '.join(commands)} {version} into {folder} (some minutes) ...")
            _build_kubernetes(version, commands, folder)
        if ETCD in missing:
            note(f"building etcd {ETCD_VERSION} ...")
            _build_etcd(folder)
    return Binaries(version, folder, _fakecri())


def _build_kubernetes(version: str, names: list[str], folder: Path) -> None:
    minor = minor_of(version)
    with _workspace() as work:
        (work / "go.mod").write_text("module testbed\n")
        download = json.loads(
            _go(work, "mod", "download", "-json", f"k8s.io/kubernetes@v{version}")
        )
        upstream = Path(download["GoMod"]).read_text()
        # k8s.io/kubernetes replaces the libraries that it stages by folders of its own tree;
        # outside of it they are the published modules of the same release.
        staged = _staged(
            work, set(re.findall(r"(k8s\.io/[a-z0-9-]+) => \./staging", upstream)), version
        )
        lines = ["module testbed", *re.findall(r"^go .*$", upstream, re.MULTILINE)]
        lines += [f"require k8s.io/kubernetes v{version}"]
        lines += [f"replace {name} => {name} {found}" for name, found in sorted(staged.items())]
        if patch := _PATCHES.get(minor):
            _patched(Path(download["Dir"]), patch, work / "kubernetes")
            lines += ["replace k8s.io/kubernetes => ./kubernetes"]
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


def _patched(source: Path, patch: _Patch, target: Path) -> None:
    """Copy the sources of Kubernetes with a patch applied.

    Raises:
        ClusterError: the text to replace is not there.
    """
    for folder in ("cmd", "pkg", "plugin", "third_party"):
        shutil.copytree(source / folder, target / folder, copy_function=shutil.copyfile)
    shutil.copyfile(source / "go.mod", target / "go.mod")
    file = target / patch.file
    text = file.read_text()
    if patch.before not in text:
        raise ClusterError(f"{patch.file} of {source.name} is not as the test bed knows it")
    file.parent.chmod(0o755)
    file.write_text(text.replace(patch.before, patch.after))


def _staged(work: Path, names: Collection[str], version: str) -> dict[str, str]:
    """Library -> its published version for a release of Kubernetes.

    Not every library is published (or served by a module proxy) for every patch release: then the
    nearest older patch of the same minor version takes its place, or else a newer one, whose API
    may be ahead of the caller.

    Raises:
        ClusterError: a library has no published patch of this minor version.
    """
    _, minor, patch = version.split(".")
    found = _published(work, [f"{name}@v0.{minor}.{patch}" for name in names])
    near = [*range(int(patch) - 1, -1, -1), *range(int(patch) + 1, int(patch) + 10)]
    for name in sorted(set(names) - found.keys()):
        for other in near:
            if instead := _published(work, [f"{name}@v0.{minor}.{other}"]):
                found |= instead
                note(f"{name}@v0.{minor}.{patch} is not published, {found[name]} stands in for it")
                break
        else:
            raise ClusterError(f"{name} is not published for Kubernetes 1.{minor}")
    return found


def _published(work: Path, queries: Collection[str]) -> dict[str, str]:
    """Those of the modules (``name@version``) that can be downloaded: name -> version."""
    listed = _go(work, "mod", "download", "-json", *queries, check=False)
    modules = [json.loads(text) for text in re.split(r"(?<=\})\n(?=\{)", listed.strip())]
    return {item["Path"]: item["Version"] for item in modules if "Error" not in item}


def _build_etcd(folder: Path) -> None:
    package = "go.etcd.io/etcd/server/v3"
    with _workspace() as work:
        (work / "go.mod").write_text("module testbed\n\ngo 1.24\n")
        (work / "tools.go").write_text(
            f'//go:build tools\n\npackage tools\n\nimport _ "{package}"\n'
        )
        _go(work, "get", f"{package}@v{ETCD_VERSION}")
        _go(work, "build", "-ldflags", "-s -w", "-o", ETCD, package)
        _publish(work / ETCD, folder / ETCD)


def helm() -> Path:
    """The helm command, built where the cache lacks it (two minutes).

    Raises:
        ClusterError: Go is missing or the build fails.
    """
    return _from_module("helm", HELM_VERSION, "helm.sh/helm/v4/cmd", ["helm"]) / "helm"


def kueue() -> Path:
    """Folder of Kueue: ``kueue`` and ``config`` (its CRDs and webhooks), built where the cache
    lacks them (three minutes on two cores).

    Raises:
        ClusterError: Go is missing or the build fails.
    """
    folder = cache_dir() / f"kueue-{KUEUE_VERSION}"
    folder.mkdir(parents=True, exist_ok=True)
    with locked(folder / ".lock"):
        if not (folder / "kueue").exists():
            note(f"building kueue {KUEUE_VERSION} ...")
            module = f"sigs.k8s.io/kueue@v{KUEUE_VERSION}"
            with _workspace() as work:
                (work / "go.mod").write_text("module testbed\n\ngo 1.25.0\n")
                download = json.loads(_go(work, "mod", "download", "-json", module))
                _go(work, "get", f"sigs.k8s.io/kueue/cmd/kueue@v{KUEUE_VERSION}")
                package = "sigs.k8s.io/kueue/cmd/kueue"
                _go(work, "build", "-mod=mod", "-ldflags", "-s -w", "-o", "kueue", package)
                for part in ("crd/bases", "webhook"):
                    target = folder / "config" / part
                    target.mkdir(parents=True, exist_ok=True)
                    for file in (Path(download["Dir"]) / "config/components" / part).iterdir():
                        shutil.copyfile(file, target / file.name)
                _publish(work / "kueue", folder / "kueue")
    return folder


def containerd() -> Path:
    """Folder of containerd, its shim and ctr, built where the cache lacks them (two minutes).

    Raises:
        ClusterError: Go is missing or the build fails.
    """
    module, tags = (
        "github.com/containerd/containerd/v2/cmd",
        "no_btrfs no_devmapper no_tracing no_zfs",
    )
    return _from_module("containerd", CONTAINERD_VERSION, module, CONTAINERD_PROGRAMS, tags)


def multus() -> Path:
    """The Multus plugin (the thin one), built where the cache lacks it (two minutes).

    Raises:
        ClusterError: Go is missing or the build fails.
    """
    module = "gopkg.in/k8snetworkplumbingwg/multus-cni.v4/cmd"
    return _from_module("multus", MULTUS_VERSION, module, ["multus"]) / "multus"


def _from_module(
    name: str, version: str, parent: str, programs: Collection[str], tags: str = ""
) -> Path:
    """Folder of the programs of a module, each the package of its name below ``parent``."""
    folder = cache_dir() / f"{name}-{version}"
    folder.mkdir(parents=True, exist_ok=True)
    with locked(folder / ".lock"):
        missing = [program for program in programs if not (folder / program).exists()]
        if missing:
            note(f"building {name} {version} ...")
            packages = [f"{parent}/{program}" for program in missing]
            with _workspace() as work:
                (work / "go.mod").write_text("module testbed\n\ngo 1.24\n")
                _go(work, "get", *(f"{package}@v{version}" for package in packages))
                flags = ["-mod=mod", "-tags", tags, "-ldflags", "-s -w"]
                _go(work, "build", *flags, "-o", f"{work / 'bin'}/", *packages)
                for program in missing:
                    _publish(work / "bin" / program, folder / program)
    return folder


def _fakecri() -> Path:
    """Our own runtime."""
    return own_program("fakecri", sorted(FAKECRI.iterdir()))


def own_program(name: str, sources: Sequence[Path]) -> Path:
    """A program of ours in Go, keyed by its sources; a module where they have a ``go.mod``."""
    digest = hashlib.sha256()
    for source in sources:
        digest.update(source.name.encode() + b"\0" + source.read_bytes() + b"\0")
    folder = cache_dir() / f"{name}-{digest.hexdigest()[:12]}"
    folder.mkdir(parents=True, exist_ok=True)
    with locked(folder / ".lock"):
        if not (folder / name).exists():
            note(f"building {name} ...")
            module = any(source.name == "go.mod" for source in sources)
            what = ["-mod=readonly"] if module else []
            what += ["-ldflags", "-s -w", "-o", str(folder / ".new")]
            what += ["."] if module else map(str, sources)
            _go(sources[0].parent, "build", *what)
            _publish(folder / ".new", folder / name)
    return folder / name


def kubernetes_sources(version: str = DEFAULT_VERSION) -> Path:
    """The folder of the module k8s.io/kubernetes, its tests included.

    Raises:
        ClusterError: Go is missing, or the module cannot be had.
    """
    with _workspace() as work:
        (work / "go.mod").write_text("module testbed\n\ngo 1.24\n")
        told = _go(work, "mod", "download", "-json", f"k8s.io/kubernetes@v{full_version(version)}")
    return Path(json.loads(told)["Dir"])


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
def locked(path: Path) -> Iterator[None]:
    """Alone among all processes of this machine, while it lasts."""
    with path.open("w") as handle:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield


def _go(folder: Path, *args: str | Path, check: bool = True) -> str:
    go = shutil.which("go")
    if go is None:
        raise ClusterError("the Kubernetes binaries are not built yet and `go` is not on PATH")
    settings: dict[str, Any] = {
        **os.environ,
        "CGO_ENABLED": "0",
        "GOFLAGS": "-buildvcs=false",
        "GOWORK": "off",
        # The checksum database may not know (or may not be asked for) what a proxy serves.
        "GONOSUMDB": ",".join(filter(None, (os.environ.get("GONOSUMDB"), "sigs.k8s.io/kueue"))),
    }
    command = [go, *(str(word) for word in args)]
    done = subprocess.run(
        command, cwd=folder, env=settings, capture_output=True, text=True, check=False
    )
    if check and done.returncode:
        last = "\n".join(done.stderr.strip().splitlines()[-20:])
        raise ClusterError(f"{' '.join(command)} failed:\n{last}")
    return done.stdout
