"""NodeVolumeLimits: a CSI driver attaches only so many volumes to a node (CSINode)."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, NamedTuple

from rte.k8s import csi
from rte.k8s.csi import Attached
from rte.scheduler.framework.events import Kind
from rte.scheduler.framework.outlook import UNBOUNDED
from rte.scheduler.framework.plugin import Filter
from rte.scheduler.framework.status import Status

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rte.scheduler.framework.claims.storage import Storage
    from rte.scheduler.framework.events import ClusterEvent
    from rte.scheduler.framework.node import NodeEntry
    from rte.scheduler.framework.objects import PodView
    from rte.scheduler.framework.plugin import Snapshot
    from rte.scheduler.framework.shape import Shape

#: Volumes that no other rule owns.
_INLINE = ("azureDisk", "cinder", "portworxVolume")


class _PodVolumes(NamedTuple):
    volumes: frozenset[Attached]
    storage: Storage


class NodeVolumeLimits(Filter):
    """Volumes of the pods of a node, by driver. Attachments without a pod are not looked at."""

    name = "NodeVolumeLimits"
    owns = frozenset({"volumes.csi", *(f"volumes.{kind}" for kind in _INLINE)})
    says = (
        "volumes per driver and node (CSINode), those of migrated in-tree plugins included; inline "
        "CSI volumes are not limited"
    )
    helped_by = Kind.NODE_ADDED | Kind.STORAGE | Kind.POD_GONE

    def helps(self, event: ClusterEvent, pod: PodView, snapshot: Snapshot) -> bool:  # noqa: ARG002
        """The end of a pod that has volumes, and what they are."""
        gone = event.pod
        return bool(pod.shape.rules.volumes) and (gone is None or bool(gone.shape.rules.volumes))

    def spreads(self, event: ClusterEvent) -> bool:
        """What is attached to a node concerns that node alone."""
        return not event.node

    def concerns(self, shape: Shape) -> bool:
        """Pods with volumes that are attached."""
        return bool(shape.claims or shape.attached)

    def prepare(self, pod: PodView, snapshot: Snapshot) -> _PodVolumes | None:
        """The volumes of CSI drivers that the pod asks for."""
        if not (pod.shape.claims or pod.shape.attached) or not snapshot.storage.csi_nodes:
            return None
        volumes = frozenset(_volumes(pod, snapshot.storage))
        return _PodVolumes(volumes, snapshot.storage) if volumes else None

    def filter(
        self,
        prepared: _PodVolumes,
        pod: PodView,  # noqa: ARG002
        node: NodeEntry,
    ) -> str | Status:
        """Refuse a node whose drivers have attached as much as they may."""
        csi_node = prepared.storage.csi_nodes.get(node.name)
        if csi_node is None or not csi_node.limits:
            return ""
        attached = _attached(node, prepared.storage)
        held = Counter(volume.driver for volume in attached)
        for driver, number in Counter(v.driver for v in prepared.volumes - attached).items():
            if held[driver] + number > csi_node.limits.get(driver, UNBOUNDED):
                why = "node(s) exceed max volume count"
                return Status(reason=why, resources=bool(held[driver]))
        return ""


def _attached(node: NodeEntry, storage: Storage) -> frozenset[Attached]:
    """Volumes of the pods of a node, found out once for each state of both."""
    known = node.derived.get(NodeVolumeLimits.name)
    if known is None or known[0] != storage.version:
        found = frozenset(each for pod in node.pods.values() for each in _volumes(pod, storage))
        known = node.derived[NodeVolumeLimits.name] = storage.version, found
    volumes: frozenset[Attached] = known[1]
    return volumes


def _volumes(pod: PodView, storage: Storage) -> Iterator[Attached]:
    """Volumes of a pod as drivers know them; one that is yet to be made counts by its class."""
    yield from pod.shape.attached
    for name, _ in pod.shape.claims:
        claim = storage.claims.get(f"{pod.namespace}/{name}")
        if claim is None:
            continue
        volume = storage.volumes.get(claim.volume)
        kind = storage.classes.get(claim.class_name)
        if volume is not None:
            if volume.attached is not None:
                yield volume.attached
        elif kind is not None and kind.provisioner:
            driver = csi.DRIVERS.get(kind.provisioner, kind.provisioner)
            yield Attached(driver, f"claim {claim.key}")
