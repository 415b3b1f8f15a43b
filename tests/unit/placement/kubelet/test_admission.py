"""The kubelet's answer to a pod: who fits, where it lands, who is refused and what stays behind."""

import dataclasses

import pytest
from hypothesis import given, settings

from rte import placement
from rte.model import bits
from rte.model.pod import QOS
from rte.placement.kubelet import outcome
from rte.placement.kubelet.cpu import pickers
from rte.placement.kubelet.rules import rules_of
from tests.depth import scaled
from tests.unit.placement import build
from tests.unit.placement.build import GIB, container, cpu_list, pod, pool, simple


def free_memory(state, zone, resource="memory"):
    return state.memory[zone].amounts[resource].free


# Scopes and providers


def test_a_guaranteed_pod_gets_cpus_and_memory_of_one_zone():
    answer = placement.admit(build.node(), simple("a", cpus=4, memory=2))
    assert answer.admitted
    assert (answer.verdict, answer.reason, answer.message) == ("admitted", "", "")
    assert answer.hints == {"main": (0b01, True)}
    assert cpu_list(answer) == "1-2,9-10"
    assert answer.holdings["main"].memory[0].zones == 0b01
    assert bits.format_list(answer.state.shared) == "0,3-8,11-15"
    assert free_memory(answer.state, 0) == 13 * GIB
    assert answer.state.admitted == {"a"}


def test_others_run_in_the_shared_pool():
    for each in (
        pod("b", container(cpus=2, memory=1), qos=QOS.BURSTABLE),
        simple("c", cpus=1.5),
        pod("d", container(cpus=2, memory=1), pod_requests={"cpu": 2000}, pod_limits={"cpu": 2000}),
    ):
        answer = placement.admit(build.node(), each)
        assert answer.admitted
        assert "main" not in answer.holdings or not answer.holdings["main"].cpus


def test_overhead_is_no_matter_of_the_managers():
    plain, heavy = simple("a"), simple("a")
    heavy = dataclasses.replace(heavy, overhead={"cpu": 64000, "memory": 999 * GIB})
    assert placement.admit(build.node(), heavy) == placement.admit(build.node(), plain)


def test_a_refused_merge_names_the_container_and_the_hint():
    answer = placement.admit(build.node(), simple("a", cpus=9))
    assert not answer.admitted
    assert answer.verdict == "refused"
    assert answer.reason == "TopologyAffinityError"
    assert answer.message == "Resources cannot be allocated with Topology locality"
    assert (answer.failed_by, answer.failed_container) == ("topology", "main")
    assert answer.failed_hint == (None, False)
    assert answer.state == build.node()


def test_containers_are_merged_one_by_one_or_together():
    two = pod("a", container("x", cpus=6, memory=1), container("y", cpus=6, memory=1))
    answer = placement.admit(build.node(), two)
    assert answer.hints == {"x": (0b01, True), "y": (0b10, True)}
    together = placement.admit(build.node(topology_scope="pod"), two)
    assert together.failed_container == "*"
    small = pod("a", container("x", cpus=2, memory=1), container("y", cpus=4, memory=1))
    together = placement.admit(build.node(topology_scope="pod"), small)
    assert together.hints == {"x": (0b01, True), "y": (0b01, True)}
    assert [merge.container for merge in together.merges] == ["*"]


def test_policy_none_just_allocates():
    answer = placement.admit(build.node(policy="none"), simple("a", cpus=10, memory=20))
    assert answer.admitted
    assert answer.hints == {}
    assert answer.holdings["main"].memory[0].zones == 0b11
    assert answer.state.memory[0].group == 0b11


def test_best_effort_takes_what_it_can_get():
    state = build.filled(build.node(policy="best-effort"), simple("a", cpus=5), simple("b", cpus=6))
    answer = placement.admit(state, simple("c", cpus=4, memory=1))
    assert answer.admitted
    assert answer.holdings["main"].cpus.bit_count() == 4


