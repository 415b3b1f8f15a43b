"""Looks at the cluster that are taken again and again, beside the decisions."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from rte.scheduler.loop.gangs.desk import FitDesk
from rte.scheduler.report import shapes
from rte.scheduler.report.alignments import Alignments
from rte.scheduler.report.kubelets import KubeletWatch
from rte.scheduler.report.placements import Placements

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from rte.placement.joint.fit import Fit
    from rte.reader.json import Json
    from rte.scheduler.cache.cluster import Cluster
    from rte.scheduler.framework.objects import PodView
    from rte.scheduler.loop.cycle import Cycle
    from rte.scheduler.report.metrics import SchedulerMetrics
    from rte.telemetry.quarantine import Bulkhead

#: Between looks at how well the kubelets' rules are known.
_LOOK_S = 1.0

#: Between counts of the shapes that were named.
_SHAPES_S = 10.0

#: Nodes read for that until others get a turn.
_NODES_READ = 50


class Looks:
    """What is looked at, and told by metrics and events.

    Args:
        metrics: of the scheduler.
        cluster: as it is known.
        cycle: of one decision.
        clock: seconds of a monotonic clock.
        bulkhead: for each look.
    """

    def __init__(
        self,
        metrics: SchedulerMetrics,
        cluster: Cluster,
        cycle: Cycle,
        clock: Callable[[], float],
        bulkhead: Callable[[str, str], Bulkhead],
    ) -> None:
        self._metrics, self._cluster, self._cycle = metrics, cluster, cycle
        self._clock, self._bulkhead = clock, bulkhead

    async def at_kubelets(
        self,
        is_active: Callable[[], bool],
        tell_across: Callable[[PodView, str], None],
        tell_placement: Callable[[PodView, str, str], None],
    ) -> None:
        """Whose rules are known, whose pods lie across zones, and where pods that ask are; until
        cancelled.
        """
        kubelets = KubeletWatch(self._metrics, self._clock)
        alignments = Alignments(self._metrics, self._cluster, tell_across)
        placements = Placements(self._cluster, tell_placement, self._clock)
        while True:
            await asyncio.sleep(_LOOK_S)
            with self._bulkhead("looks", "kubelets"):
                kubelets.look(self._cluster.nodes.values())
            with self._bulkhead("looks", "alignments"):
                alignments.look(active=is_active())
            with self._bulkhead("looks", "placements"):
                placements.look(active=is_active())

    async def at_shapes(
        self,
        named: Sequence[Json],
        in_thread: Callable[[Callable[[], Fit]], Awaitable[Fit]],
    ) -> None:
        """How many pods of each shape that the operator has named fit; until cancelled."""
        desk = FitDesk(self._cluster, self._cycle)
        while True:
            with self._bulkhead("looks", "shapes"):
                while desk.catch_up(_NODES_READ):  # noqa: ASYNC110 - others get a turn
                    await asyncio.sleep(0)
                pods = shapes.views(named, self._cluster.shapes)
                fits = {
                    name: await in_thread(desk.counting(desk.member(pod)))
                    for name, pod in pods.items()
                }
                shapes.measure(self._metrics, self._cluster.nodes.values(), pods, fits)
            await asyncio.sleep(_SHAPES_S)
