"""What the page shows, as JSON values: a pure function of what is known of the cluster.

Amounts of CPUs are whole exclusive CPUs, all others base units; sets of CPUs are lists as the
kernel writes them.
"""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING

from rte.model import bits
from rte.model.words import counted
from rte.placement.kubelet.demand import free_of
from rte.scheduler.front.groups import books_of
from rte.scheduler.plugins.groups.given import with_groups
from rte.view import claims

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from rte.model.node import Holding, NodeState, Topology
    from rte.reader.json import Json, JsonObject
    from rte.scheduler.framework.claims.devices import Devices
    from rte.scheduler.framework.node import NodeEntry
    from rte.scheduler.framework.objects import PodView
    from rte.scheduler.loop.cycle import Cycle
    from rte.view.claims import OfferedDevices

#: Labels by which clouds and tools name pools of like nodes, the most telling first.
POOL_LABELS = (
    "cloud.google.com/gke-nodepool",
    "eks.amazonaws.com/nodegroup",
    "karpenter.sh/nodepool",
    "kubernetes.azure.com/agentpool",
    "node.kubernetes.io/instance-type",
)


def node(
    entry: NodeEntry, devices: Devices | None = None, cycle: Cycle | None = None
) -> JsonObject | None:
    """One node; None while there is no Node object.

    Args:
        entry: the node.
        devices: those of DRA and their claims.
        cycle: the rules, which know what processing groups hold.

    ``trust`` says why what is published cannot be built on, empty when it can; without a report of
    rte's agent there are no ``zones``.
    """
    if entry.info is None:
        return None
    outlook = entry.outlook()
    document: JsonObject = {
        "name": entry.name,
        "pool": pool_of(entry.info.labels, outlook.predicted.topology if outlook else None),
        "trust": entry.distrust() or ("" if outlook else "no report of rte's agent"),
        "unschedulable": entry.info.unschedulable,
        "zones": [],
        "pods": [_pod(pod, None, confirmed=True) for pod in _others(entry, None)],
    }
    if outlook is None:
        return document
    state = outlook.predicted
    if cycle is not None:
        state = with_groups(entry, state, books_of(cycle))
    offered = claims.of_node(entry, devices) if devices else claims.OfferedDevices()

    def by_claims(pod: PodView | None) -> list[JsonObject]:
        return claims.held_by(pod.uid, devices, offered) if devices and pod else []

    confirmed = outlook.base.admitted
    held = state.holdings.keys() | state.pod_holdings.keys()
    views = {pod.kubelet_uid: pod for pod in entry.pods.values()}
    return document | {
        "policy": state.config.topology_policy,
        "scope": state.config.topology_scope,
        "kubelet": state.kubelet_version,
        "managers": {"cpu": state.config.cpu_policy, "memory": state.config.memory_policy},
        "machine": machine_key(state.topology),
        "reserved": bits.format_list(state.reserved),
        "zones": _zones(state, offered),
        "pods": [
            *(
                _pod(pod, state, confirmed=uid in confirmed, uid=uid, by_claims=by_claims(pod))
                for uid in sorted(held)
                for pod in [views.get(uid)]
            ),
            *(
                _pod(pod, None, confirmed=True, by_claims=by_claims(pod))
                for pod in _others(entry, state)
            ),
        ],
    }


def pool_of(labels: Mapping[str, str], topology: Topology | None) -> str:
    """The pool that the labels name; else nodes of equal hardware are one."""
    for label in POOL_LABELS:
        if labels.get(label):
            return labels[label]
    if topology is None:
        return "other nodes"
    sizes = [cpus.bit_count() for cpus in topology.zone_cpus.values()]
    size = str(sizes[0]) if len(set(sizes)) == 1 else f"{min(sizes)} to {max(sizes)}"
    return f"{counted(len(sizes), 'zone')} of {size} CPU" + "s" * (size != "1")


def machine_key(topology: Topology) -> str:
    """A name for equal hardware; :func:`machine` tells what it is."""
    cpus = [(info.cpu, info.core, info.socket, info.zone) for info in topology.cpus]
    zones = [(zone.id, zone.distances) for zone in topology.zones]
    return hashlib.sha256(repr((cpus, zones)).encode()).hexdigest()[:12]


def machine(topology: Topology) -> JsonObject:
    """The hardware that many nodes share: zones with their cores, and the distances."""
    cores: dict[int, dict[int, list[int]]] = {zone: {} for zone in topology.zone_cpus}
    sockets: dict[int, set[int]] = {zone: set() for zone in topology.zone_cpus}
    for info in topology.cpus:
        cores[info.zone].setdefault(info.core, []).append(info.cpu)
        sockets[info.zone].add(info.socket)
    return {
        "zones": [
            {"id": zone, "sockets": sorted(sockets[zone]), "cores": list(threads.values())}
            for zone, threads in cores.items()
        ],
        "distances": [list(zone.distances) for zone in topology.zones],
    }


