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
from rte.scheduler.front.access import Access
from rte.scheduler.front.extender import Extender
from rte.scheduler.front.tls import Files
from rte.telemetry import health

if TYPE_CHECKING:
    from collections.abc import Coroutine, Sequence

    from aiohttp import web

    from rte.kube.client import Client
    from rte.scheduler.settings import SchedulerSettings
    from rte.scheduler.shell.service import Scheduler


def services(
    scheduler: Scheduler,
    client: Client,
    settings: SchedulerSettings,
    pages: Sequence[web.RouteDef] = (),
) -> dict[str, Coroutine[None, None, None]]:
    """What is to run until it is cancelled, by name; ``pages`` are served beside ``/explain``.

    Raises:
        errors.UsageError: the extender would answer anybody, or its TLS files cannot be used.
    """
    files = tls_files(settings)
    access = Access(client, time.monotonic)
    questions = [*explain.routes(scheduler), *fit.routes(scheduler), *usage.routes(scheduler)]
    running: dict[str, Coroutine[None, None, None]] = {}
    tls = files.context() if files else None
    if settings.listen:
        running["health"] = health.serve(
            settings.listen,
            scheduler.metrics.exposition,
            scheduler.readiness,
            routes=_protected(access, settings.listen, [*questions, *pages]),
        )
    if settings.extender_listen:
        extender = Extender(scheduler, client, profiles=settings.extender_profiles)
        scheduler.followers.append(extender.wake_waiting)
        routes = [*extender.routes(), *questions]
        running["extender"] = health.serve(
            settings.extender_listen,
            scheduler.metrics.exposition,
            scheduler.answering,
            routes=access.protect(routes) if tls else routes,
            tls=tls,
        )
        if files is not None and tls is not None:
            running["tls"] = files.follow(tls)
    return running


def tls_files(settings: SchedulerSettings) -> Files | None:
    """The extender's TLS files; None: plain HTTP.

    Raises:
        errors.UsageError: they are incomplete, or missing where others than this machine can call.
    """
    certificate, key = settings.tls_cert_file, settings.tls_private_key_file
    if (certificate is None) != (key is None):
        raise errors.UsageError("--tls-cert-file and --tls-private-key-file belong together")
    if certificate is not None and key is not None:
        return Files(certificate, key, settings.client_ca_file)
    address = settings.extender_listen
    if address and not health.is_loopback(health.parse_address(address)[0]):
        raise errors.UsageError(
            f"--extender-listen {address} would let anybody bind pods: give --tls-cert-file, "
            "--tls-private-key-file and --client-ca-file, or a loopback address"
        )
    return None


def _protected(access: Access, address: str, routes: list[web.RouteDef]) -> list[web.RouteDef]:
    host, _ = health.parse_address(address)
    return routes if health.is_loopback(host) else access.protect(routes)
