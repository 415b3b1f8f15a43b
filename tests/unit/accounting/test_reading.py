from __future__ import annotations

import random
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import structs

from rte import accounting, errors, placement
from rte.accounting import ReadingOptions
from rte.model import bits
from rte.model.kubelet import (
    Allocatable,
    AllocatedPods,
    CPUManagerState,
    KubeletView,
    ListedContainer,
    ListedPod,
    MemoryManagerState,
    NodePod,
)
from rte.model.node import Amounts, Holding, KubeletConfig, MemoryBlock, NodeReading, PodRef
from tests.depth import scaled
from tests.unit.accounting import nodes
from tests.unit.accounting.nodes import GIB, GPU, STATIC, Kubelet, container, guaranteed

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rte.model.machine import Machine
    from rte.model.node import NodeState

CAPACITY = {GPU: 6}


def read(
    kubelet: Kubelet,
    view: KubeletView | None = None,
    pods: Sequence[NodePod] | None = None,
    **options: object,
) -> NodeReading:
    return accounting.build_reading(
        "node",
        kubelet.machine,
        view or kubelet.view(),
        kubelet.api() if pods is None else pods,
        ReadingOptions(node_capacity={GPU: len(kubelet.state.devices[GPU].ids)}, **options),  # type: ignore[arg-type]
    )


def state_of(reading: NodeReading) -> NodeState:
    assert reading.state is not None
    return reading.state


def holding(state: NodeState) -> dict[str, dict[str, Holding]]:
    """Holdings without the empty ones that nobody writes down."""
    return {
        uid: held
        for uid, containers in state.holdings.items()
        if (held := {name: item for name, item in containers.items() if item != Holding()})
    }


def assert_same(actual: NodeState, expected: NodeState) -> None:
    assert holding(actual) == holding(expected)
    for name in ("topology", "config", "reserved", "shared", "memory", "devices", "admitted"):
        assert getattr(actual, name) == getattr(expected, name), name


@pytest.mark.parametrize("policy", ["none", "best-effort", "restricted", "single-numa-node"])
@settings(max_examples=scaled(60), deadline=None)
@given(seed=st.integers(0, 1 << 32))
def test_a_reading_is_what_the_kubelet_holds_at_its_next_admission(policy: str, seed: int) -> None:
    rng = random.Random(seed)
    kubelet = Kubelet(replace(STATIC, topology_policy=policy), nodes.build_machine(2, 4))
    for number in range(12):
        if kubelet.active and rng.random() < 0.4:
            kubelet.end(rng.choice(sorted(kubelet.active)))
        pod = nodes.random_pod(rng, str(number))
        if kubelet.admit(pod) and rng.random() < 0.7:
            kubelet.run(pod.uid)
        if kubelet.active and rng.random() < 0.5:
            kubelet.end(rng.choice(sorted(kubelet.active)))
        reading = read(kubelet)
        assert_same(state_of(reading), kubelet.truth)
        assert reading.disagreements == ()


@settings(max_examples=scaled(100), deadline=None)
@given(seed=st.integers(0, 1 << 32))
def test_without_the_api_podresources_tells_who_is_active(seed: int) -> None:
    rng = random.Random(seed)
    kubelet = Kubelet()
    for number in range(8):
        if kubelet.active and rng.random() < 0.5:
            kubelet.end(rng.choice(sorted(kubelet.active)))
        kubelet.admit(
            guaranteed(
                str(number),
                *(
                    container(f"c{position}", rng.choice([1, 2]), devices=rng.choice([0, 1]))
                    for position in range(2)
                ),
            )
        )
        if kubelet.active:
            kubelet.end(rng.choice(sorted(kubelet.active)))
        reading = accounting.build_reading(
            "node", kubelet.machine, kubelet.view(), None, ReadingOptions(node_capacity=CAPACITY)
        )
        assert_same(state_of(reading), kubelet.truth)
        assert {pod.uid for pod in reading.pods} == kubelet.active


