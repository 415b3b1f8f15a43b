"""What the devices of one attempt take, on top of what is allocated already.

Everything that :meth:`DeviceLedger.take` changes its undo takes back, so a search can try devices
one after the other.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from typing import TYPE_CHECKING, NamedTuple

from rte.placement.dra.structured import constraints, requests
from rte.placement.dra.structured.constraints import Check
from rte.placement.dra.verdict import ClaimRefusal, Reason

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Mapping, Sequence

    from rte.placement.dra.nodes import ClaimNode
    from rte.placement.dra.objects import CounterConsumption, Nano, ResourceClaim
    from rte.placement.dra.structured.constraints import Values
    from rte.placement.dra.structured.pools import Pool, PoolDevice, PoolID
    from rte.placement.dra.structured.requests import Alternative, DeviceSelection
    from rte.placement.dra.structured.usage import Usage

#: ``draoptionalnodeoperations``: what a node declares that can do without some driver calls.
_OPTIONAL_OPERATIONS = "DRAOptionalNodeOperations"


class TakenDevice(NamedTuple):
    """A device taken for a request; ``amounts`` of its capacities where it is a share."""

    alternative: Alternative
    device: PoolDevice
    amounts: Mapping[str, Nano] | None


class _Counters:
    """The counters of one pool: what is left, and what this attempt takes."""

    def __init__(self, pool: Pool, usage: Usage) -> None:
        self.left = {name: dict(amounts) for name, amounts in pool.counters.items()}
        self.groups: dict[str, frozenset[str]] = {}
        for device in (*pool.devices, *pool.elsewhere):
            if usage.is_allocated(device.id):
                for consumed in device.device.consumes_counters:
                    self.charge(consumed, -1)
                    self.join(consumed)
        self.is_overdrawn = any(v < 0 for amounts in self.left.values() for v in amounts.values())

    def covers(self, consumed: CounterConsumption) -> bool:
        left = self.left[consumed.counter_set]
        return all(
            counter.value <= max(left[name], 0) for name, counter in consumed.counters.items()
        )

    def charge(self, consumed: CounterConsumption, sign: int) -> None:
        left = self.left.get(consumed.counter_set, {})
        for name, counter in consumed.counters.items():
            if name in left:
                left[name] += sign * counter.value

    def admits(self, consumed: CounterConsumption) -> bool:
        """Whether the devices that draw from the set have a compatibility group in common.

        Devices without groups go together with each other only.
        """
        members = self.groups.get(consumed.counter_set)
        own = frozenset(consumed.compatibility_groups)
        return members is None or (not members and not own) or bool(members & own)

    def join(self, consumed: CounterConsumption) -> frozenset[str] | None:
        """Count the device in; returns what was there before."""
        before = self.groups.get(consumed.counter_set)
        own = frozenset(consumed.compatibility_groups)
        together = own if before is None else (before & own if before and own else before)
        self.groups[consumed.counter_set] = together
        return before

    def leave(self, consumed: CounterConsumption, before: frozenset[str] | None) -> None:
        if before is None:
            del self.groups[consumed.counter_set]
        else:
            self.groups[consumed.counter_set] = before


class DeviceLedger:
    """Devices taken so far, and the rules for the next one (``allocateDevice``).

    ``complete`` allows what Kubernetes' own search refuses although it would be allocated next to
    each other if two pods asked for it: a device that the pod takes with admin access stays free
    for its ordinary requests, and an overdrawn counter blocks only devices that consume it.
    """

    def __init__(
        self,
        node: ClaimNode,
        claims: Sequence[ResourceClaim],
        selection: DeviceSelection,
        usage: Usage,
        *,
        complete: bool = False,
    ) -> None:
        features = selection.features
        self.taken: list[list[TakenDevice]] = [[] for _ in claims]
        self.met_overdrawn = False
        self._features = features
        self._selection = selection
        self._usage = usage
        self._complete = complete
        self._skips_operations = (
            features.optional_node_operations and _OPTIONAL_OPERATIONS in node.declared_features
        )
        self._pools = {pool.id: pool for pool in selection.pools}
        self._counters: dict[PoolID, _Counters] = {}
        self._held: dict[PoolDevice, set[int]] = defaultdict(set)
        self._watched: set[tuple[int, PoolDevice]] = set()
        self._shares: dict[PoolDevice, list[Mapping[str, Nano]]] = {}
        self._checks = [
            [
                Check(constraint, lists=features.list_type_attributes)
                for constraint in claim.spec.devices.constraints
            ]
            for claim in claims
        ]
        self._derived: dict[tuple[str, PoolDevice], Values | None] = {}

    def is_touched(self, device: PoolDevice) -> bool:
        """Whether this attempt or somebody's share has to do with the device."""
        return (
            bool(self._held.get(device))
            or device in self._shares
            or self._usage.is_shared(device.id)
            or any(watched is device for _, watched in self._watched)
        )

    def holder(self, device: PoolDevice) -> Hashable:
        """Equal for devices that allocated claims hold in the same way; itself if it is shared."""
        return device if self._usage.is_shared(device.id) else self._usage.is_taken(device.id)

    def situation(self, claim: int, kind: Callable[[PoolDevice], Hashable]) -> Hashable:
        """Equal where what is left is the same for a claim and all after it.

        Devices of the same kind stand for each other; shared ones stand only for themselves.
        """
        held = Counter(
            (kind(device), claim in claims) for device, claims in self._held.items() if claims
        )
        watched = Counter(kind(device) for number, device in self._watched if number == claim)
        shares = (
            (device, tuple(sorted(tuple(sorted(share.items())) for share in shares)))
            for device, shares in self._shares.items()
        )
        return (
            len(self.taken[claim]),
            frozenset(held.items()),
            frozenset(watched.items()),
            frozenset(shares),
            tuple(check.state() for check in self._checks[claim]),
        )

    def is_free(self, alternative: Alternative, device: PoolDevice) -> bool:
        """Whether the request may have the device beside those who hold it."""
        if alternative.is_admin:
            if self._complete:
                return (alternative.claim, device) not in self._watched
            return alternative.claim not in self._held.get(device, ())
        return not self._usage.is_taken(device.id) and not self._held.get(device)

    def has_capacity(self, alternative: Alternative, device: PoolDevice) -> bool:
        """Whether what the request takes of the device's capacities is left.

        Raises:
            Refusal: a value that cannot be represented.
        """
        amounts = self._selection.taken(alternative, device)
        if amounts is None:
            return False
        alone = alternative.is_admin and self._complete
        consumed = {} if alone else self._usage.consumed(device.id)
        shares = () if alone else self._shares.get(device, ())
        return all(
            amount + consumed.get(name, 0) + sum(share[name] for share in shares)
            <= device.device.capacity[name].value
            for name, amount in amounts.items()
        )

    def take(
        self, alternative: Alternative, device: PoolDevice, *, must: bool
    ) -> Callable[[], None] | None:
        """Take the device for the request; returns what takes it back, None if it cannot be had.

        With ``must`` (mode All) a constraint that refuses the device ends the allocation.

        Raises:
            Refusal: that, or a value or expression that cannot be worked with.
        """
        if not self._may_be_used(alternative, device):
            return None
        features = self._features
        shared = features.consumable_capacity and bool(device.device.allow_multiple_allocations)
        undo: list[Callable[[], None]] = []
        consumes = device.device.consumes_counters
        if (
            consumes
            and not (shared and self._is_charged(device))
            and not (alternative.is_admin and self._complete)
            and not self._charge(device, undo)
        ):
            return None
        if not self._constrain(alternative, device, undo, must=must):
            return None
        amounts = None
        if features.consumable_capacity:
            if not self.has_capacity(alternative, device):
                _roll_back(undo)
                return None
            if shared:
                amounts = self._selection.taken(alternative, device)
        self._hold(alternative, device, amounts, undo)
        return lambda: _roll_back(undo)

    def _may_be_used(self, alternative: Alternative, device: PoolDevice) -> bool:
        features = self._features
        spec = device.slice.spec
        if device.device.unknown or spec.unknown or not self.is_free(alternative, device):
            return False
        if spec.skip_node_operations and not self._skips_operations:
            return False
        if device.device.consumes_counters and not features.partitionable_devices:
            return False
        return not features.device_taints or requests.tolerates(
            device, alternative.request.tolerations
        )

    def _is_charged(self, device: PoolDevice) -> bool:
        """Whether an earlier share has paid the device's counters."""
        return device in self._shares or self._usage.is_shared(device.id)

    def _charge(self, device: PoolDevice, undo: list[Callable[[], None]]) -> bool:
        pool = self._pools[device.id[:2]]  # type: ignore[index]
        counters = self._counters.get(pool.id)
        if counters is None:
            counters = self._counters[pool.id] = _Counters(pool, self._usage)
        consumes = device.device.consumes_counters
        if self._features.compatibility_groups and not all(map(counters.admits, consumes)):
            return False
        if counters.is_overdrawn and not self._complete:
            self.met_overdrawn = True
            return False
        if not all(map(counters.covers, consumes)):
            return False
        for consumed in consumes:
            counters.charge(consumed, -1)
            before = counters.join(consumed)
            undo.append(lambda c=consumed, b=before: counters.leave(c, b))  # type: ignore[misc]
            undo.append(lambda c=consumed: counters.charge(c, 1))  # type: ignore[misc]
        return True

    def _constrain(
        self,
        alternative: Alternative,
        device: PoolDevice,
        undo: list[Callable[[], None]],
        *,
        must: bool,
    ) -> bool:
        for check in self._checks[alternative.claim]:
            if not check.concerns(alternative.name, alternative.parent):
                continue
            if check.add(self._attribute(alternative, device, check.attribute)):
                undo.append(check.remove)
                continue
            _roll_back(undo)
            if must:
                raise ClaimRefusal(
                    Reason.ALL_CONSTRAINT,
                    f"request {alternative.result_name}: device {'/'.join(device.id)} is one of all"
                    " that it asks for, but a constraint of the claim refuses it",
                )
            return False
        return True

    def _attribute(self, alternative: Alternative, device: PoolDevice, name: str) -> Values | None:
        expression = alternative.derived.get(name)
        if expression is None:
            return constraints.values(constraints.look_up(device, name))
        key = expression, device
        if key not in self._derived:
            found = self._selection.expressions.derive(expression, device)
            self._derived[key] = constraints.values(found)
        return self._derived[key]

    def _hold(
        self,
        alternative: Alternative,
        device: PoolDevice,
        amounts: Mapping[str, Nano] | None,
        undo: list[Callable[[], None]],
    ) -> None:
        claim = alternative.claim
        if alternative.is_admin and self._complete:
            self._watched.add((claim, device))
            undo.append(lambda: self._watched.discard((claim, device)))
        elif amounts is None:
            self._held[device].add(claim)
            undo.append(lambda: self._held[device].discard(claim))
        else:
            self._shares.setdefault(device, []).append(amounts)
            undo.append(lambda: self._give_back_share(device))
        self.taken[claim].append(TakenDevice(alternative, device, amounts))
        undo.append(self._give_back(claim))

    def _give_back(self, claim: int) -> Callable[[], None]:
        def undo() -> None:
            self.taken[claim].pop()

        return undo

    def _give_back_share(self, device: PoolDevice) -> None:
        self._shares[device].pop()
        if not self._shares[device]:
            del self._shares[device]


def _roll_back(undo: list[Callable[[], None]]) -> None:
    for step in reversed(undo):
        step()
    undo.clear()
