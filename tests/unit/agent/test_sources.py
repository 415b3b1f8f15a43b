from __future__ import annotations

import asyncio
import os
import time
from typing import TYPE_CHECKING

import pytest

from rte import errors
from rte.agent import sources as sources_module
from rte.agent.observer import messages
from rte.agent.observer.messages import NodeObjectFacts
from rte.agent.sources import NodeReader
from rte.kubelet.statefiles import kubelet_epoch
from rte.model.node import KubeletConfig
from tests.unit.agent.world import machine

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from pathlib import Path


def learnt_while(path: Path, happens: Callable[[], None]) -> NodeReader:
    """Sources that are asked for configuration and Node while something happens."""

    async def learn(
        memory_bytes: int, patient: bool
    ) -> tuple[KubeletConfig, NodeObjectFacts, None]:
        assert (memory_bytes, patient) == (1 << 30, True)
        happens()
        return KubeletConfig(), NodeObjectFacts(heard=time.time() - 60), None

    return NodeReader(machine=machine, learner=learn, socket=path)


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
    read = sources.read_files(messages.ReadFiles(None))
    assert read.started == pytest.approx(before, abs=30)
    assert read.made == pytest.approx(time.time(), abs=30)


@pytest.mark.parametrize("moment", [lambda: time.time() + 3600, lambda: 1.0], ids=["back", "on"])
async def test_a_moment_of_a_clock_that_was_set_since_tells_nothing(
    tmp_path: Path, moment: Callable[[], float]
) -> None:
    """To come, or before the machine was started."""
    socket = tmp_path / "kubelet.sock"
    socket.touch()
    os.utime(socket, (moment(), moment()))
    read = learnt_while(socket, lambda: None).read_files(messages.ReadFiles(None))
    assert (read.started, read.made) == (None, None)


class Kubelet:
    """Its podresources API, for one question."""

    def __init__(self, answer: Callable[[], Awaitable[None]]) -> None:
        self._answer = answer

    async def list(self) -> tuple[()]:
        raise AssertionError("a sign of life is to be cheap")

    async def allocatable(self) -> None:
        await self._answer()


async def of_a_stopped_process() -> None:
    await asyncio.Event().wait()


async def of_a_dead_one() -> None:
    raise errors.KubeletGoneError("nobody listens")


async def of_one_with_strange_cpus() -> None:
    raise errors.ParseError("podresources CPU", -1)


async def of_one_that_runs() -> None:
    pass


@pytest.mark.parametrize(
    ("answer", "alive"),
    [
        (of_one_that_runs, True),
        (of_one_with_strange_cpus, True),
        (of_a_dead_one, False),
        (of_a_stopped_process, False),
    ],
)
async def test_any_answer_is_a_sign_of_life_and_none_within_seconds_is_not(
    answer: Callable[[], Awaitable[None]], alive: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sources_module, "_LIFE_S", 0.05)
    sources = NodeReader(machine=machine, learner=None, podresources=Kubelet(answer))
    pulse = await sources.probe()
    assert (pulse.problem is None) is alive
