"""``rte nri``: pins the containers of pods with processing groups, as a plugin of the runtime."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
from pathlib import Path
from typing import TYPE_CHECKING

from rte import config, errors
from rte.kubelet.nri.plugin import Pinner, serve
from rte.placement.groups.pinning import cpus_for
from rte.telemetry import logs

if TYPE_CHECKING:
    import argparse

_SOCKET = "/var/run/nri/nri.sock"


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the flags of the command."""
    parser.add_argument(
        "--socket", type=Path, default=Path(_SOCKET), metavar="PATH", help=f"default {_SOCKET}"
    )
    parser.add_argument(
        "--index", default="40", metavar="NN", help="order among plugins, two digits (default 40)"
    )
    parser.add_argument(
        "--node-name", default="", metavar="N", help="default $NODE_NAME, else the host's name"
    )


def run(args: argparse.Namespace) -> int:
    """Serve until SIGTERM or SIGINT."""
    if len(args.index) != 2 or not args.index.isdecimal():
        raise errors.UsageError("--index must be two digits")
    node = args.node_name or os.environ.get("NODE_NAME") or socket.gethostname()
    logs.setup(config.Config().log)
    pinner = Pinner(lambda annotations, uid: cpus_for(annotations, uid, node))
    asyncio.run(_main(args.socket, pinner, args.index))
    return 0


async def _main(path: Path, pinner: Pinner, index: str) -> None:
    serving = asyncio.create_task(serve(path, pinner, index))
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, serving.cancel)
    await asyncio.wait([serving])
    if not serving.cancelled():
        serving.result()
