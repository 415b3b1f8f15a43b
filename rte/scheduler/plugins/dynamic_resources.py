"""DynamicResources: devices of DRA where the pod's CPUs and memory will be (KEP-4381).

Whether a node has devices for the claims is the answer of Kubernetes' own allocator. Beyond it, the
zones that the kubelet will give to CPUs and memory are predicted, and devices are taken there:
``required`` nowhere else and only where nothing can change these zones, ``preferred`` where some
node allows it. What is decided is promised at once and written before the bind.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import numpy as np

from rte import errors
from rte.placement.dra import AlignmentWish, align, alignment, balance, binding, extended, nodes
from rte.placement.dra.alignment import Alignment
from rte.placement.dra.extended import ExtendedClaim
from rte.placement.dra.objects import AllocationResult
from rte.placement.dra.verdict import Reason
from rte.placement.dra.zones import Places
from rte.placement.inflight.certainty import ExpectedZones, expect_zones
from rte.scheduler.framework.claims.devices import identity, wish_of
from rte.scheduler.framework.events import Kind
from rte.scheduler.framework.outlook import is_exacting
from rte.scheduler.framework.plugin import Filter, PreFilter, Reserve, Score, scaled
from rte.scheduler.framework.status import Status
from rte.scheduler.framework.writes import NOTHING, Reserved
from rte.scheduler.plugins.claim_writes import (
    MadeClaim,
    ToldPod,
    extended_claim_name,
    reserved_claim,
    with_share_ids,
)
from rte.scheduler.plugins.node_resources_fit import lacking

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from rte.model.node import NodeState
    from rte.placement.dra.alignment import Aligned
    from rte.placement.dra.nodes import ClaimNode
    from rte.placement.dra.objects import ResourceClaim
    from rte.scheduler.framework.claims.devices import Devices, KnownClaim
    from rte.scheduler.framework.events import ClusterEvent
    from rte.scheduler.framework.node import NodeEntry
    from rte.scheduler.framework.objects import PodView
    from rte.scheduler.framework.plugin import Candidate, PodChange, Snapshot
    from rte.scheduler.framework.shape import Shape
    from rte.scheduler.framework.writes import RequiredWrite

#: Kinds of pods whose answers are remembered, and answers of all of them; the kind asked for
#: longest ago goes first.
_MOST_KINDS, _MOST_REMEMBERED = 128, 80_000

#: Nodes that are searched for one where a pod that prefers it is aligned.
_MOST_SEARCHED = 256

#: Refusals that more free devices could end.
_ROOM = frozenset({Reason.NO_FIT, Reason.NOT_ALIGNED})

_FREED = Status(reason="node(s) whose devices are being freed", waits=True)

_IN_FLIGHT = Status(reason="node(s) where a pod in flight is not confirmed yet", waits=True)


@dataclass(kw_only=True, slots=True)
class _ClaimsAnswer:
    """What a node has for a pod's claims; ``stamp`` tells whether that still holds."""

    aligned: Aligned
    made: ExtendedClaim | None
    stamp: tuple[int, int] = (-1, -1)


@dataclass(kw_only=True)
class _ClaimsAsked:
    """One decision about one pod.

    Attributes:
        wish: how much devices have to be beside CPUs and memory.
        claims: the pod's, named as the pod names them.
        objects: the objects behind them.
        known: answers so far for pods of this kind, by node.
        told: the first message for each reason, so that nodes with one reason are counted as such.
        searched: nodes where it would not be aligned, so far.
        pods: that are not terminal, by UID.
        gone: UIDs of those that are looked at as if they had left.
    """

    wish: AlignmentWish
    claims: Sequence[ResourceClaim]
    objects: Sequence[KnownClaim]
    known: dict[str, _ClaimsAnswer]
    told: dict[Reason, str] = field(default_factory=dict)
    searched: int = 0
    pods: Mapping[str, PodView] = field(default_factory=dict)
    gone: frozenset[str] = frozenset()
    _ended: frozenset[str] | None = None

    def ended(self, users: Iterable[str]) -> frozenset[str]:
        """Those of the users of claims that have ended: their claims are about to be freed."""
        if self._ended is None:
            self._ended = frozenset(uid for uid in users if uid not in self.pods)
        return self._ended


