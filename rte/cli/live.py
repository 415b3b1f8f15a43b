"""The objects of a running cluster, for commands that look at it once."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from rte import errors
from rte.kube import credentials, resources
from rte.kube.client import Client

if TYPE_CHECKING:
    from pathlib import Path

_LISTS = {
    "Node": resources.NODES,
    "NodeResourceTopology": resources.NRTS,
    "Pod": resources.PODS,
    "PodDisruptionBudget": resources.BUDGETS,
}
#: Kinds without which a command still has an answer.
_OPTIONAL = ("NodeResourceTopology", "PodDisruptionBudget")


def connect(kubeconfig: Path | None) -> Client:
    """A client of the cluster that the kubeconfig (or the usual places) names."""
    return Client(credentials.load(kubeconfig, os.environ), timeout_s=60)


async def read_cluster(kubeconfig: Path | None, *, budgets: bool = False) -> list[dict[str, Any]]:
    """Nodes, reports and pods (with ``budgets``: PodDisruptionBudgets too), as they are now.

    Raises:
        errors.KubeError: the API server does not answer, or refuses a list.
    """
    async with connect(kubeconfig) as client:
        return await read_objects(client, budgets=budgets)


async def read_objects(client: Client, *, budgets: bool = False) -> list[dict[str, Any]]:
    """The same, over an open connection."""
    items: list[dict[str, Any]] = []
    for kind, resource in _LISTS.items():
        if kind == "PodDisruptionBudget" and not budgets:
            continue
        try:
            document = await client.get(resource.path())
        except errors.KubeError as error:
            if kind in _OPTIONAL and error.status == 404:
                continue
            raise
        items.extend({**item, "kind": kind} for item in document.get("items") or ())
    return items
