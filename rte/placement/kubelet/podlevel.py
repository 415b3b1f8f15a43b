"""A pod with pod-level resources under pod scope (KEP-5526, gate PodLevelResourceManagers).

CPU and memory manager take everything for the pod at once, then label the parts: containers with a
request of their own get theirs, an ordinary init container without one gets all that earlier
sidecars leave, and the others share the rest. Sources: ``AllocatePod`` in policy_static.go of both.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from rte.model.node import MemoryBlock
from rte.model.pod import ContainerKind
from rte.placement.kubelet import outcome
from rte.placement.kubelet.cpu import static

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from rte.model.bits import CPUSet, ZoneSet
    from rte.model.pod import Container
    from rte.placement.kubelet.cpu.pickers import Layout
    from rte.placement.kubelet.rules import CPUOptions

    #: Containers with what each asks for itself, in admission order.
    CPUParts = Sequence[tuple[Container, int]]
    MemoryParts = Sequence[tuple[Container, Mapping[str, int]]]

_UINT64 = (1 << 64) - 1


def check_shared_cpus(total: int, parts: CPUParts) -> None:
    """Whoever has no CPUs of its own finds some in the pod's shared pool.

    Raises:
        outcome.Refused: it would be empty.
    """
    taken, shares = 0, False
    for container, count in parts:
        if container.kind is ContainerKind.INIT:
            if not count and taken >= total:
                raise outcome.AllocationRefused(
                    outcome.EMPTY_POD_SHARED_POOL_ERROR,
                    "pod rejected, pod has shared init containers but no cpus available for them",
                )
        elif count:
            taken += count
        else:
            shares = True
    if shares and taken >= total:
        raise outcome.AllocationRefused(
            outcome.EMPTY_POD_SHARED_POOL_ERROR,
            "pod rejected, sum of exclusive container cpu requests equals pod budget, leaving no "
            "cpus for shared containers",
        )


def check_shared_memory(totals: Mapping[str, int], parts: MemoryParts) -> None:
    """Whoever has no memory of its own finds some of each type in the pod's.

    Raises:
        outcome.Refused: there would be none; which type the text names is random in the kubelet.
    """
    taken: dict[str, int] = {}
    shares = False
    for container, wanted in parts:
        if container.kind is ContainerKind.INIT:
            if wanted:
                continue
            for name, total in totals.items():
                if taken.get(name, 0) >= total:
                    raise outcome.AllocationRefused(
                        outcome.EMPTY_POD_SHARED_POOL_ERROR,
                        f"pod rejected, pod has shared init containers but no {name} available "
                        "for them",
                    )
        elif wanted:
            for name, amount in wanted.items():
                taken[name] = taken.get(name, 0) + amount
        else:
            shares = True
    for name, total in totals.items():
        if shares and taken.get(name, 0) >= total:
            raise outcome.AllocationRefused(
                outcome.EMPTY_POD_SHARED_POOL_ERROR,
                f"pod rejected, sum of exclusive container {name} requests equals pod budget, "
                "leaving no memory for shared containers",
            )


def split_cpus(
    layout: Layout, options: CPUOptions, whole: CPUSet, parts: CPUParts
) -> dict[str, CPUSet]:
    """Container -> its CPUs out of the pod's, exclusive ones or a pool that it shares.

    Raises:
        outcome.Refused: not enough CPUs.
        outcome.Breaks: the kubelet would loop for ever.
    """
    labels: dict[str, CPUSet] = {}
    pool = whole
    for container, count in parts:
        if container.kind is ContainerKind.INIT:
            labels[container.name] = static.take(layout, options, pool, count) if count else pool
        elif count:
            labels[container.name] = taken = static.take(layout, options, pool, count)
            pool &= ~taken
    return {container.name: labels.get(container.name, pool) for container, _ in parts}


def split_memory(
    zones: ZoneSet, totals: Mapping[str, int], parts: MemoryParts
) -> dict[str, tuple[MemoryBlock, ...]]:
    """Container -> its blocks out of the pod's, all over the same zones; none of size 0.

    Like the kubelet's unsigned numbers, a type that the pod's total lacks wraps around.
    """
    labels: dict[str, tuple[MemoryBlock, ...]] = {}
    pool = dict(totals)

    def blocks(amounts: Mapping[str, int]) -> tuple[MemoryBlock, ...]:
        return tuple(
            MemoryBlock(name, zones, amount) for name, amount in sorted(amounts.items()) if amount
        )

    for container, wanted in parts:
        if container.kind is ContainerKind.INIT:
            labels[container.name] = blocks(wanted or {name: pool[name] for name in totals})
        elif wanted:
            labels[container.name] = blocks(wanted)
            for name, amount in wanted.items():
                if name in totals or container.kind is ContainerKind.APP:
                    pool[name] = (pool.get(name, 0) - amount) & _UINT64
    return {container.name: labels.get(container.name, blocks(pool)) for container, _ in parts}
