"""What DynamicResources has written before a bind: claims, and claims made for extended resources.

A claim that was not allocated gets the finalizer, then allocation and reservation at once
(kube-scheduler: ``bindClaim``); an allocated one gets the reservation. Devices with binding
conditions are waited for. Undone is the reservation, and the allocation if it is of this decision
and nobody else uses the claim.
"""

from __future__ import annotations

import uuid
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from msgspec import structs

from rte.placement.dra import binding, decode
from rte.placement.dra.extended import CLAIM_ANNOTATION
from rte.scheduler.framework.claims.devices import MAX_CONSUMERS
from rte.scheduler.framework.writes import Impossible, Step, Wait, WriteTarget

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import TypeGuard

    from rte.placement.dra.extended import ExtendedClaim
    from rte.placement.dra.objects import AllocationResult, ResourceClaim
    from rte.scheduler.framework.claims.devices import KnownClaim
    from rte.scheduler.framework.objects import PodView
    from rte.scheduler.framework.writes import Found

#: Keeps a claim until it is deallocated (``resourceapi.Finalizer``).
FINALIZER = "resource.kubernetes.io/delete-protection"

_COLLECTION = "device-claims"

#: Ids of shares are made of this.
_SHARES = uuid.UUID("6f0ab0a3-3f0e-4c8f-9a75-1c1f4a0d0c57")


@dataclass(frozen=True, kw_only=True)
class ReservedClaim:
    """A claim of the API is allocated as decided, and reserved for the pod.

    Attributes:
        namespace: of the claim.
        name: of the claim.
        uid: of the claim.
        allocation: what it must hold.
        decided: the allocation is of this decision; else it was there before.
        pod: who may use it.
        known: the part of the object that is read here, as a watch has shown it.
    """

    namespace: str
    name: str
    uid: str
    allocation: AllocationResult
    decided: bool
    pod: PodView
    known: Found

    @property
    def target(self) -> WriteTarget:
        """The claim."""
        return WriteTarget(_COLLECTION, self.name, self.namespace)

    def next(self, found: Found) -> Step | Wait | Impossible | None:
        """The finalizer, then allocation and reservation, then the driver's conditions."""
        if not _is_object(found, self.uid):
            return Impossible(f'resourceclaim "{self.name}" was deleted')
        return _reserve(self.name, found, self.allocation, self.pod, decided=self.decided)

    def undo(self, found: Found) -> Step | None:
        """Take our reservation back, and an allocation of ours that nobody else uses."""
        if not _is_object(found, self.uid):
            return None
        return _give_back(found, self.allocation if self.decided else None, self.pod.uid)


@dataclass(frozen=True, kw_only=True)
class MadeClaim:
    """The claim that serves a pod's extended resources on the chosen node exists, allocated.

    Its name follows from the pod, so what is left of an attempt is found; it is deleted when the
    decision is undone, since another node may need another one.
    """

    claim: ExtendedClaim
    allocation: AllocationResult
    pod: PodView

    @property
    def name(self) -> str:
        """Of the claim."""
        return extended_claim_name(self.pod)

    @property
    def target(self) -> WriteTarget:
        """The claim."""
        return WriteTarget(_COLLECTION, self.name, self.pod.namespace)

    @property
    def known(self) -> Found:
        """It is not there yet."""
        return None

    def next(self, found: Found) -> Step | Wait | Impossible | None:
        """Make it, then as any claim."""
        if found is None:
            return Step("create", self._object())
        if not _is_made_for(found, self.pod):
            return Impossible(f'resourceclaim "{self.name}" is there already, and not the pod\'s')
        if (found.get("spec") or {}).get("devices") != self._object()["spec"]["devices"]:
            return Impossible(f'resourceclaim "{self.name}" was made for another node')
        return _reserve(self.name, found, self.allocation, self.pod, decided=True)

    def undo(self, found: Found) -> Step | None:
        """Take the allocation back, then delete the claim."""
        if not _is_made_for(found, self.pod) or found["metadata"].get("deletionTimestamp"):
            return None
        status: Mapping[str, Any] = found.get("status") or {}
        if status.get("allocation") or status.get("reservedFor"):
            return _FREED
        if found["metadata"].get("finalizers"):
            return Step("patch", {"metadata": {"finalizers": None}})
        return Step("delete")

    def _object(self) -> dict[str, Any]:
        owner = {
            "apiVersion": "v1",
            "kind": "Pod",
            "name": self.pod.name,
            "uid": self.pod.uid,
            "controller": True,
        }
        requests = []
        for one in self.claim.claim.spec.devices.requests:
            exactly = {"allocationMode": "ExactCount", "count": 1, **decode.encode(one)["exactly"]}
            requests.append({"name": one.name, "exactly": exactly})
        return {
            "apiVersion": "resource.k8s.io/v1",
            "kind": "ResourceClaim",
            "metadata": {
                "name": self.name,
                "namespace": self.pod.namespace,
                "annotations": {CLAIM_ANNOTATION: "true"},
                "ownerReferences": [owner],
                "finalizers": [FINALIZER],
            },
            "spec": {"devices": {"requests": requests}},
        }


