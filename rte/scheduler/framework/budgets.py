"""PodDisruptionBudgets as preemption reads them."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from rte import errors
from rte.k8s import selectors

if TYPE_CHECKING:
    from collections.abc import Mapping

    from rte.k8s.selectors import Selector
    from rte.scheduler.framework.objects import PodView


@dataclass(frozen=True, kw_only=True)
class DisruptionBudget:
    """A PodDisruptionBudget: how many of the pods that it selects may go.

    Attributes:
        namespace: of its pods.
        selector: which they are.
        allowed: ``status.disruptionsAllowed``.
        disrupted: names of pods whose eviction the API has counted already.
        taken: UIDs of pods that we have evicted since; the status does not count them yet.
    """

    namespace: str
    selector: Selector
    allowed: int
    disrupted: frozenset[str] = frozenset()
    taken: frozenset[str] = field(default_factory=frozenset)

    @property
    def left(self) -> int:
        """How many more may go, our own evictions included."""
        return self.allowed - len(self.taken)

    def covers(self, pod: PodView) -> bool:
        """Whether the pod's end would be counted."""
        return (
            pod.namespace == self.namespace
            and pod.name not in self.disrupted
            and pod.uid not in self.taken
            and self.selector.matches(pod.labels)
        )


def read_budget(obj: Mapping[str, Any]) -> DisruptionBudget:
    """A PodDisruptionBudget of the API.

    Raises:
        errors.ParseError: it is malformed.
    """
    try:
        spec, status = obj.get("spec") or {}, obj.get("status") or {}
        return DisruptionBudget(
            namespace=str((obj.get("metadata") or {}).get("namespace") or ""),
            selector=selectors.parse_selector(spec.get("selector"), "selector"),
            allowed=int(status.get("disruptionsAllowed") or 0),
            disrupted=frozenset(status.get("disruptedPods") or ()),
        )
    except (AttributeError, TypeError, ValueError) as error:
        raise errors.ParseError("PodDisruptionBudget", obj.get("metadata"), str(error)) from None
