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


class DynamicResources(_Refusal):
    """Claims of devices (KEP-4381)."""

    name = "DynamicResources"
    owns = frozenset({"resourceClaims"})
    says = "refused by name"
    parts = ("resourceClaims",)
    advice = "DRA resource claims are not supported (use kube-scheduler with rte's extender)"
