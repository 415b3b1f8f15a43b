"""Places that were promised to pods of a group which kube-scheduler has not bound yet (pure).

In a PodGroup cycle (Kubernetes 1.36) kube-scheduler filters the pods of a group one after the other
and binds none before the last one fits (schedule_one_podgroup.go); a gang that waits at Permit is
bound late as well. An extender that knew of binds alone would give one zone to all of them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rte.reader.json import Json
    from rte.scheduler.framework.objects import PodView

#: A promise is void after so long: kube-scheduler never says that it has given up a group.
PICK_S = 30.0

#: The label by which scheduler-plugins' coscheduling names a pod's group.
_COSCHEDULING = "scheduling.x-k8s.io/pod-group"


@dataclass(frozen=True, kw_only=True)
class Pick:
    """A pod and the node that was promised to it, until a time."""

    pod: PodView
    node: str
    until: float


class Picks:
    """At most one pick for each pod, in the order in which they were made."""

    def __init__(self) -> None:
        self._picks: dict[str, Pick] = {}

    def __len__(self) -> int:
        return len(self._picks)

    def promise(self, pod: PodView, node: str, now: float) -> None:
        """The pod is given that node; whatever was promised to it before is void."""
        self._picks.pop(pod.uid, None)
        self._picks[pod.uid] = Pick(pod=pod, node=node, until=now + PICK_S)

    def end(self, uid: str) -> str:
        """Nothing is promised to the pod any more; the node that was, empty if none was."""
        pick = self._picks.pop(uid, None)
        return pick.node if pick else ""

    def expire(self, now: float) -> list[str]:
        """Nodes whose promises have just become void."""
        return [self.end(pick.pod.uid) for pick in list(self._picks.values()) if pick.until <= now]

    def node_of(self, uid: str) -> str:
        """The node that is promised to the pod, empty if none is."""
        pick = self._picks.get(uid)
        return pick.node if pick else ""

    def on(self, node: str, besides: str) -> list[PodView]:
        """Pods, but that one, to which the node is promised."""
        return [p.pod for p in self._picks.values() if p.node == node and p.pod.uid != besides]

    def pods(self) -> list[PodView]:
        """Pods with a pick."""
        return [pick.pod for pick in self._picks.values()]


def is_grouped(pod: Json) -> bool:
    """Whether the Pod object is scheduled together with others.

    ``spec.schedulingGroup`` (Kubernetes 1.36), ``spec.workloadRef`` (1.35), or the label of
    scheduler-plugins' coscheduling.
    """
    spec, metadata = pod.get("spec") or {}, pod.get("metadata") or {}
    return bool(
        spec.get("schedulingGroup")
        or spec.get("workloadRef")
        or (metadata.get("labels") or {}).get(_COSCHEDULING)
    )
