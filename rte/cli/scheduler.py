"""``rte scheduler``: the bundled scheduler and its extender."""

from __future__ import annotations

import argparse
import asyncio
import os
import signal
from pathlib import Path

from rte import errors
from rte.kube import credentials
from rte.kube.client import Client
from rte.scheduler import explain
from rte.scheduler.extender import Extender
from rte.scheduler.service import Scheduler
from rte.scheduler.settings import SchedulerSettings
from rte.telemetry import health, logs


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the command's flags; each is a field of :class:`SchedulerSettings`."""
    default = SchedulerSettings()
    add = parser.add_argument
    add("--kubeconfig", type=Path, metavar="F", help="API server (default: in-cluster or usual)")
    add(
        "--scheduler-name",
        default=default.scheduler_name,
        metavar="NAME",
        help="place pods with this spec.schedulerName (default %(default)s)",
    )
    add(
        "--listen",
        default=default.listen,
        metavar="HOST:PORT",
        help="health, metrics and /explain, or off (default %(default)s)",
    )
    add(
        "--extender-listen",
        default=default.extender_listen,
        metavar="HOST:PORT",
        help="serve the extender verbs for kube-scheduler here (default: off)",
    )
    add(
        "--leader-elect",
        default=default.leader_elect,
        action=argparse.BooleanOptionalAction,
        help="bind only as the Lease's holder (default: on)",
    )
    add(
        "--lease-namespace",
        default=default.lease_namespace,
        metavar="NS",
        help="namespace of the Lease (default %(default)s)",
    )
    add(
        "--lease-name",
        default=default.lease_name,
        metavar="NAME",
        help="name of the Lease (default %(default)s)",
    )
    add(
        "--agent-namespace",
        default=default.agent_namespace,
        metavar="NS",
        help="namespace of the agents' Leases (default %(default)s)",
    )
    add(
        "--lease-seconds",
        type=float,
        default=default.lease_seconds,
        metavar="S",
        help="a holder that has not renewed for so long is replaced (default %(default)s)",
    )
    add(
        "--renew-seconds",
        type=float,
        default=default.renew_seconds,
        metavar="S",
        help="time between renewals (default %(default)s)",
    )
    add(
        "--reserve-after",
        type=float,
        default=default.reserve_after,
        metavar="S",
        help="a pod that has waited so long gets a node reserved; 0: never (default %(default)s)",
    )
    add(
        "--preemption",
        default=default.preemption,
        action=argparse.BooleanOptionalAction,
        help="evict pods of lower priority where that makes room (default: on)",
    )
    add(
        "--shared-limit",
        type=float,
        default=default.shared_limit,
        metavar="RATIO",
        help="most CPU limits of sharing pods per shared CPU; 0: no bound (default %(default)s)",
    )
    add(
        "--resource-status",
        default=default.resource_status,
        action=argparse.BooleanOptionalAction,
        help="write Koordinator's resource-status where no CPU manager assigns (default: off)",
    )
    add(
        "--log-level",
        type=logs.Level,
        default=logs.Level.INFO,
        metavar="LEVEL",
        help="debug, info, warning or error (default %(default)s)",
    )
    add(
        "--log-format",
        type=logs.Format,
        default=logs.Format.TEXT,
        metavar="FORMAT",
        help="text or json (default %(default)s)",
    )


def run(args: argparse.Namespace) -> int:
    """Schedule until SIGTERM or SIGINT."""
    settings = SchedulerSettings(
        kubeconfig=args.kubeconfig,
        scheduler_name=args.scheduler_name,
        listen="" if args.listen == "off" else args.listen,
        extender_listen="" if args.extender_listen == "off" else args.extender_listen,
        leader_elect=args.leader_elect,
        lease_namespace=args.lease_namespace,
        lease_name=args.lease_name,
        agent_namespace=args.agent_namespace,
        lease_seconds=args.lease_seconds,
        renew_seconds=args.renew_seconds,
        reserve_after=args.reserve_after,
        preemption=args.preemption,
        shared_limit=args.shared_limit,
        resource_status=args.resource_status,
    )
    _check(settings)
    logs.setup(logs.LogSettings(level=args.log_level, format=args.log_format))
    try:
        asyncio.run(_main(settings))
    except* errors.RteError as group:
        raise _first(group) from None
    return 0


def _check(settings: SchedulerSettings) -> None:
    """Refuse settings that could not work, before anything is started."""
    if not 0 < settings.renew_seconds <= settings.lease_seconds / 2:
        raise errors.UsageError("--renew-seconds must be positive, half of --lease-seconds at most")
    if settings.reserve_after < 0:
        raise errors.UsageError("--reserve-after must be 0 (never) or a number of seconds")
    if settings.shared_limit < 0:
        raise errors.UsageError("--shared-limit must be 0 (no bound) or a positive ratio")
    if not settings.scheduler_name:
        raise errors.UsageError("--scheduler-name must not be empty")
    for address in (settings.listen, settings.extender_listen):
        if address:
            health.parse_address(address)


def _first(group: BaseExceptionGroup[errors.RteError]) -> errors.RteError:
    """One of the errors: it is the one line that the user sees."""
    found: BaseException = group
    while isinstance(found, BaseExceptionGroup):
        found = found.exceptions[0]
    return found if isinstance(found, errors.RteError) else errors.RteError(str(found))


async def _main(settings: SchedulerSettings) -> None:
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    access = credentials.load(settings.kubeconfig, os.environ)
    async with Client(access, component="rte-scheduler") as client:
        scheduler = Scheduler(client, settings)
        tasks = [asyncio.create_task(scheduler.run(), name="scheduler")]
        if settings.listen:
            serving = health.serve(
                settings.listen,
                scheduler.metrics.exposition,
                scheduler.readiness,
                routes=explain.routes(scheduler),
            )
            tasks.append(asyncio.create_task(serving, name="health"))
        if settings.extender_listen:
            extender = Extender(scheduler, client)
            scheduler.followers.append(extender.wake_waiting)
            serving = health.serve(
                settings.extender_listen,
                scheduler.metrics.exposition,
                scheduler.answering,
                routes=extender.routes(),
            )
            tasks.append(asyncio.create_task(serving, name="extender"))
        stopping = asyncio.create_task(stop.wait(), name="signals")
        done, _ = await asyncio.wait([*tasks, stopping], return_when=asyncio.FIRST_COMPLETED)
        for task in [*tasks, stopping]:
            task.cancel()
        await asyncio.gather(*tasks, stopping, return_exceptions=True)
        for task in done:
            if task is not stopping:
                task.result()
