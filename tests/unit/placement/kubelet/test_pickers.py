"""CPU picks on machines small enough to be checked by eye."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rte.model import bits
from rte.placement.kubelet import outcome
from rte.placement.kubelet.cpu import pickers
from rte.placement.kubelet.cpu.distributed import _shared_combinations, take_distributed
from tests.unit.placement import build

# Two zones of four cores; CPUs 0-3 and 8-11 are in zone 0, CPU n and n + 8 share a core.
PLAIN = pickers.layout_of(build.topology())
# One socket of three zones of two cores: CPUs 0-1, 2-3, 4-5 and their siblings from 6 on.
THREE = pickers.layout_of(build.topology(sockets=1, zones=3, cores=2))


def packed(machine, free, count, **options):
    return bits.format_list(pickers.take_packed(machine, bits.parse_list(free), count, **options))


def distributed(machine, free, count, group=1, **options):
    return bits.format_list(
        take_distributed(machine, bits.parse_list(free), count, group, **options)
    )


@pytest.mark.parametrize(
    ("free", "count", "picked"),
    [
        ("0-15", 0, ""),
        ("0-15", 1, "0"),
        ("0-15", 2, "0,8"),
        ("0-15", 3, "0-1,8"),
        ("0-15", 8, "0-3,8-11"),
        ("0-15", 10, "0-4,8-12"),
        ("0-15", 16, "0-15"),
        # The zone with fewest free CPUs comes first, whole cores before single threads.
        ("1-15", 2, "1,9"),
        ("1-15", 1, "8"),
        ("0-3,5-7,12-15", 3, "0,5,13"),
        # No whole core left: single threads, fullest zone first.
        ("0-2,4-5", 3, "0,4-5"),
    ],
)
def test_packed_takes_the_largest_whole_units_of_the_fullest_parents(free, count, picked):
    assert packed(PLAIN, free, count) == picked


def test_packed_with_zones_inside_a_socket_starts_with_the_socket():
    assert packed(THREE, "0-11", 12) == "0-11"
    assert packed(THREE, "0-11", 5) == "0-2,6-7"


@pytest.mark.parametrize(
    ("free", "count", "picked"), [("0-15", 2, "0-1"), ("0-15", 9, "0-4,8-11"), ("2-15", 3, "2-3,8")]
)
def test_spread_takes_one_thread_of_each_core_where_no_unit_is_needed_whole(free, count, picked):
    assert packed(PLAIN, free, count, spread=True) == picked


def test_uncore_takes_whole_caches_then_part_of_one():
    machine = pickers.layout_of(build.topology(sockets=1, cores=8, cores_per_cache=2))
    assert packed(machine, "0-15", 4, uncore=True) == "0-1,8-9"
    assert packed(machine, "0-15", 5, uncore=True) == "0-2,8-9"
    # Cache 0 holds but one free core, so that the first that holds two is taken instead.
    assert packed(machine, "1-15", 4, uncore=True) == "2-3,10-11"
    assert packed(machine, "1-15", 3, uncore=True) == "1,8-9"
    # No cache holds the rest: whole cores, wherever.
    assert packed(machine, "0,2,4,6,8,10,12,14", 4, uncore=True) == "0,2,8,10"
    assert packed(machine, "0-15", 16, uncore=True) == "0-15"


def test_uncore_ends_once_whole_caches_were_enough():
    machine = pickers.layout_of(build.topology(sockets=1, cores=6, threads=1, cores_per_cache=2))
    assert packed(machine, "1-5", 4, uncore=True) == "2-5"


@pytest.mark.parametrize("picker", [packed, distributed])
def test_too_few_cpus_are_refused_in_the_kubelets_words(picker):
    with pytest.raises(outcome.AllocationRefused) as refusal:
        picker(PLAIN, "0-3", 5)
    assert refusal.value.reason == "UnexpectedAdmissionError"
    assert refusal.value.message == (
        "Allocate failed due to not enough cpus available to satisfy request: requested=5, "
        "available=4, which is unexpected"
    )


@pytest.mark.parametrize(
    ("free", "count", "picked"),
    [
        ("0-15", 0, ""),
        ("0-15", 4, "0-1,8-9"),
        ("0-15", 10, "0-2,4-6,8-9,12-13"),
        # Zone 0 has four CPUs, which is less than half of ten: packed instead.
        ("0-1,4-7,8-9,12-15", 10, "0,4-8,12-15"),
    ],
)
def test_distributed_uses_as_few_zones_as_hold_even_shares(free, count, picked):
    assert distributed(PLAIN, free, count) == picked


def test_distributed_deals_whole_groups():
    assert distributed(PLAIN, "0-15", 12, 2) == "0-2,4-6,8-10,12-14"
    assert distributed(PLAIN, "0-15", 3, 2) == packed(PLAIN, "0-15", 3)


def test_distributed_prefers_the_zones_that_leave_the_rest_most_even():
    # Zone 0 has two CPUs free, zones 1 and 2 four. One zone is enough for two CPUs; from zone 1 or
    # 2 they leave 2, 2, 4, from zone 0 they would leave 0, 4, 4.
    assert distributed(THREE, "0,6,2-5,8-11", 2) == "2,8"


def test_distributed_falls_back_to_packing():
    # Zone 0 has one CPU, the others four: nine in even shares of three do not exist.
    assert distributed(THREE, "0,2-5,8-11", 9) == "0,2-5,8-11"


def test_an_uneven_zone_can_give_the_remainder():
    assert distributed(THREE, "0-11", 10, 2) == "0-4,6-10"


def test_halves_of_cores_make_the_kubelet_deal_for_ever():
    machine = pickers.layout_of(build.topology(sockets=1, zones=4, cores=3))
    free = bits.parse_list("0-1,4-9,11-15,18,20-22")
    with pytest.raises(outcome.Breaks) as stop:
        take_distributed(machine, free, 14, 2)
    assert stop.value.reason == outcome.KUBELET_HANGS


def test_slice_sharing_can_lead_to_zones_that_lack_the_cpus():
    machine = pickers.layout_of(build.topology(sockets=3, zones=4, cores=2))
    free = bits.parse_list("1-2,7,9,12,20-21,25,27,29-32,34-36,38-40,42-45,47")
    with pytest.raises(
        outcome.AllocationRefused, match="accounting error, not enough CPUs allocated"
    ):
        take_distributed(machine, free, 18, 2)


def test_off_line_threads_make_the_kubelet_claim_what_is_taken():
    # CPU 11's sibling 5 is off-line; 11 CPUs in 6 cores make "one CPU per core": a core of two
    # threads then looks whole with one of them free, and is claimed with both.
    machine = pickers.layout_of(build.topology(sockets=1, cores=6, offline="5"))
    assert not machine.is_regular(by_uncore=False)
    assert packed(machine, "0-4,7-11", 2) == "0,6"


def test_combinations_share_storage_as_slices_do():
    seen = list(_shared_combinations(list(range(5)), 4))
    assert seen[0] is seen[1]
    assert seen[0] == [0, 1, 2, 4]
    assert seen[1] is not seen[2]
    apart = list(_shared_combinations(list(range(6)), 5))
    assert apart[0] == [0, 1, 2, 3, 4]
    wide = list(_shared_combinations(list(range(12)), 10))
    assert wide[0] is wide[1]


@given(free=st.integers(1, 2**16 - 1), count=st.integers(1, 16), data=st.data())
def test_picks_on_regular_machines_are_free_and_as_many_as_asked(free, count, data):
    count = min(count, free.bit_count())
    options = data.draw(st.sampled_from([{}, {"spread": True}, {"uncore": True}]))
    taken = pickers.take_packed(PLAIN, free, count, **options)
    assert taken.bit_count() == count
    assert taken & ~free == 0
    even = take_distributed(PLAIN, free, count, 1)
    assert even.bit_count() == count
    assert even & ~free == 0
