"""A cluster of the test bed for one benchmark."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

from rte import errors
from tests.cluster.cluster import Cluster
from tests.cluster.processes import ClusterError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from tests.cluster.node import Node


def run(name: str, measure: Callable[[Cluster], int], **options: Any) -> int:
    """Measure on a cluster of its own; the exit code, 1 with one line where that fails.

    ``options``: of :meth:`Cluster.start`.
    """
    try:
        cluster = Cluster.start(**options)
        try:
            return measure(cluster)
        finally:
            cluster.stop()
    except (ClusterError, errors.RteError, ValueError) as error:
        print(f"bench.{name}: {error}", file=sys.stderr)
        return 1


def add_nodes(cluster: Cluster, plans: Iterable[Mapping[str, Any]]) -> list[Node]:
    """Nodes, all started before the first is waited for; a plan: of :meth:`Cluster.add_node`."""
    nodes = [cluster.add_node(**plan, wait=False) for plan in plans]
    for node in nodes:
        node.wait_ready(120)
    return nodes
