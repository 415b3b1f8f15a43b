"""Machines of many NUMA zones: nothing is enumerated that the kubelet does not enumerate."""

import pytest

from rte import errors, placement
from rte.placement.kubelet import outcome
from tests.unit.placement import build
from tests.unit.placement.build import GIB, GPU, simple

#: As a GB200 tray shows itself: two zones with CPUs, 32 for the memory of GPUs.
GB200 = build.topology(cores=36, threads=1, memory_zones=32)
#: Each core complex is a zone (``L3 cache as NUMA domain``).
COMPLEXES = build.topology(zones=12, cores=8)
DISTRIBUTED = {"distribute-cpus-across-numa": "true"}


def node(machine, policy, memory, **more):
    options = {} if policy == "none" else {"max-allowable-numa-nodes": "64"}
    reserved = {0: {"memory": GIB}} if memory == "Static" else {}
    return build.node(
        machine,
        policy,
        memory_policy=memory,
        reserved_memory=reserved,
        topology_options=options,
        **more,
    )


@pytest.mark.parametrize("machine", [GB200, COMPLEXES])
def test_without_a_policy_no_zones_are_combined(machine):
    answer = placement.admit(node(machine, "none", "None"), simple("a"))
    assert answer.admitted
    assert build.cpu_list(answer)


@pytest.mark.parametrize("policy", ["single-numa-node", "restricted", "best-effort"])
def test_zones_without_cpus_are_no_part_of_the_choice_of_cpus(policy):
    answer = placement.admit(node(GB200, policy, "None"), simple("a", 36))
    assert answer.hints["main"] == (0b10, True)


@pytest.mark.parametrize("policy", ["none", "single-numa-node", "restricted", "best-effort"])
def test_the_memory_manager_combines_every_zone_which_nobody_follows(policy):
    answer = placement.admit(node(GB200, policy, "Static"), simple("a"))
    assert (answer.verdict, answer.reason) == ("uncertain", outcome.TOO_MANY_ZONES)


@pytest.mark.parametrize("policy", ["single-numa-node", "restricted", "best-effort"])
def test_many_zones_with_cpus_are_not_followed_either(policy):
    answer = placement.admit(node(COMPLEXES, policy, "None"), simple("a"))
    assert (answer.verdict, answer.reason) == ("uncertain", outcome.TOO_MANY_ZONES)
    small = build.pod("a", build.container(), qos=build.QOS.BURSTABLE)
    assert placement.admit(node(COMPLEXES, policy, "None"), small).admitted


@pytest.mark.parametrize(
    ("version", "verdict"), [("v1.35.4", "uncertain"), ("v1.37.1", "admitted")]
)
def test_zones_without_devices_count_for_older_kubelets(version, verdict):
    gpus = {GPU: build.pool(0, 0, 1, 1)}
    state = node(GB200, "single-numa-node", "None", devices=gpus, version=version)
    assert placement.admit(state, simple("a", gpus=1)).verdict == verdict


@pytest.mark.parametrize("policy", ["none", "single-numa-node", "restricted", "best-effort"])
@pytest.mark.parametrize("scope", ["container", "pod"])
def test_up_to_the_bound_every_answer_is_known(policy, scope):
    for zones in range(1, 17):
        machine = build.topology(sockets=1, zones=zones, cores=4)
        state = node(machine, policy, "Static", topology_scope=scope)
        for cpus, amount in ((2, 1), (8 * zones - 4, 1), (3, 40), (9, 17)):
            answer = placement.admit(state, simple("a", cpus, amount))
            assert answer.verdict != "uncertain", (zones, cpus, amount, answer.message)


def test_distributing_over_few_of_many_zones_is_followed():
    state = node(COMPLEXES, "none", "None", cpu_options=DISTRIBUTED)
    assert placement.admit(state, simple("a", 32)).admitted
    assert placement.admit(state, simple("a", 33)).reason == outcome.TOO_MANY_ZONES
    with pytest.raises(errors.KubeletError, match="reserved CPUs: 24 NUMA zones"):
        node(COMPLEXES, "none", "None", cpu_options=DISTRIBUTED, cpu_reservation_milli=33000)
