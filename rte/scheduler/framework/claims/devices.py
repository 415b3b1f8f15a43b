"""Devices of DRA as the scheduler knows them: slices, classes, claims, and what decisions promise.

What a claim holds counts once: its allocation as the API shows it, else the one that a decision has
promised it. Several pods that share a claim promise the same.
"""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from msgspec import structs

from rte.placement.dra import AlignmentWish, decode, extended
from rte.placement.dra.alignment import ANNOTATION
from rte.placement.dra.fleet import DeviceFleet
from rte.placement.dra.nodes import ClaimNode

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

    from rte.placement.dra.objects import AllocationResult, DeviceClass, ResourceClaim
    from rte.scheduler.framework.objects import NodeInfo, PodView
    from rte.scheduler.framework.shape import Shape

#: Who may use a claim at a time (``ResourceClaimReservedForMaxSize``).
MAX_CONSUMERS = 256

#: Metadata that a guarded write needs.
_KEPT = ("uid", "resourceVersion", "finalizers", "deletionTimestamp")


@dataclass(frozen=True, kw_only=True, slots=True)
class KnownClaim:
    """A ResourceClaim.

    Attributes:
        key: ``namespace/name``.
        claim: what allocation reads.
        found: the part of the object that writes read.
        owner: UID of the pod that it was made for, empty where it was made by hand.
        version: resourceVersion as a number.
    """

    key: str
    claim: ResourceClaim
    found: Mapping[str, Any]
    owner: str
    version: int

    @property
    def uid(self) -> str:
        """The object's."""
        return self.claim.uid

    @property
    def consumers(self) -> Iterator[str]:
        """UIDs of the pods that may use it."""
        return (one.uid for one in self.claim.status.reserved_for if one.resource == "pods")


@dataclass(frozen=True, kw_only=True, slots=True)
class WantedClaims:
    """The claims of a pod, each once, by the name that the pod gives it.

    Attributes:
        claims: as they are, with what decisions have promised them.
        objects: the objects behind them.
        problem: why the pod can go nowhere; empty when all is in order.
    """

    claims: Sequence[ResourceClaim] = ()
    objects: Sequence[KnownClaim] = ()
    problem: str = ""


