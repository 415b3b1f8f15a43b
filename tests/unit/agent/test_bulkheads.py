"""A damaged source never ends the agent, and nothing wrong is published because of it."""

from __future__ import annotations

import asyncio
import os
from typing import TYPE_CHECKING, Any

import pytest

from rte import accounting, errors
from rte.accounting import liveness
from rte.accounting.liveness import PodTable
from rte.agent.observer.messages import Observation, PodGone, PodSeen, PodsListed
from rte.agent.publisher import messages, ownership
from rte.agent.publisher.machine import Publisher
from rte.kubelet import statefiles
from rte.telemetry.quarantine import Quarantine
from tests.unit.agent.test_observing import Rig, running
from tests.unit.agent.test_pods import pod

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path


class Planted(Exception):  # noqa: N818 - it stands for any
    """What nobody has thought of."""


def raising(*_: Any, **__: Any) -> Any:
    raise Planted("planted")


@pytest.fixture
async def rig(tmp_path: Path) -> AsyncIterator[Rig]:
    made = Rig(tmp_path / "kubelet")
    made.kubelet.start()
    os.utime(made.kubelet.socket, (1, 1))  # it has been up for long
    async with running(made):
        await made.until(lambda state: state.synced)
        yield made


@pytest.mark.parametrize(
    ("owner", "name"),
    [
        (statefiles, "parse_cpu_state"),
        (accounting, "build_reading"),
        (PodTable, "retain"),
        (PodTable, "doubtful"),
    ],
)
async def test_what_raises_publishes_nothing_and_is_tried_again(
    rig: Rig, monkeypatch: pytest.MonkeyPatch, owner: Any, name: str
) -> None:
    rig.start_pod("a", 0b110)
    await rig.until(lambda state: "a" in state.admitted)
    with monkeypatch.context() as patch:
        patch.setattr(owner, name, raising)
        rig.start_pod("b", 0b11000)
        async with asyncio.timeout(30):
            while not rig.metrics.faults.labels("observer")._value.get():
                if rig.metrics.faults.labels("sources")._value.get():
                    break
                await asyncio.sleep(0.01)
        handed_on = len(rig.seen)
        assert "b" not in rig.seen[-1].admitted
    state = await rig.until(lambda state: "b" in state.admitted)
    assert len(rig.seen) > handed_on
    assert "a" in state.admitted


def test_a_pod_that_cannot_be_read_has_not_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is not in a list has ended; what is there and raises has not."""
    table = PodTable()
    table.replace([pod("a"), pod("b")])
    faults = Quarantine()
    kept = liveness.node_pod

    def parse(obj: dict[str, Any]) -> Any:
        return raising() if obj["metadata"]["uid"] == "a" else kept(obj)

    monkeypatch.setattr(liveness, "node_pod", parse)
    table.replace([pod("a"), pod("c")], lambda uid: faults.guard("pods", uid, 0.0))
    assert {each.uid: each.terminal for each in table.pods()} == {
        "a": False,
        "b": True,
        "c": False,
    }
    assert faults.holds("pods", "a", 1.0) is not None


async def test_an_odd_pod_of_the_node_changes_nothing_for_others(rig: Rig) -> None:
    odd: tuple[Any, ...] = ({}, {"metadata": 5}, {"metadata": {"uid": ["x"]}, "status": 7}, 8)
    for each in odd:
        rig.signals.give(PodSeen(each))
        rig.signals.give(PodGone(each))
    rig.signals.give(PodsListed(odd))
    async with asyncio.timeout(30):
        while rig.signals._events:
            await asyncio.sleep(0.01)
    rig.start_pod("a", 0b110)
    state = await rig.until(lambda state: "a" in state.admitted)
    assert state.holdings["a"]["c"].cpus == 0b110


def test_a_publisher_that_raises_tries_again_and_withholds_the_lease(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    publisher = Publisher(has_lease=True)
    kind = {"apiVersion": "topology.node.k8s.io/v1alpha2", "kind": "NodeResourceTopology"}
    stored = {**kind, "metadata": {"name": "n0", "resourceVersion": "1"}, "zones": []}
    wanted = {**kind, "metadata": {"name": "n0"}, "zones": [{"name": "node-0"}]}
    with monkeypatch.context() as patch:
        patch.setattr(ownership, "apply", raising)
        publisher.handle(messages.Offered(Observation(wanted, 1.0)), 1.0)
        effects = publisher.handle(messages.Stored(stored), 1.1)
        assert not [each for each in effects if isinstance(each, messages.WriteReport)]
        assert publisher.behind_since() == 1.0
    assert publisher.deadline() <= 12.0
    effects = publisher.handle(messages.Tick(), 12.0)
    assert [each for each in effects if isinstance(each, messages.WriteReport)]


def test_what_is_expected_is_no_fault_of_ours() -> None:
    faults = Quarantine()
    known = errors.KubeletError("it is away")
    assert faults.as_expected("sources", "files", known, 0.0) is known
    assert not faults.effects
    problem = faults.as_expected("sources", "files", Planted("odd"), 0.0)
    assert str(problem) == "internal error: Planted: odd"
