"""Carries out a pod's mounts on a made-up node, as kubelet and runc do, and tells what is seen.

``unshare -m python -m tests.cluster.mounts`` reads a JSON plan and prints a JSON report: the mount
namespace of its own keeps all of it from the machine. Sources: the kubelet's hostPath types
(pkg/volume/hostpath) and runc's libcontainer/rootfs_linux.go (rbind, then propagation, then a
read-only remount that does not reach the mounts below).
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any


class MountError(Exception):
    """The container would not start; the text names the volume or the path."""


def _run(*command: str | Path) -> None:
    done = subprocess.run(
        [str(word) for word in command], capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise MountError(done.stderr.strip() or f"{command[0]} failed")


def _source(volume: dict[str, Any], host: Path, scratch: Path) -> Path:
    """What a volume shows, after the kubelet's checks."""
    if "hostPath" in volume:
        path = _on_host(host, volume["hostPath"]["path"])
        kind = volume["hostPath"].get("type", "")
        if kind == "DirectoryOrCreate":
            path.mkdir(parents=True, exist_ok=True)
        if (kind == "Directory" and not path.is_dir()) or (kind == "File" and not path.is_file()):
            raise MountError(f"volume {volume['name']}: {path} is not a {kind.lower()}")
        return path
    folder = scratch / volume["name"]
    folder.mkdir(exist_ok=True)
    for item in volume.get("configMap", {}).get("items", ()):
        (folder / item["path"]).write_text("a CA\n")
    return folder


def _on_host(host: Path, path: str) -> Path:
    """A path of the node, with its absolute links followed inside of it."""
    found = host
    for part in Path(path).parts[1:]:
        found /= part
        if found.is_symlink():
            found = _on_host(host, str(found.readlink()))
    return found


def _mount(mount: dict[str, Any], source: Path, root: Path) -> None:
    target = root / mount["mountPath"].lstrip("/")
    try:
        if source.is_dir():
            target.mkdir(parents=True, exist_ok=True)
        elif not target.exists():
            target.parent.mkdir(parents=True, exist_ok=True)
            target.touch()
    except OSError as error:
        raise MountError(f"{mount['mountPath']}: no place to mount on: {error.strerror}") from error
    _run("mount", "--rbind", source, target)
    shared = mount.get("mountPropagation") == "HostToContainer"
    _run("mount", "--make-rslave" if shared else "--make-rprivate", target)
    if mount.get("readOnly"):
        _run("mount", "-o", "remount,bind,ro", target)


def main(plan: dict[str, Any]) -> dict[str, Any]:
    """Mount, look, unmount on the host, look again.

    ``host``: the node's root; ``host_mounts``: paths there on which other pods' volumes are
    mounted; ``read``: paths in the container to read. Reports ``error`` where the container would
    not start, else ``files`` (all that can be read below the mounts), ``writable`` (folders),
    ``left`` (volumes of others that are still mounted after the host let them go).
    """
    host, root, scratch = (Path(plan[name]) for name in ("host", "root", "scratch"))
    _run("mount", "-t", "tmpfs", "node", host / "var")
    _run("mount", "--make-rshared", host / "var")
    for link, target in plan["links"].items():
        (host / link.lstrip("/")).parent.mkdir(parents=True, exist_ok=True)
        (host / link.lstrip("/")).symlink_to(target)
    for name, content in plan["files"].items():
        path = _on_host(host, name)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content)
    volumes_of_others = []
    for number, path in enumerate(plan["host_mounts"]):
        place = _on_host(host, path)
        place.mkdir(parents=True, exist_ok=True)
        _run("mount", "-t", "tmpfs", f"other-pods-{number}", place)
        (place / "data").write_text("of another pod\n")
        volumes_of_others.append(place)
    try:
        # All volumes of a pod are there before its first container starts.
        sources = {volume["name"]: _source(volume, host, scratch) for volume in plan["volumes"]}
        for mount in sorted(plan["mounts"], key=lambda m: len(Path(m["mountPath"]).parts)):
            _mount(mount, sources[mount["name"]], root)
    except MountError as error:
        return {"error": str(error)}
    report: dict[str, Any] = {"files": {}, "writable": []}
    for folder, _, files in os.walk(root):
        shown = "/" + str(Path(folder).relative_to(root))
        if Path(folder).is_relative_to(root) and os.access(folder, os.W_OK) and shown != "/.":
            report["writable"].append(shown)
        for name in files:
            report["files"][f"{shown}/{name}"] = (Path(folder) / name).read_text()
    report["writable"] = [
        path
        for path in report["writable"]
        if any(Path(path).is_relative_to(mount["mountPath"]) for mount in plan["mounts"])
    ]
    for place in volumes_of_others:
        _run("umount", place)
    mounted = Path("/proc/self/mountinfo").read_text()
    report["left"] = [
        f"other-pods-{number}"
        for number in range(len(volumes_of_others))
        if f" other-pods-{number} " in mounted
    ]
    return report


if __name__ == "__main__":
    print(json.dumps(main(json.load(sys.stdin))))
