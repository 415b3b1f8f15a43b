"""The pools that a node sees: generations, completeness, validity (``GatherPools``).

Among the slices that concern a node only the highest generation of a pool counts. Where the node
does not see all of its pool's slices, those of the whole cluster tell whether the pool is obsolete
(a newer generation exists: ignored), incomplete (its driver is still writing) or complete.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple

from rte.placement.dra import nodes

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from rte.placement.dra.features import Features
    from rte.placement.dra.nodes import ClaimNode
    from rte.placement.dra.objects import Device, DeviceTaint, ResourceSlice
    from rte.placement.dra.verdict import Reason


class PoolID(NamedTuple):
    """A pool: names of pools are unique within their driver."""

    driver: str
    pool: str


class DeviceID(NamedTuple):
    """A device, cluster-wide."""

    driver: str
    pool: str
    device: str


@dataclass(eq=False, slots=True)
class PoolDevice:
    """A device of a slice as allocation handles it; one object per device and slice object.

    Attributes:
        id: its name in the cluster.
        device: the device as published.
        slice: the slice that it is in.
        taints: those published and those of rules.
        evaluated: truth of expressions, or reason and message of their failure, kept by
            :mod:`rte.placement.dra.cel`.
    """

    id: DeviceID
    device: Device
    slice: ResourceSlice
    taints: tuple[DeviceTaint, ...]
    evaluated: dict[str, bool | tuple[Reason, str]] = field(default_factory=dict)


@dataclass(eq=False, slots=True)
class KnownSlice:
    """A slice with its devices made ready; shared by all nodes that see it."""

    slice: ResourceSlice
    pool: PoolID
    devices: tuple[PoolDevice, ...]
    grouped: bool

    @classmethod
    def of(
        cls, value: ResourceSlice, taints: Callable[[DeviceID], Iterable[DeviceTaint]]
    ) -> KnownSlice:
        """``taints`` tells what rules add to a device."""
        spec = value.spec
        pool = PoolID(spec.driver, spec.pool.name)
        devices = []
        for device in spec.devices:
            name = DeviceID(*pool, device.name)
            devices.append(PoolDevice(name, device, value, (*device.taints, *taints(name))))
        groups = (c.compatibility_groups for d in spec.devices for c in d.consumes_counters)
        return cls(value, pool, tuple(devices), any(groups))

    def inherit(self, old: KnownSlice) -> None:
        """Take over results of expressions for devices of which they see the same as before."""
        before = {device.id: device for device in old.devices}
        for device in self.devices:
            known = before.get(device.id)
            if known is not None and _seen(known.device) == _seen(device.device):
                device.evaluated = known.evaluated


def _seen(device: Device) -> tuple[object, ...]:
    return device.attributes, device.capacity, device.allow_multiple_allocations


@dataclass(frozen=True, eq=False)
class Pool:
    """A pool as one node sees it.

    Attributes:
        id: driver and name.
        problem: ``incomplete``, ``invalid`` or empty; a pool with a problem gives no devices.
        reason: why it is invalid.
        devices: of slices that concern the node, in the order in which they are tried.
        away: those of them whose own node selection excludes the node.
        elsewhere: devices of the pool's other slices; they may consume the same counters.
        counters: counter set -> counter -> amount.
    """

    id: PoolID
    problem: str = ""
    reason: str = ""
    devices: tuple[PoolDevice, ...] = ()
    away: frozenset[PoolDevice] = frozenset()
    elsewhere: tuple[PoolDevice, ...] = ()
    counters: Mapping[str, Mapping[str, int]] = field(default_factory=dict)

    @cached_property
    def has_binding_conditions(self) -> bool:
        """Whether any device of it has to be made ready before a bind."""
        return any(device.device.binding_conditions for device in self.devices)


def gather(
    node: ClaimNode,
    concerning: Iterable[KnownSlice],
    of_pool: Callable[[PoolID], Iterable[KnownSlice]],
    features: Features,
) -> tuple[Pool, ...]:
    """The pools of a node in the order in which allocation tries them.

    ``concerning`` are slices that may concern the node (of its name, or of no single node),
    ``of_pool`` gives all slices of a pool in the cluster.
    """
    newest: dict[PoolID, list[KnownSlice]] = {}
    for known in concerning:
        if _is_understood(known, features) and _concerns(known, node):
            slices = newest.setdefault(known.pool, [])
            generation = known.slice.spec.pool.generation
            if slices and generation > slices[0].slice.spec.pool.generation:
                slices.clear()
            if not slices or generation == slices[0].slice.spec.pool.generation:
                slices.append(known)
    pools = []
    for pool_id, slices in newest.items():
        count = slices[0].slice.spec.pool.resource_slice_count
        others: list[KnownSlice] = []
        if len(slices) != count:
            whole = _whole_pool(of_pool(pool_id), slices[0].slice.spec.pool.generation, features)
            if whole is None:
                continue
            if len(whole) != count:
                pools.append(Pool(pool_id, "incomplete"))
                continue
            names = {known.slice.name for known in slices}
            others = [known for known in whole if known.slice.name not in names]
        pools.append(_build(pool_id, slices, others, node, features))
    pools.sort(key=lambda pool: (pool.has_binding_conditions, pool.id))
    return tuple(pools)


def _is_understood(known: KnownSlice, features: Features) -> bool:
    spec = known.slice.spec
    if not features.partitionable_devices and (
        spec.per_device_node_selection is not None or spec.shared_counters
    ):
        return False
    return features.compatibility_groups or not known.grouped


def _concerns(known: KnownSlice, node: ClaimNode) -> bool:
    spec = known.slice.spec
    if spec.node_name or spec.all_nodes or spec.node_selector is not None:
        return nodes.matches(
            node, name=spec.node_name, every=spec.all_nodes, selector=spec.node_selector
        )
    # None of the known forms set: a form of a later release, ignored as Kubernetes does.
    return bool(spec.per_device_node_selection) and any(
        _is_for(device.device, node) for device in known.devices
    )


def _is_for(device: Device, node: ClaimNode) -> bool:
    return nodes.matches(
        node, name=device.node_name, every=device.all_nodes, selector=device.node_selector
    )


def _whole_pool(
    slices: Iterable[KnownSlice], generation: int, features: Features
) -> list[KnownSlice] | None:
    """All slices of the generation; None where a newer one exists."""
    whole = []
    for known in slices:
        theirs = known.slice.spec.pool.generation
        if theirs > generation:
            return None
        if theirs == generation and (features.compatibility_groups or not known.grouped):
            whole.append(known)
    return whole


def _build(
    pool_id: PoolID,
    slices: Sequence[KnownSlice],
    others: Iterable[KnownSlice],
    node: ClaimNode,
    features: Features,
) -> Pool:
    ordered = sorted(slices, key=lambda known: known.slice.name)
    sharing = [known for known in (*ordered, *others) if known.slice.spec.shared_counters]
    if not features.partitionable_devices:
        sharing = []
    devices = tuple(d for known in ordered if known not in sharing for d in known.devices)
    elsewhere = tuple(d for known in others if known not in sharing for d in known.devices)
    names = [device.id.device for device in devices]
    if len(set(names)) < len(names):
        twice = next(name for place, name in enumerate(names) if name in names[:place])
        return Pool(pool_id, "invalid", f"duplicate device name {twice}")
    counters: dict[str, Mapping[str, int]] = {}
    if features.partitionable_devices:
        for counter_set in (s for known in sharing for s in known.slice.spec.shared_counters):
            if counter_set.name in counters:
                return Pool(pool_id, "invalid", f"duplicate counter set name {counter_set.name}")
            counters[counter_set.name] = {n: c.value for n, c in counter_set.counters.items()}
        if reason := _unknown_counter(counters, (*devices, *elsewhere)):
            return Pool(pool_id, "invalid", reason)
    away = frozenset(
        device
        for device in devices
        if device.slice.spec.per_device_node_selection and not _is_for(device.device, node)
    )
    return Pool(pool_id, "", "", devices, away, elsewhere, counters)


def _unknown_counter(
    counters: Mapping[str, Mapping[str, int]], devices: Iterable[PoolDevice]
) -> str:
    for device in devices:
        for consumed in device.device.consumes_counters:
            if consumed.counter_set not in counters:
                return f"counter set {consumed.counter_set} not found"
            for name in consumed.counters:
                if name not in counters[consumed.counter_set]:
                    return f"counter {name} not found in counter set {consumed.counter_set}"
    return ""
