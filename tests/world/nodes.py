"""A node: the kubelet model with its files and podresources, and the real agent beside it."""

from __future__ import annotations

import asyncio
import os
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Self

from rte import errors
from rte.agent.follow import FileFollower
from rte.sim.apiserver import StatusError
from rte.sim.kubelet import Kubelet
from rte.sim.kubelet.files import StateDir
from tests.world.clock import PROCESS

if TYPE_CHECKING:
    from collections.abc import Callable
    from contextlib import AsyncExitStack
    from pathlib import Path

    from rte.model.kubelet import Allocatable, ListedPod
    from tests.world.cluster import World
    from tests.world.processes import Process


class Directory:
    """The kubelet's directory of one node: who is told of what happens in it, and how late."""

    def __init__(self, world: World, root: Path) -> None:
        self.root = root
        self.followers: list[Follower] = []
        self.late_until = self.lost_until = 0.0
        self.torn_s = 0.0
        self._world = world
        self._ticks = 0

    def stamp(self, path: Path) -> None:
        """The file's time is that of the virtual clock, and no two files have the same."""
        self._ticks += 1
        moment = int(self._world.clock.unix() * 1e9) + self._ticks % 1000
        os.utime(path, ns=(moment, moment))

    def tell(self, path: Path) -> None:
        """Inotify: soon, late, or never."""
        now = self._world.now()
        if now < self.lost_until:
            return
        delay = 3.0 if now < self.late_until else 0.0005
        for follower in list(self.followers):
            asyncio.get_running_loop().call_later(delay, follower.noticed, path)


class WorldFiles(StateDir):
    """The kubelet's files; a write may take its time while others read."""

    directories: dict[Path, Directory]

    def _write(self, name: str, text: bytes) -> None:
        before = self._written.get(name)
        super()._write(name, text)
        if before != text:
            directory = self.directories[self.root]
            directory.stamp(self.root / name)
            directory.tell(self.root / name)


class Follower(FileFollower):
    """The agent's follower of files, told by :class:`Directory` instead of the kernel."""

    directories: dict[Path, Directory]

    async def run(self) -> None:
        """As the real one: what happened before it watched was not told."""
        for changes in self._wanted.values():
            for change in set(changes.values()):
                self._signals.add(change)
        mine = [self.directories[path] for path in self._wanted if path in self.directories]
        for directory in mine:
            directory.followers.append(self)
        try:
            await asyncio.get_running_loop().create_future()
        finally:
            for directory in mine:
                directory.followers.remove(self)

    def noticed(self, path: Path) -> None:
        """Something was made, replaced or removed."""
        change = self._wanted.get(path.parent, {}).get(path.name)
        if change:
            self._signals.add(change)


class PodResourcesStandIn:
    """Stands for the client of the kubelet's podresources API."""

    worlds: World

    def __init__(self, address: str) -> None:
        from rte.kubelet.podresources import socket_path

        self.path = socket_path(address)
        self._node = self.worlds.node_of(self.path)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_exc: object) -> None:
        pass

    async def _reach(self, what: str) -> KubeletOfWorld:
        await asyncio.sleep(PROCESS.get().chance.uniform(0.0005, 0.003))
        node = self._node
        if node.hung:
            await asyncio.sleep(10.0)
            raise errors.KubeletError(f"podresources {what} at {self.path}: no answer within 10 s")
        kubelet = node.kubelet
        if not kubelet.serving:
            raise errors.KubeletGoneError(f"podresources {what} at {self.path}: no answer")
        return kubelet

    async def list(self) -> tuple[ListedPod, ...]:
        return (await self._reach("List")).listed()

    async def allocatable(self) -> Allocatable | None:
        return (await self._reach("GetAllocatableResources")).allocatable()

    async def get(self, namespace: str, name: str) -> ListedPod | None:
        listed = (await self._reach("Get")).listed()
        return next((pod for pod in listed if (pod.namespace, pod.name) == (namespace, name)), None)

    async def wait_closed(self) -> None:
        node = self._node
        while not node.kubelet.serving:
            await node.changed.wait()
        while node.kubelet.serving:
            await node.changed.wait()


class LateWatch:
    """A watch of a kubelet: what is told arrives a little later, or when the link is back."""

    def __init__(self, node: Node, watch: Any) -> None:
        self._node, self._watch = node, watch

    def pending(self) -> list[Any]:
        found: list[Any] = self._watch.pending()
        return found

    def stop(self) -> None:
        self._watch.stop()

    def __aiter__(self) -> LateWatch:
        return self

    async def __anext__(self) -> tuple[str, Any]:
        try:
            event: tuple[str, Any] = await anext(self._watch)
        except StopAsyncIteration:
            await self._node.reached()
            raise
        await asyncio.sleep(self._node.process.chance.uniform(0.001, 0.02))
        await self._node.reached()
        return event