@pytest.mark.parametrize(
    ("policy", "counts"),
    [
        ("none", "requested=16, available=15"),
        # The memory manager's opinion leads to zone 0; the rest is picked anywhere.
        ("best-effort", "requested=9, available=8"),
    ],
)
def test_an_allocation_that_fails_is_unexpected(policy, counts):
    answer = placement.admit(build.node(policy=policy), simple("a", cpus=16))
    assert answer.reason == "UnexpectedAdmissionError"
    assert answer.failed_by == "cpu"
    assert answer.message == (
        "Allocate failed due to not enough cpus available to satisfy request: "
        f"{counts}, which is unexpected"
    )


# CPU manager options


def test_full_cores_are_checked_at_allocation():
    state = build.node(cpu_options={"full-pcpus-only": "true"})
    odd = placement.admit(state, simple("a", cpus=3))
    assert odd.reason == "SMTAlignmentError"
    assert odd.message == "SMT Alignment Error: requested 3 cpus not multiple cpus per core = 2"
    everything = dataclasses.replace(state, shared=bits.parse_list("0,4,8,12-13"))
    few = placement.admit(everything, simple("a", cpus=4))
    assert few.failed_by == "topology"
    loose = build.node(policy="none", cpu_options={"full-pcpus-only": "true"})
    few = placement.admit(dataclasses.replace(loose, shared=everything.shared), simple("a", cpus=4))
    assert few.message == (
        "SMT Alignment Error: not enough free physical CPUs: available physical CPUs = 3, "
        "requested CPUs = 4, CPUs per core = 2"
    )


def test_align_by_socket_prefers_hints_that_fill_no_further_socket():
    machine = build.topology(sockets=2, zones=2, cores=2)
    state = build.node(
        machine, "restricted", cpu_options={"align-by-socket": "true"}, memory_policy="None"
    )
    held = build.filled(state, simple("a", cpus=2), simple("b", cpus=2))
    assert placement.admit(held, simple("c", cpus=3)).hints == {"main": (0b0100, True)}
    answer = placement.admit(state, simple("c", cpus=5))
    assert answer.admitted
    assert answer.hints == {"main": (0b0011, True)}
    assert cpu_list(answer) == "2-3,8,10-11"


def test_align_by_socket_does_nothing_where_there_are_more_sockets_than_zones():
    state = build.node(
        build.topology(cores=2), "restricted", cpu_options={"align-by-socket": "true"}
    )
    plain = placement.admit(state, simple("a", cpus=2))
    more = dataclasses.replace(state, topology=dataclasses.replace(state.topology, sockets=3))
    assert placement.admit(more, simple("a", cpus=2)).hints == plain.hints


def test_distribution_over_zones():
    state = build.node(policy="none", cpu_options={"distribute-cpus-across-numa": "true"})
    assert cpu_list(placement.admit(state, simple("a", cpus=10))) == "1-2,4-6,8-10,12-13"


def test_a_pod_that_hangs_the_kubelet_is_refused():
    machine = build.topology(sockets=1, zones=4, cores=3)
    options = {"distribute-cpus-across-numa": "true", "full-pcpus-only": "true"}
    state = build.node(machine, "none", cpu_options=options, memory_policy="None")
    split = dataclasses.replace(state, shared=bits.parse_list("0-1,4-9,11-15,18,20-22"), reserved=0)
    answer = placement.admit(split, simple("a", cpus=14))
    assert answer.verdict == "refused"
    assert answer.reason == outcome.KUBELET_HANGS
    assert answer.state is split
    assert answer.holdings == {}


# Init containers and sidecars


