"""Zone arithmetic: does a pod fit, by what an NRT says is available in each zone?

For nodes whose NodeResourceTopology comes from another exporter and therefore carries no
``topology.rte.dev/node-state``. Semantics of the NodeResourceTopologyMatch plugin
(kubernetes-sigs/scheduler-plugins ``pkg/noderesourcetopology``), which looks at single-numa-node
only; best-effort and restricted are ours.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import TYPE_CHECKING

from rte.model import bits, quantity
from rte.model.pod import QOS, Container, ContainerKind, Pod
from rte.placement.foreign import zone_sets
from rte.placement.kubelet import outcome
from rte.placement.kubelet.demand import is_memory
from rte.placement.kubelet.rules import DEFAULT_MAX_ZONES

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

#: The kubelet's affinity mask has 64 bits: a zone with a higher id is in no affinity.
MAX_ZONE_ID = 63

_ALWAYS_ON_NODES = frozenset(("cpu", "memory", "pods", "ephemeral-storage"))


class Code(StrEnum):
    """Outcome of a filter, named like the scheduler framework's status codes."""

    SUCCESS = "Success"
    UNSCHEDULABLE = "Unschedulable"
    ERROR = "Error"


@dataclass(frozen=True, slots=True)
class ZoneVerdict:
    """A verdict, its reasons in the ancestor's words, and which container or resource failed."""

    code: Code
    reasons: tuple[str, ...] = ()
    container: str = ""
    resource: str = ""

    def __bool__(self) -> bool:
        return self.code is Code.SUCCESS


@dataclass(frozen=True, kw_only=True, slots=True)
class ZoneEntry:
    """One zone of an NRT. Amounts are millicores for ``cpu``, base units for all others.

    ``total`` is the capacity for CPUs and devices and the allocatable amount for memory: what the
    kubelet compares with when it looks for the narrowest set of zones.
    """

    id: int
    available: Mapping[str, int]
    total: Mapping[str, int] = field(default_factory=dict)
    costs: Mapping[int, int] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True, slots=True)
class ZoneTable:
    """The zones of one NRT in its order, and the Topology Manager's settings."""

    zones: tuple[ZoneEntry, ...]
    policy: str = "none"
    scope: str = "container"
    max_zones: int = DEFAULT_MAX_ZONES


SUCCESS = ZoneVerdict(Code.SUCCESS)
NODE_NOT_FOUND = ZoneVerdict(Code.ERROR, ("node not found",))
NOT_FRESH = ZoneVerdict(Code.UNSCHEDULABLE, ("invalid node topology data",))


def overlay(table: ZoneTable, pods: Iterable[Pod]) -> ZoneTable:
    """Take the pods' effective requests off **every** zone, down to zero.

    The ancestor's pessimistic reservation: nobody knows which zone the kubelet will choose.
    """
    zones = list(table.zones)
    for pod in pods:
        requests = effective_requests(pod)
        zones = [
            replace(
                zone,
                available={
                    name: max(0, amount - requests.get(name, 0))
                    for name, amount in zone.available.items()
                },
            )
            for zone in zones
        ]
    return replace(table, zones=tuple(zones))


def effective_requests(pod: Pod) -> dict[str, int]:
    """Per resource the larger of the app containers' sum and each init container, plus overhead.

    As the ancestor reckons: sidecars count as init containers, a pod-level stanza not at all.
    """
    total = quantity.total(
        container.requests for container in pod.containers if container.kind is ContainerKind.APP
    )
    for container in pod.containers:
        if container.kind is not ContainerKind.APP:
            for name, amount in container.requests.items():
                total[name] = max(total.get(name, 0), amount)
    quantity.add(total, pod.overhead)
    return total


