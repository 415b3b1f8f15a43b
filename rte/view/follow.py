"""Follows a cluster without deciding anything: the scheduler's eyes without its hands."""

from __future__ import annotations

import asyncio
import logging
import time
from typing import TYPE_CHECKING

from rte.scheduler.loop import messages
from rte.scheduler.loop.machine import SchedulerMachine
from rte.scheduler.settings import AGENT_LEASE_LABELS
from rte.scheduler.shell.feeds import Feeds
from rte.telemetry.effects import Said

if TYPE_CHECKING:
    from rte.kube.client import Client
    from rte.scheduler.cache.cluster import Cluster
    from rte.scheduler.loop.cycle import Cycle
    from rte.telemetry.quarantine import Bulkhead

logger = logging.getLogger(__name__)


class Follower:
    """What watches tell of a cluster; it binds nothing and writes nothing.

    Args:
        client: the API server.
        agent_namespace: where the agents' Leases are.
    """

    def __init__(self, client: Client, agent_namespace: str) -> None:
        self._machine = SchedulerMachine("")  # never told that it leads, it decides nothing
        agents = (agent_namespace, AGENT_LEASE_LABELS)
        self._feeds = Feeds(client, self._take, agents, bulkhead=self._bulkhead)

    @property
    def cluster(self) -> Cluster:
        """All that is known."""
        return self._machine.cluster

    @property
    def cycle(self) -> Cycle:
        """The rules."""
        return self._machine.cycle

    async def run(self) -> None:
        """Follow until cancelled."""
        async with asyncio.TaskGroup() as group:
            self._feeds.start(group)
            while True:
                await asyncio.sleep(1)
                self._take(messages.Tick())

    def _take(self, event: messages.Event) -> None:
        for effect in self._machine.handle(event, time.monotonic()):
            if isinstance(effect, Said) and effect.error is not None:
                effect.say(logger)

    def _bulkhead(self, kind: str, key: str) -> Bulkhead:
        return self._machine.quarantine.guard(kind, key, time.monotonic())
