"""VolumeRestrictions: volumes that only so many pods may use at a time."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from rte.scheduler.framework.events import Kind
from rte.scheduler.framework.plugin import NodeFilter, PreFilter

if TYPE_CHECKING:
    from rte.k8s.wire import Disk, Volume
    from rte.scheduler.framework.events import ClusterEvent
    from rte.scheduler.framework.node import NodeEntry
    from rte.scheduler.framework.objects import PodView
    from rte.scheduler.framework.plugin import Snapshot
    from rte.scheduler.framework.shape import Shape
    from rte.scheduler.framework.status import Status


class VolumeRestrictions(PreFilter, NodeFilter):
    """ReadWriteOncePod claims over the cluster; GCE, AWS, iSCSI and RBD disks on a node."""

    name = "VolumeRestrictions"
    owns = frozenset(
        {
            "volumes.gcePersistentDisk",
            "volumes.awsElasticBlockStore",
            "volumes.iscsi",
            "volumes.rbd",
        }
    )
    says = "ReadWriteOncePod; disks that pods of a node share only when all read"
    helped_by = Kind.NODE_ADDED | Kind.STORAGE | Kind.POD_GONE

    def helps(self, event: ClusterEvent, pod: PodView, snapshot: Snapshot) -> bool:  # noqa: ARG002
        """Only the end of a pod that uses one of these volumes."""
        gone = event.pod
        if gone is None:
            return True
        shared = gone.namespace == pod.namespace and set(pod.shape.claims) & set(gone.shape.claims)
        return bool(shared) or _conflict(pod.shape, gone.shape)

    def pre_filter(self, pod: PodView, snapshot: Snapshot) -> str:
        """A ReadWriteOncePod claim that another pod uses."""
        for name, _ in pod.shape.claims:
            claim = snapshot.storage.claims.get(f"{pod.namespace}/{name}")
            if claim is None or "ReadWriteOncePod" not in claim.modes:
                continue
            for other in snapshot.pods.values():
                placed = bool(other.node) or other.uid in snapshot.assumed
                if (
                    placed
                    and other.uid != pod.uid
                    and other.namespace == pod.namespace
                    and any(name == used for used, _ in other.shape.claims)
                ):
                    return "a pod uses the same ReadWriteOncePod PersistentVolumeClaim"
        return ""

    def filter_node(self, shape: Shape, node: NodeEntry, status: Status) -> Status:
        """Refuse a node where such a disk is in use."""
        if shape.disks and any(_conflict(shape, pod.shape) for pod in node.pods.values()):
            return replace(status, reason="node(s) had no available disk", resources=True)
        return status


def _conflict(one: Shape, other: Shape) -> bool:
    return any(_clash(a, b) for a in one.disks for b in other.disks)


def _clash(a: Volume, b: Volume) -> bool:
    """kube-scheduler's ``isVolumeConflict``."""
    if a.gce_persistent_disk and b.gce_persistent_disk:
        one, other = a.gce_persistent_disk, b.gce_persistent_disk
        return one.pd_name == other.pd_name and not _all_read(one, other)
    if a.aws_elastic_block_store and b.aws_elastic_block_store:
        return a.aws_elastic_block_store.volume_id == b.aws_elastic_block_store.volume_id
    if a.iscsi and b.iscsi:
        return a.iscsi.iqn == b.iscsi.iqn and not _all_read(a.iscsi, b.iscsi)
    if a.rbd and b.rbd:
        same = (a.rbd.pool or "rbd", a.rbd.image) == (b.rbd.pool or "rbd", b.rbd.image)
        near = set(a.rbd.monitors or ()) & set(b.rbd.monitors or ())
        return bool(near) and same and not _all_read(a.rbd, b.rbd)
    return False


def _all_read(one: Disk, other: Disk) -> bool:
    return bool(one.read_only and other.read_only)
