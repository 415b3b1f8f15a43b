"""What a kubelet refuses to start with, in its own words, and its first state."""

import dataclasses

import pytest
from msgspec import structs

from rte import errors, placement
from rte.model import bits
from rte.model.node import CPUInfo
from tests.unit.placement import build
from tests.unit.placement.build import GIB


def refusal(machine=None, policy="none", version="v1.35.4", **changes):
    with pytest.raises(errors.KubeletStartError) as error:
        build.node(machine, policy, version=version, **changes)
    assert str(error.value) == f"the kubelet would not start: {error.value.text}"
    return error.value.text


def test_reserved_cpus_are_picked_like_a_containers():
    assert bits.format_list(build.node().reserved) == "0"
    assert bits.format_list(build.node(cpu_reservation_milli=2500).reserved) == "0-1,8"


def test_an_explicit_list_is_taken_as_it_is():
    state = build.node(reserved_cpus=0b110, cpu_reservation_milli=2000)
    assert state.reserved == 0b110
    assert state.shared == state.topology.all_cpus


def test_strict_reservation_takes_reserved_cpus_off_the_shared_pool():
    state = build.node(cpu_options={"strict-cpu-reservation": "true"})
    assert state.shared == state.topology.all_cpus & ~state.reserved


def test_without_static_policies_there_is_nothing_to_hand_out():
    state = build.node(cpu_policy="none", memory_policy="None", reserved_cpus=0b1)
    assert (state.reserved, state.memory) == (0b1, {})


def test_memory_of_a_zone_is_what_huge_pages_and_reservations_leave():
    machine = build.topology(memory=4 * GIB, hugepages={2**21: 512})
    reserved = {1: {"memory": GIB, "hugepages-2Mi": 2**21}}
    state = build.node(machine, reserved_memory=reserved)
    assert state.memory[1].amounts["memory"].allocatable == 2 * GIB
    assert state.memory[1].amounts["hugepages-2Mi"].free == 511 * 2**21
    assert state.memory[0].amounts["memory"].total == 4 * GIB


def test_reserving_more_memory_than_there_is_wraps_around_as_in_the_kubelet():
    state = build.node(build.topology(memory=GIB), reserved_memory={0: {"memory": 2 * GIB}})
    assert state.memory[0].amounts["memory"].free == 2**64 - GIB


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"no-such": "1"}, 'unknown CPU Manager Policy option: "no-such"'),
        (
            {"max-allowable-numa-nodes": "8"},
            'unknown CPU Manager Policy option: "max-allowable-numa-nodes"',
        ),
        (
            {"full-pcpus-only": "yes"},
            (
                'bad value for option "full-pcpus-only": strconv.ParseBool: parsing "yes": '
                "invalid syntax"
            ),
        ),
        (
            {"full-pcpus-only": "true", "distribute-cpus-across-cores": "1"},
            (
                "static policy options full-pcpus-only and distribute-cpus-across-cores can not be "
                "used at the same time"
            ),
        ),
    ],
)
def test_bad_cpu_options(options, text):
    assert refusal(cpu_options=options) == f"cpumanager: new static policy error: {text}"


def test_options_of_the_none_policy():
    text = refusal(cpu_policy="none", cpu_options={"b": "1", "a": "2"})
    assert text == (
        "cpumanager: new none policy error: None policy: received unsupported options=map[a:2 b:1]"
    )


def test_alpha_options_need_their_gate():
    text = refusal(cpu_options={"align-by-socket": "false"}, feature_gates={})
    assert text.endswith(
        'CPU Manager Policy Alpha-level Options not enabled, but option "align-by-socket" provided'
    )


@pytest.mark.parametrize(("version", "starts"), [("v1.34.9", False), ("v1.35.4", True)])
def test_strict_reservation_is_beta_until_1_34(version, starts):
    options = {
        "cpu_options": {"strict-cpu-reservation": "true"},
        "feature_gates": {"CPUManagerPolicyBetaOptions": False},
    }
    if starts:
        build.node(version=version, **options)
    else:
        assert "Beta-level" in refusal(version=version, **options)


