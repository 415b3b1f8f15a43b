"""The CPU manager's static policy (pkg/kubelet/cm/cpumanager/policy_static.go)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rte.model import bits
from rte.placement.kubelet import merge, outcome
from rte.placement.kubelet.cpu import distributed, pickers
from rte.placement.kubelet.merge import Hints

if TYPE_CHECKING:
    from rte.model.bits import CPUSet, ZoneSet
    from rte.placement.kubelet.cpu.pickers import Layout
    from rte.placement.kubelet.merge import Family
    from rte.placement.kubelet.rules import CPUOptions


def hints(
    layout: Layout, options: CPUOptions, available: CPUSet, reusable: CPUSet, count: int
) -> Hints:
    """Combinations of zones that have the CPUs (generateCPUTopologyHints).

    ``available`` are the assignable CPUs, ``reusable`` those of the pod's ordinary init containers.
    A combination must hold all the reusable ones.

    Raises:
        outcome.Unpredictable: more zones have CPUs than anybody combines.
    """
    zones, fewest = layout.zone_ids, layout.fewest_zones(count)
    merge.check(zones)
    free = tuple((zone.cpus & available).bit_count() for zone in layout.zones)
    offered = merge.at_least(free, count - reusable.bit_count())
    if reusable:
        reused = merge.places_of(zones, layout.zones_with(reusable))
        offered &= merge.containing(len(zones), reused)
    preferred = merge.by_width(len(zones))[fewest]
    if options.align_by_socket:
        preferred |= _socket_aligned(layout, fewest)
    return Hints(zones, offered, preferred)


def _socket_aligned(layout: Layout, fewest: int) -> Family:
    """Combinations over as few sockets as so many zones need."""
    zones_per_socket = len(layout.zones) // layout.reported_sockets
    if zones_per_socket == 0:
        return 0
    #: For each number of sockets the combinations that reach so many of those seen so far.
    reaching = [merge.containing(len(layout.zones), 0)]
    for parts in layout.zones_of.values():
        zones = bits.of(zone.id for zone, _ in parts)
        places = merge.places_of(layout.zone_ids, zones)
        touched = merge.touching(len(layout.zones), places)
        reaching = [
            same & ~touched | fewer & touched
            for same, fewer in zip([*reaching, 0], [0, *reaching], strict=True)
        ]
    wanted = -(-fewest // zones_per_socket)
    return reaching[wanted] if wanted < len(reaching) else 0


def check_full_cores(layout: Layout, shared: CPUSet, reserved: CPUSet, count: int) -> None:
    """full-pcpus-only, checked at allocation and never in hints.

    Raises:
        outcome.Refused: the request splits a core, or too few whole cores are left.
    """
    threads = layout.cpus_per_core
    if count % threads:
        raise outcome.AllocationRefused(
            outcome.SMT_ALIGNMENT_ERROR,
            f"SMT Alignment Error: requested {count} cpus not multiple cpus per core = {threads}",
        )
    physical = (shared & ~layout.siblings(reserved)).bit_count()
    if count > physical:
        raise outcome.AllocationRefused(
            outcome.SMT_ALIGNMENT_ERROR,
            "SMT Alignment Error: not enough free physical CPUs: available physical CPUs = "
            f"{physical}, requested CPUs = {count}, CPUs per core = {threads}",
        )


def allocate(
    layout: Layout, options: CPUOptions, allocatable: CPUSet, count: int, affinity: ZoneSet | None
) -> CPUSet:
    """The CPUs a container gets: as many as possible inside the hint, the rest anywhere.

    ``allocatable`` are the assignable and the reusable CPUs.

    Raises:
        outcome.Refused: not enough CPUs.
        outcome.Breaks: the kubelet would loop for ever.
        outcome.Unpredictable: distribute-cpus-across-numa over too many zones.
    """
    taken = 0
    if affinity is not None:
        aligned = allocatable & _aligned_cpus(layout, options, affinity)
        taken = take(layout, options, aligned, min(count, aligned.bit_count()))
    return taken | take(layout, options, allocatable & ~taken, count - taken.bit_count())


def _aligned_cpus(layout: Layout, options: CPUOptions, affinity: ZoneSet) -> CPUSet:
    cpus = layout.cpus_in(affinity)
    if options.align_by_socket:
        for socket in layout.sockets_with(cpus):
            cpus |= socket.cpus
    return cpus


def take(layout: Layout, options: CPUOptions, available: CPUSet, count: int) -> CPUSet:
    """Pick CPUs with the algorithm that the options choose (takeByTopology).

    Raises:
        outcome.Refused: not enough CPUs.
        outcome.Breaks: the kubelet would loop for ever.
        outcome.Unpredictable: distribute-cpus-across-numa over too many zones.
    """
    if options.across_numa:
        group = layout.cpus_per_core if options.full_pcpus_only else 1
        return distributed.take_distributed(
            layout,
            available,
            count,
            group,
            spread=options.across_cores,
            by_core=options.by_core,
            in_socket=options.distributes_in_socket,
            lowers_share=options.lowers_share,
        )
    return pickers.take_packed(
        layout,
        available,
        count,
        spread=options.across_cores,
        by_core=options.by_core,
        uncore=options.prefer_uncore,
    )
