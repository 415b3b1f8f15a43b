"""Small nodes and pods for the tests of the admission."""

from __future__ import annotations

from hypothesis import strategies as st

from rte import errors, placement
from rte.model import bits
from rte.model.node import CPUInfo, DevicePool, KubeletConfig, NodeState, Topology, ZoneInfo
from rte.model.pod import QOS, Container, ContainerKind, Pod

GIB = 2**30
VERSION = "v1.35.4"
GPU = "example.com/gpu"
ALPHA = {"CPUManagerPolicyAlphaOptions": True}
#: Kubelets before 1.36 do not know the second one, and do not mind.
POD_LEVEL = {**ALPHA, "PodLevelResourceManagers": True}


def topology(
    sockets: int = 2,
    zones: int = 1,
    cores: int = 4,
    threads: int = 2,
    *,
    memory: int = 16 * GIB,
    offline: str = "",
    hugepages: dict[int, int] | None = None,
    cores_per_cache: int = 0,
    memory_zones: int = 0,
) -> Topology:
    """``zones`` per socket and ``cores`` per zone; siblings are as far apart as there are cores.
    Behind them come so many zones without CPUs.
    """
    total = sockets * zones * cores
    gone = bits.parse_list(offline)
    online = [cpu for cpu in range(total * threads) if not gone >> cpu & 1]
    first = {}
    for cpu in online:
        first.setdefault(cpu % total, cpu)
    count = sockets * zones + memory_zones
    return Topology(
        cpus=tuple(
            CPUInfo(
                cpu,
                first[cpu % total],
                cpu % total // cores // zones,
                cpu % total // cores,
                cpu % total // (cores_per_cache or cores),
            )
            for cpu in online
        ),
        zones=tuple(
            ZoneInfo(
                id=zone,
                memory_bytes=memory,
                hugepages=hugepages or {},
                distances=tuple(10 + 5 * abs(zone - other) for other in range(count)),
            )
            for zone in range(count)
        ),
        sockets=sockets,
    )


def config(policy: str = "single-numa-node", **changes: object) -> KubeletConfig:
    settings: dict[str, object] = {
        "topology_policy": policy,
        "cpu_policy": "static",
        "cpu_reservation_milli": 1000,
        "memory_policy": "Static",
        "reserved_memory": {0: {"memory": GIB}},
        "feature_gates": ALPHA,
    }
    return KubeletConfig(**{**settings, **changes})


def node(
    machine: Topology | None = None,
    policy: str = "single-numa-node",
    *,
    devices: dict[str, DevicePool] | None = None,
    version: str = VERSION,
    **changes: object,
) -> NodeState:
    return placement.initial_state(
        machine or topology(), config(policy, **changes), devices or {}, version
    )


def pool(*zones: object, unhealthy: str = "", complete: bool = True) -> DevicePool:
    """Devices by what they say of their zones: a number, a tuple of them, or None."""
    masks = [
        None if zone is None else bits.of(zone if isinstance(zone, tuple) else (zone,))
        for zone in zones
    ]
    everything = (1 << len(zones)) - 1
    return DevicePool(
        ids=tuple(f"dev-{place:02}" for place in range(len(zones))),
        zones=tuple(masks),
        healthy=everything & ~bits.parse_list(unhealthy),
        complete=complete,
    )


def container(name: str = "main", kind: str = "app", cpus: float = 0, **amounts: int) -> Container:
    """Memory in GiB, ``gpus`` in units, ``hugepages`` in pages of 2 MiB."""
    demands = {"cpu": int(cpus * 1000), "memory": amounts.get("memory", 0) * GIB}
    if "gpus" in amounts:
        demands[GPU] = amounts["gpus"]
    if "hugepages" in amounts:
        demands["hugepages-2Mi"] = amounts["hugepages"] << 21
    demands = {name: amount for name, amount in demands.items() if amount}
    return Container(name=name, kind=ContainerKind(kind), requests=demands, limits=demands)


def pod(uid: str, *containers: Container, qos: QOS = QOS.GUARANTEED, **more: object) -> Pod:
    return Pod(uid=uid, name=uid, qos=qos, containers=containers, **more)


def simple(uid: str, cpus: float = 2, memory: int = 1, **amounts: int) -> Pod:
    return pod(uid, container(cpus=cpus, memory=memory, **amounts))


def filled(state: NodeState, *pods: Pod) -> NodeState:
    for each in pods:
        answer = placement.execute(state, each)
        assert answer.admitted, (each.uid, answer.reason, answer.message)
        state = answer.state
    return state


def cpu_list(answer: placement.Admission, name: str = "main") -> str:
    return bits.format_list(answer.holdings[name].cpus)


# Strategies: any machine, configuration and history that the rules cover.