def filter_zones(
    table: ZoneTable | None, pod: Pod, allocatable: Iterable[str] | None, *, fresh: bool = True
) -> ZoneVerdict:
    """Whether the pod can be aligned on the node.

    Args:
        table: the node's zones, None when it has no NRT (then it is not judged).
        pod: the pod; requests as written, no defaults applied by us.
        allocatable: names of the resources in the Node's allocatable; None: there is no such Node.
        fresh: False when the NRT cannot be trusted at the moment.
    """
    if allocatable is None:
        return NODE_NOT_FOUND
    if pod.qos is QOS.BEST_EFFORT and not _asks_for_devices(pod):
        return SUCCESS
    if not fresh:
        return NOT_FRESH
    if table is None or table.policy == "none":
        return SUCCESS
    node_names = _ALWAYS_ON_NODES | {name for name in allocatable if _is_scalar(name)}
    find: dict[str, Callable[..., Sequence[int] | None]] = {
        "single-numa-node": _find_single,
        "restricted": _find_restricted,
        "best-effort": _find_any,
    }
    search = _ZoneSearch(pod.qos is QOS.GUARANTEED, node_names, find[table.policy])
    try:
        if table.scope == "pod":
            missing = search.find(table.zones, effective_requests(pod))
            if isinstance(missing, str):
                return ZoneVerdict(Code.UNSCHEDULABLE, ("cannot align pod",), resource=missing)
            return SUCCESS
        return _filter_containers(table.zones, pod, search)
    except outcome.Unpredictable as unknown:
        return ZoneVerdict(Code.UNSCHEDULABLE, (unknown.message,))


def _filter_containers(zones: tuple[ZoneEntry, ...], pod: Pod, search: _ZoneSearch) -> ZoneVerdict:
    for container in pod.containers:
        found = search.find(zones, container.requests)
        if isinstance(found, str):
            what = {"app": "", "init": "init ", "sidecar": "sidecar "}[container.kind.value]
            return ZoneVerdict(
                Code.UNSCHEDULABLE, (f"cannot align {what}container",), container.name, found
            )
        if container.kind is not ContainerKind.APP:
            continue
        after = search.subtract(zones, found, container)
        if isinstance(after, ZoneVerdict):
            return after
        zones = after
    return SUCCESS


@dataclass(frozen=True, slots=True)
class _ZoneSearch:
    """How zones are found for one request map."""

    guaranteed: bool
    node_names: frozenset[str] | set[str]
    policy: Callable[[_ZoneSearch, Sequence[ZoneEntry], Mapping[str, int]], Sequence[int] | None]

    def find(self, zones: Sequence[ZoneEntry], requests: Mapping[str, int]) -> Sequence[int] | str:
        """Positions of the chosen zones, or the name of a resource that stands in the way."""
        wanted: dict[str, int] = {}
        for name, amount in requests.items():
            if amount == 0:
                continue
            if name not in self.node_names:
                return name
            listed = any(name in zone.available for zone in zones)
            if not listed and is_host_level(name):
                continue
            if not listed:
                return name
            wanted[name] = amount
        if not wanted:
            return ()
        found = self.policy(self, zones, wanted)
        return found if found is not None else next(iter(wanted))

    def counts(self, name: str) -> bool:
        """Whether the amount matters: CPU and memory are aligned for Guaranteed pods only."""
        return self.guaranteed or not is_affine(name)

    def subtract(
        self, zones: tuple[ZoneEntry, ...], chosen: Sequence[int], container: Container
    ) -> tuple[ZoneEntry, ...] | ZoneVerdict:
        """The zones after the container took its share from the chosen ones, lowest id first.

        Entries with the same id are one zone told twice: each is debited.
        """
        left = {
            name: amount
            for name, amount in container.requests.items()
            if amount and self.counts(name)
        }
        out = list(zones)
        for position in sorted(chosen, key=lambda position: zones[position].id):
            zone = zones[position].id
            twins = [place for place, entry in enumerate(zones) if entry.id == zone]
            for name, amount in list(left.items()):
                if name not in zones[position].available:
                    continue
                take = min(amount, out[position].available[name]) if len(chosen) > 1 else amount
                for place in twins:
                    have = out[place].available.get(name)
                    if have is None:
                        continue
                    if take > have:
                        detail = f'"{name}" request {take} exceeds NUMA {zone} availability {have}'
                        reasons = ("inconsistent resource accounting", f"resource {detail}")
                        return ZoneVerdict(Code.ERROR, reasons, container.name, name)
                    less = {**out[place].available, name: have - take}
                    out[place] = replace(out[place], available=less)
                left[name] = amount - take
        return tuple(out)


