"""The objects of a running cluster, for commands that look at it once."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from rte import config, errors
from rte.kube import credentials, resources
from rte.kube.client import Client

if TYPE_CHECKING:
    import argparse
    from collections.abc import Mapping

#: What every command looks at, by kind.
CLUSTER: Final = {
    "Node": resources.NODES,
    "NodeResourceTopology": resources.NRTS,
    "Pod": resources.PODS,
}
BUDGETS: Final = {"PodDisruptionBudget": resources.BUDGETS}
DRA: Final = {
    "ResourceSlice": resources.RESOURCE_SLICES,
    "ResourceClaim": resources.RESOURCE_CLAIMS,
}


def connect(args: argparse.Namespace) -> Client:
    """A client of the cluster that the arguments, the environment or the usual places name."""
    kubeconfig = config.load(args.command, vars(args), os.environ).agent.kubeconfig
    return Client(credentials.load(kubeconfig, os.environ), timeout_s=60)


def add_arguments(parser: argparse.ArgumentParser, command: str) -> None:
    """Add the arguments that say from which cluster, or which files, objects are read."""
    add = parser.add_argument
    add(
        "--from",
        dest="sources",
        type=Path,
        action="append",
        default=[],
        metavar="F",
        help="read Nodes, NodeResourceTopologies and Pods from this file, not from a cluster "
        "(as `kubectl get nodes,noderesourcetopologies,pods -A -o yaml` prints them)",
    )
    config.add_arguments(parser, command)


async def read_cluster(
    args: argparse.Namespace, lists: Mapping[str, resources.Resource] = CLUSTER
) -> list[dict[str, Any]]:
    """All objects of these kinds, as they are now; see :func:`read_objects`."""
    async with connect(args) as client:
        return await read_objects(client, lists)


async def read_objects(
    client: Client, lists: Mapping[str, resources.Resource] = CLUSTER
) -> list[dict[str, Any]]:
    """All objects of these kinds; a kind that the cluster does not know has none.

    Raises:
        errors.KubeError: the API server does not answer, or refuses a list.
    """
    items: list[dict[str, Any]] = []
    for kind, resource in lists.items():
        try:
            document = await client.get(resource.path())
        except errors.KubeError as error:
            if error.status == 404 and kind not in ("Node", "Pod"):
                continue
            raise
        items.extend({**item, "kind": kind} for item in document.get("items") or ())
    return items
