"""Tells the observer of this node's pods, as the API shows them."""

from __future__ import annotations

import asyncio
import logging
import random
import time
from contextlib import aclosing
from typing import TYPE_CHECKING

from rte import errors
from rte.agent.observer.messages import KubeletChange, PodGone, PodSeen, PodsListed, PodsUnknown
from rte.kube.resources import PODS
from rte.kube.watch import watch
from rte.model.backoff import Backoff

if TYPE_CHECKING:
    from rte.agent.follow import Signals
    from rte.kube.client import Client
    from rte.telemetry.metrics import AgentMetrics

logger = logging.getLogger(__name__)


async def follow_pods(
    client: Client,
    node_name: str,
    signals: Signals,
    metrics: AgentMetrics,
    *,
    poll_s: float = 1.0,
    retry_s: float = 60.0,
) -> None:
    """Tell of this node's pods by a watch; until cancelled.

    Where we may not watch pods, ask for a look at podresources every ``poll_s`` instead, and try
    the watch again, at last every ``retry_s``: an API server that has just started refuses too.
    """
    complained = False
    waits = Backoff(2 * poll_s, retry_s, lambda: random.uniform(0.8, 1.2))  # noqa: S311
    while True:
        try:
            events = watch(client, PODS.path(), field_selector=f"spec.nodeName={node_name}")
            async with aclosing(events):
                async for event in events:
                    if event.kind == "LISTED":
                        signals.give(PodsListed(tuple(event.object.get("items") or ())))
                        metrics.pod_watch.set(1)
                        complained = False
                        waits.worked()
                    elif event.kind == "DELETED":
                        signals.give(PodGone(event.object))
                    else:
                        signals.give(PodSeen(event.object))
        except errors.KubeError as error:
            signals.give(PodsUnknown())
            metrics.pod_watch.set(0)
            if not complained:
                logger.warning(
                    "pods of this node cannot be watched, polling podresources every %g s "
                    "instead: %s",
                    poll_s,
                    error,
                )
                complained = True
        until = time.monotonic() + waits.failed()
        while time.monotonic() < until:
            signals.add(KubeletChange.POLL)
            await asyncio.sleep(poll_s)