class Devices:
    """Devices of a cluster, who holds them, and what serves extended resources.

    Attributes:
        fleet: slices, classes, rules and usage.
        claims: by ``namespace/name``.
        serving: resource name -> class that serves it by DRA; always the same dict.
        at_once: UIDs of pods that are being placed together.
        freed: how often a claim has let go of devices.
    """

    def __init__(self) -> None:
        self.fleet = DeviceFleet()
        self.claims: dict[str, KnownClaim] = {}
        self.serving: dict[str, DeviceClass] = {}
        self.at_once: frozenset[str] = frozenset()
        self.freed = 0
        self._classes: dict[str, DeviceClass] = {}
        self._promised: dict[str, list[AllocationResult]] = {}
        self._counted: dict[str, AllocationResult] = {}
        self._of_pod: dict[str, set[str]] = {}
        self._nodes: dict[str, tuple[NodeInfo, ClaimNode]] = {}

    # --- what watches tell -----------------------------------------------------------------------

    def set_class(self, name: str, value: DeviceClass | None) -> bool:
        """A class was added, changed, or is gone (None); whether other resources are served now."""
        if value is None:
            self._classes.pop(name, None)
            self.fleet.remove_class(name)
        else:
            self._classes[name] = value
            self.fleet.put_class(value)
        before = set(self.serving)
        self.serving.clear()
        self.serving.update(extended.classes_by_resource(self._classes.values()))
        return before != set(self.serving)

    def set_claim(self, claim: KnownClaim, as_of: int = 0) -> bool:
        """A claim was added or changed; False: what is known is newer.

        ``as_of``: of the list that has it.
        """
        before, version = self.claims.get(claim.key), max(claim.version, as_of)
        if before is not None and before.uid == claim.uid and version < before.version:
            return False
        self._index(before, claim)
        self.claims[claim.key] = claim
        self._recount(claim.key)
        return True

    def remove_claim(self, key: str) -> None:
        """A claim is gone."""
        self._index(self.claims.pop(key, None), None)
        self._recount(key)

    @contextmanager
    def imagine(self, claims: Iterable[KnownClaim]) -> Iterator[None]:
        """Meanwhile these claims are known as well, which do not exist yet; none has that name."""
        added = {claim.key: claim for claim in claims}
        self.claims.update(added)
        try:
            yield
        finally:
            for key in added:
                del self.claims[key]

    def _index(self, before: KnownClaim | None, after: KnownClaim | None) -> None:
        for uid in before.consumers if before else ():
            keys = self._of_pod.get(uid, set())
            keys.discard(before.key if before else "")
            if not keys:
                self._of_pod.pop(uid, None)
        for uid in after.consumers if after else ():
            self._of_pod.setdefault(uid, set()).add(after.key if after else "")

    # --- decisions -------------------------------------------------------------------------------

    def promise(self, key: str, allocation: AllocationResult) -> None:
        """A decision gives this to a claim, before the API shows it."""
        self._promised.setdefault(key, []).append(allocation)
        self._recount(key)

    def release(self, key: str) -> None:
        """One promise to the claim ends: the API shows it, or the decision is undone."""
        promises = self._promised.get(key, [])
        if promises:
            promises.pop()
        if not promises:
            self._promised.pop(key, None)
        self._recount(key)

    def _recount(self, key: str) -> None:
        known = self.claims.get(key)
        now = known.claim.status.allocation if known else None
        if now is None and key in self._promised:
            now = self._promised[key][0]
        before = self._counted.get(key)
        if before == now:
            return
        if before is not None:
            self.fleet.remove(before)
            self.freed += 1
            del self._counted[key]
        if now is not None:
            self.fleet.add(now)
            self._counted[key] = now

    # --- reading ---------------------------------------------------------------------------------

    def node(self, info: NodeInfo) -> ClaimNode:
        """The node as allocation sees it."""
        known = self._nodes.get(info.name)
        if known is None or known[0] is not info:
            node = ClaimNode(
                name=info.name,
                labels=info.labels,
                declared_features=info.declared_features,
                allocatable={
                    name: amount for name, amount in info.allocatable.items() if "/" in name
                },
            )
            known = self._nodes[info.name] = (info, node)
        return known[1]

    def forget_node(self, name: str) -> None:
        """A node is gone."""
        self._nodes.pop(name, None)
        self.fleet.inventory.forget_node(name)

    def users(self) -> Iterable[str]:
        """UIDs of pods that may use a claim."""
        return self._of_pod.keys()

    def used_by(self, uid: str) -> list[ResourceClaim]:
        """Allocated claims that a pod may use."""
        return [self.claims[key].claim for key in sorted(self._of_pod.get(uid, ()))]

    def held_by(self, uids: Collection[str]) -> list[AllocationResult]:
        """What claims hold that only these pods may use: it is freed when they are gone."""
        keys = {key for uid in uids for key in self._of_pod.get(uid, ())}
        return [
            self._counted[key]
            for key in sorted(keys & self._counted.keys())
            if all(
                one.resource == "pods" and one.uid in uids
                for one in self.claims[key].claim.status.reserved_for
            )
        ]

    def concerns(self, shape: Shape) -> bool:
        """Whether pods of this shape may get devices of DRA."""
        return bool(shape.device_claims) or not self.serving.keys().isdisjoint(shape.totals)

    def wanted(self, pod: PodView) -> WantedClaims:
        """The claims that the specification of the pod names."""
        claims: list[ResourceClaim] = []
        objects: list[KnownClaim] = []
        for entry in pod.shape.device_claims:
            name = entry.name or ""
            made = entry.resource_claim_template_name is not None
            if made and name not in pod.claim_names:
                return WantedClaims(problem=f'waiting for a resourceclaim to be made for "{name}"')
            target = pod.claim_names.get(name) if made else entry.resource_claim_name
            if target is None:
                continue  # the controller says that none is needed
            known = self.claims.get(f"{pod.namespace}/{target}")
            problem = _problem(target, known, pod, made=made)
            if known is None or problem:
                return WantedClaims(problem=problem)
            if known in objects:
                continue
            metadata = structs.replace(known.claim.metadata, name=name)
            claim = structs.replace(known.claim, metadata=metadata)
            promised = self._promised.get(known.key)
            if claim.status.allocation is None and promised:
                status = structs.replace(claim.status, allocation=promised[0])
                claim = structs.replace(claim, status=status)
            claims.append(claim)
            objects.append(known)
        return WantedClaims(claims=claims, objects=objects)

    def fate(self, pod: PodView) -> bytes:
        """Pods of one shape with equal fates are decided alike."""
        if not pod.shape.device_claims:
            return b""
        wanted = self.wanted(pod)
        if wanted.problem or any(one.status.allocation is not None for one in wanted.claims):
            return pod.uid.encode()
        return identity(wanted.claims)


def identity(claims: Sequence[ResourceClaim]) -> bytes:
    """Equal for claims that ask for the same, and were given the same."""
    return decode.key_of([(one.spec, one.status.allocation) for one in claims])


def wish_of(shape: Shape) -> AlignmentWish | None:
    """How much devices have to be beside CPUs and memory; None: the annotation says nonsense."""
    text = shape.annotations.get(ANNOTATION, AlignmentWish.PREFERRED.value)
    return AlignmentWish(text) if text in set(AlignmentWish) else None


def read_claim(obj: Mapping[str, Any]) -> KnownClaim:
    """A ResourceClaim of the API.

    Raises:
        errors.ParseError: it is malformed.
    """
    claim = decode.resource_claim(obj)
    metadata = obj["metadata"]
    controller = claim.metadata.controller
    version = str(metadata.get("resourceVersion") or "")
    return KnownClaim(
        key=f"{claim.namespace}/{claim.name}",
        claim=claim,
        found={
            "metadata": {name: metadata[name] for name in _KEPT if metadata.get(name)},
            "status": obj.get("status") or {},
        },
        owner=(controller.uid or "") if controller.kind == "Pod" else "",
        version=int(version) if version.isascii() and version.isdigit() else 0,
    )


def _problem(name: str, known: KnownClaim | None, pod: PodView, *, made: bool) -> str:
    if known is None:
        return f'resourceclaim "{name}" not found'
    if made and known.owner != pod.uid:
        return f'resourceclaim "{name}" was not made for the pod'
    if known.found["metadata"].get("deletionTimestamp"):
        return f'resourceclaim "{name}" is being deleted'
    consumers = known.claim.status.reserved_for
    if len(consumers) >= MAX_CONSUMERS and all(one.uid != pod.uid for one in consumers):
        return f'resourceclaim "{name}" is in use by {MAX_CONSUMERS} others'
    return ""
