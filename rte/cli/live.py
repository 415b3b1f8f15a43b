"""The objects of a running cluster, for commands that look at it once."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from rte import config, errors
from rte.cli.inputs import KINDS
from rte.kube import credentials
from rte.kube.client import Client
from rte.scheduler.shell.feeds import COLLECTIONS

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterable

    from rte.reader.json import JsonObject

#: Without these a command cannot say anything.
_NEEDED = ("nodes", "pods")


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


async def read_objects(client: Client, collections: Iterable[str] = KINDS) -> list[JsonObject]:
    """All objects of these collections.

    A collection that the cluster does not know has none; one that the user may not read has none
    either, and standard error says so.

    Raises:
        errors.KubeError: the API server does not answer, or refuses nodes or pods.
    """
    items: list[JsonObject] = []
    for name in collections:
        resource, kind = COLLECTIONS[name], KINDS[name]
        try:
            document = await client.get(resource.path())
        except errors.KubeError as error:
            if error.status not in (403, 404) or name in _NEEDED:
                raise
            if error.status == 403:
                print(f"note: judged without {kind} objects: {error}", file=sys.stderr)
            continue
        known = {"kind": kind, "apiVersion": resource.api_version}
        items.extend({**item, **known} for item in document.get("items") or ())
    return items
