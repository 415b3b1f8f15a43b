"""``rte scheduler``: the bundled scheduler and its extender."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from typing import TYPE_CHECKING

from rte import config, errors, extensions
from rte.kube import credentials
from rte.kube.client import Client
from rte.scheduler.front import serving
from rte.scheduler.front.turns import Turns
from rte.scheduler.shell.cleaner import Cleaner, ReportCollector
from rte.scheduler.shell.service import Scheduler
from rte.telemetry import logs
from rte.view import routes as view_routes
from rte.view.source import ViewSource

if TYPE_CHECKING:
    import argparse

    from rte.scheduler.settings import SchedulerSettings


#: A thread that solves gives the interpreter back this often. The binds of a gang take many steps,
#: each of which waits for its turn: Python's five milliseconds add up to a tenth of a second.
_SWITCH_S = 0.0005


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the scheduler's flags."""
    config.add_arguments(parser, "scheduler")


def run(args: argparse.Namespace) -> int:
    """Schedule until SIGTERM or SIGINT."""
    given = config.load("scheduler", vars(args), os.environ)
    settings = given.scheduler
    _check(settings)
    logs.setup(given.log)
    sys.setswitchinterval(_SWITCH_S)
    try:
        asyncio.run(_main(settings))
    except* errors.RteError as group:
        raise _first(group) from None
    return 0


def _check(settings: SchedulerSettings) -> None:
    """Refuse settings that could not work, before anything is started."""
    serving.tls_files(settings)
    if not 0 < settings.renew_seconds <= settings.lease_seconds / 2:
        raise errors.UsageError("--renew-seconds must be positive, half of --lease-seconds at most")
    if settings.stats_listen and not (settings.stats_cert and settings.stats_key):
        raise errors.UsageError("--stats-listen needs --stats-cert and --stats-key")


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
        source = ViewSource(scheduler)
        turns = Turns()
        pages = view_routes.routes(source, turns)
        running = serving.services(scheduler, client, settings, turns, pages)
        if settings.listen:
            running["view"] = source.run()
        if settings.clean_refused > 0:
            running["cleaner"] = Cleaner(
                client,
                settings.clean_refused,
                settings.profiles,
                scheduler.is_active,
                scheduler.metrics.cleaned.inc,
            ).run()
        if settings.collect_reports > 0:
            running["collector"] = ReportCollector(
                client, settings.collect_reports, scheduler.cluster, scheduler.is_active
            ).run()
        if settings.stats_listen and settings.stats_cert and settings.stats_key:
            serve = extensions.load(extensions.SERVICES, "nhd-statistics")  # it brings gRPC
            running["statistics"] = serve(
                scheduler,
                settings.stats_listen,
                settings.stats_cert,
                settings.stats_key,
                settings.stats_client_ca,
            )
        for name, service in running.items():
            tasks.append(asyncio.create_task(service, name=name))
        stopping = asyncio.create_task(stop.wait(), name="signals")
        done, _ = await asyncio.wait([*tasks, stopping], return_when=asyncio.FIRST_COMPLETED)
        for task in [*tasks, stopping]:
            task.cancel()
        await asyncio.gather(*tasks, stopping, return_exceptions=True)
        for task in done:
            if task is not stopping:
                task.result()
