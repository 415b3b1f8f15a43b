"""The parts of the search, each held against a plain count of all possibilities."""

from __future__ import annotations

import itertools

from hypothesis import given
from hypothesis import strategies as st

from rte.placement.groups.search.cores import Cores
from rte.placement.groups.search.matching import Matching, cheapest

masks = st.lists(st.integers(1, 7), max_size=5)
counts = st.lists(st.integers(0, 2), min_size=3, max_size=3)


def assignments(have: list[int], allowed: list[int]) -> list[tuple[int, ...]]:
    kinds = [[kind for kind in range(3) if mask >> kind & 1] for mask in allowed]
    return [
        chosen
        for chosen in itertools.product(*kinds)
        if all(chosen.count(kind) <= have[kind] for kind in range(3))
    ]


@given(counts, masks)
def test_a_matching_takes_all_wishes_that_can_be_had_at_once(
    have: list[int], allowed: list[int]
) -> None:
    matching = Matching(have)
    added: list[int] = []
    for mask in allowed:
        took = matching.add(mask)
        assert took == bool(assignments(have, [*added, mask]))
        if took:
            added.append(mask)
            assert tuple(matching.types) in assignments(have, added)
    for _ in added:
        matching.pop()
    assert matching.types == []


@given(counts, st.lists(st.tuples(st.integers(1, 7), st.integers(0, 7)), max_size=5))
def test_the_cheapest_matching_costs_the_least(
    have: list[int], wishes: list[tuple[int, int]]
) -> None:
    allowed = [mask for mask, _ in wishes]
    preferred = [mask & liked for mask, liked in wishes]
    costs = [
        sum(not preferred[i] >> kind & 1 for i, kind in enumerate(chosen))
        for chosen in assignments(have, allowed)
    ]
    got = cheapest(have, allowed, preferred)

    assert (got is not None) == bool(costs)
    if got is not None:
        types, cost = got
        assert cost == min(costs)
        assert tuple(types) in assignments(have, allowed)


def cores_suffice(cores: list[int], loads: list[tuple[int, bool]]) -> bool:
    """Every way to hand each core to one of the classes or to none."""
    for owners in itertools.product(range(len(loads) + 1), repeat=len(cores)):
        given_ = [0] * len(loads)
        for threads, owner in zip(cores, owners, strict=True):
            if owner < len(loads):
                given_[owner] += threads if loads[owner][1] else 1
        if all(have >= cpus for have, (cpus, _) in zip(given_, loads, strict=True)):
            return True
    return False


classes = st.lists(st.tuples(st.integers(1, 4), st.booleans()), max_size=3)


@given(st.lists(st.sampled_from([1, 2, 4]), max_size=5), classes)
def test_classes_fit_cores_of_any_thread_counts_exactly(
    cores: list[int], loads: list[tuple[int, bool]]
) -> None:
    arithmetic = Cores((1, 2, 4))
    stock = tuple(cores.count(threads) for threads in (1, 2, 4))

    assert bool(arithmetic.rests(stock, tuple(sorted(loads)))) == cores_suffice(cores, loads)


@given(
    st.lists(st.sampled_from([1, 2]), max_size=3),
    st.lists(st.sampled_from([1, 2]), max_size=3),
    st.lists(st.tuples(st.integers(1, 3), st.booleans()), max_size=1),
    st.lists(st.tuples(st.integers(1, 5), st.booleans()), max_size=2),
)
def test_classes_without_a_zone_take_what_the_zones_leave(
    first: list[int],
    second: list[int],
    bound: list[tuple[int, bool]],
    free: list[tuple[int, bool]],
) -> None:
    arithmetic = Cores((1, 2))
    stocks = [tuple(cores.count(threads) for threads in (1, 2)) for cores in (first, second)]
    got = arithmetic.fits_all(stocks, [tuple(bound), ()], tuple(sorted(free)))

    # Without a class that is bound to a zone it is one stock; with one, try all that it may take.
    if bound:
        wanted = any(
            cores_suffice([first[i] for i in taken], bound)
            and cores_suffice([c for i, c in enumerate(first) if i not in taken] + second, free)
            for size in range(len(first) + 1)
            for taken in itertools.combinations(range(len(first)), size)
        )
    else:
        wanted = cores_suffice(first + second, free)
    assert got == wanted
