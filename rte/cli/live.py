"""The objects of a running cluster, for commands that look at it once."""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING

from rte import config, errors
from rte.cli.inputs import KINDS, build_cluster
from rte.kube import credentials
from rte.kube.client import Client
from rte.scheduler.cache.intake import Intake
from rte.scheduler.shell.feeds import COLLECTIONS, age_of

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterable, Mapping

    from rte.reader.json import JsonObject
    from rte.scheduler.cache.cluster import Cluster

#: Without these a command cannot say anything.
_NEEDED = ("nodes", "pods")
_EVERYTHING: Mapping[str, str] = MappingProxyType({})


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
        help="read the objects from this file, not from a cluster (as `kubectl get "
        "nodes,noderesourcetopologies,pods -A -o yaml` prints them; other kinds that decisions "
        "follow from, as claims and volumes, are read as well)",
    )
    config.add_arguments(parser, command)


async def read_cluster(
    args: argparse.Namespace, collections: Iterable[str] = KINDS
) -> list[JsonObject]:
    """All objects of these collections, as they are now; see :func:`read_objects`."""
    async with connect(args) as client:
        return await read_objects(client, collections)


async def read_node(client: Client, name: str, agent_namespace: str) -> Cluster:
    """One node as it is now, with its pods, its report, and whether its agent lives.

    Raises:
        errors.KubeError: the API server does not answer, or refuses nodes or pods.
    """
    own = f"metadata.name={name}"
    selectors = {"nodes": own, "reports": own, "pods": f"spec.nodeName={name}"}
    items = await read_objects(client, selectors, selectors)
    cluster, problems = build_cluster(items, time.monotonic())
    for line in problems:
        print(f"note: {line}", file=sys.stderr)
    try:
        lease = await client.get(COLLECTIONS["leases"].path(name, agent_namespace))
    except errors.KubeError as error:
        if error.status not in (403, 404):
            raise
        if error.status == 403:
            print(f"note: judged without the agent's Lease: {error}", file=sys.stderr)
    else:
        age_s = age_of(str((lease.get("spec") or {}).get("renewTime") or ""))
        Intake(cluster).seen("leases", lease, time.monotonic(), age_s=age_s)
    return cluster


async def read_objects(
    client: Client, collections: Iterable[str] = KINDS, selectors: Mapping[str, str] = _EVERYTHING
) -> list[JsonObject]:
    """All objects of these collections; of some only those that a field selector leaves.

    A collection that the cluster does not know has none; one that the user may not read has none
    either, and standard error says so.

    Raises:
        errors.KubeError: the API server does not answer, or refuses nodes or pods.
    """
    items: list[JsonObject] = []
    for name in collections:
        resource, kind = COLLECTIONS[name], KINDS[name]
        try:
            wanted = {"fieldSelector": selectors[name]} if name in selectors else {}
            document = await client.get(resource.path(), **wanted)
        except errors.KubeError as error:
            if error.status not in (403, 404) or name in _NEEDED:
                raise
            if error.status == 403:
                print(f"note: judged without {kind} objects: {error}", file=sys.stderr)
            continue
        known = {"kind": kind, "apiVersion": resource.api_version}
        items.extend({**item, **known} for item in document.get("items") or ())
    return items