def test_without_the_api_an_init_container_alone_keeps_its_pod() -> None:
    kubelet = Kubelet(replace(STATIC, memory_policy="None", reserved_memory={}))
    kubelet.admit(guaranteed("a", container("i", 2, kind="init"), container("c")))
    kubelet.admit(guaranteed("b", container("c", 2)))
    kubelet.end("uid-b")
    view = replace(
        kubelet.view(),
        allocated=AllocatedPods({"uid-a": frozenset("ic"), "uid-b": frozenset("c")}),
        memory=None,
    )
    reading = accounting.build_reading("node", kubelet.machine, view)
    assert state_of(reading).holdings.keys() == {"uid-a"}


def test_without_the_api_pods_with_equal_memory_are_told_apart_by_their_cpus() -> None:
    kubelet = Kubelet()
    kubelet.admit(guaranteed("z-fraction", container("c")))
    kubelet.admit(guaranteed("a-pinned", container("c", 2)))
    view = kubelet.view()
    view = replace(view, pods=tuple(reversed(view.pods or ())))
    reading = accounting.build_reading("node", kubelet.machine, view)
    assert {pod.name: pod.uid for pod in reading.pods} == {
        "a-pinned": "uid-a-pinned",
        "z-fraction": "uid-z-fraction",
    }
    assert reading.disagreements == ()


def test_nobody_is_dropped_when_nobody_tells_who_is_active() -> None:
    kubelet = Kubelet()
    kubelet.admit(guaranteed("a", container("c", 2)))
    kubelet.end("uid-a")
    view = kubelet.view(podresources=False)
    reading = accounting.build_reading("node", kubelet.machine, view)
    assert state_of(reading).holdings.keys() == {"uid-a"}
    assert reading.pods == ()


def test_a_list_of_another_moment_drops_nobody() -> None:
    kubelet = Kubelet()
    kubelet.admit(guaranteed("a", container("c", 2)))
    view = replace(kubelet.view(), pods=(), coherent=False)
    reading = accounting.build_reading("node", kubelet.machine, view)
    assert state_of(reading).holdings.keys() == {"uid-a"}


def test_a_pod_unknown_to_the_api_is_gone_unless_the_api_may_lag() -> None:
    kubelet = Kubelet()
    kubelet.admit(guaranteed("a", container("c", 2)))
    view = kubelet.view(podresources=False)
    assert not state_of(read(kubelet, view, [])).holdings
    assert state_of(read(kubelet, view, [], drop_unknown=False)).holdings
    ended = [replace(pod, terminal=True) for pod in kubelet.api()]
    assert not state_of(read(kubelet, view, ended, drop_unknown=False)).holdings


def test_a_static_pod_without_its_mirror_is_alive_where_podresources_lists_its_cpus() -> None:
    kubelet = Kubelet()
    kubelet.admit(guaranteed("static", container("c", 2)))
    assert state_of(read(kubelet, pods=[])).holdings.keys() == {"uid-static"}


# Torn states


def test_cpus_that_are_nowhere_mean_a_change_under_way() -> None:
    kubelet = Kubelet()
    kubelet.admit(guaranteed("a", container("c", 2)))
    before = kubelet.view().cpu
    kubelet.admit(guaranteed("b", container("c", 3)))
    after = kubelet.view().cpu
    assert before is not None
    assert after is not None
    # Allocation: the pool shrinks first. Release: the entry goes first.
    torn = CPUManagerState("static", after.default, before.entries)
    with pytest.raises(errors.InconsistentStateError, match="cpu_manager_state") as caught:
        read(kubelet, replace(kubelet.view(), cpu=torn))
    assert "\n" not in str(caught.value)


def test_rows_and_entries_that_differ_mean_a_change_under_way() -> None:
    kubelet = Kubelet()
    kubelet.admit(guaranteed("a", container("c", 2)))
    before = kubelet.view().memory
    kubelet.admit(guaranteed("b", container("c", 2)))
    after = kubelet.view().memory
    assert before is not None
    assert after is not None
    for torn in (
        MemoryManagerState("Static", after.zones, before.entries),
        MemoryManagerState("Static", before.zones, after.entries),
    ):
        with pytest.raises(errors.InconsistentStateError, match="memory_manager_state"):
            read(kubelet, replace(kubelet.view(), memory=torn))


