"""NodeVolumeLimits: a CSI driver attaches only so many volumes to a node (CSINode)."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, NamedTuple

from rte.scheduler.framework.events import Kind
from rte.scheduler.framework.plugin import Filter
from rte.scheduler.framework.status import Status

if TYPE_CHECKING:
    from collections.abc import Iterable

    from rte.scheduler.framework.node import NodeEntry
    from rte.scheduler.framework.objects import PodView
    from rte.scheduler.framework.plugin import Snapshot
    from rte.scheduler.framework.storage import Storage

    Attached = tuple[str, str]  # driver, handle


class _Wanted(NamedTuple):
    volumes: frozenset[Attached]
    storage: Storage


class NodeVolumeLimits(Filter):
    """Volumes of the pods of a node, by driver. Attachments without a pod are not looked at."""

    name = "NodeVolumeLimits"
    owns = frozenset({"volumes.csi"})
    says = "volumes per driver and node (CSINode); inline CSI volumes are not limited"
    helped_by = Kind.NODE_ADDED | Kind.STORAGE | Kind.POD_GONE

    def prepare(self, pod: PodView, snapshot: Snapshot) -> _Wanted | None:
        """The volumes of CSI drivers that the pod asks for."""
        if not pod.shape.claims or not snapshot.storage.limits:
            return None
        return _Wanted(_volumes(pod, snapshot.storage), snapshot.storage)

    def filter(self, prepared: _Wanted, pod: PodView, node: NodeEntry) -> str | Status:
        """Refuse a node whose drivers have attached as much as they may."""
        return self.filter_without(prepared, pod, node, ())

    def filter_without(
        self,
        prepared: _Wanted,
        pod: PodView,  # noqa: ARG002
        node: NodeEntry,
        gone: Iterable[PodView],
    ) -> str | Status:
        """The answer once these pods are gone from the node."""
        limits = prepared.storage.limits.get(node.name)
        if not limits or not prepared.volumes:
            return ""
        left = {each.uid for each in gone}
        attached: set[Attached] = set()
        for other in node.pods.values():
            if other.shape.claims and other.uid not in left:
                attached |= _volumes(other, prepared.storage)
        held = Counter(driver for driver, _ in attached)
        for driver, number in Counter(d for d, _ in prepared.volumes - attached).items():
            if driver in limits and held[driver] + number > limits[driver]:
                return Status(
                    reason="node(s) exceed max volume count", resources=bool(held[driver])
                )
        return ""


def _volumes(pod: PodView, storage: Storage) -> frozenset[Attached]:
    """(driver, handle) of each claim; one that is not bound yet counts by its provisioner."""
    found = set()
    for name, _ in pod.shape.claims:
        claim = storage.claims.get(f"{pod.namespace}/{name}")
        if claim is None:
            continue
        volume = storage.volumes.get(claim.volume) if claim.volume else None
        if volume is not None:
            if volume.driver:
                found.add((volume.driver, volume.handle))
            continue
        kind = storage.class_of(claim)
        if kind is not None and kind.provisioner:
            found.add((kind.provisioner, claim.key))
    return frozenset(found)
