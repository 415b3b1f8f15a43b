"""VolumeRestrictions: volumes that only so many pods may use at a time."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from rte.scheduler.framework.events import Kind
from rte.scheduler.framework.plugin import NodeFilter, RowFilter, RowRefusal, Surroundings

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from rte.k8s.wire import Disk, Volume
    from rte.scheduler.framework.columns import Columns, Rows
    from rte.scheduler.framework.events import ClusterEvent
    from rte.scheduler.framework.node import NodeEntry
    from rte.scheduler.framework.objects import PodView
    from rte.scheduler.framework.plugin import PodChange, Snapshot
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
    helped_by = Kind.NODE_ADDED | Kind.CLAIM | Kind.POD_GONE
    named = Kind.CLAIM

    def helps(self, event: ClusterEvent, pod: PodView, snapshot: Snapshot) -> bool:  # noqa: ARG002
        """Only the end of a pod that uses one of these volumes."""
        gone = event.pod
        if gone is None:
            return True
        shared = gone.namespace == pod.namespace and set(pod.shape.claims) & set(gone.shape.claims)
        return bool(shared) or _conflict(pod.shape, gone.shape)

    def concerns(self, shape: Shape) -> bool:
        """Pods with claims, or with volumes that are not shared freely."""
        return bool(shape.claims or shape.disks)

    def prepare(self, pod: PodView, snapshot: Snapshot) -> _ClaimUsers | None:
        """Who uses the ReadWriteOncePod claims of the pod."""
        known = snapshot.storage.claims
        keys = {f"{pod.namespace}/{name}" for name, _ in pod.shape.claims}
        alone = {k for k in keys if k in known and "ReadWriteOncePod" in known[k].modes}
        if not alone:
            return None
        users = {uid: row for key in alone for uid, row in snapshot.matches.users(key).items()}
        users.pop(pod.uid, None)
        return _ClaimUsers(snapshot.columns, alone, users)

    def is_told(self, shape: Shape) -> bool:
        """Of disks columns know nothing."""
        return not shape.disks

    def filter_node(self, shape: Shape, node: NodeEntry, status: Status) -> Status:
        """Refuse a node where such a disk is in use."""
        if shape.disks and any(_conflict(shape, pod.shape) for pod in node.pods.values()):
            return replace(status, reason="node(s) had no available disk", resources=True)
        return status


@dataclass(slots=True)
class _ClaimUsers(Surroundings):
    """Claims that only one pod may use, and the UID and row of those that do.

    Where all of these run they may be evicted; elsewhere nothing helps.
    """

    columns: Columns
    claims: set[str]
    users: dict[str, int]
    _everywhere: tuple[RowRefusal, ...] | None = None

    def refusals(self, rows: Rows | slice) -> Iterator[RowRefusal]:
        """All rows, while somebody uses such a claim."""
        if not self.users:
            return
        why = (
            "node has pod using PersistentVolumeClaim with the same name and ReadWriteOncePod "
            "access mode"
        )
        numbers, there = np.arange(self.columns.rows)[rows], set(self.users.values())
        here = (numbers == there.pop()) & (not there)
        yield RowRefusal(~here, why)
        yield RowRefusal(here, why, resources=True)

    def changed(self, changes: Sequence[PodChange]) -> _ClaimUsers:
        """With pods more or fewer."""
        users = dict(self.users)
        for other, name, number in changes:
            row = self.columns.row_of(name)
            if number < 0:
                users.pop(other.uid, None)
            elif row is not None and not self.claims.isdisjoint(
                f"{other.namespace}/{claim}" for claim, _ in other.shape.claims
            ):
                users[other.uid] = row
        return _ClaimUsers(self.columns, self.claims, users)


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