def test_init_blocks_that_have_not_shrunk_yet_mean_a_change_under_way() -> None:
    kubelet = Kubelet()
    pod = guaranteed(
        "a", container("i", 1, kind="init", memory=2 * GIB), container("c", 1, memory=2 * GIB)
    )
    kubelet.admit(pod)
    memory = kubelet.view().memory
    assert memory is not None
    held = memory.entries["uid-a"]
    grown = {"i": (structs.replace(held["i"][0], size=2 * GIB),), "c": held["c"]}
    with pytest.raises(errors.InconsistentStateError, match="reserved"):
        read(
            kubelet,
            replace(
                kubelet.view(),
                memory=MemoryManagerState("Static", memory.zones, {"uid-a": grown}),
            ),
        )


def test_an_entry_of_a_type_that_has_no_row_is_torn() -> None:
    kubelet = Kubelet()
    kubelet.admit(guaranteed("a", container("c", 2)))
    memory = kubelet.view().memory
    assert memory is not None
    entries = {"uid-a": {"c": (MemoryBlock("hugepages-64Ki", 0b1, 0),)}}
    with pytest.raises(errors.InconsistentStateError, match="hugepages-64Ki is held in zone 0"):
        read(
            kubelet,
            replace(kubelet.view(), memory=MemoryManagerState("Static", memory.zones, entries)),
        )


def test_an_entry_in_a_zone_that_has_no_row_is_torn() -> None:
    kubelet = Kubelet()
    kubelet.admit(guaranteed("a", container("c", 2)))
    memory = kubelet.view().memory
    assert memory is not None
    zones = {zone: row for zone, row in memory.zones.items() if zone != 0}
    with pytest.raises(errors.InconsistentStateError, match="zone 0"):
        read(
            kubelet,
            replace(kubelet.view(), memory=MemoryManagerState("Static", zones, memory.entries)),
        )


@settings(max_examples=scaled(100), deadline=None)
@given(seed=st.integers(0, 1 << 32))
def test_between_any_two_writes_a_reading_is_refused_or_true(seed: int) -> None:
    """Every order of CPU and memory file that a reader can meet while one pod is admitted."""
    rng = random.Random(seed)
    kubelet = Kubelet()
    for number in range(4):
        kubelet.admit(nodes.random_pod(rng, str(number)))
    kubelet.state = kubelet.truth
    old = kubelet.view(podresources=False)
    kubelet.admit(nodes.random_pod(rng, "new"))
    new = kubelet.view(podresources=False)
    truths = [
        {uid: held for uid, held in holding(state).items() if uid != "uid-new"}
        for state in (placement.settle(kubelet.state, frozenset(kubelet.active)),)
    ]
    for cpu in (
        old.cpu,
        CPUManagerState("static", new.cpu.default, old.cpu.entries),  # type: ignore[union-attr]
        new.cpu,
    ):
        for memory in (
            old.memory,
            MemoryManagerState("Static", new.memory.zones, old.memory.entries),  # type: ignore[union-attr]
            new.memory,
        ):
            view = replace(old, cpu=cpu, memory=memory)
            try:
                reading = read(kubelet, view)
            except errors.InconsistentStateError:
                continue
            state = state_of(reading)
            assert "uid-new" not in state.admitted
            others = {uid: held for uid, held in holding(state).items() if uid != "uid-new"}
            assert others in truths


# Admission marker


def test_a_half_admitted_pod_holds_and_is_not_admitted() -> None:
    kubelet = Kubelet()
    kubelet.admit(guaranteed("a", container("c", 2)))
    view = replace(kubelet.view(), allocated=AllocatedPods())
    reading = read(kubelet, view)
    assert state_of(reading).admitted == frozenset()
    assert state_of(reading).holdings.keys() == {"uid-a"}
    assert reading.pods == ()


def test_older_kubelets_are_told_by_the_status_of_the_pod() -> None:
    kubelet = Kubelet()
    for name in "ab":
        kubelet.admit(guaranteed(name, container("c", 2)))
    pods = [replace(pod, admitted=pod.name == "a") for pod in kubelet.api()]
    view = replace(kubelet.view(), allocated=None)
    assert state_of(read(kubelet, view, pods)).admitted == {"uid-a"}