def test_app_containers_reuse_the_cpus_of_ordinary_init_containers():
    life = pod(
        "a",
        container("init", "init", cpus=6, memory=4),
        container("side", "sidecar", cpus=2, memory=1),
        container("main", cpus=4, memory=2),
    )
    state = build.node()
    answer = placement.admit(state, life)
    init, side, main = (answer.holdings[name].cpus for name in ("init", "side", "main"))
    assert side & main == 0
    assert (side | main) == init
    assert answer.holdings["init"].memory[0].size == 1 * GIB
    assert free_memory(state, 0) - free_memory(answer.state, 0) == 4 * GIB
    started = placement.start(answer.state, life)
    assert free_memory(started, 0) - free_memory(answer.state, 0) == 1 * GIB
    assert started.holdings["a"]["init"].cpus == init
    assert started.memory[0].assignments == 2
    assert placement.remove(started, "a") == dataclasses.replace(state)


def test_starting_pods_without_init_containers_changes_nothing():
    state = build.filled(build.node(), simple("a"))
    assert placement.start(state, simple("a")) is state
    assert placement.start(state, simple("unknown")) is state


def test_pod_scope_counts_the_peak_of_the_pod():
    state = build.node(topology_scope="pod")
    fits = pod(
        "a",
        container("init", "init", cpus=5, memory=1),
        container("side", "sidecar", cpus=1, memory=1),
        container("late", "init", cpus=4, memory=1),
        container("main", cpus=4, memory=1),
    )
    assert placement.admit(state, fits).admitted
    heavy = dataclasses.replace(
        fits, containers=(*fits.containers, container("more", cpus=4, memory=1))
    )
    assert placement.admit(state, heavy).reason == "TopologyAffinityError"


