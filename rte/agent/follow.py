"""What tells the agent that something changed: inotify, a pod watch, and slow polls."""

from __future__ import annotations

import asyncio
import functools
import importlib.util
import logging
import os
import random
import struct
import time
from contextlib import aclosing
from typing import TYPE_CHECKING, NamedTuple

from rte import errors
from rte.agent.observer.messages import KubeletChange, PodGone, PodSeen, PodsListed, PodsUnknown
from rte.kube.resources import PODS
from rte.kube.watch import watch
from rte.kubelet import statefiles
from rte.model.backoff import Backoff
from rte.sysfs import pci

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from asyncinotify import Inotify, Mask, Watch

    from rte.agent.observer.messages import Event
    from rte.kube.client import Client
    from rte.kubelet.podresources import PodResources
    from rte.telemetry.metrics import AgentMetrics

logger = logging.getLogger(__name__)

#: Simulated kubelets (``rte demo``) have agents on systems too that are not Linux.
HAS_INOTIFY = importlib.util.find_spec("asyncinotify") is not None


class Signals:
    """What the observer is to be told: changes noticed, and other events. One reader."""

    def __init__(self, metrics: AgentMetrics) -> None:
        self._counters = {
            change: metrics.changes.labels(str(change.name).lower()) for change in KubeletChange
        }
        self._changes = KubeletChange.NOTHING
        self._noticed = 0.0
        self._events: list[Event] = []
        self._wake = asyncio.Event()

    def add(self, change: KubeletChange) -> None:
        """Something changed, now."""
        for one in change:
            self._counters[one].inc()
        if not self._changes:
            self._noticed = time.monotonic()
        self._changes |= change
        self._wake.set()

    def give(self, event: Event) -> None:
        """Something was read, or is told by the API."""
        self._events.append(event)
        self._wake.set()

    async def wait(self, timeout_s: float | None = None) -> bool:
        """Until something happened (True), or ``timeout_s`` is over (False; None: never)."""
        try:
            async with asyncio.timeout(timeout_s):
                await self._wake.wait()
        except TimeoutError:
            return False
        return True

    def take_events(self) -> list[Event]:
        """All events given since the last call, in their order."""
        events, self._events = self._events, []
        return events

    def take(self) -> tuple[KubeletChange, float]:
        """All that changed since the last call, and when the first of it was noticed."""
        changes, noticed = self._changes, self._noticed if self._changes else time.monotonic()
        self._changes = KubeletChange.NOTHING
        self._wake.clear()
        return changes, noticed


#: State files and their change; other files in the same directories are none of our business.
_NAMES: Mapping[str, KubeletChange] = {
    statefiles.CPU_STATE: KubeletChange.FILES,
    statefiles.MEMORY_STATE: KubeletChange.FILES,
    statefiles.ALLOCATED_PODS: KubeletChange.FILES,
    statefiles.DEVICE_CHECKPOINT: KubeletChange.FILES | KubeletChange.DEVICES,
}


class _Masks(NamedTuple):
    """Events of inotify: those that are asked for, the end of a watch, and events lost."""

    wanted: Mask
    ended: Mask
    lost: Mask


@functools.cache
def _masks() -> _Masks:
    from asyncinotify import Mask

    # Files are replaced by rename; sockets are created and removed; a directory may be replaced.
    wanted = Mask.MOVED_TO | Mask.CLOSE_WRITE | Mask.CREATE | Mask.DELETE
    gone = Mask.DELETE_SELF | Mask.MOVE_SELF
    ended = gone | Mask.IGNORED | Mask.UNMOUNT
    return _Masks(wanted | gone | Mask.ONLYDIR, ended, Mask.Q_OVERFLOW)


#: ``struct inotify_event`` but for its name, and more than enough for one read.
_EVENT = struct.Struct("iIII")
_READ_BYTES = 16384


