"""How much of a device's capacities a request takes (``consumable_capacity.go``).

All amounts are in units of 1e-9; the arithmetic of steps is Kubernetes' own: in milli-units where
all of min, max and step are whole there, else on integers rounded up.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from rte.model.quantity import NANO
from rte.placement.dra.objects import Nano

if TYPE_CHECKING:
    from collections.abc import Mapping

    from rte.placement.dra.objects import CapacityRequirements, DeviceCapacity, ValidRange

_MAX = 2**63 - 1
_MILLI = NANO // 1000


class UnusableCapacityError(Exception):
    """A value that the arithmetic cannot represent, or a negative one: fatal for the pod."""


def taken(
    requirements: CapacityRequirements | None,
    capacity: Mapping[str, DeviceCapacity],
    *,
    fractional: bool,
) -> dict[str, Nano] | None:
    """What one allocation takes of each capacity; None where the device lacks one, or by policy.

    Capacities that are not asked for are taken too: their default, else all of them.

    Raises:
        UnusableCapacityError: the device or the request holds a value that cannot be worked with.
    """
    requests = requirements.requests if requirements is not None else {}
    if any(name not in capacity for name in requests):
        return None
    amounts = {}
    for name, has in capacity.items():
        amount = _amount(name, requests.get(name), has, fractional=fractional)
        if amount < 0:
            raise UnusableCapacityError(f"capacity {name}: the value is negative")
        amounts[name] = Nano(amount)
    if any(_violates(amounts[name], has, fractional) for name, has in capacity.items()):
        return None
    return amounts


def _amount(name: str, requested: int | None, has: DeviceCapacity, *, fractional: bool) -> int:
    policy = has.request_policy
    if requested is None:
        return policy.default if policy and policy.default is not None else has.value
    if policy is None:
        return requested
    if policy.valid_range is not None and policy.valid_range.min is not None:
        return _round_up(name, requested, policy.valid_range, fractional=fractional)
    if policy.valid_values is not None:
        return next((value for value in policy.valid_values if requested <= value), requested)
    return requested


def _round_up(name: str, requested: int, allowed: ValidRange, *, fractional: bool) -> int:
    least = allowed.min or 0
    if requested < least:
        return least
    if allowed.step is None:
        return requested
    unit = _unit(allowed, fractional)
    if unit == _MILLI and not _is_whole_milli(requested):
        raise UnusableCapacityError(f"capacity {name}: the request is not whole in milli-units")
    start, step = _in(least, unit), _in(allowed.step, unit)
    if step <= 0:
        raise UnusableCapacityError(f"capacity {name}: the step is not positive")
    steps = -(-(_in(requested, unit) - start) // step)
    if requested > _MAX * NANO or start + step * steps > _MAX:
        raise UnusableCapacityError(f"capacity {name}: the request passes the range of int64")
    return (start + step * steps) * unit


def _violates(amount: int, has: DeviceCapacity, fractional: bool) -> bool:
    policy = has.request_policy
    if policy is None or amount == policy.default:
        return False
    allowed = policy.valid_range
    if allowed is None:
        return bool(policy.valid_values) and amount not in (policy.valid_values or ())
    if allowed.max is not None and amount > allowed.max:
        return True
    if allowed.step is None:
        return False
    unit = _unit(allowed, fractional)
    if unit == _MILLI and not _is_whole_milli(amount):
        return True
    step = _in(allowed.step, unit)
    return step <= 0 or (_in(amount, unit) - _in(allowed.min or 0, unit)) % step != 0


def _unit(allowed: ValidRange, fractional: bool) -> int:
    """Milli-units where min, max and step are whole there, else whole ones (``useMilli``)."""
    values = [value for value in (allowed.min, allowed.max, allowed.step) if value is not None]
    if not fractional or not all(map(_is_whole_milli, values)):
        return NANO
    return _MILLI if allowed.step is None or allowed.step >= _MILLI else NANO


def _is_whole_milli(value: int) -> bool:
    return value % _MILLI == 0 and abs(value // _MILLI) <= _MAX


def _in(value: int, unit: int) -> int:
    """In units, rounded up (away from zero), as ``Quantity.Value`` and ``MilliValue`` do."""
    whole = -(-abs(value) // unit)
    return whole if value >= 0 else -whole
