"""``rte view``: the zones of a cluster in a browser, for operators; it changes nothing."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from typing import TYPE_CHECKING

from rte import config
from rte.cli import inputs, live
from rte.kube import resources
from rte.reader import files
from rte.telemetry import doors
from rte.view import still
from rte.view.follow import Follower
from rte.view.serve import serve
from rte.view.source import ViewSource

if TYPE_CHECKING:
    import argparse
    from collections.abc import Coroutine


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the command's flags."""
    parser.add_argument(
        "--listen",
        default="127.0.0.1:8090",
        metavar="HOST:PORT",
        help="address of the page; who reaches it sees the cluster's pods (default: %(default)s)",
    )
    live.add_arguments(parser, "view")


def run(args: argparse.Namespace) -> int:
    """Serve the page until SIGINT or SIGTERM."""
    doors.parse_address(args.listen)  # a wrong one is no matter of the cluster
    asyncio.run(_serve(args))
    return 0


async def _serve(args: argparse.Namespace) -> None:
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    namespace = config.load("view", vars(args), os.environ).scheduler.agent_namespace
    host = args.listen.rpartition(":")[0] or "localhost"

    port = loop.create_future()

    async def say() -> None:
        print(f"http://{host}:{await port}/view  (Ctrl-C ends)", file=sys.stderr, flush=True)

    if args.sources:
        cluster, problems = inputs.build_cluster(files.load_objects(args.sources))
        inputs.require_node(cluster, args.sources)
        for line in problems:
            print(f"note: {line}", file=sys.stderr)
        source = ViewSource(still.Still(cluster))

        async def look() -> None:
            await say()
            await source.run()

        await _until(stop, look(), serve(args.listen, source, started=port.set_result))
        return
    async with live.connect(args) as client:
        follower = Follower(client, namespace)
        source = ViewSource(follower)

        async def follow() -> None:
            # Watches would try again for ever: whether there is a cluster at all is asked first.
            await client.get(resources.NODES.path(), limit="1")
            await say()
            await follower.run()

        serving = serve(args.listen, source, started=port.set_result)
        await _until(stop, follow(), source.run(), serving)


async def _until(stop: asyncio.Event, *work: Coroutine[None, None, None]) -> None:
    """Do all of the work until one part of it ends, or the stop comes."""
    tasks = [asyncio.create_task(each) for each in (*work, stop.wait())]
    done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    for task in done:
        task.result()
