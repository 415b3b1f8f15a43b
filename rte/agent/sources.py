"""What an observer is answered from: hardware, kubelet, and what is learnt of the node."""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from rte import errors
from rte.agent.observer import messages
from rte.kubelet import statefiles
from rte.telemetry.quarantine import Quarantine

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from pathlib import Path

    from rte.agent.observer.messages import NodeObjectFacts
    from rte.kubelet.statefiles import PodresourcesClient
    from rte.model.machine import Machine
    from rte.model.node import KubeletConfig, NodeState


#: A kubelet that runs answers within milliseconds; a stopped one never does.
_LIFE_S = 2.0

#: Seconds since the machine was started, those asleep as well (demos run on other systems too).
_SINCE_BOOT = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)

#: Longest tick of a kernel's file clock.
_TICK_S = 0.01

_RESTARTED = "the kubelet was restarted while it was asked"


@dataclass(frozen=True, kw_only=True)
class NodeReader:
    """Where to read; each method carries out one effect of the observer.

    Attributes:
        machine: reads the hardware.
        learner: asks once for configuration, Node and what is published of it; memory in bytes,
            and whether a kubelet that does not answer yet is waited for. May raise RteError.
        state_dir: the kubelet's directory; None: its files are not read.
        plugin_dir: the device manager's folder.
        podresources: client of the kubelet's API; None where no socket is asked.
        socket: path of that API's socket.
        quarantine: what has caused an internal error.
    """

    machine: Callable[[], Machine]
    learner: Callable[
        [int, bool], Awaitable[tuple[KubeletConfig | None, NodeObjectFacts, NodeState | None]]
    ]
    state_dir: Path | None = None
    plugin_dir: Path | None = None
    podresources: PodresourcesClient | None = None
    socket: Path | None = None
    quarantine: Quarantine = field(default_factory=Quarantine)

    async def first_machine(self) -> messages.MachineRead:
        """The hardware.

        Raises:
            errors.RteError: there is none to be read.
        """
        try:
            return messages.MachineRead(await asyncio.to_thread(self.machine))
        except errors.RteError:
            raise
        except Exception as error:  # noqa: BLE001 - it is read again later
            return messages.MachineRead(None, self._expected("hardware", error))

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
                files = statefiles.read_state_files(
                    self.state_dir, effect.previous, plugin_dir=self.plugin_dir
                )
            except Exception as error:  # noqa: BLE001 - whatever a file has in it
                problem = self._expected("files", error)
        started, made = _started(self.socket)
        return messages.FilesRead(files, self._epoch(), started, problem, made)

    async def ask(self, effect: messages.Ask) -> messages.Answered:
        """Podresources and the files around its answer."""
        before = self._epoch()
        try:
            view, files = await statefiles.read_view(
                self.state_dir,
                self.podresources,
                plugin_dir=self.plugin_dir,
                previous=effect.previous,
            )
            self._check_epoch(before, errors.KubeletError)
        except Exception as error:  # noqa: BLE001 - whatever was answered
            return messages.Answered(before, None, problem=self._expected("podresources", error))
        return messages.Answered(before, view, files)

    async def probe(self) -> messages.Pulse:
        """A sign of life of the kubelet; without podresources nobody can give one."""
        epoch = self._epoch()
        if self.podresources is None:
            return messages.Pulse(epoch)
        try:
            async with asyncio.timeout(_LIFE_S):
                await self.podresources.allocatable()
        except TimeoutError:
            line = f"the kubelet gives no sign of life within {_LIFE_S:g} s"
            return messages.Pulse(epoch, errors.KubeletError(line))
        except errors.KubeletError as error:
            return messages.Pulse(epoch, error)
        except Exception as error:  # noqa: BLE001 - an answer, if not a sound one
            self._expected("podresources", error)
        return messages.Pulse(epoch)

    async def learn(self, effect: messages.Learn) -> messages.Learnt:
        """Configuration and Node, or why they cannot be known yet."""
        try:
            config, node, reported = await self.learner(effect.memory_bytes, effect.patient)
            if effect.epoch:
                self._check_epoch(effect.epoch, errors.InconsistentStateError)
        except Exception as error:  # noqa: BLE001 - whatever configuration and Node have in them
            return messages.Learnt(effect.epoch, problem=self._expected("configuration", error))
        return messages.Learnt(effect.epoch, config, node, reported)

    def _check_epoch(self, before: str, error: type[errors.RteError]) -> None:
        if self._epoch() != before:
            raise error(_RESTARTED)

    def _expected(self, source: str, error: Exception) -> errors.RteError:
        return self.quarantine.as_expected("sources", source, error, time.monotonic())

    def _epoch(self) -> str:
        # While our socket is away another one would tell another epoch of the same start.
        plugins = self.plugin_dir if self.socket is None else None
        return statefiles.kubelet_epoch(self.socket, plugins)


def _started(socket: Path | None) -> tuple[float | None, float | None]:
    """When the kubelet made its socket, on the clock of events and by its own clock (Unix time).

    The latter may have been set since: a moment to come, or one before the machine was started,
    tells nothing.
    """
    try:
        made = socket.stat().st_mtime if socket else None
    except OSError:
        made = None
    if made is None:
        return None, None
    age = time.time() - made
    if not -_TICK_S < age < time.clock_gettime(_SINCE_BOOT):
        return None, None
    return time.monotonic() - age, made
