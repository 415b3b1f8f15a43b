"""VolumeRestrictions: volumes that only so many pods may use at a time."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from rte.scheduler.framework.events import Kind
from rte.scheduler.framework.plugin import NodeFilter, Refusal, RowFilter

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rte.k8s.wire import Disk, Volume
    from rte.scheduler.framework.events import ClusterEvent
    from rte.scheduler.framework.node import NodeEntry
    from rte.scheduler.framework.objects import PodView
    from rte.scheduler.framework.plugin import Snapshot
    from rte.scheduler.framework.shape import Shape
    from rte.scheduler.framework.status import Status


class VolumeRestrictions(RowFilter, NodeFilter):
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

    def prepare(self, pod: PodView, snapshot: Snapshot) -> Sequence[Refusal] | None:
        """All nodes, while placed pods use a ReadWriteOncePod claim of the pod.

        Where all of these run they may be evicted; elsewhere nothing helps.
        """
        claims = snapshot.storage.claims
        alone = {
            name
            for name, _ in pod.shape.claims
            if (claim := claims.get(f"{pod.namespace}/{name}")) is not None
            and "ReadWriteOncePod" in claim.modes
        }
        if not alone:
            return None
        users = {
            other.uid: where
            for other in snapshot.pods.values()
            if other.shape.claims
            and (where := other.node or snapshot.assumed.get(other.uid))
            and other.uid != pod.uid
            and other.namespace == pod.namespace
            and any(name in alone for name, _ in other.shape.claims)
        }
        if not users:
            return None
        here = np.zeros_like(snapshot.columns.present)
        names = set(users.values())
        node = snapshot.nodes.get(names.pop()) if len(names) == 1 else None
        if node is not None:
            here[node.row] = True
        number = np.full(len(here), float(len(users)))
        why = (
            "node has pod using PersistentVolumeClaim with the same name and ReadWriteOncePod "
            "access mode"
        )
        return [Refusal(~here, why), Refusal(here, why, number, lambda each: each.uid in users)]

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