@pytest.mark.parametrize(
    ("version", "gates", "keeps"),
    [
        ("v1.32.9", {}, False),
        ("v1.33.1", {}, True),
        ("v1.34.2", {"InPlacePodVerticalScaling": False}, False),
        ("v1.34.2", {"InPlacePodVerticalScaling": True}, True),
        ("v1.37.1", {}, True),
    ],
)
def test_a_marker_left_by_another_release_or_gate_is_not_this_kubelets(
    version: str, gates: dict[str, bool], keeps: bool
) -> None:
    kubelet = Kubelet(replace(STATIC, feature_gates=gates))
    kubelet.admit(guaranteed("new", container("c", 2)))
    left_over = AllocatedPods({"uid-of-last-year": frozenset({"c"})})
    view = replace(kubelet.view(), version=version, allocated=left_over)
    reading = read(kubelet, view, kubelet.api())
    assert [pod.name for pod in reading.pods] == ([] if keeps else ["new"])
    assert state_of(reading).admitted == (frozenset() if keeps else {"uid-new"})


def test_admitted_pods_that_are_gone_are_forgotten() -> None:
    """The kubelet does not rewrite the file when a pod ends."""
    kubelet = Kubelet()
    for name in "ab":
        kubelet.admit(guaranteed(name, container("c")))
    kubelet.end("uid-a")
    assert state_of(read(kubelet)).admitted == {"uid-b"}


# Pods and the fingerprint


def test_pods_are_those_accounted_for_and_say_whether_they_hold_of_a_zone() -> None:
    kubelet = Kubelet(replace(STATIC, memory_policy="None", reserved_memory={}))
    kubelet.admit(guaranteed("pinned", container("c", 2)))
    kubelet.admit(guaranteed("device", container("c", devices=1)))
    kubelet.admit(guaranteed("plain", container("c")))
    kubelet.admit(guaranteed("ended", container("c", 2)))
    kubelet.end("uid-ended")
    view = replace(kubelet.view(), memory=None)
    assert read(kubelet, view).pods == (
        PodRef(uid="uid-device", namespace="default", name="device", exclusive=True),
        PodRef(uid="uid-pinned", namespace="default", name="pinned", exclusive=True),
        PodRef(uid="uid-plain", namespace="default", name="plain", exclusive=False),
    )


def test_a_device_without_zone_is_not_exclusive() -> None:
    kubelet = Kubelet(replace(STATIC, memory_policy="None", reserved_memory={}))
    kubelet.admit(guaranteed("a", container("c", devices=6)))
    kubelet.end("uid-a")
    pool = kubelet.state.devices[GPU]
    zoneless = {GPU: 1 << pool.ids.index("zoneless")}
    kubelet.state = replace(
        kubelet.truth,
        holdings={"uid-z": {"c": Holding(devices=zoneless)}},
        admitted=frozenset({"uid-z"}),
    )
    kubelet.pods["uid-z"] = guaranteed("z", container("c", devices=1))
    (pod,) = read(kubelet, replace(kubelet.view(), memory=None)).pods
    assert (pod.name, pod.exclusive) == ("z", False)


def test_excluded_pods_count_neither_in_zones_nor_in_the_fingerprint() -> None:
    kubelet = Kubelet()
    empty = accounting.zone_resources(read(kubelet))
    kubelet.admit(guaranteed("agent-x", container("c", 2, memory=2 * GIB, devices=1)))
    kubelet.admit(guaranteed("job", container("c", 2)))
    counted = read(kubelet)
    excluding = read(kubelet, exclude_pods=(("other", "*"), ("def*", "agent-?")))
    assert excluding.excluded == {"uid-agent-x"}
    assert [pod.name for pod in excluding.pods] == ["job"]
    assert excluding.state == counted.state
    kubelet.end("uid-agent-x")
    assert accounting.zone_resources(excluding) == accounting.zone_resources(read(kubelet))
    assert accounting.zone_resources(excluding) != accounting.zone_resources(counted)
    assert accounting.zone_resources(counted) != empty


def test_a_malformed_glob_is_one_clear_line() -> None:
    kubelet = Kubelet()
    kubelet.admit(guaranteed("a", container("c", 2)))
    with pytest.raises(errors.ParseError, match="bad glob"):
        read(kubelet, exclude_pods=(("[", "*"),))


