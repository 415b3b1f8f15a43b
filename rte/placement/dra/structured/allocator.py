"""Allocates a pod's claims on a node (``structured/allocator.go`` of Kubernetes 1.37)."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass, field
from itertools import count
from typing import TYPE_CHECKING

from rte.placement.dra import nodes
from rte.placement.dra.features import Features
from rte.placement.dra.structured import results
from rte.placement.dra.structured.ledger import DeviceLedger
from rte.placement.dra.structured.requests import DeviceSelection
from rte.placement.dra.structured.search import Search
from rte.placement.dra.verdict import ClaimRefusal, ClaimVerdict, Reason

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from rte.placement.dra.nodes import ClaimNode
    from rte.placement.dra.objects import DeviceClass, ResourceClaim
    from rte.placement.dra.structured.pools import Pool
    from rte.placement.dra.structured.requests import Expressions, PreparedRequest
    from rte.placement.dra.structured.search import Ranks
    from rte.placement.dra.structured.usage import Usage

#: Devices that a search tries before it is cut off: some tenths of a second.
MAX_STEPS = 20_000


@dataclass(frozen=True, kw_only=True)
class DeviceSupply:
    """What a node has for claims.

    Attributes:
        pools: what the node sees (:meth:`rte.placement.dra.inventory.SliceInventory.pools`).
        classes: device classes by name.
        usage: what allocated claims hold, pending ones included.
        expressions: evaluates selectors.
        features: the allocator's switches.
    """

    pools: Sequence[Pool]
    classes: Mapping[str, DeviceClass]
    usage: Usage
    expressions: Expressions
    features: Features = field(default_factory=Features)


def allocate(
    node: ClaimNode,
    claims: Sequence[ResourceClaim],
    supply: DeviceSupply,
    *,
    ranks: Ranks | None = None,
    new_share_id: Callable[[], str] | None = None,
    max_steps: int = MAX_STEPS,
) -> ClaimVerdict:
    """Devices for the claims of a pod on a node, or why there are none.

    Without ``ranks`` the devices are those that Kubernetes 1.37 would take. Where its own search
    gives up although an allocation exists (admin access and ordinary use of one device within a
    pod, overdrawn counters) one is found all the same.

    Args:
        node: the node.
        claims: the pod's, in its order; allocated ones are only checked against the node.
        supply: what the node has.
        ranks: which devices to try first, and which at all.
        new_share_id: makes the id of a share; by default ``share-0``, ``share-1``, ..., which the
            caller has to replace by UUIDs before he writes an allocation.
        max_steps: how many devices the search tries before it says that it does not know.
    """
    for claim in claims:
        allocation = claim.status.allocation
        selector = allocation.node_selector if allocation is not None else None
        if selector is not None and not nodes.selects(selector, node):
            text = f"claim {claim.name} is allocated on other nodes"
            return ClaimVerdict(reason=Reason.ALLOCATED_ELSEWHERE, message=text, allocations={})
    todo = [claim for claim in claims if claim.status.allocation is None]
    if not todo:
        return ClaimVerdict(allocations={})
    selection = DeviceSelection(supply.pools, supply.features, supply.expressions)
    ledger = DeviceLedger(node, todo, selection, supply.usage)
    try:
        prepared = selection.prepare(todo, supply.classes)
        search = Search(todo, prepared, selection, ledger, ranks=ranks, limit=max_steps)
        found = search.run()
    except ClaimRefusal as refusal:
        return ClaimVerdict(reason=refusal.reason, message=str(refusal), allocations={})
    steps = search.steps
    if not found and _may_give_up(prepared, ledger):
        ledger = DeviceLedger(node, todo, selection, supply.usage, complete=True)
        search = Search(todo, prepared, selection, ledger, ranks=ranks, limit=max_steps)
        # What Kubernetes has said no to stays so where this search comes to no answer.
        with contextlib.suppress(ClaimRefusal):
            found = search.run()
        steps += search.steps
    if found:
        return _fits(node, todo, prepared, selection, search, steps, new_share_id)
    invalid = next((pool for pool in supply.pools if pool.problem == "invalid"), None)
    if invalid is not None:
        text = (
            f"no devices for the claims; pool {'/'.join(invalid.id)} is invalid: {invalid.reason}"
        )
        return ClaimVerdict(reason=Reason.INVALID_POOLS, message=text, allocations={}, steps=steps)
    text = "no free devices that satisfy all claims"
    return ClaimVerdict(reason=Reason.NO_FIT, message=text, allocations={}, steps=steps)


def _may_give_up(prepared: Sequence[PreparedRequest], ledger: DeviceLedger) -> bool:
    """Whether Kubernetes' rules may have refused what would be valid."""
    alternatives = [a for request in prepared for a in request.alternatives]
    admin = [alternative.is_admin for alternative in alternatives]
    return ledger.met_overdrawn or (any(admin) and len(admin) > 1)


def _fits(
    node: ClaimNode,
    claims: Sequence[ResourceClaim],
    prepared: Sequence[PreparedRequest],
    selection: DeviceSelection,
    search: Search,
    steps: int,
    new_share_id: Callable[[], str] | None,
) -> ClaimVerdict:
    numbers = count()
    allocations = {}
    score = 0
    chosen = []
    for place, request in enumerate(prepared):
        number = search.chosen[place] if request.is_choice else 0
        chosen.append(request.alternatives[number])
        if request.is_choice:
            score += 8 - number
    for place, claim in enumerate(claims):
        allocations[claim.name] = results.build(
            claim,
            [alternative for alternative in chosen if alternative.claim == place],
            search.solution[place],
            node.name,
            selection.features,
            new_share_id or (lambda: f"share-{next(numbers)}"),
        )
    return ClaimVerdict(allocations=allocations, score=score, steps=steps)
