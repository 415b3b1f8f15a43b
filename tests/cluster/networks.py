"""The network of pods on nodes with real containers: Debian's plugins, and Multus where wanted.

A pod that is not on its node's network has a name space and an address of its own, and a cable to
the host (plugin ptp). There are no Services, and pods of different nodes do not reach each other.
"""

from __future__ import annotations

import json
import subprocess
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tests.cluster import builder
from tests.cluster.processes import ClusterError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from tests.cluster.node import Node

#: Where Debian's package has them.
PLUGINS = Path("/usr/lib/cni")
PACKAGE = "containernetworking-plugins"
_NETWORK = Path("/sys/class/net")


def prepare(folder: Path, number: int) -> None:
    """Write a node's network; ``number`` chooses one of 512 ranges of addresses.

    Raises:
        ClusterError: the plugins are not installed.
    """
    if not (PLUGINS / "ptp").exists():
        raise ClusterError(f"the network of pods needs {PACKAGE}: apt-get install it")
    for name in ("cni", "cni-bin", "cdi", "nri"):
        (folder / name).mkdir()
    for program in PLUGINS.iterdir():
        (folder / "cni-bin" / program.name).symlink_to(program)
    (folder / "cni/50-lane.conf").write_text(json.dumps(_cable(folder, number)))


def _cable(folder: Path, number: int) -> dict[str, Any]:
    # The range of addresses for measurements (RFC 2544).
    subnet = f"198.{18 + (number >> 8) % 2}.{number % 256}.0/24"
    return {
        "cniVersion": "0.4.0",
        "name": "lane",
        "type": "ptp",
        "ipam": {"type": "host-local", "subnet": subnet, "dataDir": str(folder / "addresses")},
    }


def use_multus(node: Node) -> None:
    """From now on Multus attaches what a pod's annotation selects, beside the network above."""
    (node.dir / "cni-bin/multus").symlink_to(builder.multus())
    config = {
        "cniVersion": "0.4.0",
        "name": "multus",
        "type": "multus",
        "kubeconfig": str(node.cluster.kubeconfig),
        "cniDir": str(node.dir / "multus"),
        "binDir": str(node.dir / "cni-bin"),
        "delegates": [json.loads((node.dir / "cni/50-lane.conf").read_text())],
    }
    # In place: containerd does not look at files that are moved there.
    (node.dir / "cni/00-multus.conf").write_text(json.dumps(config))


@contextmanager
def interfaces(run_dir: Path, macs: Mapping[str, str]) -> Iterator[None]:
    """Interfaces of these names and addresses on the host, while it lasts.

    Each end tells by its alias whose it is, for :func:`sweep`.
    """
    try:
        for name, mac in macs.items():
            _ip("link", "add", name, "address", mac, "type", "veth", "peer", "name", f"{name}-far")
            for end in (name, f"{name}-far"):
                _ip("link", "set", end, "alias", str(run_dir))
        yield
    finally:
        _delete(run_dir)


def sweep(runs: Path, prefix: str) -> list[str]:
    """Remove the interfaces of runs whose folder is gone; one line for each pair."""
    swept = []
    for alias in _NETWORK.glob("*/ifalias"):
        with suppress(OSError):  # gone with its other end
            run_dir = Path(alias.read_text().strip())
            if run_dir.parent == runs and run_dir.name.startswith(prefix) and not run_dir.exists():
                swept.append(f"interface {alias.parent.name} of {run_dir}")
                _delete(run_dir)
    return swept


def _delete(run_dir: Path) -> None:
    """Delete the ends that are here; each takes the other along, wherever that is."""
    for alias in list(_NETWORK.glob("*/ifalias")):
        with suppress(OSError):
            if alias.read_text().strip() == str(run_dir):
                # It may go by itself just now, with the network of a pod that ends.
                _ip("link", "delete", alias.parent.name, check=False)


def _ip(*words: str, check: bool = True) -> None:
    done = subprocess.run(["ip", *words], capture_output=True, text=True, check=False)
    if check and done.returncode:
        raise ClusterError(f"ip {' '.join(words)}: {done.stderr.strip()}")