# Reserved CPUs and the shared pool


def test_reserved_cpus_follow_from_what_podresources_leaves_out_of_the_pool() -> None:
    config = replace(STATIC, reserved_cpus=None, cpu_reservation_milli=2000)
    kubelet = Kubelet(config)
    kubelet.admit(guaranteed("a", container("c", 2)))
    reading = read(kubelet)
    assert state_of(reading).reserved == kubelet.state.reserved
    assert state_of(reading).reserved.bit_count() == 2
    assert reading.disagreements == ()


@pytest.mark.parametrize("strict", ["true", "false"])
def test_without_podresources_reserved_cpus_are_those_the_kubelets_picker_takes(
    strict: str,
) -> None:
    config = replace(
        STATIC,
        reserved_cpus=None,
        cpu_reservation_milli=1500,
        cpu_options={"strict-cpu-reservation": strict},
    )
    kubelet = Kubelet(config)
    kubelet.admit(guaranteed("a", container("c", 2)))
    for podresources in (False, True):
        reading = read(kubelet, kubelet.view(podresources=podresources))
        assert_same(replace(state_of(reading), devices={}), replace(kubelet.truth, devices={}))
        assert reading.disagreements == ()


def test_a_version_without_rules_does_not_hinder_a_reading() -> None:
    kubelet = Kubelet(replace(STATIC, reserved_cpus=None))
    view = replace(kubelet.view(podresources=False), version="v1.30.1")
    assert state_of(read(kubelet, view)).reserved == kubelet.state.reserved


def test_reserved_cpus_that_cannot_be_told_are_one_clear_line() -> None:
    kubelet = Kubelet()
    config = replace(STATIC, reserved_cpus=None, cpu_reservation_milli=0)
    with pytest.raises(errors.KubeletError, match="reserved CPUs cannot be told") as caught:
        read(kubelet, replace(kubelet.view(podresources=False), config=config))
    assert "\n" not in str(caught.value)


def test_reserved_cpus_outside_the_pool_are_a_disagreement() -> None:
    kubelet = Kubelet()
    config = replace(STATIC, reserved_cpus=0b11, cpu_reservation_milli=2000)
    kubelet.admit(guaranteed("a", container("c", 12)))
    lines = read(kubelet, replace(kubelet.view(), config=config)).disagreements
    assert any("reserved CPUs 1 are not in the shared pool" in line for line in lines)
    assert any("allocatable CPUs" in line for line in lines)


REFERENCE = ("rte", "agent", "pause")


def old_kubelet(kubelet: Kubelet) -> KubeletView:
    """Lists the shared pool for ordinary containers too."""
    view = kubelet.view()
    shared = kubelet.state.shared
    pods = (
        *(
            structs.replace(
                pod,
                containers=tuple(
                    structs.replace(item, cpus=item.cpus or shared) for item in pod.containers
                ),
            )
            for pod in view.pods or ()
        ),
        ListedPod(
            namespace="rte",
            name="agent",
            containers=(ListedContainer(name="pause", cpus=shared),),
        ),
    )
    return replace(view, pods=pods, cpu=None, devices=None, allocated=None)


def test_the_reference_containers_cpus_are_subtracted_everywhere() -> None:
    kubelet = Kubelet()
    kubelet.admit(guaranteed("pinned", container("c", 2), container("helper")))
    kubelet.admit(guaranteed("plain", container("c")))
    agent = NodePod(uid="uid-agent", namespace="rte", name="agent")
    pods = [*kubelet.api(), agent]
    reading = read(kubelet, old_kubelet(kubelet), pods, reference_container=REFERENCE)
    state = state_of(reading)
    assert {uid: {name: held.cpus for name, held in containers.items() if held.cpus}
            for uid, containers in holding(state).items()} == {
        "uid-pinned": {"c": kubelet.state.holdings["uid-pinned"]["c"].cpus},
        "uid-plain": {},
    }  # fmt: skip
    assert state.shared == kubelet.state.shared


