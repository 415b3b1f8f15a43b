"""Pods that hold CPUs and memory as a whole (gate PodLevelResourceManagers, kubelets >= 1.36)."""

from __future__ import annotations

from dataclasses import replace

import pytest

from rte import accounting, errors
from rte.model import bits
from rte.model.kubelet import (
    AllocatedPods,
    CPUManagerState,
    KubeletView,
    ListedContainer,
    ListedPod,
    MemoryManagerState,
    NodePod,
)
from rte.model.node import Holding, KubeletConfig, MemoryBlock, NodeReading, NodeState
from tests.unit.accounting import nodes
from tests.unit.accounting.nodes import GIB, STATIC, Kubelet

#: nodes.build_machine(): CPUs 0-3 and 8-11 in zone 0, CPU 0 is reserved.
ALL = (1 << 16) - 1
ON = replace(STATIC, feature_gates={"PodLevelResourceManagers": True})
WHOLE, OWN, SHARED = bits.parse_list("1-3,9"), bits.parse_list("1,9"), bits.parse_list("2-3")
PODS = [NodePod(uid="p", namespace="ns", name="p")]


def blocks(size: int) -> tuple[MemoryBlock, ...]:
    return (MemoryBlock("memory", 0b1, size),)


def build_view(
    config: KubeletConfig | None = ON, version: str = "v1.37.1", *, embedded: bool | None = None
) -> KubeletView:
    """A pod with 4 CPUs and 4 GiB: two and one are its app's, two containers share the rest."""
    if embedded is None:
        embedded = "1.37" in version
    empty = Kubelet().state.memory
    row = empty[0]
    amounts = row.amounts["memory"]
    amounts = replace(amounts, reserved=4 * GIB, free=amounts.free - 4 * GIB)
    rows = empty | {
        0: replace(row, assignments=1, amounts={**row.amounts, "memory": amounts}),
    }
    parts = {"app": OWN, "one": SHARED, "two": SHARED}
    sizes = {"app": GIB, "one": 3 * GIB, "two": 3 * GIB}
    return KubeletView(
        config=config,
        version=version,
        epoch="1",
        cpu=CPUManagerState("static", ALL & ~WHOLE, {"p": parts}, {"p": WHOLE}, embedded),
        memory=MemoryManagerState(
            "Static",
            rows,
            {"p": {name: blocks(size) for name, size in sizes.items()}},
            {"p": blocks(4 * GIB)},
            embedded,
        ),
        allocated=AllocatedPods({"p": frozenset(parts)}),
    )


def listed(*, as_a_whole: bool) -> tuple[ListedPod, ...]:
    """As kubelets of 1.37, or of 1.36, list that pod."""
    containers = [ListedContainer("app", OWN, blocks(GIB))]
    for name in ("one", "two"):
        containers.append(
            ListedContainer(name) if as_a_whole else ListedContainer(name, SHARED, blocks(3 * GIB))
        )
    whole = {"cpus": WHOLE, "memory": blocks(4 * GIB)} if as_a_whole else {}
    return (ListedPod("ns", "p", tuple(containers), **whole),)


def read(view: KubeletView, pods: list[NodePod] | None = PODS, **options: bool) -> NodeReading:
    return accounting.build_reading(
        "n", nodes.build_machine(), view, pods, accounting.ReadingOptions(**options)
    )


def state_of(reading: NodeReading) -> NodeState:
    assert reading.state is not None
    return reading.state


def test_the_whole_and_its_parts_are_told_apart() -> None:
    state = state_of(read(build_view()))
    assert state.pod_holdings == {"p": Holding(cpus=WHOLE, memory=blocks(4 * GIB))}
    assert {name: held.cpus for name, held in state.holdings["p"].items()} == {
        "app": OWN, "one": SHARED, "two": SHARED,
    }  # fmt: skip


def test_the_parts_do_not_count_again() -> None:
    zone = accounting.zone_resources(read(build_view()))[0]
    assert zone["cpu"].available == 3000
    assert zone["memory"].available == zone["memory"].allocatable - 4 * GIB


def test_cpus_of_a_pod_that_no_container_has_are_not_free() -> None:
    view = build_view()
    assert view.cpu is not None
    view = replace(view, cpu=replace(view.cpu, entries={"p": {"app": OWN}}))
    assert accounting.zone_resources(read(view))[0]["cpu"].available == 3000


def test_what_an_ended_pod_held_as_a_whole_comes_free_once() -> None:
    state = state_of(read(build_view(), [replace(PODS[0], terminal=True)]))
    assert not state.holdings
    assert not state.pod_holdings
    assert state.shared == ALL
    assert state.memory == Kubelet().state.memory


def test_an_excluded_pod_does_not_count() -> None:
    reading = accounting.build_reading(
        "n", nodes.build_machine(), build_view(), PODS,
        accounting.ReadingOptions(exclude_pods=(("ns", "*"),)),
    )  # fmt: skip
    zone = accounting.zone_resources(reading)[0]
    assert (zone["cpu"].available, zone["memory"].available) == (
        zone["cpu"].allocatable, zone["memory"].allocatable,
    )  # fmt: skip


# podresources


