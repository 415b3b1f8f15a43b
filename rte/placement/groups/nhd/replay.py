"""NHD's recorded placements against ours, each difference explained.

Pod by pod in the order in which they started: on the node as NHD's records of the pods before it
leave it, where would this pod go here, and why not to NHD's place?
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from msgspec import structs

from rte import errors
from rte.model.words import counted
from rte.placement.groups.allocation import GivenCPUs, Record
from rte.placement.groups.check import preference, violations
from rte.placement.groups.cluster import GroupNodes
from rte.placement.groups.holdings import used_by
from rte.placement.groups.inventory import DEFAULT_POLICY
from rte.placement.groups.nhd import triad
from rte.placement.groups.nhd.adopt import adopt

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from rte.placement.groups.allocation import GroupAllocation, GroupsAllocation
    from rte.placement.groups.cluster import Choice
    from rte.placement.groups.inventory import GroupInventory, Policy, Used
    from rte.placement.groups.nhd.labels import LabelledNode
    from rte.placement.groups.request import GroupsRequest

#: What the numbers of the preference count, in their order.
_PREFERENCES = (
    "fewer zones",
    "fewer zones with groups",
    "fewer pages outside of the pod's zones",
    "more GPUs beside the NICs of their group",
    "fewer NIC functions",
)


@dataclass(frozen=True, kw_only=True, slots=True)
class RecordedPod:
    """A pod that NHD has placed.

    Attributes:
        file: the configuration file as NHD has written it.
        node_groups: the pod's, ``("default",)`` where it names none.
        started: sorts by time.
    """

    name: str
    node: str
    file: str
    node_groups: tuple[str, ...] = ("default",)
    started: str = ""


@dataclass(frozen=True, kw_only=True, slots=True)
class Compared:
    """One pod, there and here.

    Attributes:
        node: NHD's choice.
        ours: our choice, None where there is no place.
        kind: ``same``, ``other-ids``, ``other-node``, ``no-place``, ``unreadable``.
        why: every reason for the difference; empty for ``same``.
    """

    name: str
    node: str
    ours: str | None
    kind: str
    why: tuple[str, ...] = ()


def replay(
    nodes: Mapping[str, LabelledNode],
    pods: Iterable[RecordedPod],
    policy: Policy = DEFAULT_POLICY,
) -> list[Compared]:
    """Compare the placements of pods on nodes as NHD knew them.

    Times are not recorded, so there is no cool-down; nor is the CPU architecture of nodes, so every
    node has the one that a pod asks for.
    """
    cluster = GroupNodes()
    for name, known in nodes.items():
        cluster.set_node(name, known.inventory, known.facts, policy)
    compared = []
    for pod in sorted(pods, key=lambda it: (it.started, it.name)):
        node = nodes.get(pod.node)
        if node is None:
            compared.append(_unreadable(pod, f"there is no usable node {pod.node}"))
            continue
        try:
            placed = triad.read(pod.file)
            theirs = adopt(placed, node.inventory)
        except errors.RteError as error:
            compared.append(_unreadable(pod, str(error)))
            continue
        request = replace(placed.request, node_groups=pod.node_groups, cpu_arch=("any",))
        used = cluster.used(pod.node)
        whole = _completed(theirs, request, node.inventory, used)
        faults = violations(request, whole, node.inventory, used, policy)
        choice = cluster.choose(request, 0.0)
        compared.append(_compare(pod, request, whole, faults, choice, cluster))
        cluster.hold(pod.name, pod.node, Record(pod=pod.name, node=pod.node, allocation=theirs))
    return compared


def holdings_of(
    nodes: Mapping[str, LabelledNode], pods: Iterable[RecordedPod]
) -> Iterator[tuple[str, Used | str]]:
    """What NHD's pods hold on each node, by name; a text where some record cannot be read."""
    by_node: dict[str, dict[str, GroupsAllocation]] = {name: {} for name in nodes}
    unreadable: dict[str, str] = {}
    for pod in pods:
        if pod.node not in nodes:
            continue
        try:
            held = adopt(triad.read(pod.file), nodes[pod.node].inventory)
            by_node[pod.node][pod.name] = held
        except errors.RteError as error:
            unreadable[pod.node] = f"what {pod.name} holds is not known: {error}"
    for name, allocations in sorted(by_node.items()):
        yield name, unreadable.get(name) or used_by(allocations)


