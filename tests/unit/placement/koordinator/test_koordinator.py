"""Koordinator's pickers and allocation: its own test tables, and where ours is right instead."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rte import errors
from rte.model import bits
from rte.model.node import CPUInfo, Topology, ZoneInfo
from rte.model.pod import QOS, Container, Pod
from rte.placement.koordinator import cpus as k
from rte.placement.koordinator import node as kn
from rte.placement.koordinator import pod as kpod
from rte.placement.koordinator import policy as kp


def machine(sockets: int, zones: int, cores: int, threads: int) -> Topology:
    """Ids run through threads, cores, zones, sockets, as in Koordinator's tests."""
    cpus = []
    for core in range(sockets * zones * cores):
        zone = core // cores
        cpus += [
            CPUInfo(core * threads + thread, core, zone // zones, zone, zone // zones)
            for thread in range(threads)
        ]
    return Topology(
        cpus=tuple(cpus),
        zones=tuple(ZoneInfo(id=zone, memory_bytes=0) for zone in range(sockets * zones)),
        sockets=sockets,
    )


def ledger(shape, held="", policy="", references=1, maximum=1):
    return k.CPULedger(
        topology=machine(*shape),
        allocated={
            cpu: k.HeldCPU(references, policy) for cpu in bits.members(bits.parse_list(held))
        },
        max_references=maximum,
    )


def pick(shape, held, need, **wishes):
    policy = wishes.pop("held_by", "")
    return bits.format_list(k.pick_cpus(ledger(shape, held, policy), need, **wishes))


FULL = [
    ((1, 1, 4, 2), "", 2, "0-1", "0-1"),
    ((1, 1, 4, 2), "0-1", 2, "2-3", "2-3"),
    ((2, 1, 4, 2), "", 8, "0-7", "0-7"),
    ((2, 1, 4, 2), "", 12, "0-11", "0-11"),
    ((2, 1, 4, 2), "0-1", 8, "8-15", "8-15"),
    ((2, 2, 4, 2), "0-5,16-23", 6, "24-29", "8-13"),
    ((2, 2, 4, 2), "0-5,16-23", 12, "6-15,24-25", "6-15,24-25"),
    ((2, 2, 4, 2), "0-3,8-11", 4, "4-7", "16-19"),
    ((2, 2, 2, 2), "0,2,4,8,12", 4, "10-11,14-15", "10-11,14-15"),
    ((2, 2, 2, 2), "0,2,4,8,10,12", 6, "5-7,13-15", "1,3,6-7,14-15"),
]
SPREAD = [
    ((1, 1, 4, 2), "", 4, "0,2,4,6", "0,2,4,6"),
    ((2, 1, 4, 2), "0,2", 4, "1,3-4,6", "8,10,12,14"),
    ((2, 1, 4, 2), "0-3", 4, "8,10,12,14", "8,10,12,14"),
    ((2, 1, 4, 2), "0,2", 6, "1,3-7", "8-12,14"),
]


@pytest.mark.parametrize(("shape", "held", "need", "most", "least"), FULL)
def test_full_pcpus_takes_whole_cores(shape, held, need, most, least):
    assert pick(shape, held, need, bind=k.FULL_PCPUS, strategy=k.MOST_ALLOCATED) == most
    assert pick(shape, held, need, bind=k.FULL_PCPUS, strategy=k.LEAST_ALLOCATED) == least


@pytest.mark.parametrize(("shape", "held", "need", "most", "least"), SPREAD)
def test_spread_by_pcpus_takes_one_cpu_of_each_core_first(shape, held, need, most, least):
    assert pick(shape, held, need, bind=k.SPREAD_BY_PCPUS, strategy=k.MOST_ALLOCATED) == most
    assert pick(shape, held, need, bind=k.SPREAD_BY_PCPUS, strategy=k.LEAST_ALLOCATED) == least


@pytest.mark.parametrize(
    ("shape", "held", "held_by", "need", "exclusive", "bind", "want"),
    [
        ((2, 1, 4, 2), "0,2", k.PCPU_LEVEL, 4, k.PCPU_LEVEL, k.SPREAD_BY_PCPUS, "8,10,12,14"),
        ((2, 1, 4, 2), "", "", 10, k.PCPU_LEVEL, k.SPREAD_BY_PCPUS, "0-4,6,8,10,12,14"),
        ((2, 1, 8, 2), "0,2", k.PCPU_LEVEL, 4, k.PCPU_LEVEL, k.SPREAD_BY_PCPUS, "4,6,8,10"),
        ((2, 1, 8, 2), "0,2", k.PCPU_LEVEL, 4, "None", k.SPREAD_BY_PCPUS, "1,3-4,6"),
        (
            (2, 1, 4, 2),
            "0,2",
            k.NUMA_NODE_LEVEL,
            4,
            k.NUMA_NODE_LEVEL,
            k.SPREAD_BY_PCPUS,
            "8,10,12,14",
        ),
        ((2, 1, 4, 2), "0,2", k.NUMA_NODE_LEVEL, 4, "None", k.SPREAD_BY_PCPUS, "1,3-4,6"),
        ((2, 1, 4, 2), "0,2", k.NUMA_NODE_LEVEL, 4, k.NUMA_NODE_LEVEL, k.FULL_PCPUS, "8-11"),
        ((2, 1, 4, 2), "0,2", k.NUMA_NODE_LEVEL, 4, "None", k.FULL_PCPUS, "4-7"),
    ],
)
def test_exclusive_policies_keep_away_from_their_like(
    shape, held, held_by, need, exclusive, bind, want
):
    got = pick(
        shape,
        held,
        need,
        held_by=held_by,
        bind=bind,
        exclusive=exclusive,
        strategy=k.MOST_ALLOCATED,
    )
    assert got == want


def test_cpus_may_be_shared_up_to_the_reference_count():
    shared = ledger((1, 1, 4, 2), maximum=2)
    taken = []
    for need in (4, 5, 4):
        cpus = k.pick_cpus(shared, need, bind=k.FULL_PCPUS, strategy=k.MOST_ALLOCATED)
        taken.append(bits.format_list(cpus))
        held = dict(shared.allocated)
        for cpu in bits.members(cpus):
            held[cpu] = k.HeldCPU(held[cpu].references + 1 if cpu in held else 1)
        shared = k.CPULedger(topology=shared.topology, allocated=held, max_references=2)
    assert taken == ["0-3", "0,4-7", "2-5"]


def test_preferred_cpus_come_first():
    sixteen = ledger((2, 1, 16, 2))
    for preferred, want in (("0,2", "0,2"), ("11,13,15,17", "11,13")):
        got = k.pick_cpus(sixteen, 2, preferred=bits.parse_list(preferred), bind=k.SPREAD_BY_PCPUS)
        assert bits.format_list(got) == want


def test_more_than_is_free_is_refused():
    with pytest.raises(k.PickError, match="not enough cpus"):
        pick((1, 1, 4, 2), "0-3", 5)


def test_ours_never_takes_more_cpus_than_asked():
    """The ancestor gives 8 CPUs here: it takes a core of the next socket without looking."""
    got = k.pick_cpus(ledger((4, 1, 2, 2)), 7, bind=k.FULL_PCPUS)
    assert got.bit_count() == 7


@given(
    st.sampled_from([(1, 1, 4, 2), (2, 2, 4, 2), (4, 1, 2, 2), (3, 2, 3, 4), (4, 2, 2, 1)]),
    st.sets(st.integers(0, 71)),
    st.integers(0, 40),
    st.sampled_from([k.FULL_PCPUS, k.SPREAD_BY_PCPUS, ""]),
    st.sampled_from([k.MOST_ALLOCATED, k.LEAST_ALLOCATED, k.DISTRIBUTE_EVENLY]),
    st.sampled_from(["", k.PCPU_LEVEL, k.NUMA_NODE_LEVEL]),
)
def test_a_pick_is_exactly_what_was_asked_and_was_free(
    shape, held, need, bind, strategy, exclusive
):
    book = k.CPULedger(
        topology=machine(*shape), allocated={cpu: k.HeldCPU(1, exclusive) for cpu in held}
    )
    free = book.available()
    if need > free.bit_count():
        with pytest.raises(k.PickError):
            k.pick_cpus(book, need, bind=bind, strategy=strategy, exclusive=exclusive)
        return
    got = k.pick_cpus(book, need, bind=bind, strategy=strategy, exclusive=exclusive)
    assert got.bit_count() == need
    assert not got & ~free


@pytest.mark.parametrize(
    ("held", "need", "want"),
    [("", 4, {0: 2, 1: 2}), ("", 6, {0: 4, 1: 2}), ("0-5", 6, {0: 2, 1: 4}), ("0-7", 4, {1: 4})],
)
def test_distribute_evenly_deals_cores_over_the_zones(held, need, want):
    """The ancestor documents the strategy, and runs LeastAllocated in its place."""
    book = ledger((2, 1, 4, 2), held)
    got = k.pick_cpus(book, need, bind=k.FULL_PCPUS, strategy=k.DISTRIBUTE_EVENLY)
    zones = {zone: (got & cpus).bit_count() for zone, cpus in book.topology.zone_cpus.items()}
    assert {zone: number for zone, number in zones.items() if number} == want
    alias = k.pick_cpus(book, need, bind=k.FULL_PCPUS, strategy=k.LEAST_ALLOCATED)
    assert (alias & book.topology.zone_cpus[0] and alias & book.topology.zone_cpus[1]) == 0


def burstable(limit):
    return Pod(
        uid="u",
        qos=QOS.BURSTABLE,
        containers=(
            Container(name="c", requests={"cpu": 500}, limits={"cpu": limit} if limit else {}),
        ),
    )


def test_constrained_burst_needs_a_shared_pool_that_holds_the_limit():
    """Documented by the ancestor, absent from its code."""
    pools = {0: bits.parse_list("0-3"), 1: bits.parse_list("8-15")}
    assert k.constrained_burst_zones(burstable(4000), pools) == [0, 1]
    assert k.constrained_burst_zones(burstable(4500), pools) == [1]
    assert k.constrained_burst_zones(burstable(9000), pools) == []
    assert k.constrained_burst_zones(burstable(None), pools) == [], (
        "no limit: no bound on the burst"
    )
    guaranteed = Pod(uid="u", qos=QOS.GUARANTEED, containers=())
    assert k.constrained_burst_zones(guaranteed, pools) == []


# -- allocation on a node: resource_manager_test's tables (2 zones of 26 cores x 2 threads) -------

GIB = 2**30


def node(held="", booked=(0, 0), ratio=1.0, strategy=k.LEAST_ALLOCATED):
    cpu = int(52000 * ratio)
    return kn.KoordinatorNode(
        ledger=ledger((2, 1, 26, 2), held),
        totals={zone: {"cpu": cpu, "memory": 128 * GIB} for zone in (0, 1)},
        allocated={zone: {"cpu": 1000 * cpus} for zone, cpus in enumerate(booked) if cpus},
        cpu_ratio=ratio,
        strategy=strategy,
    )


def full(cpus):
    return kn.NodeRequest(
        amounts={"cpu": 1000 * cpus}, binds=True, bind=k.FULL_PCPUS, required=True
    )


def spread(cpus):
    return kn.NodeRequest(
        amounts={"cpu": 1000 * cpus}, binds=True, bind=k.SPREAD_BY_PCPUS, required=True
    )


@pytest.mark.parametrize(
    ("where", "request_", "affinity", "cpus", "zones"),
    [
        (
            node(),
            kn.NodeRequest(amounts={"cpu": 4000, "gpu-memory": GIB}),
            1,
            "",
            {0: {"cpu": 4000}},
        ),
        (node(), full(4), 1, "0-3", {0: {"cpu": 4000}}),
        (node("4-103", (48, 52)), full(4), 1, "0-3", {0: {"cpu": 4000}}),
        (node(), spread(4), 1, "0,2,4,6", {0: {"cpu": 4000}}),
        (node("1,3,5,7-103", (48, 52)), spread(4), 1, "0,2,4,6", {0: {"cpu": 4000}}),
        (node(ratio=1.5), spread(4), 1, "0,2,4,6", {0: {"cpu": 4000}}),
        (
            node(),
            kn.NodeRequest(amounts={"cpu": 4000}),
            3,
            "",
            {0: {"cpu": 2000}, 1: {"cpu": 2000}},
        ),
        (node(), full(4), 3, "0-1,52-53", {0: {"cpu": 2000}, 1: {"cpu": 2000}}),
        (node(), spread(4), 3, "0,2,52,54", {0: {"cpu": 2000}, 1: {"cpu": 2000}}),
        (
            node("0-43,52-95", (44, 44)),
            full(8),
            3,
            "44-47,96-99",
            {0: {"cpu": 4000}, 1: {"cpu": 4000}},
        ),
        (node("4-101", (48, 50)), full(4), 3, "0-1,102-103", {0: {"cpu": 2000}, 1: {"cpu": 2000}}),
        (
            node("1,3,5,7-101,103", (48, 51)),
            spread(4),
            3,
            "0,2,4,102",
            {0: {"cpu": 3000}, 1: {"cpu": 1000}},
        ),
    ],
)
def test_allocation_over_zones(where, request_, affinity, cpus, zones):
    got = kn.allocate(where, request_, affinity)
    assert bits.format_list(got.cpus) == cpus
    assert got.zones == zones


@pytest.mark.parametrize(
    ("where", "request_", "affinity", "reason"),
    [
        (node(), kn.NodeRequest(amounts={"cpu": 54000}), 1, "Insufficient NUMA cpu"),
        (node("1,3,5,7-103", (48, 52)), full(4), 1, "Insufficient NUMA cpu"),
        (node("4-103", (48, 52)), spread(4), 1, "Insufficient NUMA cpu"),
        (
            node("0-49,52-101", (50, 50), 1.5),
            kn.NodeRequest(amounts={"cpu": 4000}),
            1,
            "Insufficient NUMA cpu",
        ),
        (node(), kn.NodeRequest(amounts={"cpu": 108000}), 3, "Insufficient NUMA cpu"),
        (node("0-103"), full(2), None, "not enough cpus"),
    ],
)
def test_what_a_zone_lacks_is_named(where, request_, affinity, reason):
    with pytest.raises(kn.AllocationError, match=reason):
        kn.allocate(where, request_, affinity)


def test_zones_are_walked_by_what_they_have_not_by_their_place_in_the_list():
    """The ancestor orders zones 2 and 3 by what zones 0 and 1 have, and fails although it fits."""
    where = kn.KoordinatorNode(
        ledger=ledger((4, 1, 4, 2)),
        totals={zone: {"cpu": 8000} for zone in range(4)},
        allocated={0: {"cpu": 1000}, 3: {"cpu": 7000}},
    )
    got = kn.allocate(where, kn.NodeRequest(amounts={"cpu": 8000}), 0b1100)
    assert got.zones == {2: {"cpu": 7000}, 3: {"cpu": 1000}}


def test_amplified_cpus_count_pinned_ones_by_their_worth():
    free = kn.available_resources(node("0-3", (4, 0), ratio=1.5))
    assert free[0]["cpu"] == 78000 - 6000
    assert kn.amplify(1001, 1.5) == 1502
    assert kn.amplify(1001, 0.5) == 1001


def test_hints_prefer_the_narrowest_zones_but_under_restricted_all():
    got = kn.hints(node(), kn.NodeRequest(amounts={"cpu": 4000}), kp.BEST_EFFORT)
    assert [(hint.zones, hint.preferred) for hint in got["cpu"]] == [
        (1, True),
        (2, True),
        (3, False),
    ]
    got = kn.hints(node(), kn.NodeRequest(amounts={"cpu": 4000}), kp.RESTRICTED)
    assert all(hint.preferred for hint in got["cpu"])
    got = kn.hints(node(booked=(52, 0)), kn.NodeRequest(amounts={"cpu": 4000}), kp.BEST_EFFORT)
    assert [hint.zones for hint in got["cpu"]] == [2]
    with pytest.raises(kn.AllocationError, match="Insufficient NUMA Node resources"):
        kn.hints(kn.KoordinatorNode(ledger=ledger((1, 1, 1, 1)), totals={}), full(2), kp.RESTRICTED)


def test_without_zones_nothing_can_be_split():
    with pytest.raises(kn.AllocationError, match="insufficient resources on NUMA Node"):
        kn.allocate(kn.KoordinatorNode(ledger=ledger((1, 1, 1, 1)), totals={}), full(2), 1)


# -- NUMA policies ---------------------------------------------------------------------------------


def hint(zones, preferred, **more):
    return kp.TopologyHint(zones, preferred, **more)


@pytest.mark.parametrize(
    ("providers", "best_effort", "restricted"),
    [
        ([{"r": [hint(1, True)]}, {"r": [hint(1, True)]}], hint(1, True), True),
        ([None, {"r": [hint(2, True)]}], hint(2, True), True),
        (
            [{"r": [hint(1, True), hint(2, True)]}, {"r": [hint(1, True), hint(3, False)]}],
            hint(1, True),
            True,
        ),
        ([{"r": [hint(1, True)]}, {"r": [hint(2, True)]}], hint(15, False), False),
        ([{"r": [hint(1, True)]}, {"r": [hint(1, False)]}], hint(1, False), False),
        ([{"r": []}], hint(15, False), False),
        ([{"r": None}], hint(15, True), True),
    ],
)
def test_policies_merge_as_the_ancestors_table_says(providers, best_effort, restricted):
    assert kp.merge(kp.BEST_EFFORT, 15, providers).hint == best_effort
    assert kp.merge(kp.RESTRICTED, 15, providers).admitted is restricted


def test_an_unknown_policy_is_refused_with_its_name():
    got = kp.merge("None", 3, [])
    assert not got.admitted
    assert "None" in got.reasons[0]


def test_required_exclusive_keeps_single_and_shared_zones_apart():
    one = [{"r": [hint(1, True)]}]
    both = [{"r": [hint(3, True)]}]
    status = {0: kp.SHARED, 1: kp.IDLE}
    assert not kp.merge(kp.RESTRICTED, 3, one, exclusive="Required", status=status).admitted
    assert kp.merge(kp.RESTRICTED, 3, both, exclusive="Required", status=status).admitted
    status = {0: kp.SINGLE, 1: kp.IDLE}
    assert kp.merge(kp.RESTRICTED, 3, one, exclusive="Required", status=status).admitted
    assert not kp.merge(kp.RESTRICTED, 3, both, exclusive="Required", status=status).admitted


# -- what pods ask for -----------------------------------------------------------------------------


def read(labels=None, spec=None, numa=None, cpu=4000, priority=None):
    annotations = {}
    if spec is not None:
        annotations[kpod.RESOURCE_SPEC] = spec if isinstance(spec, str) else json.dumps(spec)
    if numa is not None:
        annotations[kpod.NUMA_TOPOLOGY_SPEC] = json.dumps(numa)
    return kpod.read_koordinator_pod(
        {"labels": labels or {}, "annotations": annotations},
        qos=QOS.GUARANTEED,
        cpu_milli=cpu,
        priority=priority,
    )


def test_lse_and_lsr_pods_of_priority_prod_bind_whole_cpus():
    assert read({kpod.QOS_LABEL: "LSR"}).binds
    assert read({kpod.QOS_LABEL: "LSR"}).bind == k.FULL_PCPUS
    assert not read({kpod.QOS_LABEL: "LS"}).binds
    assert not read({kpod.QOS_LABEL: "LSR"}, priority=5500).binds
    assert not read({kpod.QOS_LABEL: "LSE", kpod.PRIORITY_CLASS_LABEL: "koord-mid"}).binds
    assert not read({kpod.QOS_LABEL: "LSR"}, cpu=0).binds
    with pytest.raises(errors.ParseError, match="must be integer"):
        read({kpod.QOS_LABEL: "LSR"}, cpu=4500)


def test_the_resource_spec_names_policies():
    got = read(
        {kpod.QOS_LABEL: "LSE"},
        {"requiredCPUBindPolicy": "SpreadByPCPUs", "preferredCPUExclusivePolicy": "PCPULevel"},
    )
    assert (got.bind, got.required, got.exclusive) == (k.SPREAD_BY_PCPUS, True, k.PCPU_LEVEL)
    assert read(
        {kpod.QOS_LABEL: "LS"}, {"preferredCPUBindPolicy": "ConstrainedBurst"}
    ).burst_in_one_zone
    assert (
        read(
            numa={"numaTopologyPolicy": "Restricted", "singleNUMANodeExclusive": "Required"}
        ).numa_exclusive
        == "Required"
    )


@pytest.mark.parametrize("spec", ["{", "[]", "3", "null"])
def test_a_malformed_annotation_is_named(spec):
    with pytest.raises(errors.ParseError, match="resource-spec"):
        read(spec=spec)


def test_an_unknown_numa_policy_is_named():
    with pytest.raises(errors.ParseError, match="numaTopologyPolicy"):
        read(numa={"numaTopologyPolicy": "None"})


def test_a_pod_level_limit_bounds_the_burst():
    pools = {0: bits.parse_list("0-3")}
    pod = Pod(uid="u", qos=QOS.BURSTABLE, containers=(), pod_requests={}, pod_limits={"cpu": 4000})
    assert k.constrained_burst_zones(pod, pools) == [0]


def test_without_zones_in_play_cpus_come_from_everywhere():
    assert bits.format_list(kn.allocate(node(), full(4), None).cpus) == "0-3"
    with pytest.raises(kn.AllocationError, match="required cpu bind policy FullPCPUs"):
        kn.allocate(node(), full(3), None)


def test_a_ledger_fuller_than_the_books_is_refused():
    where = kn.KoordinatorNode(
        ledger=ledger((2, 1, 26, 2), "0-50"), totals={0: {"cpu": 52000}, 1: {"cpu": 52000}}
    )
    wish = kn.NodeRequest(amounts={"cpu": 4000}, binds=True, bind=k.FULL_PCPUS)
    with pytest.raises(kn.AllocationError, match="not enough cpus"):
        kn.allocate(where, wish, 1)


def test_best_effort_pods_are_of_batch_priority():
    got = kpod.read_koordinator_pod(
        {"labels": {kpod.QOS_LABEL: "LSR", kpod.PRIORITY_CLASS_LABEL: "koord-prod"}},
        qos=QOS.BEST_EFFORT,
        cpu_milli=1000,
    )
    assert got.binds
    assert read({kpod.QOS_LABEL: "BE"}).bind == ""


def test_the_pool_that_holds_a_burst_is_its_place():
    pools = {0: bits.parse_list("0-3"), 1: bits.parse_list("8-15"), 2: bits.parse_list("16-23")}
    assert k.constrained_burst_place(burstable(2000), pools) == k.BurstPlace(1, pools[1])
    assert k.constrained_burst_place(burstable(9000), pools) is None
