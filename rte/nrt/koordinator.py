"""The annotations that Koordinator's scheduler and koordlet read from an NRT, as koordlet has them.

Keys, JSON and semantics: koordinator-sh/koordinator ``apis/extension`` (``node.go``) and koordlet's
``states_noderesourcetopology.go``. Pods of class LS and BE, and those to which Koordinator's
scheduler gave CPUs, are no kubelet's business there.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

import msgspec
import orjson

from rte import errors
from rte.accounting.machine import pick_reserved
from rte.accounting.topology import kubelet_topology
from rte.model import bits, quantity
from rte.model.node import PodRef
from rte.reader import jsontext

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from rte.model.bits import CPUSet
    from rte.model.machine import Machine
    from rte.model.node import CPUInfo, NodeReading, NodeState, Topology
    from rte.reader.json import JsonObject

CPU_TOPOLOGY = "node.koordinator.sh/cpu-topology"
CPU_BASIC_INFO = "node.koordinator.sh/cpu-basic-info"
CPU_SHARED_POOLS = "node.koordinator.sh/cpu-shared-pools"
BE_CPU_SHARED_POOLS = "node.koordinator.sh/be-cpu-shared-pools"
POD_CPU_ALLOCS = "node.koordinator.sh/pod-cpu-allocs"
CPU_MANAGER_POLICY = "kubelet.koordinator.sh/cpu-manager-policy"
RESERVATION = "node.koordinator.sh/reservation"
SYSTEM_QOS = "node.koordinator.sh/system-qos-resource"
ANNOTATIONS = (
    CPU_BASIC_INFO,
    CPU_TOPOLOGY,
    CPU_SHARED_POOLS,
    BE_CPU_SHARED_POOLS,
    POD_CPU_ALLOCS,
    CPU_MANAGER_POLICY,
    RESERVATION,
    SYSTEM_QOS,
)
#: Of the Node, copied.
COPIED = (RESERVATION, SYSTEM_QOS)

#: Classes whose CPUs are never reported as the kubelet's.
_UNPINNED = ("LS", "BE")


class _Reservation(msgspec.Struct, omit_defaults=True):
    resources: dict[str, str | int] = {}
    reserved_cpus: str = msgspec.field(default="", name="reservedCPUs")
    apply_policy: str = msgspec.field(default="", name="applyPolicy")


class _SystemQOS(msgspec.Struct, omit_defaults=True):
    cpuset: str = ""
    exclusive: bool | None = msgspec.field(default=None, name="cpusetExclusive")


def encode(reading: NodeReading) -> dict[str, str]:
    """The annotations of a node."""
    topology = reading.state.topology if reading.state else kubelet_topology(reading.machine)
    reservation = _reservation(reading.koordlet.annotations, topology)
    system = _system_qos(reading.koordlet.annotations)
    held = _held_cpus(reading)
    away = _parse(reservation.reserved_cpus)
    if system.exclusive is not False:
        away |= _parse(system.cpuset)
    taken = 0
    for mask in held.values():
        taken |= mask
    best_effort = taken
    for pod in reading.koordlet.pods.values():
        taken |= pod.cpus
        best_effort |= pod.cpus if pod.qos == "LSE" else 0
    pools = {mask: _shared_pools(topology.cpus, mask, away) for mask in {taken, best_effort}}
    documents = {
        CPU_BASIC_INFO: _cpu_basic_info(reading.machine),
        CPU_TOPOLOGY: {
            "detail": [
                {"id": cpu.cpu, "core": cpu.core, "socket": cpu.socket, "node": cpu.zone}
                for cpu in topology.cpus
            ]
        },
        CPU_SHARED_POOLS: pools[taken],
        BE_CPU_SHARED_POOLS: pools[best_effort],
        POD_CPU_ALLOCS: _pod_cpu_allocs(reading, held),
        CPU_MANAGER_POLICY: _cpu_manager_policy(reading.state),
        RESERVATION: msgspec.to_builtins(reservation),
        SYSTEM_QOS: msgspec.to_builtins(system),
    }
    return {key: orjson.dumps(document).decode() for key, document in documents.items()}


def _cpu_basic_info(machine: Machine) -> Mapping[str, str | bool]:
    """``CPUBasicInfo`` of apis/extension/cpu_normalization.go, by which koord-manager looks up how
    fast the CPUs of a node are; what says nothing is left out.
    """
    cores = Counter((cpu.socket, cpu.core) for cpu in machine.cpus if cpu.online)
    said: dict[str, str | bool] = {
        "cpuModel": machine.basics.name,
        "hyperThreadEnabled": any(threads > 1 for threads in cores.values()),
        "turboEnabled": machine.basics.turbo,
        "catL3CbmMask": machine.basics.l3_ways,
        "vendorID": machine.basics.vendor,
    }
    return {name: value for name, value in said.items() if value}


def _reservation(annotations: Mapping[str, str], topology: Topology) -> _Reservation:
    """The Node's, with the CPUs by name: a number of them is picked as a kubelet picks its own."""
    try:
        told = jsontext.decode(annotations.get(RESERVATION) or "{}", _Reservation, RESERVATION)
        number = -(-quantity.parse_resource("cpu", told.resources.get("cpu", "0")) // 1000)
    except errors.ParseError:
        return _Reservation()
    cpus = _parse(told.reserved_cpus)
    if not told.reserved_cpus and number > 0:
        try:
            cpus = pick_reserved(topology, number)
        except errors.KubeletError:
            cpus = 0  # more than there are
    told.reserved_cpus = bits.format_list(cpus)
    return told


def _system_qos(annotations: Mapping[str, str]) -> _SystemQOS:
    try:
        return jsontext.decode(annotations.get(SYSTEM_QOS) or "{}", _SystemQOS, SYSTEM_QOS)
    except errors.ParseError:
        return _SystemQOS()


def _parse(text: str) -> CPUSet:
    """CPUs of a list; a malformed one names none."""
    try:
        return bits.parse_list(text)
    except errors.ParseError:
        return 0


def _held_cpus(reading: NodeReading) -> dict[str, CPUSet]:
    """UID -> CPUs that the kubelet gave to the pod, without pods that hold none."""
    state = reading.state
    if state is None:
        return {}
    others = {uid for uid, pod in reading.koordlet.pods.items() if pod.cpus or pod.qos in _UNPINNED}
    held = {
        uid: state.held_cpus(uid)
        for uid in (*state.holdings, *state.pod_holdings)
        if uid not in others
    }
    return {uid: cpus for uid, cpus in held.items() if cpus}


def _shared_pools(cpus: Sequence[CPUInfo], taken: CPUSet, away: CPUSet) -> list[JsonObject]:
    """CPUs that nobody has taken, by zone, less those that are ``away``; a zone whose rest is away
    stays, without CPUs. What the kubelet reserves stays in, as koordlet has it.
    """
    pools: dict[int, tuple[int, CPUSet]] = {}
    for cpu in cpus:
        if not taken >> cpu.cpu & 1:
            first_socket, mask = pools.get(cpu.zone, (cpu.socket, 0))
            pools[cpu.zone] = (first_socket, mask | 1 << cpu.cpu)
    return [
        {"socket": socket, "node": zone}
        | ({"cpuset": bits.format_list(mask & ~away)} if mask & ~away else {})
        for socket, zone, mask in sorted(
            (socket, zone, mask) for zone, (socket, mask) in pools.items()
        )
    ]


def _pod_cpu_allocs(
    reading: NodeReading, held: Mapping[str, CPUSet]
) -> list[dict[str, str | bool]] | None:
    """To whom the kubelet gave which CPUs, sorted by UID; null when it gave none."""
    if not held:
        return None
    pods = {pod.uid: pod for pod in reading.pods}
    allocs: list[dict[str, str | bool]] = []
    for uid in sorted(held):
        pod = pods.get(uid)
        names = {"namespace": pod.namespace, "name": pod.name} if pod else {}
        allocs.append(
            {
                **names,
                "uid": uid,
                "cpuset": bits.format_list(held[uid]),
                "managedByKubelet": True,
            }
        )
    return allocs


def holders(annotations: Mapping[str, str]) -> tuple[PodRef, ...]:
    """The pods that ``pod-cpu-allocs`` names; none where it is absent or malformed."""
    try:
        allocs = jsontext.load(annotations.get(POD_CPU_ALLOCS) or "null", POD_CPU_ALLOCS) or []
        return tuple(
            PodRef(uid=item["uid"], namespace=item["namespace"], name=item["name"], exclusive=True)
            for item in allocs
            if "name" in item
        )
    except (ValueError, TypeError, KeyError, AttributeError):
        return ()


def _cpu_manager_policy(state: NodeState | None) -> JsonObject:
    """Empty members are left out; reserved CPUs are told under the static policy alone."""
    if state is None:
        return {"policy": "none"}
    document: JsonObject = {"policy": state.config.cpu_policy}
    if state.config.cpu_options:
        document["options"] = dict(sorted(state.config.cpu_options.items()))
    if state.config.cpu_policy == "static" and state.reserved:
        document["reservedCPUs"] = bits.format_list(state.reserved)
    return document
