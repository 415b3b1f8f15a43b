"""The requests of claims made ready for the search, with the checks that come before it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from rte.placement.dra.structured import capacity
from rte.placement.dra.verdict import ClaimRefusal, Reason

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from rte.placement.dra.features import Features
    from rte.placement.dra.objects import (
        Attribute,
        DeviceClass,
        DeviceRequest,
        DeviceToleration,
        ExactRequest,
        Nano,
        ResourceClaim,
    )
    from rte.placement.dra.structured.pools import Pool, PoolDevice

#: ``AllocationResultsMaxSize``: devices in one claim.
MAX_DEVICES = 32
#: Characters of the expressions of one claim. To compile them takes 5 us each, and the programs
#: 140 times as much memory; claims that people write have some hundred.
MAX_EXPRESSIONS = 16 * 1024


class Expressions(Protocol):
    """Evaluates CEL. Both raise :class:`ClaimRefusal` where an expression is wrong or fails."""

    def matches(self, expression: str, device: PoolDevice) -> bool:
        """The truth of a selector for a device."""

    def derive(self, expression: str, device: PoolDevice) -> Attribute:
        """The value of a derived attribute for a device."""


@dataclass(eq=False, slots=True, kw_only=True)
class Alternative:
    """A request, or one alternative of it, with its class.

    ``every`` are the devices of mode All; ``parent`` names the request of an alternative.
    """

    claim: int
    name: str
    parent: str
    request: ExactRequest
    device_class: DeviceClass
    count: int = 0
    every: tuple[PoolDevice, ...] | None = None
    derived: Mapping[str, str]

    @property
    def result_name(self) -> str:
        """As in ``results[].request``."""
        return f"{self.parent}/{self.name}" if self.parent else self.name

    @property
    def is_admin(self) -> bool:
        """Whether it takes devices whoever else has them."""
        return bool(self.request.admin_access)

    def expressions(self) -> Iterable[tuple[str, str]]:
        """The selectors, the class's first, each with whose it is."""
        for selector in self.device_class.spec.selectors:
            if selector.cel is not None:
                yield selector.cel.expression, f"class {self.device_class.name}"
        for selector in self.request.selectors:
            if selector.cel is not None:
                yield selector.cel.expression, f"request {self.result_name}"


@dataclass(frozen=True, slots=True)
class PreparedRequest:
    """A request of a claim: its alternatives in order (one, unless ``is_choice``)."""

    claim: int
    alternatives: tuple[Alternative, ...]
    is_choice: bool


