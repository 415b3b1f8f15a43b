"""Fields that are not honoured yet: a pod that has them waits, and is told which ones."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from rte.scheduler.framework.plugin import PreFilter

if TYPE_CHECKING:
    from rte.scheduler.framework.objects import PodView
    from rte.scheduler.framework.plugin import Snapshot


class _Refusal(PreFilter):
    """Refuses pods with these parts by name."""

    parts: ClassVar[tuple[str, ...]]
    advice: ClassVar[str]

    def pre_filter(self, pod: PodView, snapshot: Snapshot) -> str:  # noqa: ARG002
        """Name what is not honoured."""
        found = [part for part in pod.shape.unsupported if part.startswith(self.parts)]
        return f"{', '.join(found)}: {self.advice}" if found else ""


class GangScheduling(_Refusal):
    """Pods that must be placed all or none: bound in part they hold room in vain."""

    name = "GangScheduling"
    owns = frozenset({"schedulingGroup", "workloadRef"})
    says = "refused by name, as are the gang labels of other schedulers"
    parts = ("schedulingGroup", "workloadRef", "gang labels")
    advice = "gangs are not supported yet"
