"""VolumeBinding (with VolumeZone): where a pod's claims let it run, and what must be bound first.

Claims that are bound already by their volumes' node affinity and zone labels; classes with
``WaitForFirstConsumer`` by existing volumes, or by provisioning: the class's ``allowedTopologies``
and, for drivers that publish it, the storage capacity (CSIStorageCapacity). A claim that names its
volume and is not bound yet is the volume controller's to bind (binder.go, GetPodVolumeClaims).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from rte.scheduler.framework.events import Kind
from rte.scheduler.framework.plugin import Filter, PreFilter, Reserve
from rte.scheduler.framework.writes import NOTHING, Reserved
from rte.scheduler.plugins import volume_writes

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rte.scheduler.framework.claims.storage import Claim, PersistentVolume, Storage
    from rte.scheduler.framework.events import ClusterEvent
    from rte.scheduler.framework.node import NodeEntry
    from rte.scheduler.framework.objects import NodeInfo, PodView
    from rte.scheduler.framework.plugin import Snapshot
    from rte.scheduler.framework.shape import Shape
    from rte.scheduler.framework.writes import RequiredWrite

_NO_PROVISIONER = "kubernetes.io/no-provisioner"


@dataclass(frozen=True, kw_only=True)
class ClaimBinding:
    """The claim gets this volume, or, where ``volume`` is None, one made for the chosen node."""

    claim: Claim
    node: str
    volume: PersistentVolume | None = None

    def writes(self) -> Iterator[RequiredWrite]:
        """What has to stand before the pod may be bound."""
        if self.volume is not None and self.volume.claim_uid != self.claim.uid:
            yield volume_writes.TakenVolume(claim=self.claim, volume=self.volume)
        node = self.node if self.volume is None else ""
        yield volume_writes.BoundClaim(claim=self.claim, node=node)


class VolumeBinding(PreFilter, Filter, Reserve):
    """Claims and volumes; a volume that a decision takes is promised to its claim."""

    name = "VolumeBinding"
    owns = frozenset({"volumes.persistentVolumeClaim", "volumes.ephemeral"})
    says = (
        "bound claims, WaitForFirstConsumer (existing volumes, allowedTopologies, "
        "CSIStorageCapacity), generic ephemeral volumes that belong to the pod"
    )
    helped_by = (
        Kind.NODE_ADDED
        | Kind.NODE_LABELS
        | Kind.CLAIM
        | Kind.VOLUME
        | Kind.STORAGE_CLASS
        | Kind.CSI_NODE
        | Kind.UNDONE
    )
    named = Kind.CLAIM | Kind.VOLUME
    by_pods = False

    def __init__(self, storage: Storage) -> None:
        self._storage = storage

    def helps(self, event: ClusterEvent, pod: PodView, snapshot: Snapshot) -> bool:
        """A node, a free volume, or a class, for a claim that is not bound yet."""
        if event.kind & (Kind.NODE_ADDED | Kind.NODE_LABELS | Kind.CSI_NODE):
            return bool(pod.shape.claims)
        storage = snapshot.storage
        known = (storage.claims.get(f"{pod.namespace}/{name}") for name, _ in pod.shape.claims)
        claims = [claim for claim in known if claim is not None]
        if event.kind & Kind.VOLUME:
            volume = storage.volumes.get(event.name)
            return volume is not None and any(
                claim.volume == volume.name
                if claim.volume
                else claim.class_name in (None, volume.class_name)
                for claim in claims
            )
        if event.pod is not None and not event.pod.shape.claims:
            return False
        return not all(claim.bound for claim in claims)

    def spreads(self, event: ClusterEvent) -> bool:
        """What a volume or a class has to offer may be for several nodes."""
        return bool(event.kind & (Kind.STORAGE | Kind.UNDONE) & ~Kind.CSI_NODE)

    def concerns(self, shape: Shape) -> bool:
        """Pods with claims."""
        return bool(shape.claims)

    def pre_filter(self, pod: PodView, snapshot: Snapshot) -> str:
        """Claims that are missing, going, lost, somebody else's, or for a controller to bind."""
        return problem(pod, snapshot.storage)

    def prepare(self, pod: PodView, snapshot: Snapshot) -> _PodClaims | None:
        """The claims of the pod."""
        return _PodClaims(pod, snapshot.storage) if pod.shape.claims else None

    def filter(self, prepared: _PodClaims, pod: PodView, node: NodeEntry) -> str:
        """Refuse nodes that a volume cannot reach."""
        if len(prepared.claims) != len(pod.shape.claims):
            return problem(pod, prepared.storage)
        found = prepared.on_node(node.info) if node.info else ""
        return found if isinstance(found, str) else ""

    def reserve(self, pod: PodView, node: NodeEntry) -> Reserved | None:
        """Promise the volumes; the bindings to write."""
        if not pod.shape.claims:
            return NOTHING
        if node.info is None or problem(pod, self._storage):
            return None
        found = _PodClaims(pod, self._storage).on_node(node.info)
        if isinstance(found, str):
            return None
        for item in found:
            if item.volume is not None:
                self._storage.promised[item.volume.name] = item.claim.uid
        return Reserved([write for item in found for write in item.writes()], promise=found)

    def unreserve(self, reserved: Reserved) -> None:
        """Take the promises back."""
        for item in reserved.promise:
            if item.volume is not None:
                self._storage.promised.pop(item.volume.name, None)


