"""The drift check in the daemon: on the simulated kubelet, whose pods come and go."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from rte.nrt import case as cases
from rte.placement import drift
from tests.unit.agent.test_daemon import World, world  # noqa: F401, TC001 - a fixture
from tests.unit.placement.drift import wrong

if TYPE_CHECKING:
    from pathlib import Path

    import pytest


def count(world: World, name: str, **labels: str) -> float:  # noqa: F811
    return world.metrics.registry.get_sample_value(f"rte_{name}_total", labels) or 0.0


async def until(world: World, number: float) -> None:  # noqa: F811
    async with asyncio.timeout(10):
        while count(world, "predictions") < number:
            await asyncio.sleep(0.005)


async def test_pods_that_come_and_go_in_bursts_ring_no_alarm(world: World) -> None:  # noqa: F811
    async with world.agent():
        await world.until(lambda state: state.synced)
        for turn in range(6):
            uids = {world.create_pod(f"p{turn}-{each}", "2") for each in range(3)}
            await world.until(lambda state, uids=uids: uids <= state.admitted)
            for each in range(3):
                world.server.api.delete("pods", f"p{turn}-{each}", "default")
        await until(world, 18)
        assert sum(count(world, "prediction_differences", result=r) for r in drift.Result) == 0


async def test_the_first_pod_of_a_wrong_rule_is_found_and_its_case_kept(
    world: World,  # noqa: F811
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    wrong.plant(monkeypatch)
    async with world.agent(case_dir=tmp_path / "cases"):
        await world.until(lambda state: state.synced)
        world.create_pod("first")
        await until(world, 1)
        assert count(world, "prediction_differences", result="other_cpus") == 1
    (path,) = (tmp_path / "cases").iterdir()
    recorded = cases.decode(path.read_text()).case
    assert recorded.prediction.pod.name == "first"
    assert not drift.is_explained(recorded)
    monkeypatch.undo()
    assert drift.is_explained(recorded)


async def test_the_check_can_be_switched_off(world: World) -> None:  # noqa: F811
    async with world.agent(drift_check=False):
        await world.until(lambda state: state.synced)
        uid = world.create_pod("p")
        await world.until(lambda state: uid in state.admitted)
    assert count(world, "predictions") == 0