def _unreadable(pod: RecordedPod, why: str) -> Compared:
    return Compared(name=pod.name, node=pod.node, ours=None, kind="unreadable", why=(why,))


def _compare(
    pod: RecordedPod,
    request: GroupsRequest,
    theirs: GroupsAllocation,
    faults: Sequence[str],
    choice: Choice,
    cluster: GroupNodes,
) -> Compared:
    why = [f"NHD's place breaks a rule: {fault}" for fault in faults]
    ours = choice.decision.allocation if choice.decision else None
    refused = choice.refusals.get(pod.node)
    if refused is not None:
        why.append(f"{pod.node} does not take it: {', '.join(refused)}")
    if ours is None:
        kind = "no-place"
    elif choice.node is not None and choice.node != pod.node:
        kind = "other-node"
        if refused is None:
            why.append(_why_that_node(request, pod.node, choice.node, cluster))
    elif _ids(theirs) == _ids(ours):
        kind, why = "same", []
    else:
        kind = "other-ids"
        if not faults:
            why.append(_why_those_ids(request, theirs, ours, cluster.inventory(pod.node)))
    return Compared(name=pod.name, node=pod.node, ours=choice.node, kind=kind, why=tuple(why))


def _why_that_node(request: GroupsRequest, theirs: str, ours: str, cluster: GroupNodes) -> str:
    avoided, free = cluster.rank(request, ours)
    avoided_there, free_there = cluster.rank(request, theirs)
    if avoided != avoided_there:
        return f"a pod without GPUs goes to {ours}, which has none"
    if free != free_there:
        cores = counted(abs(free), "free core")
        return f"{ours} comes first: {cores}, {theirs} has {abs(free_there)}"
    return f"{ours} and {theirs} are alike; the name decides"


def _why_those_ids(
    request: GroupsRequest,
    theirs: GroupsAllocation,
    ours: GroupsAllocation,
    inventory: GroupInventory,
) -> str:
    there, here = (preference(request, it, inventory) for it in (theirs, ours))
    for number, told in enumerate(_PREFERENCES):
        if here[number] < there[number]:
            return f"{told}: {here[number]}, NHD's place has {there[number]}"
        if here[number] > there[number]:
            return "NHD's place is better; the search for a better one was cut off"
    return "alike by every preference; the lowest zone, address and CPU is taken here"


def _ids(allocation: GroupsAllocation) -> object:
    """All ids that the application sees."""
    return (
        [
            (group.cpus, group.gpus, [nic.addresses() for nic in group.nics])
            for group in allocation.groups
        ],
        allocation.misc.cpus,
    )


def _completed(
    allocation: GroupsAllocation, request: GroupsRequest, inventory: GroupInventory, used: Used
) -> GroupsAllocation:
    """The allocation with what NHD does not record: zones, and where the pages come from."""
    groups = tuple(
        structs.replace(group, zone=_zone_of(group, inventory)) for group in allocation.groups
    )
    misc_zone = _zone_of_cpus(allocation.misc.cpus, inventory)
    near = {misc_zone, *(group.zone for group in groups)}
    pages: dict[str, dict[int, int]] = {}
    for size, count in request.hugepages.items():
        left = count
        for zone in sorted(inventory.pages, key=lambda zone: (zone not in near, zone)):
            free = inventory.pages[zone].get(size, 0) - used.pages.get(zone, {}).get(size, 0)
            taken = min(left, max(free, 0))
            if taken:
                pages.setdefault(size, {})[zone] = taken
            left -= taken
    return structs.replace(
        allocation, groups=groups, misc=GivenCPUs(misc_zone, allocation.misc.cpus), hugepages=pages
    )


def _zone_of(group: GroupAllocation, inventory: GroupInventory) -> int | None:
    if (zone := _zone_of_cpus(group.cpus.all(), inventory)) is not None:
        return zone
    addresses = {*group.gpus, *group.functions()}
    devices = [it for it in (*inventory.gpus, *inventory.nics) if it.address in addresses]
    return inventory.zone_of(devices[0]) if devices else None


def _zone_of_cpus(cpus: Sequence[int], inventory: GroupInventory) -> int | None:
    return next((core.zone for core in inventory.cores if cpus and cpus[0] in core.cpus), None)
