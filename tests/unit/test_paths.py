"""How much of the house one ordinary event goes through: files touched, and changes of file.

What is decided in few hands can be followed by a reader. Every call of a Python function of rte is
counted by the file that it lies in, so the figures are the same on every machine.
"""

from __future__ import annotations

import asyncio
import os
import sys
from collections import Counter
from contextlib import AsyncExitStack, contextmanager
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

import orjson
import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

import rte
from rte.accounting.liveness import PodTable
from rte.agent.follow import HAS_INOTIFY, FileFollower, Signals
from rte.agent.observer.machine import Observer
from rte.agent.observer.messages import NodeObjectFacts
from rte.agent.observing import Observing
from rte.agent.publisher.machine import Publisher
from rte.agent.publishing import Publishing
from rte.agent.settings import AgentSettings
from rte.agent.sources import NodeReader
from rte.agent.stores import KubeStore
from rte.kube.client import Client
from rte.kube.credentials import Credentials
from rte.kubelet import PLUGIN_DIR
from rte.model.node import ConfigSource, KubeletConfig
from rte.scheduler.loop import messages
from rte.telemetry.effects import Readiness
from rte.telemetry.metrics import AgentMetrics
from tests.unit.agent.kubelets import FakeKubelet
from tests.unit.agent.test_pods import pod
from tests.unit.agent.world import machine
from tests.unit.scheduler.build import pod_object
from tests.unit.scheduler.desk import Desk

if TYPE_CHECKING:
    from collections.abc import Coroutine, Iterator
    from types import FrameType

    from rte.model.node import NodeState

#: Pods whose admission is followed.
_MEASURED = ("third", "fourth", "fifth", "sixth")

_HOUSE = f"{Path(rte.__file__).parent}/"


@contextmanager
def followed() -> Iterator[list[str]]:
    """Files of rte in which functions are called meanwhile, call by call."""
    calls: list[str] = []

    def note(frame: FrameType, event: str, _: Any) -> None:
        if event == "call" and frame.f_code.co_filename.startswith(_HOUSE):
            calls.append(frame.f_code.co_filename.removeprefix(_HOUSE))

    before = sys.getprofile()
    sys.setprofile(note)
    try:
        yield calls
    finally:
        sys.setprofile(before)


def judge(what: str, calls: list[str], *, files: int, changes: int) -> None:
    """Print the figures; fail beyond them, and say which files were visited most."""
    visits = Counter(calls)
    changed = sum(1 for one, other in pairwise(calls) if one != other)
    print(f"{what}: {len(calls)} calls, {len(visits)} files, {changed} changes of file")
    if len(visits) > files or changed > changes:
        most = "\n".join(f"{number:5} {name}" for name, number in visits.most_common())
        pytest.fail(f"{len(visits)} files ({files}), {changed} changes ({changes}):\n{most}")


def test_a_guaranteed_pod_from_its_first_sight_to_its_bind() -> None:
    """The third pod of its kind on six nodes, with everything warm."""
    desk = Desk()
    for number in range(6):
        desk.node(f"n{number}")
    for _ in range(2):
        desk.pod(cpu="2")
        desk.run_all()
    obj = pod_object("third", "2")
    obj["metadata"]["resourceVersion"] = str(desk.version + 1)
    loop, bound = desk.machine, False
    with followed() as calls:
        effects = loop.handle(messages.Seen("pods", obj), desk.now)
        while loop.has_work():
            effects += loop.handle(messages.Turn(), desk.now)
        for effect in effects:
            if isinstance(effect, messages.Bind):
                answer = messages.Bound(effect.pod.uid, messages.Outcome.BOUND)
                loop.handle(answer, desk.now)
                bound = True
    assert bound
    judge("a pod, from event to bind", calls, files=40, changes=200)