def waiting(pod: PodView) -> JsonObject:
    """A pod that has no node, since when, and why in its scheduler's words."""
    return {
        "uid": pod.uid,
        "pod": pod.key,
        "since": pod.unschedulable[1] or pod.created,
        "scheduler": pod.scheduler,
        "reason": pod.unschedulable[0],
        "cpus": sum(pod.shape.exclusive_cpus),
        "gang": _gang(pod),
    }


def sample(nodes: Iterable[Json], waits: int) -> JsonObject:
    """One point of the curves.

    ``free`` CPUs of all zones, the ``largest`` free zone, and ``stranded``: free CPUs that are not
    in their node's emptiest zone, which no pod that must lie in one zone can have with the others.
    """
    free = largest = stranded = 0
    for each in nodes:
        zones = [zone["free"] for zone in each["zones"]]
        if zones:
            free += sum(zones)
            largest = max(largest, *zones)
            stranded += sum(zones) - max(zones)
    return {"free": free, "largest": largest, "stranded": stranded, "waiting": waits}


def _gang(pod: PodView | None) -> str:
    """``namespace/name`` of its gang, empty: none."""
    return f"{pod.gang.namespace}/{pod.gang.name}" if pod and pod.gang else ""


def _others(entry: NodeEntry, state: NodeState | None) -> list[PodView]:
    """Pods that hold nothing of their own, in the order of their names."""
    held = state.holdings.keys() | state.pod_holdings.keys() if state else frozenset()
    pods = (pod for pod in entry.pods.values() if pod.kubelet_uid not in held)
    return sorted(pods, key=lambda pod: pod.key)


def _pod(
    view: PodView | None,
    state: NodeState | None,
    *,
    confirmed: bool,
    uid: str = "",
    by_claims: Sequence[JsonObject] = (),
) -> JsonObject:
    document: JsonObject = {
        "uid": view.uid if view else uid,
        "pod": view.key if view else uid,
        "cpus": "",
        "confirmed": confirmed,
    }
    if gang := _gang(view):
        document["gang"] = gang
    if state is None:
        return document | ({"containers": [*by_claims]} if by_claims else {})
    held = [*state.holdings.get(uid, {}).items()]
    if uid in state.pod_holdings:  # what containers hold are parts of it
        held = [("", state.pod_holdings[uid]), *held]
    mask = 0
    for _, holding in held:
        mask |= state.zones_of(holding)
    for row in by_claims:
        for _, given in row["devices"]:
            mask |= bits.of(int(zone) for _, zone in given if zone is not None)
    return document | {
        "cpus": bits.format_list(state.held_cpus(uid)),
        "zones": list(bits.members(mask)),
        "aligned": mask.bit_count() <= 1,
        "containers": [*(_container(name, holding, state) for name, holding in held), *by_claims],
    }


def _container(name: str, holding: Holding, state: NodeState) -> JsonObject:
    return {
        "name": name,
        "cpus": bits.format_list(holding.cpus),
        "memory": [
            [each.resource, bits.format_list(each.zones), each.size] for each in holding.memory
        ],
        "devices": [
            [
                resource,
                [
                    [
                        pool.ids[i],
                        None if pool.zones[i] is None else bits.format_list(pool.zones[i] or 0),
                    ]
                    for i in bits.members(mask)
                ],
            ]
            for resource, mask in sorted(holding.devices.items())
            for pool in [state.devices[resource]]
        ],
    }


def _zones(state: NodeState, offered: OfferedDevices) -> list[JsonObject]:
    out = []
    for zone, free in free_of(state).zones.items():
        row = state.memory.get(zone)
        cpus = state.topology.zone_cpus[zone] & ~state.reserved
        out.append(
            {
                "id": zone,
                "free": free["cpu"],
                "cpus": cpus.bit_count(),
                "memory": {
                    name: [amounts.free, amounts.allocatable]
                    for name, amounts in sorted(row.amounts.items())
                    if amounts.allocatable or name == "memory"
                }
                if row
                else {},
                "devices": _devices(state, zone, free) | offered.in_zone(zone),
            }
        )
    return out


def _devices(state: NodeState, zone: int, free: Mapping[str, int]) -> dict[str, list[int]]:
    """Resource -> free and healthy devices of the zone."""
    out = {}
    for resource, pool in sorted(state.devices.items()):
        total = (pool.in_zone(zone) & pool.healthy).bit_count()
        if total:
            out[resource] = [free.get(resource, 0), total]
    return out