_TOPOLOGIES = st.one_of(
    st.builds(
        topology,
        sockets=st.integers(1, 2),
        zones=st.integers(1, 3),
        cores=st.integers(1, 4),
        threads=st.integers(1, 2),
        memory=st.just(8 * GIB),
        hugepages=st.sampled_from([{}, {2**21: 512}]),
        cores_per_cache=st.integers(0, 2),
    ),
    st.builds(topology, cores=st.just(3), offline=st.sampled_from(["1", "6-7", "0,11"])),
)
_CPU_OPTIONS = st.sampled_from(
    [
        {},
        {},
        {"full-pcpus-only": "true"},
        {"distribute-cpus-across-numa": "true"},
        {"distribute-cpus-across-numa": "true", "full-pcpus-only": "true"},
        {"distribute-cpus-across-cores": "true"},
        {"prefer-align-cpus-by-uncorecache": "true", "full-pcpus-only": "true"},
        {"strict-cpu-reservation": "true"},
    ]
)
_POLICIES = st.sampled_from(["none", "best-effort", "restricted", "single-numa-node"])
_POOLS = st.lists(st.sampled_from([0, 0, 1, 1, 2, (0, 1), (), None]), min_size=1, max_size=6).map(
    lambda zones: pool(*zones)
)


@st.composite
def nodes(draw: st.DrawFn) -> NodeState:
    policy = draw(_POLICIES)
    options = draw(_CPU_OPTIONS)
    if draw(st.booleans()) and policy != "single-numa-node":
        options = {**options, "align-by-socket": "true"}
    while True:
        try:
            return node(
                draw(_TOPOLOGIES),
                policy,
                topology_scope=draw(st.sampled_from(["container", "pod"])),
                topology_options=draw(st.sampled_from([{}, {"prefer-closest-numa-nodes": "true"}])),
                cpu_policy="static",
                cpu_options=options,
                cpu_reservation_milli=draw(st.sampled_from([500, 1000, 2000])),
                memory_policy=draw(st.sampled_from(["None", "Static", "Static"])),
                devices={GPU: draw(_POOLS)} if draw(st.booleans()) else {},
                version=draw(st.sampled_from(["v1.34.2", "v1.35.4", "v1.36.3", "v1.37.1"])),
                feature_gates=draw(st.sampled_from([ALPHA, POD_LEVEL])),
            )
        except errors.KubeletStartError:
            options = {}


_CONTAINERS = st.builds(
    container,
    kind=st.sampled_from(["app", "app", "sidecar", "init"]),
    cpus=st.sampled_from([0, 0.5, 1, 2, 2, 3, 4, 6, 8]),
    memory=st.integers(0, 9),
    gpus=st.sampled_from([0, 0, 0, 1, 2]),
)


@st.composite
def pods(draw: st.DrawFn, uid: str = "pod") -> Pod:
    parts = draw(st.lists(_CONTAINERS, min_size=1, max_size=3))
    parts.sort(key=lambda part: part.kind is ContainerKind.APP)
    named = [
        Container(name=f"c{number}", kind=part.kind, requests=part.requests, limits=part.limits)
        for number, part in enumerate(parts)
    ]
    stanza = draw(st.sampled_from([None, None, None, {"cpu": 4000}, _whole(named)]))
    qos = draw(st.sampled_from([QOS.GUARANTEED, QOS.GUARANTEED, QOS.GUARANTEED, QOS.BURSTABLE]))
    return pod(uid, *named, qos=qos, pod_requests=stanza, pod_limits=stanza)


def _whole(containers: list[Container]) -> dict[str, int]:
    """A pod-level stanza for all of them at once, and a CPU and a GiB more."""
    total = {"cpu": 1000, "memory": GIB}
    for each in containers:
        for name in total:
            total[name] += each.requests.get(name, 0)
    return total


@st.composite
def used_nodes(
    draw: st.DrawFn, *, longest: int = 8, new: st.SearchStrategy[NodeState] | None = None
) -> tuple[NodeState, list[str]]:
    """A node (one of ``new``) after some admissions, starts and endings, and who is still there."""
    state = draw(nodes() if new is None else new)
    active: dict[str, Pod] = {}
    hints = {}
    for number in range(draw(st.integers(0, longest))):
        each = draw(pods(f"held-{number}"))
        answer = placement.execute(state, each)
        if answer.admitted:
            active[each.uid] = each
            hints[each.uid] = answer.hints
        if answer.reason not in ("KubeletHangs", "KubeletPanics"):
            state = placement.settle(answer.state, frozenset(active))
        if active and draw(st.booleans()):
            gone = draw(st.sampled_from(sorted(active)))
            if draw(st.booleans()):
                state = placement.start(state, active[gone], hints[gone])
            else:
                state = placement.remove(state, gone)
                del active[gone]
    return state, sorted(active)