class DynamicResources(PreFilter, Filter, Score, Reserve):
    """Claims of devices, and extended resources that DRA serves."""

    name = "DynamicResources"
    owns = frozenset({"resourceClaims"})
    says = (
        "structured parameters as Kubernetes allocates them, in the zones of CPUs and memory "
        "(docs/dra.md); extended resources that a DeviceClass serves"
    )
    helped_by = (
        Kind.DEVICES
        | Kind.NODE_ADDED
        | Kind.NODE_LABELS
        | Kind.NODE_ALLOCATABLE
        | Kind.REPORT
        | Kind.POD_GONE
        | Kind.POD_CHANGED
    )
    named = Kind.DEVICE_CLAIM
    exact = True
    by_pods = False

    def __init__(self, devices: Devices) -> None:
        self._devices = devices
        self._known: dict[bytes, dict[str, _ClaimsAnswer]] = {}
        self._steered: dict[str, set[str]] = {}

    def spreads(self, event: ClusterEvent) -> bool:
        """Only devices and claims concern several nodes."""
        return bool(event.kind & (Kind.DEVICES | Kind.UNDONE))

    def helps(self, event: ClusterEvent, pod: PodView, snapshot: Snapshot) -> bool:
        """Devices, for who wants some; other zones on a node, for who wants them beside its CPUs.

        Who must not disturb others waits for their node.
        """
        if not self._may_get(pod.shape):
            return False
        if event.kind & Kind.UNDONE and event.pod is not None:
            return self._may_get(event.pod.shape)
        if not event.kind & (Kind.REPORT | Kind.POD_GONE | Kind.POD_CHANGED):
            return True
        node, wish = snapshot.nodes.get(event.node), wish_of(pod.shape)
        if node is None or wish is AlignmentWish.NONE or lacking(pod.shape.totals, node):
            # Where totals lack room, the end of that is an event of these kinds as well.
            return False
        return pod.shape.may_need_zone or wish is AlignmentWish.REQUIRED

    # --- where it may go -------------------------------------------------------------------------

    def _may_get(self, shape: Shape) -> bool:
        """Whether pods of this shape may get devices of DRA."""
        served = bool(shape.device_claims or self._devices.serving)
        return served and self._devices.concerns(shape)

    def pre_filter(self, pod: PodView, snapshot: Snapshot) -> str:  # noqa: ARG002
        """Claims that are missing, going, full or somebody else's; a wish that is none."""
        if not self._may_get(pod.shape):
            return ""
        if wish_of(pod.shape) is None:
            given = pod.shape.annotations[alignment.ANNOTATION]
            allowed = ", ".join(AlignmentWish)
            return f'annotation {alignment.ANNOTATION} is "{given:.40}", not one of {allowed}'
        return self._devices.wanted(pod).problem

    def prepare(self, pod: PodView, snapshot: Snapshot) -> _ClaimsAsked | None:
        """The claims of the pod; for others that need a zone, whom they must not disturb."""
        if not self._may_get(pod.shape):
            disturbs = self._steered and pod.shape.may_need_zone
            return (
                _ClaimsAsked(wish=AlignmentWish.NONE, claims=(), objects=(), known={})
                if disturbs
                else None
            )
        return self._ask(pod, snapshot.pods)

    def filter(self, prepared: _ClaimsAsked, pod: PodView, node: NodeEntry) -> str | Status:
        """Refuse nodes without devices for the pod, or without them in its zones."""
        if pod.shape.may_need_zone and self._is_disturbed(node, pod):
            return _IN_FLIGHT
        if not self._may_get(pod.shape):
            return ""
        if prepared.gone:
            return self._filter_freed(prepared, pod, node)
        if prepared.wish is AlignmentWish.REQUIRED and node.outlook() is None:
            return "node(s) whose zones are not known, for devices that have to be aligned"
        try:
            answer = self._answer(prepared, pod, node)
        except errors.RteError as error:
            return f"devices cannot be allocated: {error}"
        aligned = answer.aligned
        verdict = aligned.verdict
        if verdict.reason is not None:
            return self._refusal(prepared, pod, node, aligned)
        if (
            prepared.wish is AlignmentWish.PREFERRED
            and aligned.alignment is Alignment.ACROSS
            and prepared.searched < _MOST_SEARCHED
        ):
            prepared.searched += 1
            reason = "node(s) without free devices in the zones of the pod's CPUs and memory"
            return Status(reason=reason, second_best=True)
        return ""

    def _refusal(
        self, asked: _ClaimsAsked, pod: PodView, node: NodeEntry, aligned: Aligned
    ) -> str | Status:
        reason, message = aligned.verdict.reason, aligned.verdict.message
        if reason is None or (reason is Reason.NOT_ALIGNED and _may_settle(aligned)):
            return Status(reason=message, waits=True)
        told = asked.told.setdefault(reason, _said(reason, message))
        if reason not in _ROOM or not self._could_evict(pod, node):
            return told
        if not self._filter_freed(asked, pod, node):
            return _FREED
        return Status(reason=told, resources=True)

    def changed(self, prepared: _ClaimsAsked, changes: Sequence[PodChange]) -> _ClaimsAsked:
        """Pods that leave give their devices back."""
        gone = frozenset(each.pod.uid for each in changes if each.number < 0)
        return replace(prepared, gone=prepared.gone | gone) if gone else prepared

    def _filter_freed(self, prepared: _ClaimsAsked, pod: PodView, node: NodeEntry) -> str:
        """The answer with the devices of those that are gone, or have ended already."""
        if node.info is None:
            return "the node is gone"
        uids = prepared.gone | prepared.ended(self._devices.users())
        usage = self._devices.fleet.usage
        freed = self._devices.held_by(uids)
        for allocation in freed:
            usage.remove(allocation)
        try:
            place = self._devices.node(node.info)
            verdict = self._find(prepared, pod, node, place).aligned.verdict
        except errors.RteError as error:
            return str(error)
        finally:
            for allocation in freed:
                usage.add(allocation)
        return verdict.message if verdict.reason is not None else ""

    def _could_evict(self, pod: PodView, node: NodeEntry) -> bool:
        """Whether pods that it might evict hold devices."""
        return pod.preempts and any(
            each.priority < pod.priority and self._may_get(each.shape)
            for each in node.pods.values()
        )

    def _ask(self, pod: PodView, pods: Mapping[str, PodView] | None = None) -> _ClaimsAsked:
        wanted = self._devices.wanted(pod)
        key = pod.shape.key + identity(wanted.claims)
        known = self._known.pop(key, {})
        self._known[key] = known
        while len(self._known) > 1 and (
            len(self._known) > _MOST_KINDS or sum(map(len, self._known.values())) > _MOST_REMEMBERED
        ):
            del self._known[next(iter(self._known))]
        return _ClaimsAsked(
            wish=wish_of(pod.shape) or AlignmentWish.PREFERRED,
            claims=wanted.claims,
            objects=wanted.objects,
            known=known,
            pods=pods or {},
        )

    def _answer(self, asked: _ClaimsAsked, pod: PodView, node: NodeEntry) -> _ClaimsAnswer:
        stamp = (node.changed, self._devices.fleet.version(node.name))
        answer = asked.known.get(node.name)
        if answer is not None and answer.stamp == stamp:
            return answer
        if node.info is None:
            raise errors.RteError("the node is gone")
        place = self._devices.node(node.info)
        self._check_given(asked, pod, place)
        answer = self._find(asked, pod, node, place)
        # Looking at a pool makes the node one of those that its changes concern.
        answer.stamp = (node.changed, self._devices.fleet.version(node.name))
        asked.known[node.name] = answer
        return answer

    def _find(
        self, asked: _ClaimsAsked, pod: PodView, node: NodeEntry, place: ClaimNode
    ) -> _ClaimsAnswer:
        made = extended.extended_claim(pod.shape.pod, place, self._devices.serving)
        claims = [*asked.claims, made.claim] if made else asked.claims
        expected, places = _zones(pod, node)
        supply = self._devices.fleet.supply(place)
        aligned = align(place, claims, supply, expected, places, asked.wish)
        return _ClaimsAnswer(aligned=aligned, made=made)

    def _check_given(self, asked: _ClaimsAsked, pod: PodView, place: ClaimNode) -> None:
        """What was given to the pod alone, by an attempt before, may not be there any more.

        No node takes the pod then, so the claim is freed (:meth:`leftovers`) and given others.

        Raises:
            errors.RteError: a device is gone or tainted.
        """
        inventory = self._devices.fleet.inventory
        for known in asked.objects:
            allocation = known.claim.status.allocation
            if allocation is None or any(uid != pod.uid for uid in known.consumers):
                continue
            selector = allocation.node_selector
            if selector is not None and not nodes.selects(selector, place):
                continue
            lost = binding.lost(
                allocation, inventory.pools(place), taints=inventory.features.device_taints
            )
            if lost:
                raise errors.RteError(lost)

    def _is_disturbed(self, node: NodeEntry, pod: PodView) -> bool:
        """Whether another pod could still change the zone of one whose devices are chosen.

        The kubelet may admit them in any order. The same holds the other way round: devices are
        chosen for a pod when all before it are confirmed. Pods that are placed at once cannot wait
        for each other: only those that require alignment keep away from each other.
        """
        state = node.report.state if node.report else None
        if state is None or not is_exacting(pod.shape.pod, state):
            return False
        at_once = self._devices.at_once
        if self._may_get(pod.shape):
            view = node.outlook()
            ignored = {pod.kubelet_uid}
            if wish_of(pod.shape) is not AlignmentWish.REQUIRED:
                ignored |= at_once
            if view is not None and any(one.uid not in ignored for one in view.in_flight):
                return True
            if not at_once:
                return False
        steered = self._steered.get(node.name)
        if not steered:
            return False
        for uid in [*steered]:
            other = node.pods.get(uid)
            if other is None or node.is_confirmed(other):
                steered.discard(uid)
        if not steered:
            del self._steered[node.name]
        return any(
            uid not in at_once or wish_of(node.pods[uid].shape) is AlignmentWish.REQUIRED
            for uid in steered
        )

    # --- where it had better go ------------------------------------------------------------------

    def is_concerned(self, pod: PodView, snapshot: Snapshot) -> bool:  # noqa: ARG002
        """Pods with devices."""
        return self._may_get(pod.shape)

    def score(
        self,
        pod: PodView,
        candidates: Sequence[Candidate],
        snapshot: Snapshot,  # noqa: ARG002
    ) -> Sequence[float] | None:
        """Nodes whose devices and CPUs run out together.

        The order of alternatives (``firstAvailable``) counts as much, as in kube-scheduler.
        """
        asked = self._ask(pod)
        answers = [self._answer(asked, pod, candidate.node) for candidate in candidates]
        own = [
            self._balance(answer, candidate)
            for answer, candidate in zip(answers, candidates, strict=True)
        ]
        chosen = scaled(np.array([float(one.aligned.verdict.score) for one in answers]))
        if chosen is None:
            return own
        return [(a + b) / 2 for a, b in zip(own, chosen.tolist(), strict=True)]

    def _balance(self, answer: _ClaimsAnswer, candidate: Candidate) -> float:
        after = _after(candidate)
        if after is None:
            return 0.0
        lowest_first = balance.fills_lowest_first(after)
        return balance.score(self._rooms(answer, candidate, after), lowest_first=lowest_first)

    def _rooms(
        self, answer: _ClaimsAnswer, candidate: Candidate, after: NodeState
    ) -> dict[int, balance.ZoneBalance]:
        """The zones of a node with the pod and its devices on it."""
        node = candidate.node
        if node.info is None or node.report is None:
            return {}
        supply = self._devices.fleet.supply(self._devices.node(node.info))
        places = Places.of(after.topology, node.report.pci)
        allocations = answer.aligned.verdict.allocations.values()
        for allocation in allocations:
            supply.usage.add(allocation)
        try:
            return balance.rooms(after, supply, places)
        finally:
            for allocation in allocations:
                supply.usage.remove(allocation)

    # --- what it takes ---------------------------------------------------------------------------

    def reserve(self, pod: PodView, node: NodeEntry) -> Reserved | None:
        """Promise the devices; the claims to write."""
        if not self._may_get(pod.shape):
            return NOTHING
        if node.info is None or self._devices.wanted(pod).problem:
            return None
        asked = self._ask(pod)
        answer = self._answer(asked, pod, node)
        if not answer.aligned.verdict.fits:
            return None
        promises = []
        writes: list[RequiredWrite] = []
        allocations = answer.aligned.verdict.allocations
        for claim, known in zip(asked.claims, asked.objects, strict=True):
            given = claim.status.allocation
            allocation = given or with_share_ids(allocations[claim.name], known)
            decided = known.claim.status.allocation is None
            if decided:
                self._devices.promise(known.key, allocation)
                promises.append(known.key)
            writes.append(reserved_claim(known, allocation, pod, decided=decided))
        if answer.made is not None:
            allocation = allocations[extended.CLAIM_NAME]
            key = f"{pod.namespace}/{extended_claim_name(pod)}"
            self._devices.promise(key, allocation)
            promises.append(key)
            writes.append(MadeClaim(claim=answer.made, allocation=allocation, pod=pod))
            writes.append(ToldPod(claim=answer.made, pod=pod))
        if not writes:
            return NOTHING
        if asked.wish is not AlignmentWish.NONE and answer.aligned.expected.zones:
            self._steered.setdefault(node.name, set()).add(pod.uid)
        return Reserved(writes, promise=promises)

    def unreserve(self, reserved: Reserved) -> None:
        """Take the promises back."""
        for key in reserved.promise:
            self._devices.release(key)

    def leftovers(self, pod: PodView) -> Iterator[RequiredWrite]:
        """Claims that only this pod holds, by an attempt before: they may keep it from every node.

        kube-scheduler does the same (``PostFilter``).
        """
        for known in self._devices.wanted(pod).objects:
            allocation = known.claim.status.allocation
            others = [one for one in known.claim.status.reserved_for if one.uid != pod.uid]
            if allocation is not None and not others:
                yield reserved_claim(known, allocation, pod, decided=True)
        made = self._devices.claims.get(f"{pod.namespace}/{extended_claim_name(pod)}")
        if made is not None and made.owner == pod.uid:
            allocation = made.claim.status.allocation or AllocationResult()
            yield MadeClaim(claim=ExtendedClaim(made.claim, ()), allocation=allocation, pod=pod)