class DeviceSelection:
    """Which devices a node offers to whom; every answer is kept while a search lasts."""

    def __init__(self, pools: Sequence[Pool], features: Features, expressions: Expressions) -> None:
        self.pools = pools
        self.features = features
        self.expressions = expressions
        self._selectable: dict[tuple[Alternative, PoolDevice], bool] = {}
        self._taken: dict[tuple[Alternative, PoolDevice], dict[str, Nano] | None] = {}
        self._away = {device for pool in pools for device in pool.away}

    def is_selectable(self, alternative: Alternative, device: PoolDevice) -> bool:
        """Whether all selectors hold and the device is for this node.

        Raises:
            Refusal: an expression does not compile or fails.
        """
        key = alternative, device
        found = self._selectable.get(key)
        if found is None:
            found = self._selectable[key] = self._is_selectable(alternative, device)
        return found

    def _is_selectable(self, alternative: Alternative, device: PoolDevice) -> bool:
        if device.device.binding_conditions and not self.features.device_binding_and_status:
            return False
        for expression, origin in alternative.expressions():
            try:
                if not self.expressions.matches(expression, device):
                    return False
            except ClaimRefusal as refusal:
                place = f"{origin}, device {'/'.join(device.id)}"
                raise ClaimRefusal(refusal.reason, f"{place}: {refusal}") from refusal
        return device not in self._away

    def taken(self, alternative: Alternative, device: PoolDevice) -> dict[str, Nano] | None:
        """What the request takes of each capacity, None where the device lacks one.

        Raises:
            Refusal: a value that cannot be represented.
        """
        key = alternative, device
        if key not in self._taken:
            try:
                self._taken[key] = capacity.taken(
                    alternative.request.capacity,
                    device.device.capacity,
                    fractional=self.features.fractional_capacity_range,
                )
            except capacity.UnusableCapacityError as error:
                place = f"request {alternative.result_name}, device {'/'.join(device.id)}"
                raise ClaimRefusal(Reason.CAPACITY, f"{place}: {error}") from error
        return self._taken[key]

    def prepare(
        self, claims: Sequence[ResourceClaim], classes: Mapping[str, DeviceClass]
    ) -> list[PreparedRequest]:
        """The requests of all claims, checked in the order in which Kubernetes checks them.

        Raises:
            Refusal: the claims cannot be allocated, whatever devices there are.
        """
        prepared = []
        for number, claim in enumerate(claims):
            devices = claim.spec.devices
            if devices.unknown:
                fields = ", ".join(devices.unknown)
                raise _refusal(Reason.UNSUPPORTED, claim, f"unknown fields: {fields}")
            total, length = 0, _length_of_expressions(devices.requests)
            if length > MAX_EXPRESSIONS:
                why = f"its expressions have {length} characters, of {MAX_EXPRESSIONS} at most"
                raise _refusal(Reason.UNSUPPORTED, claim, why)
            for request in devices.requests:
                ready = self._request(number, claim, request, classes)
                total += min(alternative.count for alternative in ready.alternatives)
                if total > MAX_DEVICES:
                    why = f"needs more than {MAX_DEVICES} devices"
                    raise _refusal(Reason.TOO_MANY, claim, why)
                prepared.append(ready)
            for constraint in devices.constraints:
                if not (constraint.match_attribute or constraint.distinct_attribute):
                    raise _refusal(Reason.UNSUPPORTED, claim, "a constraint of an unknown form")
        return prepared

    def _request(
        self,
        number: int,
        claim: ResourceClaim,
        request: DeviceRequest,
        classes: Mapping[str, DeviceClass],
    ) -> PreparedRequest:
        choices = request.first_available
        variants = choices or ((request.exactly,) if request.exactly is not None else ())
        if not variants:
            raise _refusal(Reason.UNSUPPORTED, claim, f"request {request.name}: unknown form")
        if choices and not self.features.prioritized_list:
            raise _refusal(Reason.FEATURE_OFF, claim, "alternatives are switched off")
        if not self.features.consumable_capacity and any(v.capacity for v in variants):
            raise _refusal(Reason.FEATURE_OFF, claim, "capacity requests are switched off")
        alternatives = tuple(
            self._alternative(number, claim, request.name, variant, classes) for variant in variants
        )
        return PreparedRequest(number, alternatives, is_choice=bool(choices))

    def _alternative(
        self,
        number: int,
        claim: ResourceClaim,
        request: str,
        variant: ExactRequest,
        classes: Mapping[str, DeviceClass],
    ) -> Alternative:
        where = f"request {request}/{variant.name}" if variant.name else f"request {request}"
        if variant.derived_attributes and not self.features.derived_attributes:
            raise _refusal(Reason.FEATURE_OFF, claim, f"{where}: derived attributes are off")
        if any(selector.cel is None for selector in variant.selectors):
            raise _refusal(Reason.UNSUPPORTED, claim, f"{where}: a selector of an unknown form")
        if variant.admin_access is not None and not self.features.admin_access:
            raise _refusal(Reason.FEATURE_OFF, claim, f"{where}: admin access is switched off")
        name = variant.device_class_name
        if name not in classes:
            raise _refusal(Reason.CLASS_NOT_FOUND, claim, f"{where}: no device class {name!r}")
        if classes[name].spec.unknown:
            fields = ", ".join(classes[name].spec.unknown)
            raise _refusal(Reason.UNSUPPORTED, claim, f"class {name}: unknown fields: {fields}")
        alternative = Alternative(
            claim=number,
            name=variant.name or request,
            parent=request if variant.name else "",
            request=variant,
            device_class=classes[name],
            derived={one.name: one.expression for one in variant.derived_attributes},
        )
        match variant.allocation_mode:
            case "ExactCount" | "":
                alternative.count = variant.count
            case "All":
                alternative.every = tuple(self._every(claim, alternative))
                alternative.count = len(alternative.every)
            case mode:
                raise _refusal(Reason.UNSUPPORTED, claim, f"{where}: allocation mode {mode!r}")
        return alternative

    def _every(self, claim: ResourceClaim, alternative: Alternative) -> Iterable[PoolDevice]:
        """All devices that mode All asks for; whether they are free is another question."""
        for pool in self.pools:
            if pool.problem:
                reason = (
                    Reason.ALL_INVALID_POOL
                    if pool.problem == "invalid"
                    else Reason.ALL_INCOMPLETE_POOL
                )
                text = f"asks for all devices, but pool {'/'.join(pool.id)} is {pool.problem}"
                raise _refusal(reason, claim, f"request {alternative.result_name}: {text}")
            for device in pool.devices:
                if not self.is_selectable(alternative, device):
                    continue
                if self.features.consumable_capacity and not self._could_hold(alternative, device):
                    continue
                yield device

    def _could_hold(self, alternative: Alternative, device: PoolDevice) -> bool:
        amounts = self.taken(alternative, device)
        return amounts is not None and all(
            amount <= device.device.capacity[name].value for name, amount in amounts.items()
        )


def tolerates(device: PoolDevice, tolerations: Sequence[DeviceToleration]) -> bool:
    """Whether no taint that forbids scheduling is left untolerated; other effects do not count."""
    return all(
        any(
            _tolerates(toleration, taint.key, taint.value, taint.effect)
            for toleration in tolerations
        )
        for taint in device.taints
        if taint.effect in ("NoSchedule", "NoExecute")
    )


def _tolerates(toleration: DeviceToleration, key: str, value: str, effect: str) -> bool:
    if toleration.effect not in ("", effect) or toleration.key not in ("", key):
        return False
    if toleration.operator == "Exists":
        return True
    return toleration.operator in ("", "Equal") and toleration.value == value


def _length_of_expressions(requests: Sequence[DeviceRequest]) -> int:
    """Characters of all expressions that the claim's author has written."""
    variants = [
        variant
        for request in requests
        for variant in (*request.first_available, request.exactly)
        if variant is not None
    ]
    return sum(
        sum(len(one.cel.expression) for one in variant.selectors if one.cel is not None)
        + sum(len(one.expression) for one in variant.derived_attributes)
        for variant in variants
    )


def _refusal(reason: Reason, claim: ResourceClaim, text: str) -> ClaimRefusal:
    return ClaimRefusal(reason, f"claim {claim.name}: {text}")
