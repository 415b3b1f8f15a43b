"""One pod on one node: NHD's executed scenarios, and what it got wrong."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest

from rte.placement.groups.allocation import QueueCPUs
from rte.placement.groups.check import preference, violations
from rte.placement.groups.inventory import (
    GPU,
    NIC,
    Core,
    GroupInventory,
    GroupNodeFacts,
    NICUse,
    Policy,
    Used,
)
from rte.placement.groups.place import place
from tests.unit.placement.groups.nodes import request, two_sockets

NHD_EXAMPLE = {
    "gpus": [{"feeders": 1}],
    "queues": [{"rx": 10, "tx": 5}],
    "workers": 2,
    "helpers": {"count": 2},
}
BANDWIDTH = Policy(nic_sharing="bandwidth")


def test_cpus_go_core_by_core_in_the_order_feeders_queues_workers() -> None:
    got = place(request(NHD_EXAMPLE, misc={"count": 2}), two_sockets()).allocation

    assert got is not None
    (group,) = got.groups
    assert group.zone == 0
    assert group.cpus.feeders == ((2,),)
    assert group.cpus.queues == (QueueCPUs(18, 3),)
    assert group.cpus.workers == (19, 4)  # 20, the sibling of 4, stays idle
    assert group.cpus.helpers == (5, 21)
    assert (got.misc.zone, got.misc.cpus) == (0, (6, 22))


def test_misc_cpus_stay_near_the_groups_where_there_is_room() -> None:
    got = place(request({"workers": 2}, misc={"count": 2}), two_sockets()).allocation

    assert got is not None
    assert got.misc.zone == got.groups[0].zone == 0


def test_isolated_classes_take_a_core_for_each_cpu() -> None:
    alone = {"count": 2, "smt": "isolate"}
    wish = {**NHD_EXAMPLE, "workers": 1, "smt": "isolate", "helpers": alone}
    got = place(request(wish, misc=alone), two_sockets()).allocation

    assert got is not None
    assert got.groups[0].cpus.all() == (2, 3, 4, 5, 6, 7)
    assert (got.misc.zone, got.misc.cpus) == (1, (10, 11))
    assert place(request({**wish, "workers": 2}), two_sockets()).reasons == ("alignment",)


def test_kinds_with_rules_of_their_own_share_no_core() -> None:
    wish = {**NHD_EXAMPLE, "smt": {"feeders": "isolate", "queues": "share"}}
    got = place(request(wish), two_sockets()).allocation

    assert got is not None
    assert got.groups[0].cpus.feeders == ((2,),)
    assert got.groups[0].cpus.queues == (QueueCPUs(3, 19),)  # rx and tx are siblings
    assert got.groups[0].cpus.workers == (4, 20)


@pytest.mark.parametrize(("gbps", "fits"), [(90.0, True), (90.001, False)])
def test_a_function_gives_nine_tenths_of_its_speed(gbps: float, fits: bool) -> None:
    got = place(request({"queues": [{"rx": gbps}]}), two_sockets())

    assert (got.allocation is not None) == fits
    assert got.reasons == (() if fits else ("nic",))


@pytest.mark.parametrize("policy", [Policy(), BANDWIDTH])
def test_groups_of_one_pod_share_a_function_under_either_policy(policy: Policy) -> None:
    one = two_sockets()
    one = replace(one, nics=one.nics[:1])
    pair = [{"queues": [{"rx": 45, "tx": 45}]}] * 2

    assert place(request(*pair), one, policy=policy).allocation is not None
    assert place(request(*pair, pair[0]), one, policy=policy).reasons == ("nic",)


def test_two_groups_too_large_for_one_zone_are_split() -> None:
    got = place(request(*[{"workers": 8}] * 2), two_sockets()).allocation

    assert got is not None
    assert [group.zone for group in got.groups] == [0, 1]


def test_small_groups_are_packed_and_spread_is_the_other_way_round() -> None:
    pair = request(*[{"workers": 2}] * 2)
    packed = place(pair, two_sockets()).allocation
    spread = place(pair, two_sockets(), policy=Policy(strategy="spread")).allocation

    assert packed is not None
    assert [group.zone for group in packed.groups] == [0, 0]
    assert spread is not None
    assert [group.zone for group in spread.groups] == [0, 1]


@pytest.mark.parametrize(
    ("sharing", "held_alone", "wish_alone", "fits"),
    [
        ("exclusive", False, False, False),
        ("bandwidth", False, False, True),
        ("bandwidth", True, False, False),
        ("bandwidth", False, True, False),
    ],
)
def test_whether_pods_share_a_function_is_policy(
    sharing: str, held_alone: bool, wish_alone: bool, fits: bool
) -> None:
    node = two_sockets()
    node = replace(node, nics=node.nics[:1])
    used = Used(nics={node.nics[0].address: NICUse(40_000, 40_000, held_alone)})
    wish = {"nics": [{"gbps": {"rx": 40, "tx": 40}, "exclusive": wish_alone}]}

    got = place(request(wish), node, used, Policy(nic_sharing=sharing))

    assert (got.allocation is not None) == fits


def test_a_group_without_bandwidth_needs_no_nic_and_one_without_gpu_no_gpu() -> None:
    bare = replace(two_sockets(), gpus=(), nics=())

    for mapping in ("numa", "pcie"):
        got = place(request({"queues": [{"rx": 0}], "workers": 1}, mapping=mapping), bare)
        assert got.allocation is not None


def test_every_gpu_of_a_pcie_group_is_on_the_switch_of_its_nic() -> None:
    wish = {"gpus": [{"count": 2}], "queues": [{"rx": 1}]}

    assert place(request(wish, mapping="pcie"), two_sockets()).reasons == ("alignment",)
    got = place(request(wish), two_sockets())
    assert got.allocation is not None
    assert got.cost == (1, 1, 0, 1, 1)  # one GPU is beside the NIC, the other is not
    on_switch = two_sockets(gpus=("17", "3a", "d7"))
    single = place(request({**wish, "gpus": [{}]}, mapping="pcie"), on_switch).allocation
    assert single is not None
    assert single.groups[0].gpus == ("0000:17:10.0",)


@pytest.mark.parametrize(
    ("model", "fits"),
    [("V100", True), ("any", True), (["A100", "v100"], True), ("V10", False), ("A100", False)],
)
def test_the_model_of_a_gpu_counts(model: object, fits: bool) -> None:
    got = place(request({"gpus": [{"match": {"model": model}}]}), two_sockets())

    assert got.reasons == (() if fits else ("gpus",))


def test_a_vf_is_held_to_its_port() -> None:
    pf = NIC(address="0000:20:00.0", zone=0, mbps=100_000, link="up")
    vfs = tuple(NIC(address=f"0000:20:01.{i}", zone=0, pf=pf.address) for i in range(4))
    node = GroupInventory(pages={0: {}}, cores=(Core((0,), 0), Core((1,), 0)), nics=(pf, *vfs))
    wish = {"nics": [{"gbps": {"rx": 50, "tx": 0}, "kind": "vf"}]}

    assert place(request(wish), node).allocation is not None
    assert place(request(wish, wish), node).reasons == ("nic",)
    down = replace(node, nics=(replace(pf, link="down"), *vfs))
    assert place(request(wish), down).reasons == ("nic",)


def test_a_redundant_entry_has_a_second_port_of_its_card() -> None:
    node = two_sockets(nics=2)
    card = tuple(NIC(address=f"0000:20:00.{i}", zone=0, mbps=100_000, link="up") for i in range(2))
    wish = {"nics": [{"gbps": {"rx": 50, "tx": 1}, "redundant": True}]}

    assert place(request(wish), node).reasons == ("nic",)  # ports of different cards
    got = place(request(wish), replace(node, nics=(*node.nics, *card))).allocation
    assert got is not None
    (nic,) = got.groups[0].nics
    assert {nic.address, nic.backup} == {"0000:20:00.0", "0000:20:00.1"}


def test_strict_pages_come_from_the_zones_of_the_pod() -> None:
    wish = {"workers": 1}

    got = place(request(wish, hugepages={"1Gi": 20}), two_sockets())
    assert got.cost == (1, 1, 4, 0, 0)
    assert got.allocation is not None
    assert got.allocation.hugepages == {"1Gi": {0: 16, 1: 4}}
    strict = request(wish, hugepages={"1Gi": 20}, hugepagesPlacement="strict")
    assert place(strict, two_sockets()).reasons == ("alignment",)
    assert place(request(wish, hugepages={"1Gi": 33}), two_sockets()).reasons == ("hugepages",)
    reserved = replace(two_sockets(), reserved_pages={"1Gi": 8})
    assert place(request(wish, hugepages={"1Gi": 25}), reserved).reasons == ("hugepages",)


def test_all_that_keeps_a_pod_off_a_node_is_told() -> None:
    wish = request({"gpus": [{}]}, cpuArch=["skylake"], nodeGroups=["a"])
    facts = GroupNodeFacts(
        cordoned=True, maintenance=True, cpu_arch="icelake", seconds_since_change=29.9
    )

    assert place(wish, two_sockets(), node=facts).reasons == (
        "node-cordoned",
        "node-maintenance",
        "node-group",
        "cpu-arch",
        "cooldown",
    )


def test_only_pods_with_gpus_wait_for_a_node_to_settle() -> None:
    facts = GroupNodeFacts(seconds_since_change=0)

    assert place(request({"workers": 1}), two_sockets(), node=facts).allocation is not None
    assert place(request({"gpus": [{}]}), two_sockets(), node=facts).reasons == ("cooldown",)
    everyone = Policy(settle_for=("all",))
    got = place(request({"workers": 1}), two_sockets(), policy=everyone, node=facts)
    assert got.reasons == ("cooldown",)


def test_cores_of_different_thread_counts_are_shared_out_exactly() -> None:
    cores = (Core((0, 1), 0), Core((2, 3), 0), Core((4,), 0))
    node = GroupInventory(pages={0: {}}, cores=cores)
    wish = request({"workers": 1, "smt": "isolate"}, {"workers": 4})
    got = place(wish, node).allocation

    assert got is not None  # the single thread goes to the isolated one, though core 0 is lower
    assert got.groups[0].cpus.workers == (4,)
    assert got.groups[1].cpus.workers == (0, 1, 2, 3)
    assert place(request({"workers": 4}, {"workers": 2}), node).reasons == ("cpus",)


def test_the_order_in_which_hardware_is_listed_does_not_matter() -> None:
    node, chance = two_sockets(nics=3), random.Random(5)
    wish = request(
        {"gpus": [{"feeders": 1}], "queues": [{"rx": 60}]}, {"queues": [{"rx": 50}]}, {"workers": 3}
    )
    answers = set()
    for _ in range(5):
        pages = dict(chance.sample(sorted(node.pages.items()), 2))
        answers.add(str(place(wish, replace(node, pages=pages))))

    assert len(answers) == 1


def test_a_search_that_is_cut_off_says_so() -> None:
    node = two_sockets(nics=4)
    wish = request(*[{"queues": [{"rx": 31 + i, "tx": 29 - i}], "workers": 1} for i in range(8)])

    assert place(wish, node, policy=Policy(max_steps=2)).reasons == ("search-limit",)
    assert place(wish, node).reasons != ("search-limit",)


def test_more_groups_than_places_is_proven_at_once() -> None:
    cores = tuple(Core((i,), i // 9) for i in range(72))
    node = GroupInventory(pages={zone: {} for zone in range(8)}, cores=cores)
    wish = request({"workers": 5, "count": 9})

    assert place(wish, node, policy=Policy(max_steps=20)).reasons == ("alignment",)


def test_the_preference_that_is_said_is_the_one_that_is_had() -> None:
    node = two_sockets(nics=2)
    wish = request(NHD_EXAMPLE, {"queues": [{"rx": 70}]}, hugepages={"1Gi": 20})
    got = place(wish, node)

    assert got.allocation is not None
    assert preference(wish, got.allocation, node) == got.cost
    assert violations(wish, got.allocation, node) == []


def test_a_gpu_without_a_zone_goes_to_groups_without_alignment_only() -> None:
    lost = GPU(address="0000:01:00.0", model="A100")
    node = replace(two_sockets(), gpus=(lost,))

    assert place(request({"gpus": [{}]}), node).reasons == ("alignment",)
    assert place(request({"gpus": [{}]}, mapping="none"), node).allocation is not None
