"""What can happen to the cluster, as far as it can end a refusal (kube-scheduler: ClusterEvent)."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Flag, auto
from typing import TYPE_CHECKING

if TYPE_CHECKING:
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
    STORAGE = auto()  #: claims, volumes, classes, drivers, capacities
    DEVICES = auto()  #: slices, classes, taints and claims of DRA
    NAMESPACE = auto()
    NOMINATION = auto()  #: room that was promised to a pod is free again
    RESTED = auto()  #: a node that rested after a pod's start or stop takes pods again


NODE = (
    Kind.NODE_ADDED | Kind.NODE_LABELS | Kind.NODE_TAINTS | Kind.NODE_ALLOCATABLE | Kind.NODE_GONE
)
POD = Kind.POD_PLACED | Kind.POD_CHANGED | Kind.POD_GONE
ANY = (
    NODE | POD | Kind.REPORT | Kind.STORAGE | Kind.DEVICES | Kind.NAMESPACE | Kind.NOMINATION
    | Kind.RESTED
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class ClusterEvent:
    """One change. ``pod`` for changes of pods, with the view before it in ``old``."""

    kind: Kind
    node: str = ""
    pod: PodView | None = None
    old: PodView | None = None
