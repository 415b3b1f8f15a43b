"""Starts the test bed's drivers on a node."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING

from tests.cluster import processes

if TYPE_CHECKING:
    from tests.cluster import node as nodes
    from tests.cluster.cluster import Cluster


def start_driver(cluster: Cluster, node: nodes.Node) -> None:
    """Both drivers of a node, registered with its kubelet."""
    node.spawn(
        "dra-driver",
        [
            sys.executable,
            "-m",
            "tests.cluster.dra.driver",
            "--node",
            node.name,
            "--server",
            cluster.api.server,
            "--ca",
            cluster.authority.certificate,
            "--token",
            str(cluster.info["token"]),
            "--log",
            node.dir / "dra.jsonl",
            *hardware(node),
        ],
    )
    processes.wait_until(
        lambda: calls(node, "registered") == 2, 60, "both drivers to be registered"
    )


def hardware(node: nodes.Node) -> list[str]:
    """Its PCI devices too; a namespace shows CPUs and memory only."""
    return [f"--sysfs-root={node.machine / 'sys'}", f"--procfs-root={node.machine / 'proc'}"]


def calls(node: nodes.Node, what: str) -> int:
    """How often a kubelet has done so."""
    log = node.dir / "dra.jsonl"
    lines = log.read_text().splitlines() if log.exists() else []
    return sum(json.loads(line)["what"] == what for line in lines)
