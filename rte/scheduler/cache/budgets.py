"""PodDisruptionBudgets as preemption reads them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from rte.scheduler.framework import predicates

if TYPE_CHECKING:
    from collections.abc import Mapping

    from rte.scheduler.framework.objects import PodView


@dataclass(frozen=True, kw_only=True)
class Budget:
    """A PodDisruptionBudget: how many of the pods that it selects may go."""

    namespace: str
    selector: Mapping[str, Any] | None
    allowed: int

    def covers(self, pod: PodView) -> bool:
        """Whether the pod is one of those."""
        return pod.namespace == self.namespace and predicates.label_selector(
            self.selector, pod.labels
        )


def read_budget(obj: Mapping[str, Any]) -> Budget:
    """A PodDisruptionBudget of the API."""
    spec = obj.get("spec") or {}
    return Budget(
        namespace=str((obj.get("metadata") or {}).get("namespace") or ""),
        selector=spec.get("selector"),
        allowed=int((obj.get("status") or {}).get("disruptionsAllowed") or 0),
    )