@pytest.mark.parametrize("as_a_whole", [True, False])
def test_podresources_of_either_release_agrees_with_the_files(as_a_whole: bool) -> None:
    view = replace(build_view(), pods=listed(as_a_whole=as_a_whole))
    assert read(view).disagreements == ()
    # Without the API, the pod is found by what it holds.
    reading = read(view, None)
    assert [pod.uid for pod in reading.pods] == ["p"]
    assert state_of(reading).pod_holdings.keys() == {"p"}


def test_podresources_that_say_otherwise_are_named() -> None:
    (pod,) = listed(as_a_whole=True)
    view = replace(build_view(), pods=(ListedPod("ns", "p", pod.containers, OWN, pod.memory),))
    (line,) = read(view).disagreements
    assert line == "podresources' CPUs of ns/p: 1,9; by cpu_manager_state: 1-3,9"


def test_without_files_podresources_tells_of_the_whole() -> None:
    view = replace(
        build_view(), cpu=None, memory=None, allocated=None, pods=listed(as_a_whole=True)
    )
    state = state_of(read(view))
    assert state.pod_holdings == {"p": Holding(cpus=WHOLE, memory=blocks(4 * GIB))}
    assert state.shared == ALL & ~WHOLE
    assert state.memory == state_of(read(build_view())).memory


# Other releases in place


@pytest.mark.parametrize(
    ("version", "config", "embedded", "loaded"),
    [
        ("v1.37.1", ON, True, True),
        ("v1.37.1", ON, False, True),  # upgraded from 1.36: V3 is read
        ("v1.36.4", ON, False, True),
        ("v1.36.4", ON, True, False),  # downgraded from 1.37: the fields beside the data
        ("v1.37.1", STATIC, True, False),  # the gate is off again
        ("v1.36.4", STATIC, False, False),
        ("v1.35.4", ON, True, False),
        ("v1.99.0", ON, True, True),  # of an unknown release we believe the file
        ("", ON, False, True),
    ],
)
def test_pod_entries_count_where_the_running_kubelet_has_read_them(
    version: str, config: KubeletConfig | None, embedded: bool, loaded: bool
) -> None:
    view = build_view(config, version, embedded=embedded)
    if not loaded:
        assert view.memory is not None
        # What such a kubelet would have found wrong at its start (validateState).
        with pytest.raises(errors.InconsistentStateError):
            read(view)
        row = view.memory.zones[0]
        zones = view.memory.zones | {0: replace(row, assignments=3)}
        view = replace(
            view,
            memory=replace(
                view.memory,
                zones=zones,
                entries={"p": {name: blocks(GIB) for name in ("app", "one", "two")}},
            ),
        )
    state = state_of(read(view))
    assert state.pod_holdings.keys() == ({"p"} if loaded else set())
    # The containers have all of it between them, so what is free is the same.
    assert state.shared == ALL & ~WHOLE
    assert accounting.zone_resources(read(view))[0]["cpu"].available == 3000


# Between two writes


def test_a_pod_of_which_no_container_holds_anything_is_about_to_come_or_go() -> None:
    view = build_view()
    assert view.cpu is not None
    for default in (ALL & ~WHOLE, ALL):  # SetPodCPUSet; SetDefaultCPUSet before DeletePod
        half = replace(view, cpu=replace(view.cpu, default=default, entries={}))
        with pytest.raises(errors.InconsistentStateError, match="pod p"):
            read(half)


def test_blocks_of_a_pod_before_and_after_the_rows() -> None:
    view = build_view()
    assert view.memory is not None
    rows = Kubelet().state.memory
    with pytest.raises(errors.InconsistentStateError, match="assignments"):
        read(replace(view, memory=replace(view.memory, zones=rows)))


def test_what_a_restarted_kubelet_has_lost_is_not_waited_for_and_not_free() -> None:
    """It gives a running pod a second set, and the first one is in no entry any more."""
    view = build_view()
    assert view.cpu is not None
    second = bits.parse_list("4-7")
    cpu = replace(
        view.cpu,
        default=ALL & ~WHOLE & ~second,
        entries={"p": {"app": second}},
        pod_entries={"p": second},
    )
    view = replace(view, cpu=cpu)
    with pytest.raises(errors.InconsistentStateError, match="1-3,9"):
        read(view)
    # Without podresources or an earlier reading the file alone tells which CPUs there are.
    previous = state_of(read(build_view()))
    reading = accounting.build_reading(
        "n", nodes.build_machine(), view, PODS,
        accounting.ReadingOptions(settled=True, previous=previous),
    )  # fmt: skip
    assert reading.disagreements == ("cpu_manager_state: CPUs 1-3,9 are neither shared nor held",)
    zones = accounting.zone_resources(reading)
    assert zones[0]["cpu"].available == 3000
    assert state_of(reading).shared == ALL & ~WHOLE & ~second


def test_a_kubelet_that_does_not_serve_pods_as_a_whole_loses_nothing() -> None:
    view = Kubelet().view()
    assert view.cpu is not None
    torn = replace(view, cpu=replace(view.cpu, default=view.cpu.default & ~0b110))
    with pytest.raises(errors.InconsistentStateError):
        read(torn, [], settled=True)
