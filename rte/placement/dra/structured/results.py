"""What is written into a claim: devices, parameters, and the nodes that can use them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rte.k8s import selectors
from rte.k8s.wire import Expression, NodeSelector, NodeSelectorTerm
from rte.placement.dra.objects import (
    AllocationConfiguration,
    AllocationResult,
    DeviceAllocationResult,
    DeviceResult,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from rte.placement.dra.features import Features
    from rte.placement.dra.objects import ResourceClaim
    from rte.placement.dra.structured.ledger import TakenDevice
    from rte.placement.dra.structured.requests import Alternative


def build(
    claim: ResourceClaim,
    chosen: Sequence[Alternative],
    taken: Sequence[TakenDevice],
    node: str,
    features: Features,
    new_share_id: Callable[[], str],
) -> AllocationResult:
    """The allocation of a claim from its chosen alternatives (by request) and their devices."""
    return AllocationResult(
        devices=DeviceAllocationResult(
            results=tuple(_result(one, features, new_share_id) for one in taken),
            config=tuple(_configuration(claim, chosen)),
        ),
        node_selector=_node_selector(taken, node),
    )


def _result(
    taken: TakenDevice, features: Features, new_share_id: Callable[[], str]
) -> DeviceResult:
    alternative, device, amounts = taken
    binds = features.device_binding_and_status
    return DeviceResult(
        request=alternative.result_name,
        driver=device.id.driver,
        pool=device.id.pool,
        device=device.id.device,
        admin_access=True if alternative.is_admin else None,
        tolerations=alternative.request.tolerations,
        binding_conditions=device.device.binding_conditions if binds else (),
        binding_failure_conditions=device.device.binding_failure_conditions if binds else (),
        share_id=None if amounts is None else new_share_id(),
        consumed_capacity=dict(amounts) if amounts else None,
        skip_node_operations=device.slice.spec.skip_node_operations,
    )


def _configuration(
    claim: ResourceClaim, chosen: Sequence[Alternative]
) -> Iterable[AllocationConfiguration]:
    """The classes' parameters, once per class, then those of the claim that concern a request.

    Where parameters are for every request the list is left empty, which means all.
    """
    served: dict[str, list[Alternative]] = {}
    for alternative in chosen:
        served.setdefault(alternative.device_class.name, []).append(alternative)
    for alternatives in served.values():
        names = tuple(alternative.result_name for alternative in alternatives)
        for config in alternatives[0].device_class.spec.config:
            everywhere = _serves_all(names, chosen)
            yield AllocationConfiguration("FromClass", () if everywhere else names, config.opaque)
    for own in claim.spec.devices.config:
        if not own.requests or any(_serves(own.requests, one) for one in chosen):
            everywhere = _serves_all(own.requests, chosen)
            yield AllocationConfiguration(
                "FromClaim", () if everywhere else own.requests, own.opaque
            )


def _serves(names: Sequence[str], alternative: Alternative) -> bool:
    return alternative.result_name in names or (alternative.parent or alternative.name) in names


def _serves_all(names: Sequence[str], chosen: Sequence[Alternative]) -> bool:
    return all(_serves(names, alternative) for alternative in chosen)


def _node_selector(taken: Sequence[TakenDevice], node: str) -> NodeSelector | None:
    """The node alone if a device is tied to one, else what the devices' selectors ask together."""
    expressions: list[Expression] = []
    fields: list[Expression] = []
    for _, device, _ in taken:
        spec = device.slice.spec
        place = device.device if spec.per_device_node_selection else spec
        if place.node_name is not None or device.device.binds_to_node:
            only = Expression(key="metadata.name", operator="In", values=(node,))
            return NodeSelector(node_selector_terms=(NodeSelectorTerm(match_fields=(only,)),))
        if place.node_selector is not None:
            for term in (place.node_selector.node_selector_terms or ())[:1]:
                _add_new(expressions, term.match_expressions or ())
                _add_new(fields, term.match_fields or ())
    if not expressions and not fields:
        return None
    term = NodeSelectorTerm(
        match_expressions=tuple(expressions) or None, match_fields=tuple(fields) or None
    )
    return NodeSelector(node_selector_terms=(term,))


def _add_new(to: list[Expression], more: Sequence[Expression]) -> None:
    for one in more:
        if all(selectors.requirement(one) != selectors.requirement(had) for had in to):
            to.append(one)
