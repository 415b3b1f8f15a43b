"""Room on a node, and what a pod needs of it: a rough comparison, for one pod or columns of them.

What it rules out is refused for certain; what it lets through still has to be predicted. So one
report is held against a thousand waiting shapes at once, and a shape against a node for next to
nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Generic, NamedTuple, TypeVar

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Column = NDArray[np.int64]
    Mask = NDArray[np.bool_]

T = TypeVar("T")

#: Stands for "nothing counts this", and for what no amount reaches.
UNBOUNDED = 1 << 62


class Needs(NamedTuple, Generic[T]):
    """What a pod needs of a node: numbers, or columns of them.

    Attributes:
        milli: CPU in total, in millicores.
        memory: bytes in total.
        cpus: exclusive CPUs of its largest container.
        cpus_memory: bytes of memory that tie that container to few zones; :data:`UNBOUNDED` where
            they may not.
        pod_cpus: exclusive CPUs of the pod at its peak, where they are served as a whole.
        pod_memory: as ``cpus_memory``, of such a pod.
    """

    milli: T
    memory: T
    cpus: T
    cpus_memory: T
    pod_cpus: T
    pod_memory: T


class ZoneBound(NamedTuple):
    """Who finds no zones on a node, by CPUs.

    Under single-numa-node everybody needs one zone. Under restricted those do whose CPUs fit into a
    zone of this machine; of the others those whose memory does: the hints of CPU and memory manager
    then never are as wide as each other (``policy_restricted.go``, ``mergePermutation``).

    Attributes:
        by_pod: pods are served as a whole, not container by container.
        free: CPUs of the zone that has most.
        size: CPUs of the largest zone, :data:`UNBOUNDED` where several zones never do.
        memory: bytes of allocatable memory of the largest zone; -1 where nobody counts it.
    """

    by_pod: bool = False
    free: int = UNBOUNDED
    size: int = UNBOUNDED
    memory: int = -1

    def lets(self, needs: Needs[int] | Needs[Column]) -> bool | Mask:
        """Whether the zones may take such a pod."""
        cpus, memory = needs.cpus, needs.cpus_memory
        if self.by_pod:
            cpus, memory = needs.pod_cpus, needs.pod_memory
        return (cpus <= self.free) | ((cpus > self.size) & (memory > self.memory))


#: Zones that bind nobody.
ANY_ZONES = ZoneBound()


class Room(NamedTuple):
    """What a node has left: CPU in millicores and bytes of memory in total, and in its zones."""

    milli: int
    memory: int
    zones: ZoneBound = ANY_ZONES

    def holds(self, needs: Needs[int] | Needs[Column]) -> bool | Mask:
        """Whether the node may take such a pod."""
        enough = (needs.milli <= self.milli) & (needs.memory <= self.memory)
        return enough & self.zones.lets(needs)


#: Helps nobody.
NO_ROOM = Room(-1, -1)
