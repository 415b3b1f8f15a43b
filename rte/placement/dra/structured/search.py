"""Finds devices for prepared requests: first fit with backtracking (``allocateOne``).

Requests are served in order, alternatives in order, devices in the order of the pools (or of the
caller's ranks); within a request only ascending combinations are tried. The first solution is the
one that Kubernetes' allocator finds. Two rules shorten the way to it without changing it. Where a
device has failed, one that differs from it in nothing that any request of the pod could see is not
tried. And where the rest of the requests has failed, it is not tried again with devices in use that
differ only so. What remains is bounded by a limit on the number of devices tried.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from rte.placement.dra.structured import constraints
from rte.placement.dra.structured.requests import MAX_DEVICES
from rte.placement.dra.verdict import ClaimRefusal, Reason

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Hashable, Sequence

    from rte.placement.dra.objects import ResourceClaim
    from rte.placement.dra.structured.ledger import DeviceLedger, TakenDevice
    from rte.placement.dra.structured.pools import PoolDevice
    from rte.placement.dra.structured.requests import Alternative, DeviceSelection, PreparedRequest

#: Devices tried before failures are remembered: most searches end sooner.
_REMEMBER_AFTER = 100

#: Which device to try when: the lowest rank first, None not at all. Equal ranks: pool order.
Ranks: TypeAlias = "Callable[[PoolDevice], int | None]"


class _SearchPlace(NamedTuple):
    """What to allocate next: the ``number``-th device for a request, from ``start`` in order."""

    request: int
    alternative: int | None = None
    number: int = 0
    start: int = 0


@dataclass(slots=True)
class _Choice:
    """A place with the options left for it. Each step takes one back and yields the next place.

    Attributes:
        claim: the claim that the place is in.
        options: the places that follow, one after the other.
        is_choice: the options are alternatives of a request, not devices.
        too_many: the claim would hold more than 32 devices, whatever devices are chosen for its
            requests (errAllocationResultMaxSizeExceeded); of alternatives: as long as this is why
            every one failed.
        begun: an option was tried.
        situation: what to remember when all options have failed.
    """

    claim: int
    options: Generator[_SearchPlace]
    is_choice: bool = False
    too_many: bool = False
    begun: bool = False
    situation: Hashable | None = None


class Search:
    """One search on one node. ``solution`` has the devices by claim once :meth:`run` said yes."""

    def __init__(
        self,
        claims: Sequence[ResourceClaim],
        prepared: Sequence[PreparedRequest],
        selection: DeviceSelection,
        ledger: DeviceLedger,
        *,
        ranks: Ranks | None = None,
        limit: int,
    ) -> None:
        self.solution: list[list[TakenDevice]] = []
        self.chosen: dict[int, int] = {}
        self.steps = 0
        self._claims = claims
        self._requests = prepared
        self._selection = selection
        self._ledger = ledger
        self._limit = limit
        devices = [device for pool in selection.pools for device in pool.devices]
        self._unranked = devices
        if ranks is not None:
            order = {device: rank for device in devices if (rank := ranks(device)) is not None}
            devices = sorted(order, key=order.__getitem__)
        self._devices = devices
        self._allowed = None if ranks is None else frozenset(devices)
        # Mode All takes its devices in a fixed order, and the first that a constraint refuses
        # ends the allocation, unless another one fails before: there no device stands for another.
        self._shortens = not any(
            alternative.every is not None and claims[alternative.claim].spec.devices.constraints
            for request in prepared
            for alternative in request.alternatives
        )
        self._kinds: dict[PoolDevice, Hashable] = {}
        self._failed: set[Hashable] = set()

    def run(self) -> bool:
        """Whether all requests can be served.

        Raises:
            Refusal: the claims cannot be allocated at all, or the search was cut off.
        """
        stack: list[_Choice] = []
        place: _SearchPlace | None = _SearchPlace(0)
        while place is not None:
            self._count_step()
            opened = self._open(place)
            if opened is None:
                self.solution = [list(taken) for taken in self._ledger.taken]
                return True
            stack.append(opened)
            place = self._go_back(stack)
        return False

    def _open(self, place: _SearchPlace) -> _Choice | None:
        """The options at a place; None after the last request."""
        number, alternative = place.request, place.alternative
        if alternative is not None or place.number:
            chosen = self._requests[number].alternatives[alternative or 0]
            if not self._is_served(chosen, place.number):
                return self._open_devices(place, chosen)
            number += 1
        for request in self._requests[number:]:
            if request.is_choice or not self._is_served(request.alternatives[0], 0):
                return self._open_request(number, request)
            number += 1
        return None

    def _is_served(self, alternative: Alternative, number: int) -> bool:
        """Whether so many devices are enough; mode All needs one at least."""
        return number >= alternative.count and alternative.every != ()

    def _open_request(self, number: int, request: PreparedRequest) -> _Choice:
        situation = self._situation(number) if self._shortens else None
        if situation is not None and situation in self._failed:
            return _Choice(request.claim, _nothing())
        place = _SearchPlace(number)
        if request.is_choice:
            options = self._alternatives(place)
            opened = _Choice(request.claim, options, is_choice=True, too_many=True)
        else:
            opened = self._open_devices(place, request.alternatives[0])
        opened.situation = situation
        return opened

    def _open_devices(self, place: _SearchPlace, alternative: Alternative) -> _Choice:
        if alternative.every == ():
            return _Choice(alternative.claim, _nothing())
        left = MAX_DEVICES - len(self._ledger.taken[alternative.claim])
        if alternative.count - place.number > left:
            return _Choice(alternative.claim, _nothing(), too_many=True)
        return _Choice(alternative.claim, self._try_devices(place, alternative))

    def _go_back(self, stack: list[_Choice]) -> _SearchPlace | None:
        """The next place to try, after the top of the stack was opened.

        A claim that would hold too many devices does so whatever devices its requests have: only
        another alternative can help it, or, from outside of the claim, anything.
        """
        failed: _Choice | None = None
        while stack:
            top = stack[-1]
            too_many = failed is not None and failed.too_many and failed.claim == top.claim
            if too_many and not top.is_choice:
                top.options.close()
                top.too_many = True
            else:
                if top.begun and not too_many:
                    top.too_many = False
                top.begun = True
                following = next(top.options, None)
                if following is not None:
                    return following
            failed = stack.pop()
            if failed.situation is not None and not failed.too_many:
                self._failed.add(failed.situation)
        return None

    def _alternatives(self, place: _SearchPlace) -> Generator[_SearchPlace]:
        for number in range(len(self._requests[place.request].alternatives)):
            self.chosen[place.request] = number
            yield _SearchPlace(place.request, number)

    def _try_devices(
        self, place: _SearchPlace, alternative: Alternative
    ) -> Generator[_SearchPlace]:
        if alternative.every is not None:
            device = alternative.every[place.number]
            if self._allowed is None or alternative.is_admin or device in self._allowed:
                yield from self._try(place, alternative, device, 0)
            return
        repeats = self._selection.features.repeated_shares
        failed: set[Hashable] = set()
        last: PoolDevice | None = None
        devices = self._unranked if alternative.is_admin else self._devices
        for start in range(place.start, len(devices)):
            device = devices[start]
            if not self._ledger.is_free(alternative, device):
                continue
            self._count_step()
            if not self._selection.is_selectable(alternative, device):
                continue
            if self._selection.features.consumable_capacity and not self._ledger.has_capacity(
                alternative, device
            ):
                continue
            if last is not None and self._shortens:
                failed.add(self._kind(last))
            if failed and self._kind(device) in failed:
                continue
            again = repeats and bool(device.device.allow_multiple_allocations)
            yield from self._try(place, alternative, device, start if again else start + 1)
            last = device

    def _try(
        self, place: _SearchPlace, alternative: Alternative, device: PoolDevice, start: int
    ) -> Generator[_SearchPlace]:
        undo = self._ledger.take(alternative, device, must=alternative.every is not None)
        if undo is None:
            return
        try:
            yield _SearchPlace(place.request, place.alternative, place.number + 1, start)
        finally:
            undo()

    def _count_step(self) -> None:
        self.steps += 1
        if self.steps > self._limit:
            text = (
                f"search cut off after {self._limit} devices: whether the claims fit is not known"
            )
            raise ClaimRefusal(Reason.SEARCH_LIMIT, text)

    def _kind(self, device: PoolDevice) -> Hashable:
        """Equal for devices that no request of the pod can tell apart; itself once it is in use."""
        return device if self._ledger.is_touched(device) else self._original_kind(device)

    def _original_kind(self, device: PoolDevice) -> Hashable:
        found = self._kinds.get(device)
        if found is None:
            found = self._kinds[device] = self._describe(device)
        return found

    def _situation(self, request: int) -> Hashable | None:
        """All that the success of this and later requests depends on; None: not worth it."""
        if self.steps <= _REMEMBER_AFTER:
            return None
        claim = self._requests[request].claim
        return request, self._ledger.situation(claim, self._original_kind)

    def _describe(self, device: PoolDevice) -> Hashable:
        alternatives = [a for request in self._requests for a in request.alternatives]
        if any(alternative.derived for alternative in alternatives):
            return device
        spec = device.device
        return (
            self._ledger.holder(device),
            device.id[:2] if spec.consumes_counters else None,
            tuple(
                (c.counter_set, tuple(sorted(c.counters.items())), c.compatibility_groups)
                for c in spec.consumes_counters
            ),
            tuple(self._seen_by(alternative, device) for alternative in alternatives),
            tuple(
                constraints.values(constraints.look_up(device, name))
                for claim in self._claims
                for constraint in claim.spec.devices.constraints
                if (name := constraint.match_attribute or constraint.distinct_attribute)
            ),
            tuple((t.key, t.value, t.effect) for t in device.taints),
            tuple(sorted(spec.capacity.items())),
            bool(spec.allow_multiple_allocations),
            bool(spec.unknown or device.slice.spec.unknown),
            device.slice.spec.skip_node_operations,
        )

    def _seen_by(self, alternative: Alternative, device: PoolDevice) -> bool | None:
        try:
            return self._selection.is_selectable(alternative, device)
        except ClaimRefusal:
            return None


def _nothing() -> Generator[_SearchPlace]:
    yield from ()
