"""``rte import``: what other systems have, in rte's own forms."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from rte.cli.parsing import Command

if TYPE_CHECKING:
    import argparse

COMMAND = Command(
    "turn what another scheduler has (NHD) into requests, inventories, StatefulSets",
    "rte import nhd triad job.cfg",
)


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the flags of the command."""
    systems = parser.add_subparsers(dest="system", metavar="SYSTEM", required=True)
    nhd = systems.add_parser("nhd", help="Viasat's NUMA-aware scheduler")
    forms = nhd.add_subparsers(dest="form", metavar="WHAT", required=True)
    file = forms.add_parser("triad", help="a configuration file as request annotation")
    file.add_argument("file", type=Path, metavar="FILE", help="libconfig file; - is standard input")
    file.add_argument(
        "--fields", action="store_true", help="also tell which field of the file gets what"
    )
    again = forms.add_parser(
        "replay", help="where pods that NHD has placed would go here, and why elsewhere"
    )
    again.add_argument("-o", "--output", choices=("text", "json"), default="text")
    where = forms.add_parser(
        "place", help="where the pod of a configuration file would go, and why not elsewhere"
    )
    where.add_argument("config", type=Path, metavar="FILE", help="libconfig file")
    where.add_argument(
        "--node-groups", default="default", metavar="A,B", help="as sigproc.viasat.io/nhd_groups"
    )
    for sub in (again, where):
        sub.add_argument(
            "--groups-policy",
            type=Path,
            metavar="FILE",
            help="as the scheduler's flag of that name",
        )
    nodes = forms.add_parser("labels", help="labels of Nodes as inventory and site values")
    sets = forms.add_parser("triadset", help="TriadSets as StatefulSets")
    sets.add_argument(
        "--scheduler-name", default="rte-scheduler", metavar="NAME", help="who places the pods"
    )
    sets.add_argument(
        "--nhd-config",
        action="store_true",
        help="the requests carry NHD's file along: pods find it, filled in, in the annotation "
        "sigproc.viasat.io/nhd_config as before",
    )
    for sub in (nodes, sets, again, where):
        sub.add_argument(
            "-f", "--file", type=Path, action="append", required=True, metavar="FILE",
            help="objects as kubectl prints them: Nodes, TriadSets with the ConfigMaps of their "
            "pods, or (replay, place) Nodes and Pods",
        )  # fmt: skip


def run(args: argparse.Namespace) -> int:
    """Run the command."""
    from rte.cli import nhd  # here: --help of all commands does without

    return nhd.run(args)