def test_a_reference_container_that_contradicts_the_file_is_a_disagreement() -> None:
    kubelet = Kubelet()
    kubelet.admit(guaranteed("a", container("c", 2)))
    agent = ListedPod(
        namespace="rte", name="agent", containers=(ListedContainer(name="pause", cpus=0b110),)
    )
    view = kubelet.view()
    view = replace(view, pods=(*(view.pods or ()), agent))
    reading = read(
        kubelet,
        view,
        [*kubelet.api(), NodePod(uid="x", namespace="rte", name="agent")],
        reference_container=REFERENCE,
    )
    assert any("reference container: 1-2" in line for line in reading.disagreements)
    assert state_of(reading).shared == kubelet.state.shared


def test_podresources_that_lists_other_cpus_than_the_file_is_a_disagreement() -> None:
    kubelet = Kubelet()
    kubelet.admit(guaranteed("a", container("c", 2)))
    view = kubelet.view()
    (pod,) = view.pods or ()
    other = structs.replace(pod, containers=(structs.replace(pod.containers[0], cpus=0b11),))
    lines = read(kubelet, replace(view, pods=(other,))).disagreements
    assert len(lines) == 1
    assert lines[0].startswith("podresources' CPUs of default/a/c: 0-1; by cpu_manager_state: ")
    stale = replace(view, pods=(other,), coherent=False)
    assert read(kubelet, stale).disagreements == ()


# Hot-plug


def with_online(kubelet: Kubelet, online: int) -> Kubelet:
    machine = kubelet.machine
    kubelet.machine = replace(
        machine,
        cpus=tuple(
            structs.replace(cpu, online=bool(online >> cpu.id & 1))
            if online >> cpu.id & 1
            else structs.replace(cpu, online=False, core=-1, socket=-1)
            for cpu in machine.cpus
        ),
    )
    return kubelet


def test_a_cpu_plugged_in_since_the_kubelets_start_is_not_the_kubelets() -> None:
    grown = nodes.build_machine()
    old = with_online(Kubelet(), 0xFFFF & ~(1 << 15)).machine
    kubelet = Kubelet(machine=old)
    kubelet.machine = grown
    reading = read(kubelet)
    assert state_of(reading).topology.all_cpus == 0x7FFF
    assert "on-line CPUs are 0-15, the kubelet goes by 0-14" in reading.disagreements[0]


def test_without_podresources_a_new_cpu_looks_torn_until_the_files_have_settled() -> None:
    old = with_online(Kubelet(), 0xFFFF & ~(1 << 15)).machine
    kubelet = Kubelet(machine=old)
    kubelet.machine = nodes.build_machine()
    view = kubelet.view(podresources=False)
    with pytest.raises(errors.InconsistentStateError, match="15"):
        read(kubelet, view)
    assert state_of(read(kubelet, view, settled=True)).topology.all_cpus == 0x7FFF


def test_a_cpu_unplugged_since_the_kubelets_start_is_named() -> None:
    kubelet = Kubelet()
    first = read(kubelet)
    with_online(kubelet, 0xFFFF & ~(1 << 15))
    lines = read(kubelet).disagreements
    assert "on-line CPUs are 0-14, the kubelet goes by 0-15" in lines[0]
    assert "CPUs 15, which sysfs does not describe" in lines[1]
    again = read(kubelet, previous=first.state)
    assert state_of(again).topology == state_of(first).topology


def test_huge_pages_changed_since_the_kubelets_start_are_named() -> None:
    kubelet = Kubelet()
    zones = kubelet.machine.zones
    kubelet.machine = replace(
        kubelet.machine, zones=(replace(zones[0], hugepages={2 << 20: 9, GIB: 0}), *zones[1:])
    )
    reading = read(kubelet)
    assert "huge pages of zone 0 changed" in reading.disagreements[0]
    assert state_of(reading).topology == kubelet.state.topology


# One source alone, and managers without policy


def with_pages(machine: Machine, pages: int) -> Machine:
    zones = (replace(zone, hugepages={2 << 20: pages}) for zone in machine.zones)
    return replace(machine, zones=tuple(zones))


