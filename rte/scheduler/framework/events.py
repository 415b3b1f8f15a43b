"""What can happen to the cluster, as far as it can end a refusal (kube-scheduler: ClusterEvent)."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Flag, IntEnum, auto
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

    from rte.scheduler.framework.objects import PodView


class Kind(Flag):
    """Kinds of change; a plugin names those that can end a refusal of its own."""

    NODE_ADDED = auto()  #: a Node is new
    NODE_LABELS = auto()  #: declared features included
    NODE_TAINTS = auto()  #: cordon included
    NODE_ALLOCATABLE = auto()
    NODE_GONE = auto()
    REPORT = auto()  #: what is known of the zones, or whether it is trusted
    POD_PLACED = auto()  #: a pod came to a node: bound, or decided by us
    POD_CHANGED = auto()  #: a placed pod has other labels or amounts, or begins to end
    POD_GONE = auto()  #: a pod has left its node
    CLAIM = auto()  #: a PersistentVolumeClaim
    VOLUME = auto()  #: a PersistentVolume
    STORAGE_CLASS = auto()  #: with its capacities, and drivers
    CSI_NODE = auto()  #: what drivers attach to a node
    STORAGE = CLAIM | VOLUME | STORAGE_CLASS | CSI_NODE
    DEVICE_CLAIM = auto()  #: a claim of DRA that has freed nothing
    DEVICE_SUPPLY = auto()  #: slices, classes and taints of DRA, and what claims have freed
    DEVICES = DEVICE_CLAIM | DEVICE_SUPPLY
    NAMESPACE = auto()
    NOMINATION = auto()  #: room that was promised to a pod is free again
    UNDONE = auto()  #: what a decision had taken is free again (with POD_GONE)
    RESTED = auto()  #: a node that rested after a pod's start or stop takes pods again


NODE = (
    Kind.NODE_ADDED | Kind.NODE_LABELS | Kind.NODE_TAINTS | Kind.NODE_ALLOCATABLE | Kind.NODE_GONE
)
POD = Kind.POD_PLACED | Kind.POD_CHANGED | Kind.POD_GONE
ANY = (
    NODE | POD | Kind.REPORT | Kind.STORAGE | Kind.DEVICES | Kind.NAMESPACE | Kind.NOMINATION
    | Kind.RESTED | Kind.UNDONE
)  # fmt: skip


class Help(IntEnum):
    """What an event can do for a pod that was refused (kube-scheduler: QueueingHint)."""

    NONE = 0  #: nothing
    NODE = 1  #: the node of the event may take it now
    ANY = 2  #: any node may
    NAMED = 3  #: any node may: what has changed is named by the pod


@dataclass(frozen=True, slots=True)
class ClusterEvent:
    """One change.

    Attributes:
        kind: what has changed.
        node: where, if it is about one node.
        pod: for changes of pods, with the view before it in ``old``.
        used: what the pods of the node used before, where one has left or changed.
        name: of the volume or the class.
        claims: ``namespace/name`` of the claims that it is about.
    """

    kind: Kind
    node: str = ""
    pod: PodView | None = None
    old: PodView | None = None
    used: Mapping[str, int] | None = None
    name: str = ""
    claims: frozenset[str] = frozenset()

    def is_named_by(self, pod: PodView) -> bool:
        """Whether the pod names one of the claims."""
        return not self.claims.isdisjoint(pod.claim_paths)
