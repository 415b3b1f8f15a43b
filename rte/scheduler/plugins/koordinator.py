"""Koordinator's side of the contract: ``resource-status`` with the chosen CPUs and zones (pure).

Only for nodes whose kubelet assigns no CPUs itself (CPU manager policy none): there nobody else
does, and Koordinator's node agent enforces what the annotation says. Off unless asked for.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import orjson

from rte import errors
from rte.model import bits, quantity
from rte.placement.koordinator.cpus import CPULedger, HeldCPU, constrained_burst_place
from rte.placement.koordinator.node import (
    AllocationError,
    KoordinatorNode,
    NodeRequest,
    ZoneAllocation,
    allocate,
    hints,
)
from rte.placement.koordinator.pod import KoordinatorPod, read_koordinator_pod
from rte.placement.koordinator.policy import merge
from rte.reader import jsontext
from rte.scheduler.framework.events import Kind
from rte.scheduler.framework.objects import RESOURCE_STATUS
from rte.scheduler.framework.plugin import Annotate, NodeFilter

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from rte.model.node import NodeState
    from rte.scheduler.framework.node import NodeEntry
    from rte.scheduler.framework.objects import PodView
    from rte.scheduler.framework.shape import Shape
    from rte.scheduler.framework.status import Status


@dataclass(frozen=True, kw_only=True)
class AnnotatedHolding:
    """What a pod's annotation says that it holds: CPUs, and zone -> resource -> amount."""

    cpus: int = 0
    zones: Mapping[int, Mapping[str, int]] = field(default_factory=dict)


class Koordinator(NodeFilter, Annotate):
    """``--resource-status``: CPUs and zones where no CPU manager assigns them."""

    name = "Koordinator"
    about_room = True
    helped_by = Kind.NODE_ADDED | Kind.REPORT | Kind.POD_GONE | Kind.POD_CHANGED

    def filter_node(self, shape: Shape, node: NodeEntry, status: Status) -> Status:
        """Choose what is written with the bind, or refuse a node that cannot give it."""
        reported = node.report.state if node.report else None
        if reported is None or not applies(reported):
            return status
        try:
            wish = wishes(shape)
            if not asks(wish):
                return status
            held = [
                read(pod.annotations[RESOURCE_STATUS])
                for pod in node.pods.values()
                if RESOURCE_STATUS in pod.annotations
            ]
            chosen = choose(shape, wish, reported, held)
        except errors.ParseError as error:
            return replace(status, reason="malformed Koordinator annotation", message=str(error))
        except AllocationError as error:
            return replace(status, reason=error.reasons[0], message=str(error), resources=True)
        if not (chosen.cpus or chosen.zones):
            return status
        return replace(status, resource_status=write(chosen))

    def annotations(self, pod: PodView, node: NodeEntry, status: Status) -> Mapping[str, str]:  # noqa: ARG002
        """What was chosen."""
        return {RESOURCE_STATUS: status.resource_status} if status.resource_status else {}


def applies(state: NodeState) -> bool:
    """Whether CPUs of the node are ours to give."""
    return state.config.cpu_policy == "none"


def wishes(shape: Shape) -> KoordinatorPod:
    """What the pods of a shape ask of Koordinator.

    Raises:
        errors.ParseError: an annotation is malformed.
    """
    metadata = {"labels": shape.labels, "annotations": shape.annotations}
    return read_koordinator_pod(
        metadata,
        qos=shape.pod.qos,
        cpu_milli=shape.totals.get("cpu", 0),
        priority=shape.priority,
    )


