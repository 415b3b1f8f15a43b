"""What a kubelet that starts again on its own files does with its pods."""

import dataclasses

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rte import placement
from rte.model.node import Holding
from rte.placement.kubelet import outcome
from tests.depth import scaled
from tests.unit.placement import build
from tests.unit.placement.build import GIB, GPU, container, pod, pool, simple
from tests.unit.placement.kubelet.test_podlevel import OWN, SHARING, node, whole


def test_pods_keep_what_they_hold():
    state = build.node(devices={GPU: pool(0, 1)})
    pods = [simple("a", gpus=1), simple("b", 4), simple("c", 0.5)]
    state = build.filled(state, *pods)
    again = placement.restart(state, pods)
    assert again.is_harmless
    assert list(again.admissions) == ["a", "b", "c"]
    assert again.started == dataclasses.replace(state, admitted=frozenset())
    assert again.state == state
    assert again.admissions["a"].hints["main"] == (1, True)


def test_memory_of_finished_init_containers_is_taken_again():
    life = pod("a", container("init", "init", cpus=1, memory=3), container(cpus=1, memory=2))
    other = simple("b", 1, memory=12)
    before = build.filled(build.node(), life)
    started = placement.start(before, life)
    again = placement.restart(started, [life])
    assert again.is_harmless
    assert again.state.memory[0].amounts["memory"].free == 10 * GIB

    crowded = build.filled(started, other)
    again = placement.restart(crowded, [life, other])
    assert not again.is_harmless
    assert again.admissions["a"].failed_container == "init"
    assert again.admissions["b"].admitted
    # Once the kubelet has heard of all its pods, it drops what the refused one held.
    assert set(again.state.holdings) == {"b"}


def test_without_a_shared_cpu_it_does_not_start():
    options = {"strict-cpu-reservation": "true"}
    state = build.node(policy="none", cpu_options=options)
    all_of_it = simple("a", 15)
    again = placement.restart(build.filled(state, all_of_it), [all_of_it])
    assert again.start_error == "cpumanager: default cpuset cannot be empty"
    assert not again.is_harmless
    empty = dataclasses.replace(state, shared=0)
    assert placement.restart(empty, []).started.shared == state.shared


@pytest.mark.parametrize(
    ("changed", "text"),
    [
        (
            {"shared": 0xFFFE},
            'cpumanager: not all reserved cpus: "0" are present in defaultCpuSet: "1-15"',
        ),
        (
            {"shared": 0xFFFF, "holdings": {"a": {"main": Holding(cpus=0b110)}}},
            'cpumanager: pod: a, container: main cpuset: "1-2" overlaps with default cpuset "0-15"',
        ),
        (
            {"shared": 0x0FFF},
            (
                'cpumanager: current set of available CPUs "0-15" doesn\'t match with CPUs in '
                'state "0-11"'
            ),
        ),
    ],
)
def test_files_that_do_not_fit_the_machine_are_refused(changed, text):
    state = dataclasses.replace(build.node(), **changed)
    assert placement.restart(state, []).start_error == text


def test_reserved_cpus_in_the_pool_are_refused_under_a_strict_reservation():
    options = {"strict-cpu-reservation": "true"}
    state = dataclasses.replace(build.node(cpu_options=options), shared=0xFFFF)
    assert placement.restart(state, []).start_error == (
        'cpumanager: some of strictly reserved cpus: "0" are present in defaultCpuSet: "0-15"'
    )


def test_memory_rows_must_add_up():
    state = build.filled(build.node(), simple("a"))
    lost = dataclasses.replace(state, holdings={}, shared=0xFFFF)
    assert placement.restart(lost, []).start_error == (
        "memorymanager: [memorymanager] the expected machine state is different from the real one"
    )


def test_a_pod_with_a_shared_pool_is_refused():
    sharing = whole("a", OWN, SHARING)
    again = placement.restart(build.filled(node(), sharing), [sharing])
    assert again.admissions["a"].reason == outcome.TOPOLOGY_AFFINITY_ERROR
    assert again.state == dataclasses.replace(node(), admitted=frozenset())


def test_a_pod_as_a_whole_takes_a_second_set_and_loses_the_first():
    only = whole("a", container("own", cpus=3, memory=3), cpus=3, memory=3)
    state = build.filled(node(), only)
    first = state.pod_holdings["a"].cpus
    again = placement.restart(state, [only])
    assert again.admissions["a"].admitted
    second = again.state.pod_holdings["a"].cpus
    assert not first & second
    gone = placement.remove(again.state, "a")
    assert gone.shared == node().shared & ~first
    # What is lost is known to the next start only as a contradiction.
    assert "doesn't match with CPUs in state" in placement.restart(gone, []).start_error