def test_init_containers_memory_is_reused_only_by_the_same_zones():
    life = pod(
        "a",
        container("one", "init", cpus=1, memory=6),
        container("two", "init", cpus=1, memory=8),
        container("main", cpus=1, memory=3),
        container("also", cpus=1, memory=7),
    )
    answer = placement.admit(build.node(build.topology(memory=12 * GIB)), life)
    assert answer.admitted
    sizes = [answer.holdings[name].memory[0].size // GIB for name in ("one", "two", "main", "also")]
    assert sizes == [0, 0, 3, 7]
    assert free_memory(answer.state, 0) == 1 * GIB


# Memory manager


def test_single_and_grouped_zones_do_not_mix():
    state = build.filled(build.node(policy="restricted"), simple("wide", cpus=0.5, memory=20))
    assert state.memory[0].group == 0b11
    answer = placement.admit(state, simple("narrow", cpus=1, memory=1))
    assert answer.reason == "TopologyAffinityError"
    ended = placement.remove(state, "wide")
    assert ended.memory[0].group == 0b01
    single = build.filled(build.node(policy="best-effort"), simple("narrow", cpus=1, memory=1))
    wide = placement.admit(single, simple("wide", cpus=1, memory=20))
    assert wide.reason == "UnexpectedAdmissionError"
    assert wide.failed_by == "memory"
    assert "failed to find NUMA nodes to extend" in wide.message


def test_memory_that_is_nowhere_is_no_opinion_and_fails_at_allocation():
    answer = placement.admit(build.node(policy="none"), simple("a", cpus=0.5, memory=64))
    assert "failed to get the default NUMA affinity" in answer.message
    answer = placement.admit(build.node(policy="restricted"), simple("a", cpus=0.5, memory=64))
    assert answer.merges[0].providers[2] == {}
    assert "failed to find NUMA nodes to extend" in answer.message


@pytest.mark.parametrize(("version", "hint"), [("v1.35.4", 0b11), ("v1.36.3", 0b01)])
def test_a_hint_narrowed_by_others_is_extended(version, hint):
    state = build.node(policy="best-effort", devices={build.GPU: pool(0, 0)}, version=version)
    answer = placement.admit(state, simple("a", cpus=1, memory=20, gpus=1))
    # Since 1.36 device hints combine only zones that have such devices.
    assert answer.hints["main"] == (hint, False)
    assert answer.holdings["main"].memory[0].zones == 0b11


def test_an_extended_hint_may_be_less_than_was_promised():
    # The pod's peak needs both zones; the app container alone would be preferred on one.
    state = build.node(build.topology(memory=8 * GIB), "restricted", topology_scope="pod")
    life = pod("a", container("init", "init", cpus=0.5, memory=12), container(memory=7, cpus=0.5))
    answer = placement.admit(state, life)
    assert answer.failed_container == "main"
    assert "failed to find the extended preferred hint" in answer.message


def test_a_default_hint_may_be_less_than_was_promised():
    machine = build.topology(sockets=1, zones=3, cores=2, memory=8 * GIB)
    held = build.filled(
        build.node(machine, "none"),
        simple("one", cpus=0.5, memory=6),
        simple("wide", cpus=0.5, memory=10),
    )
    assert held.memory[2].group == 0b110
    state = dataclasses.replace(held, config=build.config(topology_scope="pod"))
    two = pod("a", container("x", cpus=0.5, memory=5), container("y", cpus=0.5, memory=5))
    answer = placement.admit(state, two)
    assert answer.merges[0].best == (None, True)
    assert "failed to find the default preferred hint" in answer.message


def test_a_zone_that_serves_itself_is_no_part_of_a_group():
    state = build.filled(build.node(policy="restricted"), simple("a", cpus=0.5, memory=1))
    answer = placement.admit(state, simple("b", cpus=10, memory=20))
    assert answer.hints == {"main": (0b11, True)}
    assert "preferred hint violates NUMA node allocation" in answer.message


def test_a_group_of_other_zones_stands_in_the_way():
    machine = build.topology(sockets=1, zones=3, cores=2, memory=8 * GIB)
    state = build.node(machine, "none")
    held = build.filled(state, simple("wide", cpus=1, memory=14))
    assert held.memory[0].group == 0b011
    answer = placement.admit(held, simple("next", cpus=1, memory=8))
    assert answer.holdings["main"].memory[0].zones == 0b100
    refused = placement.admit(held, simple("next", cpus=1, memory=9))
    assert refused.failed_by == "memory"


def test_a_resource_unknown_to_a_zone_kills_the_kubelet():
    answer = placement.admit(build.node(), simple("a", cpus=2, hugepages=1))
    assert answer.verdict == "refused"
    assert answer.reason == outcome.KUBELET_PANICS
    assert "NUMA zone 0 has no hugepages-2Mi" in answer.message
    none = placement.admit(build.node(policy="none"), simple("a", cpus=2, hugepages=1))
    assert none.reason == outcome.KUBELET_PANICS


def test_huge_pages_go_with_memory():
    machine = build.topology(hugepages={2**21: 8})
    answer = placement.admit(build.node(machine), simple("a", cpus=2, memory=1, hugepages=4))
    assert [block.resource for block in answer.holdings["main"].memory] == [
        "hugepages-2Mi",
        "memory",
    ]
    assert answer.state.memory[0].assignments == 2


# Residues and cleanup


def test_a_refused_pod_leaves_what_its_first_containers_got():
    state = build.node()
    answer = placement.admit(
        state, pod("a", container("x", cpus=4, memory=1), container("y", cpus=9, memory=1))
    )
    assert answer.failed_container == "y"
    assert set(answer.state.holdings["a"]) == {"x"}
    assert answer.state.shared != state.shared
    assert "a" not in answer.state.admitted
    assert placement.settle(answer.state, frozenset()) == state


def test_settling_keeps_the_active_ones():
    state = build.filled(build.node(), simple("a"), simple("b"))
    assert placement.settle(state, frozenset({"a", "b"})) is state
    settled = placement.settle(state, frozenset({"b"}))
    assert set(settled.holdings) == settled.admitted == {"b"}
    assert settled == placement.remove(state, "a")


# What cannot be known


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"kubelet_version": "v1.30.0"}, outcome.UNKNOWN_VERSION),
        ({"kubelet_version": ""}, outcome.UNKNOWN_VERSION),
        (
            {"config": build.config(cpu_options={"new-option": "true"})},
            outcome.UNKNOWN_CONFIGURATION,
        ),
        ({"admitted": frozenset({"a"})}, outcome.ALREADY_KNOWN),
    ],
)
def test_unknown_kubelets_and_known_pods_are_uncertain(change, reason):
    state = dataclasses.replace(build.node(), **change)
    answer = placement.admit(state, simple("a"))
    assert (answer.verdict, answer.reason) == ("uncertain", reason)
    assert answer.state is state
    assert answer.message


