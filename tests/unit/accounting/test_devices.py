from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from rte.accounting.devices import device_pools
from rte.model.kubelet import (
    Allocatable,
    DeviceCheckpoint,
    DeviceHolding,
    KubeletView,
    ListedContainer,
    ListedPod,
)

if TYPE_CHECKING:
    from rte.model.node import DevicePool

GPU = "example.com/gpu"


def view(
    listed: dict[str, int | None] | None = None,
    registered: list[str] | None = None,
    held: dict[str, int | None] | None = None,
) -> KubeletView:
    """``listed``: GetAllocatableResources; ``registered``, ``held``: of the checkpoint."""
    entries = {"uid": {"c": (DeviceHolding(GPU, held),)}} if held else {}
    return KubeletView(
        allocatable=Allocatable(devices=(DeviceHolding(GPU, listed),))
        if listed is not None
        else None,
        devices=DeviceCheckpoint(entries, {GPU: frozenset(registered)} if registered else {})
        if registered is not None or held
        else None,
    )


def pool(
    of: KubeletView, previous: DevicePool | None = None, capacity: int | None = None
) -> DevicePool:
    return device_pools(
        of,
        {GPU: previous} if previous else {},
        {GPU: capacity} if capacity is not None else {},
    )[GPU]


def table(of: DevicePool) -> dict[str, tuple[int | None, bool]]:
    return {
        name: (zones, bool(of.healthy >> position & 1))
        for position, (name, zones) in enumerate(zip(of.ids, of.zones, strict=True))
    }


def test_healthy_devices_come_with_their_zones() -> None:
    devices = pool(view({"b": 0b11, "a": 1, "n": None}, ["a", "b", "n"]), capacity=3)
    assert devices.ids == ("a", "b", "n")
    assert table(devices) == {"a": (1, True), "b": (0b11, True), "n": (None, True)}
    assert devices.complete


def test_a_registered_device_that_is_not_listed_has_a_topology_without_zones() -> None:
    """The kubelet lists one entry per zone, so none for such a device."""
    assert table(pool(view({"a": 1}, ["a", "z"])))["z"] == (0, True)


def test_a_listed_and_a_registered_set_of_different_moments_prove_nothing() -> None:
    torn = replace(view({"a": 1}, ["a", "z"]), coherent=False)
    assert table(pool(torn)) == {"a": (1, True)}


def test_a_held_device_that_is_not_healthy_any_more_is_still_known() -> None:
    devices = pool(view({"a": 1}, ["a"], held={"b": 0b10, "n": None}))
    assert table(devices) == {"a": (1, True), "b": (0b10, False), "n": (None, False)}


def test_devices_of_listed_containers_count_where_there_is_no_checkpoint() -> None:
    holder = ListedContainer(name="c", devices=(DeviceHolding(GPU, {"b": 0b10}),))
    pods = (ListedPod(namespace="n", name="p", containers=(holder,)),)
    assert table(pool(replace(view({"a": 1}), pods=pods))) == {
        "a": (1, True),
        "b": (0b10, False),
    }


def test_a_device_lost_since_the_last_reading_is_remembered_as_unhealthy() -> None:
    before = pool(view({"a": 1, "b": 0b10, "n": None}, ["a", "b", "n"]), capacity=3)
    lost = pool(view({"a": 1}, ["a"]), before, capacity=3)
    assert table(lost) == {"a": (1, True), "b": (0b10, False), "n": (None, False)}
    assert lost.complete
    # Its checkpoint may still name it for a moment.
    assert table(pool(view({"a": 1}, ["a", "b", "n"]), before, capacity=3)) == table(lost)
    again = pool(view({"a": 1, "b": 0b10, "n": None}, ["a", "b", "n"]), lost, capacity=3)
    assert again == before


def test_a_device_taken_away_by_its_plugin_is_forgotten_once_the_capacity_says_so() -> None:
    before = pool(view({"a": 1, "b": 0b10}, ["a", "b"]), capacity=2)
    assert table(pool(view({"a": 1}, ["a"]), before, capacity=1)) == {"a": (1, True)}


def test_unhealthy_devices_that_we_never_saw_make_a_pool_incomplete() -> None:
    assert not pool(view({"a": 1}, ["a"]), capacity=2).complete
    assert not pool(view({"a": 1}, ["a"])).complete


def test_completeness_is_kept_without_the_capacity() -> None:
    before = pool(view({"a": 1}, ["a"]), capacity=1)
    assert pool(view({"a": 1}, ["a"]), before).complete


def test_a_resource_whose_plugin_has_not_registered_again_has_no_healthy_device() -> None:
    devices = pool(
        KubeletView(
            allocatable=Allocatable(),
            devices=DeviceCheckpoint(
                {"uid": {"c": (DeviceHolding(GPU, {"a": 1}),)}}, {GPU: frozenset()}
            ),
        )
    )
    assert table(devices) == {"a": (1, False)}


def test_a_resource_that_the_kubelet_has_forgotten_is_forgotten() -> None:
    before = {GPU: pool(view({"a": 1}, ["a"]), capacity=1)}
    silent = KubeletView(allocatable=Allocatable(), devices=DeviceCheckpoint())
    assert device_pools(silent, before, {}) == {}


def test_without_the_kubelets_list_zones_of_free_devices_are_unknown() -> None:
    devices = pool(view(None, ["a", "b"], held={"a": 1}), capacity=2)
    assert table(devices) == {"a": (1, True), "b": (None, True)}
    assert not devices.complete


def test_without_any_source_earlier_pools_are_kept() -> None:
    before = {GPU: pool(view({"a": 1}, ["a"]), capacity=1)}
    assert table(device_pools(KubeletView(), before, {})[GPU]) == {"a": (1, False)}
    assert device_pools(KubeletView(), {}, {}) == {}


@pytest.mark.parametrize("told", [True, False], ids=["by the Node", "by nobody"])
def test_devices_that_are_cut_otherwise_again_and_again_are_not_remembered_for_ever(
    told: bool,
) -> None:
    """MIG: the plugin lists others under the same name, and the kubelet goes on."""
    known = None
    for cut in range(50):
        ids = {f"{cut}-{number}": 1 for number in range(1 + cut % 7)}
        known = pool(view(ids, list(ids)), known, len(ids) if told else None)
        assert known.healthy.bit_count() == len(ids)
        assert len(known.ids) <= 7
    assert known is not None
    assert known.complete is told
