"""Follows a cluster without deciding anything: the scheduler's eyes without its hands."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING

from rte.scheduler.loop import messages
from rte.scheduler.loop.machine import Machine
from rte.scheduler.settings import AGENT_LEASE_LABELS
from rte.scheduler.shell.feeds import Feeds

if TYPE_CHECKING:
    from rte.kube.client import Client
    from rte.scheduler.cache.cluster import Cluster
    from rte.scheduler.loop.cycle import Cycle


class Follower:
    """What watches tell of a cluster; it binds nothing and writes nothing.

    Args:
        client: the API server.
        agent_namespace: where the agents' Leases are.
    """

    def __init__(self, client: Client, agent_namespace: str) -> None:
        self._machine = Machine("")  # never told that it leads, it decides nothing
        self._feeds = Feeds(client, self._take, (agent_namespace, AGENT_LEASE_LABELS))

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
                self._machine.handle(messages.Tick(), time.monotonic())

    def _take(self, event: messages.Seen | messages.Gone | messages.Listed) -> None:
        self._machine.handle(event, time.monotonic())
