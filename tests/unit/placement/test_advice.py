"""What would bring a pod into one place is proposed, and only what the kubelet would take."""

from __future__ import annotations

import dataclasses

import pytest

from rte import placement
from rte.model.pod import QOS, ContainerKind
from rte.placement.advice import advise
from rte.placement.explain import explain
from rte.placement.kubelet.releases import NEWEST
from tests.unit.placement import build
from tests.unit.placement.build import GPU, container, pod, pool


def advice(state, asked):
    return advise(state, asked, explain(state, asked))


def sidecar(name, **amounts):
    return dataclasses.replace(container(name, **amounts), kind=ContainerKind.SIDECAR)


def test_the_largest_request_that_fits_is_named_and_fits():
    state = build.node()
    (first, *_) = advice(state, pod("a", container("main", cpus=12, memory=1)))
    assert first == "would fit with cpu 8 in container main"
    assert placement.admit(state, pod("a", container("main", cpus=8, memory=1))).admitted


@pytest.mark.parametrize(("room", "told"), [(5500, "cpu 5"), (8000, "cpu 8"), (900, "")])
def test_no_more_is_proposed_than_the_node_as_a_whole_has_left(room: int, told: str) -> None:
    """Pods of the shared pool are in no zone's account."""
    asked, state = pod("a", container("main", cpus=12, memory=1)), build.node()
    lines = advise(state, asked, explain(state, asked), {"cpu": room})
    assert lines == ((f"would fit with {told} in container main",) if told else ())


def test_memory_is_made_smaller_too():
    (first, *_) = advice(build.node(), pod("a", container("main", cpus=12, memory=40)))
    assert first.startswith("would fit with cpu 8, memory ")
    assert first.endswith("GiB in container main")


def test_nothing_is_proposed_where_no_request_is_small_enough():
    full = build.filled(build.node(), *(build.simple(str(i), cpus=n) for i, n in enumerate((8, 7))))
    assert not any("would fit with cpu" in line for line in advice(full, build.simple("a", cpus=4)))


def test_the_mildest_setting_of_the_kubelet_is_named():
    asked = pod("a", container("one", cpus=6, memory=1), container("two", cpus=6, memory=1))
    state = build.node(topology_scope="pod")
    assert not placement.admit(state, asked).admitted
    assert advice(state, asked)[-1] == (
        "would fit with the kubelet's topologyManagerScope: container, which is for all pods of "
        "the node"
    )
    wide = pod("a", container("one", cpus=12, memory=20))
    assert "topologyManagerPolicy: restricted, which" in advice(build.node(), wide)[-1]


def test_a_core_that_is_split_names_the_option_that_forbids_it():
    state = build.node(cpu_options={"full-pcpus-only": "true"})
    told = advice(state, build.simple("a", cpus=3))
    assert 'cpuManagerPolicyOptions: {full-pcpus-only: "false"}' in told[-1]


def test_devices_in_a_zone_without_cpus_are_told():
    """As on a GB200: the memory of the GPUs is a zone of its own."""
    state = build.node(devices={GPU: pool(1)})
    bare = tuple(cpu for cpu in state.topology.cpus if cpu.zone == 0)
    topology = dataclasses.replace(state.topology, cpus=bare)
    state = dataclasses.replace(state, topology=topology, shared=topology.all_cpus)
    told = advice(state, build.simple("a", cpus=2, gpus=1))
    assert told[0] == f"{GPU} is in zone 1, where no CPU is for pods: none holds both"
    assert not any(
        "no CPU is for pods" in line for line in advice(state, build.simple("b", cpus=40))
    )


@pytest.mark.parametrize(
    ("gates", "needed"),
    [
        (build.POD_LEVEL, ""),
        (build.ALPHA, ", once the kubelet has the gate PodLevelResourceManagers"),
    ],
)
def test_sidecars_in_another_zone_are_told_with_the_way_out(gates, needed):
    """Zone 0 has two CPUs left: room for the sidecar, and not for what it serves."""
    state = build.node(version=NEWEST, feature_gates=gates)
    state = build.filled(state, build.simple("x", cpus=5))
    asked = pod("a", sidecar("proxy", cpus=1, memory=1), container("main", cpus=6, memory=1))
    assert placement.admit(state, asked).admitted
    assert advice(state, asked) == (
        "sidecar proxy takes 1 CPU for itself in zone 0, away from the others",
        "would be in one place with pod-level resources (cpu 7, memory 2 GiB) and none for proxy"
        + needed,
    )


def test_pod_level_resources_let_in_whom_its_sidecar_keeps_out():
    """Zone 0 has no CPU left; main leaves none in zone 1, and the order of admission is fixed."""
    state = build.node(version=NEWEST, feature_gates=build.POD_LEVEL)
    state = build.filled(state, build.simple("x", cpus=7))
    asked = pod("a", sidecar("proxy", cpus=1, memory=1), container("main", cpus=8, memory=1))
    assert not placement.admit(state, asked).admitted
    assert any(
        line.startswith("would be in one place with pod-level resources (cpu 9, ")
        for line in advice(state, asked)
    )


def test_kubelets_without_the_gate_are_not_told_of_it():
    state = build.filled(build.node(version="v1.35.4"), build.simple("x", cpus=5))
    asked = pod("a", sidecar("proxy", cpus=1, memory=1), container("main", cpus=6, memory=1))
    assert len(advice(state, asked)) == 1


def test_pods_in_one_place_are_told_nothing():
    asked = pod("a", sidecar("proxy", cpus=1, memory=1), container("main", cpus=4, memory=1))
    assert advice(build.node(), asked) == ()


def test_nothing_is_said_of_pods_that_get_no_cpus_of_their_own():
    assert advice(build.node(), pod("a", container("c", memory=100), qos=QOS.BURSTABLE)) == ()


def test_nothing_is_said_where_the_answer_is_not_known():
    state = dataclasses.replace(build.node(), kubelet_version="v1.99.0")
    assert advice(state, build.simple("a", cpus=40)) == ()