def test_restarted_containers_may_be_taken_for_dead_before_1_34_8():
    state = build.node(devices={GPU: pool(0)}, version="v1.34.7")
    with_gpu = simple("a", gpus=1)
    again = placement.restart(build.filled(state, with_gpu), [with_gpu])
    assert again.doubtful == {"a"}
    assert not again.is_harmless


@pytest.mark.parametrize("version", ["v1.35.4", "v1.37.1"])
def test_finished_init_containers_may_lack_their_devices_until_the_plugins_are_back(version):
    """Seen on a real kubelet: such a pod is refused with UnexpectedAdmissionError."""
    state = build.node(devices={GPU: pool(0, 0)}, version=version)
    parts = container("i0", "init", cpus=1, memory=1, gpus=1), container(cpus=1, memory=1, gpus=1)
    with_init = pod("a", *parts)
    again = placement.restart(build.filled(state, with_init), [with_init])
    assert again.doubtful == {"a"}
    without = simple("b", gpus=1)
    assert not placement.restart(build.filled(state, without), [without]).doubtful


def test_chance_decides_about_a_start_where_a_group_of_zones_and_one_of_its_zones_are_held():
    """Seen on real kubelets: the last block that is looked at says what group a zone is of."""
    state = build.node(build.topology(zones=2), policy="best-effort")
    in_a_group, *others = (
        simple("a", 4, memory=30),
        simple("b", 4, memory=14),
        simple("c", 8, memory=10),
        simple("d", 8, memory=1),
    )
    pods = [in_a_group, *others]
    state = build.filled(state, *pods)
    zones = [state.holdings[each.uid]["main"].memory[0].zones for each in pods]
    assert zones == [0b11, 0b100, 0b1000, 0b10]
    again = placement.restart(state, pods)
    assert again.start_doubtful
    assert not again.is_harmless
    without = placement.remove(state, "a")
    assert not placement.restart(without, others).start_doubtful
    other_name = dataclasses.replace(
        state, holdings={("z" if uid == "a" else uid): held for uid, held in state.holdings.items()}
    )
    again = placement.restart(other_name, others)
    assert "expected machine state is different" in again.start_error
    assert again.start_doubtful


def test_nobody_knows_what_an_unknown_kubelet_does():
    state = dataclasses.replace(build.node(), kubelet_version="v1.39.0")
    again = placement.restart(state, [simple("a")])
    assert again.admissions["a"].reason == outcome.UNKNOWN_VERSION
    assert not again.is_harmless


@settings(max_examples=scaled(100), deadline=None)
@given(state=build.nodes(), arriving=st.lists(build.pods(), max_size=5))
def test_whoever_is_kept_keeps_all_its_cpus(state, arriving):
    """Only pods that are served as a whole come to others."""
    active = []
    for number, each in enumerate(arriving):
        new = dataclasses.replace(each, uid=str(number))
        answer = placement.execute(state, new)
        if answer.admitted:
            state = answer.state
            active.append(new)
        elif answer.reason not in ("KubeletHangs", "KubeletPanics"):
            state = placement.settle(answer.state, frozenset(each.uid for each in active))
    again = placement.restart(state, active)
    for uid, answer in again.admissions.items():
        if answer.admitted and answer.pod_holding is None:
            for name, held in state.holdings.get(uid, {}).items():
                assert answer.holdings[name].cpus == held.cpus
                assert answer.holdings[name].devices == held.devices


def test_a_container_that_was_allocated_no_memory_is_not_allocated_any_again():
    """By 1.36: the zones that it once could have are taken singly by now."""
    state = node("restricted", "container", "v1.36.4")
    loose = whole("a", SHARING)
    state = build.filled(state, loose, simple("b"))
    assert placement.admit(state, whole("c", SHARING)).message.endswith(
        "preferred hint violates NUMA node allocation, which is unexpected"
    )
    assert placement.restart(state, [loose, simple("b")]).is_harmless


def test_that_of_a_finished_init_container_is_forgotten():
    life = whole("a", container("init", "init"), SHARING)
    state = build.filled(node("restricted", "container", "v1.36.4"), life)
    assert state.holdings["a"].keys() == {"init", "sharing"}
    started = placement.start(state, life)
    assert started.holdings["a"].keys() == {"sharing"}
    crowded = build.filled(started, simple("b"))
    assert placement.restart(crowded, [life]).admissions["a"].failed_container == "init"
