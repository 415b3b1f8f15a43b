"""``rte nri``: a plugin of the runtime that gives pods with processing groups what is theirs."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
from pathlib import Path
from typing import TYPE_CHECKING

from rte import config, errors
from rte.k8s import wire
from rte.kube import credentials
from rte.kube.client import Client
from rte.kube.resources import PODS
from rte.kubelet.nri.plugin import Adjuster, serve
from rte.placement.groups.allocation import recorded
from rte.placement.groups.delivery.containers import DeviceError, cpus_for, device_name, gpus_for
from rte.telemetry import logs

if TYPE_CHECKING:
    import argparse

    from rte.kubelet._pb import nri_pb2 as pb

#: The runtime waits two seconds for an answer (``plugin_request_timeout`` of NRI).
_TIMEOUT_S = 1.5

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
        "--kubeconfig",
        type=Path,
        metavar="F",
        help="credentials of the API server; default: as the agent's",
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
    asyncio.run(_main(args, node))
    return 0


async def _main(args: argparse.Namespace, node: str) -> None:
    access = credentials.load(args.kubeconfig, os.environ)
    async with Client(access, timeout_s=_TIMEOUT_S, component="rte-nri") as client:
        adjuster = Adjuster(
            lambda pod: _recorded(client, pod),
            lambda annotations, uid: cpus_for(annotations, uid, node),
            lambda annotations, uid: gpus_for(annotations, uid, node, args.gpu_device),
        )
        serving = asyncio.create_task(serve(args.socket, adjuster, args.index))
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, serving.cancel)
        await asyncio.wait([serving])
        if not serving.cancelled():
            serving.result()


async def _recorded(client: Client, pod: pb.PodSandbox) -> str:
    """The allocation that the scheduler has recorded for the pod, ``""`` where it has none.

    Raises:
        errors.KubeError: the API server does not answer, or refuses.
        errors.ParseError: what it answers is no pod.
    """
    try:
        answer = await client.get(PODS.path(pod.name, pod.namespace))
    except errors.KubeError as error:
        if error.status == 404:
            return ""
        raise
    found = wire.read(answer, wire.PodObject, "pod")
    if found.metadata.uid != pod.uid:
        return ""
    return recorded((found.status and found.status.conditions) or ())
