"""``rte nri``: a plugin of the runtime that gives pods with processing groups what is theirs."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
from pathlib import Path
from typing import TYPE_CHECKING

from rte import config, errors
from rte.kubelet.nri.plugin import Adjuster, serve
from rte.placement.groups.containers import DeviceError, cpus_for, device_name, gpus_for
from rte.telemetry import logs

if TYPE_CHECKING:
    import argparse

_SOCKET = "/var/run/nri/nri.sock"
_SOME_GPU: dict[str, str | int | None] = {
    "uuid": "GPU-0", "index": 0, "address": "0000:17:00.0", "model": "A100",
}  # fmt: skip


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
    parser.add_argument(
        "--gpu-device",
        default="",
        metavar="NAME",
        help="give containers the GPUs of their pod as devices of the Container Device Interface "
        "of this name, with ${uuid}, ${index} or ${address} in it, e.g. 'nvidia.com/gpu=${uuid}'",
    )


def run(args: argparse.Namespace) -> int:
    """Serve until SIGTERM or SIGINT."""
    if len(args.index) != 2 or not args.index.isdecimal():
        raise errors.UsageError("--index must be two digits")
    if args.gpu_device:
        try:
            device_name(args.gpu_device, _SOME_GPU)
        except DeviceError as error:
            raise errors.UsageError(f"--gpu-device: {error}") from error
    node = args.node_name or os.environ.get("NODE_NAME") or socket.gethostname()
    logs.setup(config.Config().log)
    adjuster = Adjuster(
        lambda annotations, uid: cpus_for(annotations, uid, node),
        lambda annotations, uid: gpus_for(annotations, uid, node, args.gpu_device),
    )
    asyncio.run(_main(args.socket, adjuster, args.index))
    return 0


async def _main(path: Path, adjuster: Adjuster, index: str) -> None:
    serving = asyncio.create_task(serve(path, adjuster, index))
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, serving.cancel)
    await asyncio.wait([serving])
    if not serving.cancelled():
        serving.result()