@pytest.mark.parametrize(
    ("then", "told"), [(0, 0), (512, 512), (4096, 4096)], ids=["none", "some", "as now"]
)
def test_without_rows_the_node_tells_how_many_huge_pages_there_were_at_the_kubelets_start(
    then: int, told: int
) -> None:
    """A zone counts with what it had in any case, whichever zone has got the new ones."""
    kubelet = Kubelet(KubeletConfig())
    now, zones = with_pages(kubelet.machine, 4096), len(kubelet.machine.zones)
    capacity = {"hugepages-2Mi": (then + (zones - 1) * 4096 if told else 0) << 21}
    view = replace(kubelet.view(), memory=None, epoch="1")
    options = ReadingOptions(node_capacity=capacity)
    reading = accounting.build_reading("n", now, view, (), options)
    assert [zone.hugepages for zone in state_of(reading).topology.zones] == [
        {2 << 20: told}
    ] * zones
    changed = [line for line in reading.disagreements if "huge pages of zone" in line]
    assert len(changed) == (0 if told == 4096 else zones)
    # As the kubelet that is started next tells, so it is.
    later = ReadingOptions(
        previous=state_of(reading), node_capacity={"hugepages-2Mi": zones * 4096 << 21}
    )
    after = state_of(accounting.build_reading("n", now, view, (), later))
    assert [zone.hugepages for zone in after.topology.zones] == [{2 << 20: 4096}] * zones


def test_without_a_policy_too_the_kubelet_goes_by_the_cpus_of_its_start() -> None:
    kubelet = Kubelet(KubeletConfig())
    view = replace(kubelet.view(), cpu=None, memory=None, allocatable=None, epoch="1")
    before = read(kubelet, view)
    fewer = with_online(kubelet, kubelet.machine.online & ~0b10)
    after = read(fewer, view, previous=state_of(before))
    assert state_of(after).topology == state_of(before).topology
    assert any("on-line CPUs are" in line for line in after.disagreements)


def test_podresources_alone_is_a_source() -> None:
    kubelet = Kubelet()
    kubelet.admit(guaranteed("a", container("c", 2, devices=1), container("d", 1)))
    kubelet.admit(guaranteed("b", container("c")))
    reading = read(kubelet, kubelet.view(files=False))
    expected = kubelet.truth
    devices = state_of(reading).devices[GPU]
    # A free device without zones is shown by nobody.
    assert set(devices.ids) == set(expected.devices[GPU].ids) - {"zoneless"}
    assert_same(
        replace(state_of(reading), devices={}, holdings=without_devices(state_of(reading))),
        replace(expected, devices={}, holdings=without_devices(expected)),
    )


def without_devices(state: NodeState) -> dict[str, dict[str, Holding]]:
    return {
        uid: {name: structs.replace(held, devices={}) for name, held in containers.items()}
        for uid, containers in state.holdings.items()
    }


def test_podresources_alone_without_the_api_names_pods_itself() -> None:
    kubelet = Kubelet()
    kubelet.admit(guaranteed("a", container("c", 2)))
    view = kubelet.view(files=False)
    reading = accounting.build_reading("node", kubelet.machine, view)
    assert state_of(reading).holdings.keys() == {"default/a"}
    assert state_of(reading).admitted == {"default/a"}
    assert [pod.uid for pod in reading.pods] == ["default/a"]


def test_a_kubelet_without_get_allocatable_resources() -> None:
    kubelet = Kubelet()
    kubelet.admit(guaranteed("a", container("c", 2, devices=1)))
    reading = read(kubelet, replace(kubelet.view(), allocatable=None))
    state = state_of(reading)
    assert holding(state).keys() == {"uid-a"}
    assert_same(
        replace(state, devices={}, holdings=without_devices(state)),
        replace(kubelet.truth, devices={}, holdings=without_devices(kubelet.truth)),
    )
    assert len(state.devices[GPU].ids) == 6
    assert not state.devices[GPU].complete


NONE = KubeletConfig(
    reserved_cpus=None, cpu_reservation_milli=1000, node_reserved={"cpu": 1000, "memory": GIB}
)