def problem(pod: PodView, storage: Storage) -> str:
    """Why no node can have the pod, empty when its claims are in order."""
    for name, ephemeral in pod.shape.claims:
        claim = storage.claims.get(f"{pod.namespace}/{name}")
        if claim is None:
            if ephemeral:
                return f'waiting for ephemeral volume controller to create "{name}"'
            return f'persistentvolumeclaim "{name}" not found'
        if ephemeral and claim.owner != pod.uid:
            return f'persistentvolumeclaim "{name}" was not created for the pod'
        if claim.deleting:
            return f'persistentvolumeclaim "{name}" is being deleted'
        if claim.lost:
            return f'persistentvolumeclaim "{name}" bound to non-existent persistentvolume'
        if claim.volume and claim.volume not in storage.volumes:
            return f'persistentvolume "{claim.volume}" not found'
        kind = storage.classes.get(claim.class_name)
        if not claim.bound and (claim.volume or kind is None or not kind.waits):
            return "pod has unbound immediate PersistentVolumeClaims"
    return ""


class _PodClaims:
    """The claims of a pod; which free volumes they could take is found out once.

    Args:
        pod: whose claims; those that exist count.
        storage: what is known.
    """

    def __init__(self, pod: PodView, storage: Storage) -> None:
        self.storage = storage
        keys = [(f"{pod.namespace}/{name}", ephemeral) for name, ephemeral in pod.shape.claims]
        self.claims = [storage.claims[key] for key, _ in keys if key in storage.claims]
        #: VolumeZone does not look at what was made for the pod.
        self._made = {key for key, ephemeral in keys if ephemeral}
        self._own: dict[str, list[PersistentVolume]] = {}
        self._fitting: dict[tuple[str, tuple[str, str]], list[PersistentVolume]] = {}

    def on_node(self, node: NodeInfo) -> str | list[ClaimBinding]:
        """What to bind on this node, or why the claims cannot be had there (FindPodVolumes)."""
        csi_node = self.storage.csi_nodes.get(node.name)
        waiting = [claim for claim in self.claims if not claim.bound]
        for claim in self.claims:
            volume = self.storage.volumes.get(claim.volume)
            if not claim.bound:
                continue
            if volume is None or not volume.reachable(node, csi_node):
                return "node(s) had volume node affinity conflict"
            if claim.key not in self._made and not volume.in_zone(node):
                return "node(s) had no available volume zone"
        if any(claim.selected_node not in (None, node.name) for claim in waiting):
            return "node(s) other than the one a volume is being provisioned for"
        bindings: list[ClaimBinding] = []
        used: set[str] = set()
        for claim in sorted(waiting, key=lambda claim: claim.size):
            # Where a node was chosen a volume is made for it.
            volume = self._match(claim, node, used) if claim.selected_node is None else None
            if volume is not None:
                used.add(volume.name)
            elif why := _provisionable(claim, node, self.storage):
                return why
            bindings.append(ClaimBinding(claim=claim, node=node.name, volume=volume))
        return bindings

    def _match(self, claim: Claim, node: NodeInfo, used: set[str]) -> PersistentVolume | None:
        """The claim's own volume, or the smallest free one that suits it (FindMatchingVolume)."""
        own = self._own.get(claim.key)
        if own is None:
            own = [volume for volume in self.storage.meant_for(claim) if volume.suits(claim)]
            self._own[claim.key] = own
        mine = next((volume for volume in own if volume.name not in used), None)
        if mine is not None:
            return mine if mine.reachable(node) else None
        found = (
            next((v for v in volumes if v.name not in used and v.reachable(node)), None)
            for volumes in self._free(claim, node)
        )
        return min(filter(None, found), key=lambda v: (v.size, v.name), default=None)

    def _free(self, claim: Claim, node: NodeInfo) -> Iterator[list[PersistentVolume]]:
        """Volumes that the claim could take, by where they are, the smallest first."""
        for place, volumes in self.storage.free(claim.class_name).near(node):
            fitting = self._fitting.get((claim.key, place))
            if fitting is None:
                fitting = [
                    volume
                    for volume in volumes.values()
                    if volume.name not in self.storage.promised and volume.is_free_for(claim)
                ]
                fitting.sort(key=lambda volume: (volume.size, volume.name))
                self._fitting[claim.key, place] = fitting
            yield fitting


def _provisionable(claim: Claim, node: NodeInfo, storage: Storage) -> str:
    """Why no volume can be made for the claim on this node, empty when one can."""
    kind = storage.classes.get(claim.class_name)
    if kind is None or kind.provisioner in ("", _NO_PROVISIONER):
        return "node(s) didn't find available persistent volumes to bind"
    if not kind.allows(node):
        return "node(s) did not have the storage class's allowed topology"
    if kind.provisioner not in storage.tracked or not claim.size:
        return ""
    if any(
        pool.class_name == kind.name
        and pool.largest >= claim.size
        and pool.nodes.matches(node.labels)
        for pool in storage.capacities.values()
    ):
        return ""
    return "node(s) did not have enough free storage"