@pytest.mark.parametrize(("version", "starts"), [("v1.35.4", False), ("v1.36.3", True)])
def test_uncore_alignment_is_stable_since_1_36(version, starts):
    options = {
        "cpu_options": {"prefer-align-cpus-by-uncorecache": "true"},
        "feature_gates": {"CPUManagerPolicyBetaOptions": False},
    }
    if starts:
        build.node(version=version, **options)
    else:
        assert "Beta-level" in refusal(version=version, **options)


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"cpu_policy": "dynamic"}, 'cpumanager: unknown policy: "dynamic"'),
        ({"memory_policy": "Dynamic"}, 'memorymanager: unknown policy: "Dynamic"'),
        (
            {"cpu_reservation_milli": 0},
            (
                "cpumanager: [cpumanager] unable to determine reserved CPU resources for static "
                "policy"
            ),
        ),
        (
            {"cpu_reservation_milli": 17000},
            (
                "cpumanager: new static policy error: [cpumanager] unable to reserve the required "
                "amount of CPUs (size of  did not equal 17)"
            ),
        ),
        (
            {"reserved_cpus": 1 << 99},
            (
                "cpumanager: new static policy error: [cpumanager] unable to build the reserved "
                "physical CPUs from the reserved set: unknown CPU ID: 99"
            ),
        ),
        (
            {"reserved_memory": {}},
            "memorymanager: [memorymanager] you should specify the system reserved memory",
        ),
        (
            {"reserved_memory": {7: {"memory": 1}}},
            (
                "memorymanager: the reserved memory configuration references a NUMA node 7 that "
                "does not exist on this machine"
            ),
        ),
        (
            {"node_reserved": {"cpu": 1000, "memory": 2 * GIB}},
            (
                'memorymanager: the total amount "1Gi" of type "memory" is not equal to the value '
                '"2Gi" determined by Node Allocatable feature'
            ),
        ),
        (
            {"node_reserved": {"hugepages-2Mi": 2**61}},
            (
                'memorymanager: the total amount "0" of type "hugepages-2Mi" is not equal to the '
                'value "2Ei" determined by Node Allocatable feature'
            ),
        ),
    ],
)
def test_managers_that_do_not_start(changes, text):
    assert refusal(**changes) == text


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"topology_options": {"x": "1"}}, 'unknown Topology Manager Policy option: "x"'),
        (
            {"topology_options": {"max-allowable-numa-nodes": "7"}},
            'the minimum value of "max-allowable-numa-nodes" should not be less than 8',
        ),
        (
            {"topology_options": {"max-allowable-numa-nodes": "many"}},
            (
                'unable to convert policy option to integer "max-allowable-numa-nodes": '
                'strconv.Atoi: parsing "many": invalid syntax'
            ),
        ),
        (
            {"topology_options": {"prefer-closest-numa-nodes": "maybe"}},
            (
                'bad value for option "prefer-closest-numa-nodes": strconv.ParseBool: parsing '
                '"maybe": invalid syntax'
            ),
        ),
        ({"topology_scope": "node"}, 'unknown scope: "node"'),
        ({"topology_policy": "strict"}, 'unknown policy: "strict"'),
    ],
)
def test_topology_managers_that_do_not_start(changes, text):
    policy = changes.pop("topology_policy", "restricted")
    assert refusal(policy=policy, **changes) == f"topologymanager: {text}"


def test_many_zones_need_the_option_unless_the_policy_is_none():
    machine = build.topology(sockets=1, zones=9, cores=1)
    assert refusal(machine, "restricted") == (
        "topologymanager: unsupported on machines with more than 8 NUMA Nodes"
    )
    build.node(machine, "none")
    build.node(machine, "restricted", topology_options={"max-allowable-numa-nodes": "9"})
    with pytest.raises(errors.KubeletStartError, match="beta-level options not enabled"):
        build.node(
            machine,
            "restricted",
            topology_options={"max-allowable-numa-nodes": "9"},
            feature_gates={"TopologyManagerPolicyBetaOptions": False},
            version="v1.34.9",
        )


def test_prefer_closest_needs_distances():
    machine = build.topology()
    blind = dataclasses.replace(
        machine, zones=tuple(dataclasses.replace(zone, distances=()) for zone in machine.zones)
    )
    options = {"prefer-closest-numa-nodes": "true"}
    assert refusal(blind, "restricted", topology_options=options) == (
        "topologymanager: cannot discover NUMA topology: error getting NUMA distances from cadvisor"
    )


def test_align_by_socket_needs_zones_as_large_as_sockets():
    options = {"align-by-socket": "true"}
    assert "single-numa-node policy is incompatible" in refusal(
        policy="single-numa-node", cpu_options=options
    )
    machine = build.topology(sockets=2)
    cpus = tuple(structs.replace(cpu, zone=0) for cpu in machine.cpus)
    joined = dataclasses.replace(machine, cpus=cpus, zones=machine.zones[:1])
    assert "number of sockets are more than number of NUMA" in refusal(
        joined, "restricted", cpu_options=options
    )


def test_a_reservation_that_would_be_dealt_out_for_ever_is_no_start():
    # Zones of 5, 3, 5 and 4 CPUs, two to a core on average.
    cores = [(0, 2), (0, 3), (1, 3), (2, 2), (2, 3), (3, 2), (3, 2)]
    cpus = []
    for zone, threads in cores:
        first = len(cpus)
        cpus += [CPUInfo(first + thread, first, 0, zone, 0) for thread in range(threads)]
    machine = dataclasses.replace(
        build.topology(sockets=1, zones=4, cores=1), cpus=tuple(cpus), sockets=1
    )
    options = {"distribute-cpus-across-numa": "true", "full-pcpus-only": "true"}
    text = refusal(machine, cpu_options=options, cpu_reservation_milli=14000)
    assert "the kubelet would never end dealing out CPUs" in text


@pytest.mark.parametrize("version", ["v1.33.1", "v1.39.0", "1.x", "", "v2.35.0"])
def test_versions_without_rules_cannot_be_simulated(version):
    with pytest.raises(errors.KubeletError, match=r"1\.34 to 1\.38 are known"):
        build.node(version=version)


def test_states_are_values():
    assert build.node() == build.node()
    assert placement.remove(build.node(), "nobody") == build.node()
