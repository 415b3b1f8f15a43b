"""The observer, one rule at a time; :mod:`tests.unit.agent.test_any_order` plays any order."""

from __future__ import annotations

import random

from tests.unit.agent.test_any_order import settle
from tests.unit.agent.world import World


def test_a_pod_that_the_api_has_not_shown_yet_is_awaited_after_a_restart() -> None:
    """It was admitted right before, and the watch lags behind: nobody else names it."""
    world = World(random.Random(1), api=True)
    world.relist()
    settle(world, 3)
    assert (state := world.truth()) is not None
    assert state.synced
    for _ in range(3):
        world.admit()
    world.restart()
    world.report()
    settle(world, 6)
    assert (state := world.truth()) is not None
    assert state.epoch == world.kubelet.epoch
    assert not state.synced, "no pod of the former kubelet is listed yet"
    world.take_up(everybody=True)
    settle(world, 3)
    assert (state := world.truth()) is not None
    assert state.synced, "podresources lists it, whatever the API shows"
    assert set(state.holdings) == set(world.entries) != set()