class FileFollower:
    """Tells of changes in the kubelet's directories: state files and sockets.

    Directories that do not exist yet, or that are replaced, are looked for every ``retry_s``. While
    the kernel gives no inotify instance, or no watch for a directory that is there (both are few),
    every ``poll_s`` it is looked whether a file is another one.
    """

    def __init__(
        self,
        signals: Signals,
        *,
        state_dir: Path | None,
        plugin_dir: Path | None,
        socket: Path | None,
        retry_s: float = 1.0,
        poll_s: float = 0.2,
    ) -> None:
        self._signals = signals
        self._retry_s = retry_s
        self._poll_s = poll_s
        self._wanted: dict[Path, dict[str, KubeletChange]] = {}
        if state_dir:
            self._want(state_dir, _NAMES)
        if plugin_dir:
            self._want(plugin_dir, {**_NAMES, "kubelet.sock": KubeletChange.SOCKET})
        if socket:
            self._want(socket.parent, {socket.name: KubeletChange.SOCKET})
        self._watched: dict[Path, Watch] = {}
        self._polls = False
        self._seen: dict[Path, tuple[int, int] | None] = {}

    async def run(self) -> None:
        """Follow until cancelled."""
        if not HAS_INOTIFY:
            logger.info("no inotify here: looking at files every %g s", self._poll_s)
            while True:
                await self._poll()
        with await self._inotify() as inotify:
            os.set_blocking(inotify.fd, False)
            loop = asyncio.get_running_loop()
            loop.add_reader(inotify.fd, self._read, inotify.fd)
            try:
                await self._keep_watching(inotify)
            finally:
                loop.remove_reader(inotify.fd)

    async def _inotify(self) -> Inotify:
        from asyncinotify import Inotify

        while True:
            try:
                return Inotify()
            except OSError as error:
                self._fall_back("no instance", error, "fs.inotify.max_user_instances")
            await self._poll()

    def _fall_back(self, what: str, error: OSError, limit: str) -> None:
        if not self._polls:
            logger.warning(
                "inotify gives %s (%s), polling every %g s instead: raise %s",
                what,
                error.strerror,
                self._poll_s,
                limit,
            )
        self._polls = True

    async def _poll(self) -> None:
        for folder, names in self._wanted.items():
            for name, change in names.items():
                if self._is_another(folder / name):
                    self._signals.add(change)
        await asyncio.sleep(self._poll_s)

    def _is_another(self, path: Path) -> bool:
        """Whether a file is not the one that was seen last, or may be replaced in this very tick of
        the kernel's file clock.
        """
        try:
            status = path.stat()
        except OSError:
            now = None
        else:
            now = status.st_ino, status.st_mtime_ns
        known, self._seen[path] = self._seen.get(path), now
        return now != known or (
            now is not None and 0 <= time.time_ns() - now[1] < statefiles.TICK_NS
        )

    def _want(self, folder: Path, changes: Mapping[str, KubeletChange]) -> None:
        self._wanted.setdefault(folder, {}).update(changes)

    async def _keep_watching(self, inotify: Inotify) -> None:
        while True:
            blind = [
                folder
                for folder in self._wanted.keys() - self._watched.keys()
                if not self._watch(inotify, folder)
            ]
            if blind:
                await self._poll()
                continue
            if self._polls:
                logger.info("inotify watches all directories: no polling any more")
                self._polls = False
            await asyncio.sleep(self._retry_s)

    def _watch(self, inotify: Inotify, folder: Path) -> bool:
        """Begin to watch; False when what is in the folder cannot be noticed in this way."""
        try:
            self._watched[folder] = inotify.add_watch(folder, _masks().wanted)
        except (FileNotFoundError, NotADirectoryError):
            return True  # what is not there does not change
        except OSError as error:
            self._fall_back(f"no watch of {folder}", error, "fs.inotify.max_user_watches")
            return False
        # What happened before the watch began was not told.
        for change in set(self._wanted[folder].values()):
            self._signals.add(change)
        return True

    def _read(self, descriptor: int) -> None:
        """Take the waiting events as the kernel gives them.

        The library would make a path of each name. Most names are those of the kubelet's temporary
        files, each a new one, and pathlib interns what it parses: a table that only grows.
        """
        try:
            data = os.read(descriptor, _READ_BYTES)
        except BlockingIOError:
            return
        position = 0
        while position < len(data):
            number, mask, _, length = _EVENT.unpack_from(data, position)
            position += _EVENT.size + length
            self._take(number, mask, data[position - length : position].rstrip(b"\0"))

    def _take(self, number: int, mask: int, name: bytes) -> None:
        if mask & _masks().lost:
            self._signals.add(KubeletChange.FILES | KubeletChange.DEVICES | KubeletChange.SOCKET)
            return
        for folder in [path for path, it in self._watched.items() if it.wd == number]:
            if mask & _masks().ended:
                del self._watched[folder]
                self._signals.add(KubeletChange.POLL)
            elif change := self._wanted[folder].get(os.fsdecode(name)):
                self._signals.add(change)