def test_rules_are_read_again_for_another_version():
    state = build.node()
    assert placement.admit(state, simple("a")).admitted
    older = dataclasses.replace(state, kubelet_version="v1.20.0")
    assert placement.admit(older, simple("a")).verdict == "uncertain"
    assert placement.admit(state, simple("a")).admitted


@pytest.mark.parametrize(("version", "pinned"), [("v1.35.4", True), ("v1.36.3", False)])
def test_without_its_gate_the_pod_level_stanza_only_counts_since_1_36(version, pinned):
    gates = {**build.ALPHA, "PodLevelResources": False}
    whole = pod("a", container(cpus=2, memory=1), pod_requests={"hugepages-2Mi": 0}, pod_limits={})
    answer = placement.admit(build.node(version=version, feature_gates=gates), whole)
    assert bool(answer.holdings) is pinned


def test_too_many_zones_to_enumerate():
    machine = build.topology(sockets=1, zones=17, cores=1)
    state = build.node(machine, "none", cpu_policy="none", reserved_memory={0: {"memory": GIB}})
    answer = placement.admit(state, simple("a"))
    assert (answer.verdict, answer.reason) == ("uncertain", outcome.TOO_MANY_ZONES)


@pytest.mark.parametrize(("count", "reason"), [(1000, ""), (1001, outcome.TOO_MANY_CONTAINERS)])
def test_too_many_containers_to_follow(count, reason):
    boxes = [container(f"c{number}") for number in range(count)]
    assert placement.admit(build.node(), pod("a", *boxes, qos=QOS.BEST_EFFORT)).reason == reason


# Any machine, configuration and history


@settings(max_examples=scaled(80), deadline=None)
@given(used=build.used_nodes(), each=build.pods("new"))
def test_what_an_admission_takes_comes_back_when_the_pod_is_gone(used, each):
    state, active = used
    answer = placement.execute(state, each)
    before, after = (
        {
            name: sum(row.amounts[name].free for row in moment.memory.values())
            for row in moment.memory.values()
            for name in row.amounts
        }
        for moment in (state, placement.settle(answer.state, frozenset(active)))
    )
    assert before == after
    settled = placement.settle(answer.state, frozenset(active))
    assert settled.holdings == state.holdings
    whole = answer.state.pod_holdings.get("new")
    parts = answer.state.holdings.get("new", {}).values()
    leaks = whole is not None and not any(part.cpus for part in parts)
    if is_regular(state) and not leaks:
        # What a kubelet gave to a pod as a whole, and to no container, never comes back.
        assert settled.shared == state.shared


def is_regular(state):
    cpu = rules_of(state.config, state.kubelet_version).cpu
    return pickers.layout_of(state.topology).is_regular(
        by_uncore=cpu is not None and cpu.prefer_uncore
    )


@settings(max_examples=scaled(80), deadline=None)
@given(used=build.used_nodes(), each=build.pods("new"))
def test_no_two_pods_share_a_cpu_on_a_regular_machine(used, each):
    state, _ = used
    answer = placement.admit(state, each)
    if not answer.admitted or not is_regular(state):
        return
    ours = theirs = 0
    for uid, containers in answer.state.holdings.items():
        for holding in containers.values():
            ours |= holding.cpus if uid == "new" else 0
            theirs |= holding.cpus if uid != "new" else 0
    assert ours & (theirs | state.reserved | answer.state.shared) == 0
