"""GangScheduling: pods that are placed together or not at all.

The decision about a gang is not made pod by pod: :mod:`rte.scheduler.gangs`. Here is what a pod
says that cannot be honoured: bound alone, the pods of a gang hold room in vain.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from rte.scheduler.framework.plugin import PreFilter

if TYPE_CHECKING:
    from rte.scheduler.framework.objects import PodView
    from rte.scheduler.framework.plugin import Snapshot


class GangScheduling(PreFilter):
    """Gangs (KEP-4671), those of scheduler-plugins and Koordinator included."""

    name = "GangScheduling"
    owns = frozenset({"schedulingGroup", "workloadRef"})
    says = (
        "all at once, by exact prediction; PodGroups of Kubernetes, scheduler-plugins, Koordinator"
    )

    def pre_filter(self, pod: PodView, snapshot: Snapshot) -> str:  # noqa: ARG002
        """Name what is not honoured."""
        if pod.gang_problem:
            return f"its gang cannot be read: {pod.gang_problem}"
        found = [part for part in pod.shape.unsupported if part.startswith("gang labels")]
        return f"{', '.join(found)}: such gangs are not supported" if found else ""