@pytest.mark.parametrize("files", [True, False])
def test_managers_without_policy_still_give_zones_from_hardware_less_reservations(
    files: bool,
) -> None:
    view = KubeletView(config=NONE, pods=(), allocatable=Allocatable())
    if files:
        view = replace(view, cpu=CPUManagerState("none", 0), memory=MemoryManagerState("None"))
    machine = nodes.build_machine()
    reading = accounting.build_reading("node", machine, view)
    assert reading.disagreements == ()
    table = accounting.zone_resources(reading)
    assert table[0]["cpu"] == Amounts(8000, 7000, 7000)
    assert table[1]["cpu"] == Amounts(8000, 8000, 8000)
    memory = [table[zone]["memory"] for zone in (0, 1)]
    assert [amounts.capacity for amounts in memory] == [16 * GIB, 16 * GIB]
    assert sum(amounts.allocatable for amounts in memory) == 2 * 14 * GIB - GIB


def test_shared_cpus_of_old_kubelets_without_policy_are_not_exclusive() -> None:
    pod = ListedPod(namespace="n", name="p", containers=(ListedContainer(name="c", cpus=0xFFFF),))
    view = KubeletView(config=NONE, pods=(pod,))
    reading = accounting.build_reading("node", nodes.build_machine(), view)
    assert holding(state_of(reading)) == {}


def test_an_unknown_configuration_is_a_disagreement_and_the_files_tell_the_policies() -> None:
    kubelet = Kubelet()
    reading = read(kubelet, replace(kubelet.view(), config=None))
    assert "configuration is unknown" in reading.disagreements[0]
    assert state_of(reading).config.cpu_policy == "static"
    assert state_of(reading).reserved == kubelet.state.reserved


def test_an_unknown_configuration_with_podresources_alone() -> None:
    kubelet = Kubelet()
    kubelet.admit(guaranteed("a", container("c", 2)))
    reading = read(kubelet, replace(kubelet.view(files=False), config=None))
    state = state_of(reading)
    assert (state.config.cpu_policy, state.config.memory_policy) == ("static", "Static")
    assert state.reserved == kubelet.state.reserved
    assert state.shared == kubelet.state.shared
    assert state.holdings["uid-a"]["c"].cpus == kubelet.state.holdings["uid-a"]["c"].cpus


def test_a_policy_that_nobody_knows_is_one_clear_line() -> None:
    kubelet = Kubelet()
    with pytest.raises(errors.KubeletError, match="names policy 'dynamic'"):
        read(kubelet, replace(kubelet.view(), cpu=CPUManagerState("dynamic", 0xFFFF)))


def test_a_starting_kubelet_has_no_rows_yet() -> None:
    kubelet = Kubelet()
    with pytest.raises(errors.InconsistentStateError, match="starting"):
        read(kubelet, replace(kubelet.view(), memory=MemoryManagerState("Static")))


def test_listed_memory_of_a_zone_that_is_not_there_is_one_clear_line() -> None:
    kubelet = Kubelet()
    block = MemoryBlock("memory", 1 << 9, GIB)
    pod = ListedPod(
        namespace="n", name="p", containers=(ListedContainer(name="c", memory=(block,)),)
    )
    with pytest.raises(errors.InconsistentStateError, match="zone 9"):
        read(kubelet, replace(kubelet.view(files=False), pods=(pod,)))


def test_the_running_kubelets_policy_counts_not_the_configured_one() -> None:
    kubelet = Kubelet()
    config = replace(STATIC, cpu_policy="none", memory_policy="None")
    reading = read(kubelet, replace(kubelet.view(), config=config))
    assert [line.split()[0] for line in reading.disagreements] == [
        "cpuManagerPolicy",
        "memoryManagerPolicy",
    ]
    assert state_of(reading).config.memory_policy == "Static"


def test_what_an_earlier_reading_knew_counts_only_for_the_same_kubelet() -> None:
    config = replace(STATIC, reserved_cpus=None)
    kubelet = Kubelet(config)
    first = state_of(read(kubelet))
    wrong = replace(first, reserved=0b1000)
    assert state_of(read(kubelet, previous=wrong)).reserved == 0b1000
    restarted = replace(kubelet.view(), epoch="2")
    assert state_of(read(kubelet, restarted, previous=wrong)).reserved == first.reserved


def test_equal_input_gives_an_equal_reading() -> None:
    kubelet = Kubelet()
    for number in range(4):
        kubelet.admit(nodes.random_pod(random.Random(number), str(number)))
    first = read(kubelet)
    assert read(kubelet, previous=first.state) == first
    assert bits.format_list(state_of(first).shared)
