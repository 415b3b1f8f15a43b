"""``rte demo``: a whole cluster in this process."""

from __future__ import annotations

import asyncio
import math
from typing import TYPE_CHECKING

from rte import errors
from rte.cli import inputs, live
from rte.kube import credentials
from rte.kube.client import Client
from rte.kubelet.config import TOPOLOGY_POLICIES, TOPOLOGY_SCOPES
from rte.scheduler.loop.cycle import Cycle
from rte.sim import demo, machines

if TYPE_CHECKING:
    import argparse
    from pathlib import Path

_MOST_NODES = 500
#: New pods a second of the largest demos.
_MOST_PODS = 20.0
_RESERVED = 512 << 20


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the command's flags."""
    add = parser.add_argument
    add(
        "--nodes",
        type=int,
        default=5,
        metavar="N",
        help="number of nodes (default %(default)s); the last of five or more is for groups",
    )
    add(
        "--shape",
        action="append",
        metavar="SHAPE",
        help="machine of the nodes: ZONESxCPUS[,sockets=N][,threads=N][,memory=Q][,l3=CORES]"
        "[,memory-zones=N][,hugepages-2Mi=N][,hugepages-1Gi=N], e.g. 2x32; "
        "given several times: in turn",
    )
    add(
        "--policy",
        choices=TOPOLOGY_POLICIES,
        default="single-numa-node",
        help="topology manager policy (default %(default)s)",
    )
    add(
        "--scope",
        choices=TOPOLOGY_SCOPES,
        default="container",
        help="topology manager scope (default %(default)s)",
    )
    add(
        "--rate",
        type=float,
        metavar="R",
        help="new pods per second (default: 1 for each 5 nodes, 2 with --compare)",
    )
    add("--seed", type=int, default=1, metavar="N", help="of the random pods (default %(default)s)")
    add("--port", type=int, default=0, metavar="PORT", help="of the API server (default: any free)")
    add(
        "--compare",
        action="store_true",
        help="the same pods under plain Kubernetes rules as well, on a second set of such nodes",
    )
    add(
        "--once",
        action="store_true",
        help="a short tour instead: place a few pods, print the NRTs, end",
    )
    add(
        "--chaos",
        type=float,
        nargs="?",
        const=math.inf,
        metavar="SECONDS",
        help="meanwhile kubelets restart, agents die and the API server goes away (for so many "
        "seconds, else until Ctrl-C); says at the end whether a pod was lost by it, 1 if so",
    )


def run(args: argparse.Namespace) -> int:
    """Show a living cluster until Ctrl-C."""
    if not 1 <= args.nodes <= _MOST_NODES:
        raise errors.UsageError(f"--nodes {args.nodes}: give 1 to {_MOST_NODES}")
    rate = args.rate
    if rate is None:
        rate = min(_MOST_PODS, max(1.0, args.nodes / 5) * (2 if args.compare else 1))
    if not 0 < rate <= 100:
        raise errors.UsageError(f"--rate {args.rate:g}: give a number above 0, at most 100")
    if not 0 <= args.port < 65536:
        raise errors.UsageError(f"--port {args.port}: give 1 to 65535, or 0 for any free port")
    if args.chaos is not None and not args.chaos > 0:
        raise errors.UsageError(f"--chaos {args.chaos:g}: give seconds above 0")
    if args.chaos is not None and (args.once or args.compare):
        raise errors.UsageError("--chaos cannot be used with --once or --compare")
    shapes = tuple(args.shape or demo.Settings().shapes)
    for shape in shapes:
        if machines.parse(shape).memory <= _RESERVED:
            raise errors.UsageError(
                f"--shape {shape}: give its zones more memory: kubelets keep 512 MiB"
            )
    settings = demo.Settings(
        nodes=args.nodes, shapes=shapes, policy=args.policy, scope=args.scope, port=args.port
    )
    if args.once:
        try:
            asyncio.run(demo.tour(settings, compare=args.compare))
        except asyncio.CancelledError:
            return 130
        return 0
    faults = None if args.chaos is None else demo.Chaos(args.chaos, waiting_that_fit)
    shown = demo.live(settings, rate=rate, seed=args.seed, compare=args.compare, faults=faults)
    return 0 if asyncio.run(shown) else 1


async def waiting_that_fit(kubeconfig: Path) -> list[str]:
    """Pods without a node for which there is room, by what the API server has, read anew."""
    async with Client(credentials.load(kubeconfig, {})) as client:
        cluster, _ = inputs.build_cluster(await live.read_objects(client))
    cycle = Cycle(cluster)
    waiting = [pod for pod in cluster.pods.values() if not pod.node]
    return [pod.key for pod in waiting if cycle.decide(pod).node]
