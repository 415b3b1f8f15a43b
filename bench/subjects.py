"""Exporters as subjects of a bench: a command template that runs in a node's mount namespace."""

from __future__ import annotations

import shlex
import sys
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from rte import errors
from tests.cluster import agents, builder
from tests.cluster.cluster import Cluster

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.cluster.node import Node

NRTS = "/apis/topology.node.k8s.io/v1alpha2/noderesourcetopologies"

#: Our agent, as a DaemonSet pod would run it: the node's namespace makes every default right.
OURS = (
    f"rte={sys.executable} -m rte run --node-name {{node}} --kubeconfig {{kubeconfig}}"
    " --metrics-listen off --lease-namespace kube-node-lease"
)


@dataclass(frozen=True)
class Subject:
    """A named command; ``{node}``, ``{kubeconfig}``, ``{config}`` and ``{port}`` are filled in."""

    name: str
    template: str

    @classmethod
    def parse(cls, text: str) -> Subject:
        """``NAME=COMMAND``."""
        name, equals, template = text.partition("=")
        if not equals or not template.strip():
            raise errors.UsageError(f"bad subject {text!r}: expected NAME=COMMAND")
        return cls(name, template)

    def argv(self, node: Node) -> list[str]:
        """The command for one node."""
        filled = self.template.format(
            node=node.name,
            kubeconfig=node.cluster.kubeconfig,
            config=node.config_file,
            port=node.port,
        )
        return shlex.split(filled)

    def start(self, node: Node) -> int:
        """Start it on the node; its process id."""
        return node.spawn("subject", self.argv(node))

    def stop(self, node: Node) -> None:
        """End it, and remove what it published."""
        node.stop("subject")
        node.cluster.api.delete(f"{NRTS}/{node.name}")


@contextmanager
def one_node(*, version: str = builder.DEFAULT_VERSION, **options: Any) -> Iterator[Node]:
    """A cluster of some Kubernetes version with the CRD and one node."""
    cluster = Cluster.start(version=version)
    try:
        agents.install_crd(cluster)
        yield cluster.add_node(**options)
    finally:
        cluster.stop()


def quantile(values: list[float], share: float) -> float | None:
    """The value below which ``share`` of them lie, in milliseconds."""
    if not values:
        return None
    ordered = sorted(values)
    return round(1000 * ordered[min(len(ordered) - 1, int(len(ordered) * share))], 1)