class KubeletsAPI:
    """The API as one kubelet has it: what it writes while the link is cut is written later."""

    def __init__(self, node: Node, api: Any) -> None:
        self._node, self._api = node, api
        self._later: list[Callable[[], Any]] = []

    def watch(self, *args: Any) -> LateWatch:
        return LateWatch(self._node, self._api.watch(*args))

    def get(self, *args: Any) -> Any:
        return self._api.get(*args)

    def create(self, *args: Any, **kwargs: Any) -> Any:
        return self._write(None, self._api.create, *args, **kwargs)

    def delete(self, *args: Any, **kwargs: Any) -> Any:
        return self._write(None, self._api.delete, *args, **kwargs)

    def patch(self, resource: str, name: str, body: Any, namespace: str = "", **kwargs: Any) -> Any:
        shown = None
        if resource == "pods" and self._is_cut():
            shown = self._api.store.get("pods", (namespace, name))
        return self._write(shown, self._api.patch, resource, name, body, namespace, **kwargs)

    def _is_cut(self) -> bool:
        return self._node.is_cut() or bool(self._later)

    def _write(self, shown: Any, call: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        if not self._is_cut():
            return call(*args, **kwargs)
        if shown is None and call.__name__ == "patch":
            raise StatusError(404, "unknown while the link is cut")
        self._later.append(lambda: call(*args, **kwargs))
        if len(self._later) == 1:
            self._node.process.context.run(asyncio.get_running_loop().create_task, self._catch_up())
        return shown

    def forget(self) -> None:
        """The kubelet is dead, and what it had not told is lost."""
        self._later.clear()

    async def _catch_up(self) -> None:
        while self._later:
            await self._node.reached()
            if self._later:
                with suppress(StatusError):
                    self._later.pop(0)()


class KubeletOfWorld(Kubelet):
    """The kubelet model on the virtual clock, without sockets."""

    node: Node

    @property
    def serving(self) -> bool:
        """Whether podresources answers."""
        return self.node.serving

    async def _serve(self, root: Path, stack: AsyncExitStack) -> None:
        socket = root / "pod-resources/kubelet.sock"
        socket.parent.mkdir(parents=True, exist_ok=True)
        socket.unlink(missing_ok=True)
        socket.touch()
        self.node.directory.stamp(socket)
        self.node.directory.tell(socket)
        self._port = 10250
        self.node.serves(True)
        stack.callback(self.node.serves, False)

    def _refuse(self, record: Any, refusal: Any) -> None:
        self.node.world.judge.refused(self.node, record, refusal)
        super()._refuse(record, refusal)


class Node:
    """One node.

    Attributes:
        process: of its kubelet.
        agent: of its agent.
    """

    def __init__(self, world: World, name: str, root: Path, process: Process) -> None:
        self.world, self.name, self.root = world, name, root
        self.process = process
        self.agent: Process
        self.api = KubeletsAPI(self, world.api)
        self.kubelet: KubeletOfWorld
        self.directory = Directory(world, root)
        self.hung = self.serving = self.up = False
        self.changed = asyncio.Event()
        #: When something happened that only the kubelet knows at once, by what it was.
        self.upset: dict[str, float] = {}

    def serves(self, value: bool) -> None:
        """Podresources answers from now on, or does not."""
        self.serving = value
        before, self.changed = self.changed, asyncio.Event()
        before.set()

    def is_cut(self) -> bool:
        """Whether its kubelet does not reach the API."""
        world = self.world
        return world.now() < max(self.process.link.until, world.api_away_until) or self.hung

    async def reached(self) -> None:
        """Until its kubelet reaches the API."""
        while self.is_cut():
            await asyncio.sleep(0.25)

    async def start_kubelet(self) -> None:
        """Start it, as its own process."""
        loop = asyncio.get_running_loop()
        try:
            await loop.create_task(self.kubelet.start(), context=self.process.context)
        except errors.KubeletStartError as error:
            self.world.say(f"{self.name}: its kubelet does not start ({error}); it is drained")
            self.world.drain(self)
            await loop.create_task(self.kubelet.start(), context=self.process.context)
        self.up = True
        self.process.dead = False

    async def stop_kubelet(self) -> None:
        """It dies."""
        self.up = False
        self.process.die()
        await self.kubelet.stop()
        self.api.forget()