def _after(candidate: Candidate) -> NodeState | None:
    """The node's state with the pod, as far as it is known."""
    verdict = candidate.status.verdict
    return verdict.after if verdict is not None else None


def _zones(pod: PodView, node: NodeEntry) -> tuple[ExpectedZones, Places]:
    """The zones of the pod's CPUs and memory there, and where devices are."""
    view, report = node.outlook(), node.report
    if view is None or report is None:
        return ExpectedZones(0, certain=False), Places({})
    places = Places.of(view.base.topology, report.pci)
    own = replace(pod.shape.pod, uid=pod.kubelet_uid)
    if not is_exacting(own, view.base):
        return ExpectedZones(0, certain=True), places
    endable = {
        each.kubelet_uid
        for each in node.pods.values()
        if each.deleting or not (each.lasting or each.mirror)
    }
    return expect_zones(view.base, own, view.in_flight, endable & view.base.holdings.keys()), places


def _may_settle(aligned: Aligned) -> bool:
    """Whether only what passes by itself stands in the way: zones that are not certain yet."""
    return bool(aligned.expected.zones) and not aligned.expected.certain


def _said(reason: Reason, message: str) -> str:
    match reason:
        case Reason.NO_FIT:
            return "node(s) without free devices for the pod's claims"
        case Reason.ALLOCATED_ELSEWHERE:
            return "node(s) where the devices allocated to the pod's claims cannot be used"
    return message[:300]
