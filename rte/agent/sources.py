"""What an observer is answered from: hardware, kubelet, and what is learnt of the node."""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from rte import errors
from rte.agent.observer import messages
from rte.kubelet import reading as kubelet_reading

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from pathlib import Path

    from rte.agent.observer.messages import NodeFacts
    from rte.kubelet.reading import Source
    from rte.model.machine import Machine
    from rte.model.node import KubeletConfig


_RESTARTED = "the kubelet was restarted while it was asked"


@dataclass(frozen=True, kw_only=True)
class Sources:
    """Where to read; each method carries out one effect of the observer.

    Attributes:
        machine: reads the hardware.
        learner: asks once for configuration and Node; memory in bytes, and whether a kubelet that
            does not answer yet is waited for. May raise RteError.
        state_dir: the kubelet's directory; None: its files are not read.
        plugin_dir: the device manager's folder.
        podresources: client of the kubelet's API; None where no socket is asked.
        socket: path of that API's socket.
    """

    machine: Callable[[], Machine]
    learner: Callable[[int, bool], Awaitable[tuple[KubeletConfig | None, NodeFacts]]]
    state_dir: Path | None = None
    plugin_dir: Path | None = None
    podresources: Source | None = None
    socket: Path | None = None

    async def first_machine(self) -> messages.MachineRead:
        """The hardware.

        Raises:
            errors.RteError: there is none to be read.
        """
        return messages.MachineRead(await asyncio.to_thread(self.machine))

    async def read_machine(self) -> messages.MachineRead:
        """The hardware, or why it cannot be read."""
        try:
            return await self.first_machine()
        except errors.RteError as error:
            return messages.MachineRead(None, error)

    def read_files(self, effect: messages.ReadFiles) -> messages.FilesRead:
        """The state files, unchanged ones not again, and which kubelet is there."""
        files = problem = None
        if self.state_dir is not None:
            try:
                files = kubelet_reading.read_state_files(
                    self.state_dir, effect.previous, plugin_dir=self.plugin_dir
                )
            except errors.RteError as error:
                problem = error
        return messages.FilesRead(files, self._epoch(), _made(self.socket), problem)

    async def ask(self, effect: messages.Ask) -> messages.Answered:
        """Podresources and the files around its answer."""
        before = self._epoch()
        try:
            view, files = await kubelet_reading.read_view(
                self.state_dir,
                self.podresources,
                plugin_dir=self.plugin_dir,
                previous=effect.previous,
            )
            if self._epoch() != before:
                raise errors.KubeletError(_RESTARTED)
        except errors.RteError as error:
            return messages.Answered(before, None, problem=error)
        return messages.Answered(before, view, files)

    async def learn(self, effect: messages.Learn) -> messages.Learnt:
        """Configuration and Node, or why they cannot be known yet."""
        try:
            config, node = await self.learner(effect.memory_bytes, effect.patient)
            if effect.epoch and self._epoch() != effect.epoch:
                raise errors.InconsistentStateError(_RESTARTED)
        except errors.RteError as error:
            return messages.Learnt(effect.epoch, problem=error)
        heard = None if node.heard is None else _on_our_clock(node.heard)
        return messages.Learnt(effect.epoch, config, node, heard)

    def _epoch(self) -> str:
        # While our socket is away another one would tell another epoch of the same start.
        plugins = self.plugin_dir if self.socket is None else None
        return kubelet_reading.kubelet_epoch(self.socket, plugins)


def _made(socket: Path | None) -> float | None:
    """When the kubelet made its socket."""
    try:
        return _on_our_clock(socket.stat().st_mtime) if socket else None
    except OSError:
        return None


def _on_our_clock(unix_time: float) -> float:
    """At once, for an answer may lie a while before it is handled."""
    return time.monotonic() - (time.time() - unix_time)