@dataclass(frozen=True, kw_only=True)
class ToldPod:
    """The pod's status says which request of which claim is for which container."""

    claim: ExtendedClaim
    pod: PodView

    @property
    def target(self) -> WriteTarget:
        """The pod."""
        return WriteTarget("pods", self.pod.name, self.pod.namespace)

    @property
    def known(self) -> Found:
        """As it was seen."""
        version = str(self.pod.version) if self.pod.version else ""
        return {"metadata": {"uid": self.pod.uid, "resourceVersion": version}}

    def next(self, found: Found) -> Step | Impossible | None:
        """Write the status."""
        if not _is_object(found, self.pod.uid):
            return Impossible(f"pod {self.pod.key} was deleted")
        wanted = self._status()
        told = (found.get("status") or {}).get("extendedResourceClaimStatus")
        if told == wanted:
            return None
        return Step("patch", {"status": {"extendedResourceClaimStatus": wanted}}, "status")

    def undo(self, found: Found) -> Step | None:
        """Take it out of the status."""
        if not _is_object(found, self.pod.uid):
            return None
        told = (found.get("status") or {}).get("extendedResourceClaimStatus")
        if told != self._status() or (found.get("spec") or {}).get("nodeName"):
            return None
        return Step("patch", {"status": {"extendedResourceClaimStatus": None}}, "status")

    def _status(self) -> dict[str, Any]:
        mappings = [
            {
                "containerName": one.container,
                "resourceName": one.resource,
                "requestName": one.request,
            }
            for one in self.claim.mappings
        ]
        return {"requestMappings": mappings, "resourceClaimName": extended_claim_name(self.pod)}


def reserved_claim(
    known: KnownClaim, allocation: AllocationResult, pod: PodView, *, decided: bool
) -> ReservedClaim:
    """What is written for a claim that the API has."""
    return ReservedClaim(
        namespace=known.claim.namespace,
        name=known.claim.name,
        uid=known.claim.uid,
        allocation=allocation,
        decided=decided,
        pod=pod,
        known=known.found,
    )


def with_share_ids(allocation: AllocationResult, known: KnownClaim) -> AllocationResult:
    """Ids that no other share of a device has, equal for equal decisions."""
    results = tuple(
        result
        if result.share_id is None
        else structs.replace(
            result, share_id=str(uuid.uuid5(_SHARES, f"{known.uid}/{known.version}/{place}"))
        )
        for place, result in enumerate(allocation.devices.results)
    )
    devices = structs.replace(allocation.devices, results=results)
    return structs.replace(allocation, devices=devices)


def extended_claim_name(pod: PodView) -> str:
    """Of the claim for a pod's extended resources: of the pod's name as much as there is room."""
    suffix = f"-extended-resources-{pod.uid[:8]}"
    return pod.name[: 253 - len(suffix)] + suffix


def _is_object(found: Found, uid: str) -> TypeGuard[Mapping[str, Any]]:
    return found is not None and found["metadata"].get("uid") == uid


def _is_made_for(found: Found, pod: PodView) -> TypeGuard[Mapping[str, Any]]:
    owners = (found or {}).get("metadata", {}).get("ownerReferences") or ()
    return any(one.get("controller") and one.get("uid") == pod.uid for one in owners)


def _reserve(
    name: str,
    found: Mapping[str, Any],
    allocation: AllocationResult,
    pod: PodView,
    *,
    decided: bool,
) -> Step | Wait | Impossible | None:
    claim = decode.resource_claim(found)
    held = claim.status.allocation
    reserved = (found.get("status") or {}).get("reservedFor") or []
    why = ""
    if found["metadata"].get("deletionTimestamp"):
        why = "is being deleted"
    elif held is None and not decided:
        why = "was deallocated meanwhile"
    elif held is not None and not _same(held, allocation):
        why = "was allocated by somebody else meanwhile"
    elif len(_without(reserved, pod.uid)) >= MAX_CONSUMERS:
        why = f"is in use by {MAX_CONSUMERS} others"
    if why:
        return Impossible(f'resourceclaim "{name}" {why}')
    if held is not None and any(one.get("uid") == pod.uid for one in reserved):
        return _ready(name, claim)
    finalizers = [*(found["metadata"].get("finalizers") or ())]
    if held is None and FINALIZER not in finalizers:
        return Step("patch", {"metadata": {"finalizers": [*finalizers, FINALIZER]}})
    consumer = {"resource": "pods", "name": pod.name, "uid": pod.uid}
    status: dict[str, Any] = {"reservedFor": [*_without(reserved, pod.uid), consumer]}
    if held is None:  # what is there must not be changed in the least
        status["allocation"] = decode.encode(allocation)
    return Step("patch", {"status": status}, "status")


def _ready(name: str, claim: ResourceClaim) -> Wait | Impossible | None:
    state, why = binding.readiness(claim)
    match state:
        case binding.ClaimReadiness.READY:
            return None
        case binding.ClaimReadiness.WAITING:
            return Wait(f'resourceclaim "{name}" was not ready in time: {why}')
        case binding.ClaimReadiness.FAILED:
            return Impossible(f'resourceclaim "{name}": {why}')


def _give_back(
    found: Mapping[str, Any], allocation: AllocationResult | None, uid: str
) -> Step | None:
    claim = decode.resource_claim(found)
    reserved = (found.get("status") or {}).get("reservedFor") or ()
    others = _without(reserved, uid)
    held = claim.status.allocation
    ours = held is not None and allocation is not None and _same(held, allocation)
    if ours and not others:
        return _FREED
    if len(others) == len(reserved):
        return None
    body = {"status": {"reservedFor": others or None}}
    return Step("patch", body, "status")


def _without(reserved: Sequence[Mapping[str, Any]], uid: str) -> list[Mapping[str, Any]]:
    return [one for one in reserved if one.get("uid") != uid]


def _same(a: AllocationResult, b: AllocationResult) -> bool:
    """Whether they give the same devices (the API fills in other fields)."""
    first, second = (
        [(one.request, one.driver, one.pool, one.device, one.share_id) for one in each]
        for each in (a.devices.results, b.devices.results)
    )
    return first == second


#: Nobody has it; ``devices`` is what drivers say of those that it had.
_FREED = Step(
    "patch", {"status": {"allocation": None, "reservedFor": None, "devices": None}}, "status"
)
