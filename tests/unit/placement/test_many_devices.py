"""A node may have tens of thousands of devices: what is asked of it is asked of their zone sets."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, NoReturn

from hypothesis import given
from hypothesis import strategies as st

from rte import placement
from rte.model import bits
from rte.model.node import DevicePool
from rte.placement.fleet.copies import count_copies
from rte.placement.fleet.screen import NodeTable
from rte.placement.inflight.orders import Orders, StepBudget, free_key
from rte.placement.kubelet import devices
from rte.placement.kubelet.demand import free_of
from tests.unit.placement.build import GPU, node, pool, simple

if TYPE_CHECKING:
    from collections.abc import Iterator

MANY = 65_535


class Unlisted(tuple[int, ...]):
    """Zones of devices that nobody may look at one by one."""

    __slots__ = ()

    def __iter__(self) -> Iterator[int]:
        return _nobody()

    def __getitem__(self, place: object) -> NoReturn:
        return _nobody()


def _nobody() -> NoReturn:
    raise AssertionError("devices are looked at one by one")


def crowded() -> DevicePool:
    known = DevicePool(
        ids=(), zones=(1,) * (MANY // 2) + (2,) * (MANY - MANY // 2), healthy=(1 << MANY) - 1
    )
    groups = known.by_zones
    found = dataclasses.replace(known, zones=Unlisted(known.zones))
    vars(found)["by_zones"] = groups
    return found


def test_no_question_looks_at_devices_one_by_one() -> None:
    state = node(devices={GPU: crowded()})
    asking = simple("a", cpus=2, gpus=1000)
    answer = placement.admit(state, asking)
    assert answer.admitted
    assert answer.state.holdings["a"]["main"].devices[GPU].bit_count() == 1000
    assert free_key(answer.state) != free_key(state)
    free = free_of(answer.state).zones.values()
    assert [zone[GPU] for zone in free] == [MANY // 2 - 1000, MANY // 2 + 1]
    assert Orders([state], [asking], StepBudget(1000)).outcomes((0, 0))
    table = NodeTable()
    table.put("n", answer.state, {"cpu": 64_000, "memory": 1 << 40, "pods": 110, GPU: MANY})
    assert table.screen(asking)[0]
    assert count_copies(table, simple("b", gpus=30_000), {GPU: 30_000})[0] == 2


def test_picks_that_nobody_follows_are_not_listed() -> None:
    """Forty of ninety-six devices on sixteen zones: more picks than can be counted."""
    many = pool(*[zone for zone in range(16) for _ in range(6)])
    choices = devices.Choices()
    assert choices.pick(many, many.healthy, 40).bit_count() == 40
    assert devices.MOST_PICKS <= choices.options[0] <= devices.MOST_PICKS + 1


@given(
    zones=st.lists(st.sampled_from([None, 0, 1, 2, 3]), max_size=8),
    unhealthy=st.integers(0, 255),
    count=st.integers(0, 8),
)
def test_each_pick_is_one_of_so_many_devices_and_no_two_are_alike(
    zones: list[int | None], unhealthy: int, count: int
) -> None:
    healthy = ((1 << len(zones)) - 1) & ~unhealthy
    some = DevicePool(ids=tuple(map(str, range(len(zones)))), zones=tuple(zones), healthy=healthy)
    assert sum(some.by_zones.values()) == (1 << len(zones)) - 1
    assert some.in_zone(1) == bits.of(i for i, each in enumerate(zones) if each and each >> 1 & 1)
    found, script = [], ()
    while script is not None:
        choices = devices.Choices(script)
        pick = choices.pick(some, healthy, count)
        assert pick & ~healthy == 0
        assert pick.bit_count() == min(count, healthy.bit_count())
        found.append(tuple((group & pick).bit_count() for group in some.by_zones.values()))
        script = choices.next_script()
    assert len(found) == len(set(found))
