"""VolumeBinding (with VolumeZone): where a pod's claims let it run, and what must be bound first.

Claims that are bound already by their volumes' node affinity and zone labels; classes with
``WaitForFirstConsumer`` by existing volumes, or by provisioning: the class's ``allowedTopologies``
and, for drivers that publish it, the storage capacity (CSIStorageCapacity).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from rte.scheduler.framework.events import Kind
from rte.scheduler.framework.plugin import Filter, PreFilter, Reserve
from rte.scheduler.framework.writes import NOTHING, Reserved
from rte.scheduler.plugins import volume_writes

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from rte.scheduler.framework.node import NodeEntry
    from rte.scheduler.framework.objects import NodeInfo, PodView
    from rte.scheduler.framework.plugin import Snapshot
    from rte.scheduler.framework.storage import Claim, Storage, Volume
    from rte.scheduler.framework.writes import Write

_NO_PROVISIONER = "kubernetes.io/no-provisioner"


@dataclass(frozen=True, kw_only=True)
class Binding:
    """The claim gets this volume, or, where ``volume`` is None, one made for the chosen node."""

    claim: Claim
    node: str
    volume: Volume | None = None

    def writes(self) -> Iterator[Write]:
        """What has to stand before the pod may be bound."""
        if self.volume is not None and not self.volume.claim:
            yield volume_writes.TakenVolume(claim=self.claim, volume=self.volume)
        node = self.node if self.volume is None else ""
        yield volume_writes.BoundClaim(claim=self.claim, node=node)


class _Wanted(NamedTuple):
    claims: list[Claim]
    storage: Storage


class VolumeBinding(PreFilter, Filter, Reserve):
    """Claims and volumes; a volume that a decision takes is promised to its claim."""

    name = "VolumeBinding"
    owns = frozenset({"volumes.persistentVolumeClaim", "volumes.ephemeral"})
    says = (
        "bound claims, WaitForFirstConsumer (existing volumes, allowedTopologies, "
        "CSIStorageCapacity), generic ephemeral volumes that belong to the pod"
    )
    helped_by = Kind.NODE_ADDED | Kind.NODE_LABELS | Kind.STORAGE | Kind.POD_GONE

    def __init__(self, storage: Storage) -> None:
        self._storage = storage

    def pre_filter(self, pod: PodView, snapshot: Snapshot) -> str:
        """Claims that are missing, going, lost, somebody else's, or for a controller to bind."""
        return problem(pod, snapshot.storage)

    def prepare(self, pod: PodView, snapshot: Snapshot) -> _Wanted | None:
        """The claims of the pod."""
        if not pod.shape.claims:
            return None
        storage = snapshot.storage
        keys = [f"{pod.namespace}/{name}" for name, _ in pod.shape.claims]
        return _Wanted([storage.claims[key] for key in keys if key in storage.claims], storage)

    def filter(self, prepared: _Wanted, pod: PodView, node: NodeEntry) -> str:
        """Refuse nodes that a volume cannot reach."""
        if len(prepared.claims) != len(pod.shape.claims):
            return problem(pod, prepared.storage)
        found = on_node(prepared.claims, node.info, prepared.storage) if node.info else ""
        return found if isinstance(found, str) else ""

    def reserve(self, pod: PodView, node: NodeEntry) -> Reserved | None:
        """Promise the volumes; the bindings to write."""
        if not pod.shape.claims:
            return NOTHING
        if node.info is None or problem(pod, self._storage):
            return None
        claims = [self._storage.claims[f"{pod.namespace}/{name}"] for name, _ in pod.shape.claims]
        found = on_node(claims, node.info, self._storage)
        if isinstance(found, str):
            return None
        for item in found:
            if item.volume is not None:
                self._storage.promised[item.volume.name] = item.claim.key
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
        if claim.volume:
            if claim.volume not in storage.volumes:
                return f'persistentvolume "{claim.volume}" not found'
            continue
        kind = storage.class_of(claim)
        if kind is None or not kind.waits:
            return "pod has unbound immediate PersistentVolumeClaims"
    return ""


def on_node(claims: Sequence[Claim], node: NodeInfo, storage: Storage) -> str | list[Binding]:
    """What to bind for these claims on this node, or why they cannot be had there."""
    bindings: list[Binding] = []
    used: set[str] = set()
    for claim in claims:
        if claim.volume:
            volume = storage.volumes.get(claim.volume)
            if volume is None or not volume.reachable(node):
                return "node(s) had volume node affinity conflict"
            if not claim.bound:
                bindings.append(Binding(claim=claim, node=node.name, volume=volume))
            continue
        if claim.selected_node and claim.selected_node != node.name:
            return "node(s) other than the one a volume is being provisioned for"
        volume = _match(claim, node, used, storage)
        if volume is not None:
            used.add(volume.name)
            bindings.append(Binding(claim=claim, node=node.name, volume=volume))
            continue
        why = _provisionable(claim, node, storage)
        if why:
            return why
        bindings.append(Binding(claim=claim, node=node.name))
    return bindings


def _match(claim: Claim, node: NodeInfo, used: set[str], storage: Storage) -> Volume | None:
    """The smallest free volume that suits the claim on this node."""
    fitting = [
        volume
        for volume in storage.volumes.values()
        if volume.name not in used
        and storage.promised.get(volume.name, claim.key) == claim.key
        and (volume.claim == claim.key or (not volume.claim and volume.available))
        and volume.class_name == (claim.class_name or "")
        and volume.volume_mode == claim.volume_mode
        and volume.modes >= claim.modes
        and volume.size >= claim.size
        and (claim.selector is None or claim.selector.matches(volume.labels))
        and volume.reachable(node)
    ]
    return min(fitting, key=lambda v: (not v.claim, v.size, v.name), default=None)


def _provisionable(claim: Claim, node: NodeInfo, storage: Storage) -> str:
    """Why no volume can be made for the claim on this node, empty when one can."""
    kind = storage.class_of(claim)
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
