"""All controllers of a cluster."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from rte.sim.controllers.claims import ClaimController
from rte.sim.controllers.daemonsets import DaemonSets
from rte.sim.controllers.deployments import Deployments
from rte.sim.controllers.garbage import Garbage
from rte.sim.controllers.jobs import Jobs
from rte.sim.controllers.namespaces import Namespaces
from rte.sim.controllers.replicasets import ReplicaSets
from rte.sim.controllers.statefulsets import StatefulSets

if TYPE_CHECKING:
    from rte.sim.apiserver import API

_ALL = (
    ClaimController, Deployments, ReplicaSets, DaemonSets, StatefulSets, Jobs, Garbage, Namespaces,
)  # fmt: skip


async def run(api: API) -> None:
    """Work until cancelled."""
    async with asyncio.TaskGroup() as group:
        for kind in _ALL:
            group.create_task(kind(api).run(), name=f"controller {kind.__name__}")