def choose(
    shape: Shape, wish: KoordinatorPod, state: NodeState, holders: Iterable[AnnotatedHolding]
) -> ZoneAllocation:
    """The CPUs and zones for a pod of this shape; nothing where it only would have liked a zone.

    Raises:
        AllocationError: the node cannot give them.
    """
    held = list(holders)
    if not (wish.binds or wish.numa_policy):
        return _burst(shape, wish, state, held)
    node = _node(state, held)
    amounts = {name: shape.totals[name] for name in ("cpu", "memory") if name in shape.totals}
    request = NodeRequest(
        amounts=amounts,
        binds=wish.binds,
        bind=wish.bind,
        required=wish.required,
        exclusive=wish.exclusive,
    )
    if not wish.numa_policy:
        return allocate(node, request, None)
    merged = merge(
        wish.numa_policy,
        state.topology.zone_mask,
        [hints(node, request, wish.numa_policy)],
        exclusive=wish.numa_exclusive,
    )
    if not merged.admitted:
        raise AllocationError(merged.reasons or ("the NUMA policy cannot be met",))
    return allocate(node, request, merged.hint.zones)


def asks(wish: KoordinatorPod) -> bool:
    """Whether there is anything to choose for the pod."""
    return wish.binds or bool(wish.numa_policy) or wish.burst_in_one_zone


def _burst(
    shape: Shape, wish: KoordinatorPod, state: NodeState, holders: Iterable[AnnotatedHolding]
) -> ZoneAllocation:
    """The zone whose shared pool holds the limit of a ``ConstrainedBurst`` pod."""
    taken = state.reserved
    for held in holders:
        taken |= held.cpus
    pools = {zone: cpus & ~taken for zone, cpus in state.topology.zone_cpus.items()}
    place = constrained_burst_place(shape.pod, pools)
    if place is None:
        if wish.burst_required:
            raise AllocationError(("no zone's shared pool holds the pod's CPU limit",))
        return ZoneAllocation()
    amounts = {name: shape.totals[name] for name in ("cpu", "memory") if name in shape.totals}
    return ZoneAllocation(zones={place.zone: amounts})


def write(allocation: ZoneAllocation) -> str:
    """The annotation's value."""
    body: dict[str, Any] = {}
    if allocation.cpus:
        body["cpuset"] = bits.format_list(allocation.cpus)
    if allocation.zones:
        body["numaNodeResources"] = [
            {
                "node": zone,
                "resources": {
                    name: f"{amount}m" if name == "cpu" else str(amount)
                    for name, amount in sorted(amounts.items())
                },
            }
            for zone, amounts in sorted(allocation.zones.items())
        ]
    return orjson.dumps(body).decode()


def read(text: str) -> AnnotatedHolding:
    """What an annotation says; a malformed one says nothing (ValueError: JSON, list or number)."""
    try:
        body = jsontext.load(text, RESOURCE_STATUS)
        return AnnotatedHolding(
            cpus=bits.parse_list(str(body.get("cpuset") or "")),
            zones={
                int(item["node"]): {
                    str(name): quantity.parse_resource(str(name), amount)
                    for name, amount in (item.get("resources") or {}).items()
                }
                for item in body.get("numaNodeResources") or ()
            },
        )
    except (ValueError, AttributeError, KeyError, TypeError):
        return AnnotatedHolding()


def _node(state: NodeState, holders: Iterable[AnnotatedHolding]) -> KoordinatorNode:
    references: dict[int, int] = {}
    allocated: dict[int, dict[str, int]] = {}
    for held in holders:
        for cpu in bits.members(held.cpus & state.topology.all_cpus):
            references[cpu] = references.get(cpu, 0) + 1
        for zone, amounts in held.zones.items():
            quantity.add(allocated.setdefault(zone, {}), amounts)
    memory = {zone.id: zone.memory_bytes for zone in state.topology.zones}
    return KoordinatorNode(
        ledger=CPULedger(
            topology=state.topology,
            allocated={cpu: HeldCPU(count) for cpu, count in references.items()},
            reserved=state.reserved,
        ),
        totals={
            zone: {
                "cpu": 1000 * (cpus & ~state.reserved).bit_count(),
                "memory": memory.get(zone, 0),
            }
            for zone, cpus in state.topology.zone_cpus.items()
        },
        allocated=allocated,
    )