def _find_single(
    search: _ZoneSearch, zones: Sequence[ZoneEntry], wanted: Mapping[str, int]
) -> Sequence[int] | None:
    """One zone that has it all; of several the lowest id, as the kubelet prefers."""
    ids = -1
    for name, amount in wanted.items():
        ids &= bits.of(
            zone.id
            for zone in zones
            if name in zone.available
            and (not search.counts(name) or zone.available[name] >= amount)
        )
    if not ids:
        return None
    lowest = bits.lowest(ids)
    return [position for position, zone in enumerate(zones) if zone.id == lowest][:1]


def _find_any(
    search: _ZoneSearch, zones: Sequence[ZoneEntry], wanted: Mapping[str, int]
) -> Sequence[int] | None:
    """best-effort never refuses an alignment, but what no zones together have cannot be given."""
    everything = range(len(zones))
    return everything if _holds(search, zones, everything, wanted) else None


def _find_restricted(
    search: _ZoneSearch, zones: Sequence[ZoneEntry], wanted: Mapping[str, int]
) -> Sequence[int] | None:
    """The narrowest set of zones that could ever hold each resource must be free for all of them.

    The kubelet's restricted policy admits preferred hints only: a hint is preferred when its width
    is the minimum by **totals**, and the hints of all resources must name the same zones. Resources
    whose amount does not matter have no opinion.
    """
    wanted = {name: amount for name, amount in wanted.items() if search.counts(name)}
    widths = set()
    for name, amount in wanted.items():
        totals = sorted((zone.total.get(name, 0) for zone in zones), reverse=True)
        sums = (sum(totals[:width]) for width in range(1, len(totals) + 1))
        width = next((width for width, have in enumerate(sums, 1) if have >= amount), None)
        if width is None:
            return None
        widths.add(width)
    if not widths:
        return ()
    if len(widths) > 1:
        return None
    by_id = sorted(range(len(zones)), key=lambda position: zones[position].id)
    rows = [zones[position].available for position in by_id]
    found = zone_sets.lowest(rows, widths.pop(), wanted)
    return None if found is None else [by_id[place] for place in found]


def _holds(
    search: _ZoneSearch,
    zones: Sequence[ZoneEntry],
    chosen: Iterable[int],
    wanted: Mapping[str, int],
) -> bool:
    tables = [zones[position].available for position in chosen]
    return all(
        not search.counts(name) or sum(table.get(name, 0) for table in tables) >= amount
        for name, amount in wanted.items()
    )


def is_affine(name: str) -> bool:
    """CPU, memory and huge pages: aligned for Guaranteed pods only."""
    return name == "cpu" or is_memory(name)


def is_native(name: str) -> bool:
    """Kubernetes' own resource names (no domain, or one of kubernetes.io)."""
    return "/" not in name or "kubernetes.io/" in name


def is_host_level(name: str) -> bool:
    """May be requested without being listed in any zone."""
    return name in {"ephemeral-storage", "storage"} or not is_native(name)


def _is_scalar(name: str) -> bool:
    """Whether the scheduler's NodeInfo keeps the resource (its ``IsScalarResourceName``)."""
    extended = not is_native(name) and not name.startswith("requests.")
    return (
        extended
        or name.startswith(("hugepages-", "attachable-volumes-"))
        or "kubernetes.io/" in name
    )


def _asks_for_devices(pod: Pod) -> bool:
    return any(not is_native(name) for container in pod.containers for name in container.requests)