def hardware(sysfs: Path, *, devices: bool = False) -> str:
    """What changes of the hardware while it runs: on-line CPUs, each zone's memory and huge pages.

    ``devices``: also which PCI functions there are, their drivers, and the interfaces of NICs with
    state and speed.
    """
    system = sysfs / "devices/system"
    pools = sorted(system.glob("node/node*/hugepages/*/nr_hugepages"))
    told = "".join(f"{path} {_text(path)}" for path in (system / "cpu/online", *pools))
    for path in sorted(system.glob("node/node*/meminfo")):
        told += "".join(line for line in _text(path).splitlines() if "MemTotal" in line)
    return told + _devices(sysfs / pci.BUS) if devices else told


def _devices(bus: Path) -> str:
    told = []
    for function in _names(bus):
        told.append(f"{function} {_target(bus / function / 'driver')}")
        for name in _names(bus / function / "net"):
            interface = bus / function / "net" / name
            told.append(f"{name} {_text(interface / 'operstate')} {_text(interface / 'speed')}")
    return "\n".join(told)


def _names(folder: Path) -> list[str]:
    try:
        return sorted(entry.name for entry in folder.iterdir())
    except OSError:
        return []


def _target(link: Path) -> str:
    try:
        return str(link.readlink())
    except OSError:
        return ""


def _text(path: Path) -> str:
    try:
        return path.read_text()
    except OSError:
        return ""


async def follow_machine(
    signals: Signals, read: Callable[[], str], *, every_s: float = 5.0
) -> None:
    """Tell when ``read()`` (what changes at run time) gives another text; sysfs has no inotify."""
    known = read()
    while True:
        await asyncio.sleep(every_s)
        if (now := read()) != known:
            known = now
            signals.add(KubeletChange.MACHINE)


async def follow_connection(signals: Signals, podresources: PodResources) -> None:
    """Tell when the kubelet's end of the connection is closed: it was killed, or is restarted."""
    while True:
        await podresources.wait_closed()
        signals.add(KubeletChange.SOCKET)


async def poll(signals: Signals, change: KubeletChange, *, every_s: float) -> None:
    """Raise ``change`` every ``every_s`` (20 % jitter)."""
    while True:
        await asyncio.sleep(every_s * random.uniform(0.8, 1.2))  # noqa: S311 - spreads load
        signals.add(change)


async def follow_pods(
    client: Client,
    node_name: str,
    signals: Signals,
    metrics: AgentMetrics,
    *,
    poll_s: float = 1.0,
    retry_s: float = 60.0,
) -> None:
    """Tell of this node's pods by a watch; until cancelled.

    Where we may not watch pods, ask for a look at podresources every ``poll_s`` instead, and try
    the watch again, at last every ``retry_s``: an API server that has just started refuses too.
    """
    complained = False
    waits = Backoff(2 * poll_s, retry_s, lambda: random.uniform(0.8, 1.2))  # noqa: S311
    while True:
        try:
            events = watch(client, PODS.path(), field_selector=f"spec.nodeName={node_name}")
            async with aclosing(events):
                async for event in events:
                    if event.kind == "LISTED":
                        signals.give(PodsListed(tuple(event.object.get("items") or ())))
                        metrics.pod_watch.set(1)
                        complained = False
                        waits.worked()
                    elif event.kind == "DELETED":
                        signals.give(PodGone(event.object))
                    else:
                        signals.give(PodSeen(event.object))
        except errors.KubeError as error:
            signals.give(PodsUnknown())
            metrics.pod_watch.set(0)
            if not complained:
                logger.warning(
                    "pods of this node cannot be watched, polling podresources every %g s "
                    "instead: %s",
                    poll_s,
                    error,
                )
                complained = True
        until = time.monotonic() + waits.failed()
        while time.monotonic() < until:
            signals.add(KubeletChange.POLL)
            await asyncio.sleep(poll_s)