@pytest.mark.skipif(not HAS_INOTIFY, reason="the kernel's own word of a file is part of the way")
async def test_a_kubelets_file_from_its_rename_to_the_written_report(tmp_path: Path) -> None:
    """One more admission on a node, with everything warm: to its write at the API server.

    Whether two writes of a file are told as one or as two is the kernel's to say: the least of
    some admissions counts.
    """
    stored: dict[str, Any] = {}
    calls: list[str] = []
    written: asyncio.Queue[int] = asyncio.Queue()

    async def answer(request: web.Request) -> web.Response:
        before = len(calls)
        if request.method in ("POST", "PUT"):
            stored.update(orjson.loads(await request.read()))
            version = int(stored["metadata"].get("resourceVersion") or 0) + 1
            stored["metadata"]["resourceVersion"] = str(version)
            written.put_nowait(before)
        return web.json_response(stored, status=200 if stored else 404)

    kubelet = FakeKubelet(tmp_path, machine().online)
    kubelet.start()
    os.utime(kubelet.socket, (0, 0))
    app = web.Application()
    app.router.add_route("*", "/{path:.*}", answer)
    async with TestServer(app) as server, AsyncExitStack() as stack:
        credentials = Credentials(server=str(server.make_url("")).rstrip("/"))
        client = await stack.enter_async_context(Client(credentials))
        pods = PodTable()
        pods.replace([pod(uid) for uid in ("first", "second", *_MEASURED)])
        for work in _agent(kubelet, KubeStore(client, "n0"), pods):
            task = asyncio.create_task(work)
            stack.callback(task.cancel)
        for uid in ("first", "second"):
            kubelet.admit(uid, 0b110 << 2 * len(kubelet.admitted))
            while uid not in str(stored):
                await asyncio.wait_for(written.get(), 30)
        await asyncio.sleep(0.5)  # what is compared afterwards is over
        while not written.empty():
            written.get_nowait()
        ways = []
        for uid in _MEASURED:
            with followed() as heard:
                calls = heard
                kubelet.admit(uid, 0b110 << 2 * len(kubelet.admitted))
                number = await asyncio.wait_for(written.get(), 30)
            assert uid in str(stored)
            # What is begun while the request is on its way is no part of it.
            sent = max(index for index in range(number) if calls[index].startswith("kube/"))
            ways.append(calls[: sent + 1])
            await asyncio.sleep(0.5)
            while not written.empty():
                written.get_nowait()
    shortest = min(ways, key=len)
    judge("a kubelet's file, from rename to written report", shortest, files=40, changes=240)


def _agent(
    kubelet: FakeKubelet, store: KubeStore, pods: PodTable
) -> list[Coroutine[Any, Any, None]]:
    """An agent at work on that kubelet, as ``rte run`` puts it together."""
    settings = AgentSettings(
        node_name="n0",
        kubelet_state_dir=kubelet.root,
        device_plugin_dir=kubelet.root / PLUGIN_DIR,
        podresources_socket=str(kubelet.socket),
    )
    metrics, readiness = AgentMetrics(), Readiness()
    signals = Signals(metrics)
    config = KubeletConfig(cpu_policy="static", reserved_cpus=1, source=ConfigSource.CONFIGZ)

    async def learn(
        _memory: int, _patient: bool
    ) -> tuple[KubeletConfig, NodeObjectFacts, NodeState | None]:
        return config, NodeObjectFacts(uid="u", version="v1.35.4"), None

    reader = NodeReader(
        machine=machine,
        learner=learn,
        state_dir=kubelet.root,
        plugin_dir=kubelet.root / PLUGIN_DIR,
        podresources=kubelet,
        socket=kubelet.socket,
    )
    publishing = Publishing(store, Publisher(), metrics=metrics, readiness=readiness)
    observing = Observing(
        Observer(settings.scope(pods=True), pods=pods, quarantine=reader.quarantine),
        reader,
        signals,
        publishing,
        metrics=metrics,
        readiness=readiness,
    )
    files = FileFollower(
        signals,
        state_dir=kubelet.root,
        plugin_dir=kubelet.root / PLUGIN_DIR,
        socket=kubelet.socket,
    )
    return [publishing.run(), observing.run(), files.run()]
