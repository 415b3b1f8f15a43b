"""What the scheduler serves: health, metrics, answers to questions, the verbs of the extender.

What changes anything, or costs time, is behind the question whether the caller may
(:mod:`rte.scheduler.front.access`). An address that only processes of the same machine reach asks
nobody.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from rte import errors
from rte.scheduler.front import explain, fit, usage
from rte.scheduler.front.access import CONNECTIONS, Access
from rte.scheduler.front.extender import Extender
from rte.telemetry import doors, health
from rte.telemetry.connections import Limits
from rte.telemetry.tls import TLSFiles

if TYPE_CHECKING:
    from collections.abc import Coroutine, Sequence

    from aiohttp import web

    from rte.kube.client import Client
    from rte.scheduler.front.turns import Turns
    from rte.scheduler.settings import SchedulerSettings
    from rte.scheduler.shell.service import Scheduler

#: One kube-scheduler binds many pods at once, and names all nodes with each.
_EXTENDER = Limits(of_caller=64, body_bytes=4 << 20, bodies_bytes=8 << 20)


def services(
    scheduler: Scheduler,
    client: Client,
    settings: SchedulerSettings,
    turns: Turns,
    pages: Sequence[web.RouteDef] = (),
) -> dict[str, Coroutine[None, None, None]]:
    """What is to run until it is cancelled, by name; ``pages`` are served beside ``/explain``.

    ``turns`` are of those who ask what costs.

    Raises:
        errors.UsageError: the extender would answer anybody, or its TLS files cannot be used.
    """
    files = tls_files(settings)
    access = Access(client.apart(CONNECTIONS), time.monotonic)
    questions = turns.protect(
        [*explain.routes(scheduler), *fit.routes(scheduler), *usage.routes(scheduler)]
    )
    running: dict[str, Coroutine[None, None, None]] = {}
    if settings.listen:
        running["health"] = health.serve(
            settings.listen,
            scheduler.metrics.exposition,
            scheduler.readiness,
            routes=_protected(access, settings.listen, [*questions, *pages]),
            tls=files if settings.listen_tls else None,
            turned_away=scheduler.metrics.turned_away.inc,
        )
    if settings.extender_listen:
        extender = Extender(scheduler, client, profiles=settings.extender_profiles)
        scheduler.followers.append(extender.wake_waiting)
        routes = [*extender.routes(), *questions]
        running["extender"] = health.serve(
            settings.extender_listen,
            scheduler.metrics.exposition,
            scheduler.answering,
            routes=access.protect(routes) if files else routes,
            tls=files,
            limits=_EXTENDER,
            turned_away=scheduler.metrics.turned_away.inc,
        )
    return running


def tls_files(settings: SchedulerSettings) -> TLSFiles | None:
    """The TLS files; None: plain HTTP.

    Raises:
        errors.UsageError: they are incomplete, or missing where others than this machine can call.
    """
    files = TLSFiles.given(
        settings.tls_cert_file, settings.tls_private_key_file, settings.client_ca_file
    )
    address = settings.extender_listen
    if files is None and settings.listen_tls:
        raise errors.UsageError("--listen-tls needs --tls-cert-file and --tls-private-key-file")
    if files is None and address and not doors.is_loopback(doors.parse_address(address)[0]):
        raise errors.UsageError(
            f"--extender-listen {address} would let anybody bind pods: give --tls-cert-file, "
            "--tls-private-key-file and --client-ca-file, or a loopback address"
        )
    return files


def _protected(access: Access, address: str, routes: list[web.RouteDef]) -> list[web.RouteDef]:
    host, _ = doors.parse_address(address)
    return routes if doors.is_loopback(host) else access.protect(routes)
