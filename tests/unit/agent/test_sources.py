from __future__ import annotations

import time
from typing import TYPE_CHECKING

import pytest

from rte import errors
from rte.agent.observer import messages
from rte.agent.observer.messages import NodeFacts
from rte.agent.sources import Sources
from rte.kubelet.reading import kubelet_epoch
from rte.model.node import KubeletConfig
from tests.unit.agent.world import machine

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


def learnt_while(path: Path, happens: Callable[[], None]) -> Sources:
    """Sources that are asked for configuration and Node while something happens."""

    async def learn(memory_bytes: int, patient: bool) -> tuple[KubeletConfig, NodeFacts]:
        assert (memory_bytes, patient) == (1 << 30, True)
        happens()
        return KubeletConfig(), NodeFacts(heard=time.time() - 60)

    return Sources(machine=machine, learner=learn, socket=path)


async def test_what_a_kubelet_says_of_itself_says_nothing_about_the_one_before(
    tmp_path: Path,
) -> None:
    socket = tmp_path / "kubelet.sock"
    socket.touch()
    question = messages.Learn(kubelet_epoch(socket, None), 1 << 30, patient=True)

    def restart() -> None:
        socket.rename(tmp_path / "former.sock")
        socket.touch()

    calm = await learnt_while(socket, lambda: None).learn(question)
    assert calm.problem is None
    assert calm.config == KubeletConfig()
    restarted = await learnt_while(socket, restart).learn(question)
    assert isinstance(restarted.problem, errors.InconsistentStateError)
    assert restarted.config is None


async def test_moments_are_told_on_the_clock_of_events(tmp_path: Path) -> None:
    """An answer may lie for a while before it is handled; so it does not tell how long ago."""
    socket = tmp_path / "kubelet.sock"
    socket.touch()
    before = time.monotonic()
    sources = learnt_while(socket, lambda: None)
    learnt = await sources.learn(messages.Learn(kubelet_epoch(socket, None), 1 << 30, patient=True))
    assert learnt.heard == pytest.approx(before - 60, abs=30)
    read = sources.read_files(messages.ReadFiles(None))
    assert read.started == pytest.approx(before, abs=30)
