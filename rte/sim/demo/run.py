"""The two ways of showing the demo: live until interrupted, or a short tour."""

from __future__ import annotations

import asyncio
import logging
import signal
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.live import Live

from rte import errors
from rte.sim.demo import view, workload
from rte.sim.demo.cluster import GPU, Cluster
from rte.sim.demo.snapshot import Observer

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Sequence

    from rte.sim.demo.cluster import Settings
    from rte.sim.demo.snapshot import PodLine, Snapshot

_REFRESH_SECONDS = 0.25
#: Longest wait for a step of the tour: so much, and more for each node.
_STEP_SECONDS, _STEP_SECONDS_PER_NODE = 6.0, 1.0


@asynccontextmanager
async def _quiet_cluster(settings: Settings) -> AsyncIterator[Cluster]:
    """A cluster whose programs log errors only: the screen is for what they do."""
    logger = logging.getLogger("rte")
    before = logger.level
    logger.setLevel(logging.ERROR)
    try:
        async with Cluster(settings) as cluster:
            yield cluster
    finally:
        logger.setLevel(before)


async def live(settings: Settings, *, rate: float, seed: int) -> None:
    """Show a cluster with pods that come and go until SIGINT or SIGTERM."""
    console = Console()
    stop = asyncio.Event()
    _on_signals(stop.set)
    async with _quiet_cluster(settings) as cluster:
        await _until_stopped(cluster, console, stop, rate=rate, seed=seed)


def _on_signals(act: Callable[[], object]) -> None:
    """Whatever asks the process to end: the cluster must not stay behind."""
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT):
        loop.add_signal_handler(number, act)


async def _until_stopped(
    cluster: Cluster, console: Console, stop: asyncio.Event, *, rate: float, seed: int
) -> None:
    await cluster.served()
    observer = Observer(cluster)
    show = _screen if console.is_terminal else _lines
    work = (
        workload.come_and_go(cluster.api, rate=rate, seed=seed),
        show(console, observer, _commands(cluster)),
        cluster.failed(),
        stop.wait(),
    )
    tasks = [asyncio.ensure_future(coroutine) for coroutine in work]
    done, rest = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    for task in rest:
        task.cancel()
    await asyncio.wait(rest)
    last = observer.look()
    observer.close()
    for task in done:
        task.result()
    console.print(
        f"{last.created} pods were created: {last.bound} placed, {last.count('Pending')} still "
        f"waiting, {last.refused} refused by a kubelet.",
        highlight=False, soft_wrap=True,
    )  # fmt: skip


def _commands(cluster: Cluster) -> list[str]:
    return [
        f"export KUBECONFIG={cluster.kubeconfig}",
        f"in a browser: {cluster.page}",
        "kubectl get pods,noderesourcetopologies  |  rte explain POD  |  Ctrl-C ends",
    ]


async def _screen(console: Console, observer: Observer, commands: Sequence[str]) -> None:
    with Live(console=console, screen=True, auto_refresh=False, transient=True) as screen:
        while True:
            width, height = console.size
            screen.update(view.draw(observer.look(), width, height, commands), refresh=True)
            await asyncio.sleep(_REFRESH_SECONDS)


async def _lines(console: Console, observer: Observer, commands: Sequence[str]) -> None:
    for command in commands:
        console.print(command, highlight=False, soft_wrap=True)
    while True:
        for event in observer.new_events():
            console.print(
                f"{event.time} {event.reason:<17} {event.pod:<12} {event.text}",
                markup=False, highlight=False, soft_wrap=True,
            )  # fmt: skip
        await asyncio.sleep(_REFRESH_SECONDS)


async def tour(settings: Settings) -> None:
    """Start a cluster, place a few pods, show where they are and what the NRTs say, and leave.

    Raises:
        errors.RteError: the cluster did not come to life in time.
    """
    task = asyncio.current_task()
    if task is not None:
        _on_signals(task.cancel)
    console = Console(highlight=False, soft_wrap=True)
    console.print("Starting an API server, kubelets, agents and the scheduler ...")
    async with _quiet_cluster(settings) as cluster:
        observer = Observer(cluster)
        await _until(
            cluster, observer, lambda s: all(n.state and n.state.synced for n in s.nodes),
            "the agents have published their nodes",
        )  # fmt: skip
        console.print(view.zone_table(observer.look()))
        pods = _tour_pods(observer.look(), settings.policy)
        names = ", ".join(pod["metadata"]["name"] for pod in pods)
        console.print(f"\nCreating pods: {names}")
        for pod in pods:
            cluster.api.create("pods", pod, "default")
        names_made = {pod["metadata"]["name"] for pod in pods}
        await _until(
            cluster, observer,
            lambda s: all(_is_settled(p) for p in s.pods) and len(s.pods) == len(names_made),
            "every pod runs, or is told why it fits nowhere",
        )  # fmt: skip
        last = observer.look()
        for line in view.pod_lines(last, len(last.pods) + 1):
            console.print(line)
        console.print()
        console.print(view.zone_table(last))
        console.print(f"\nrefused by a kubelet: {last.refused}")
        observer.close()


def _is_settled(pod: PodLine) -> bool:
    """Runs, with its CPUs published if it gets any; or waits and was told why."""
    if pod.phase == "Running":
        held = pod.devices if pod.name.startswith("dra") else pod.cpus
        return bool(held) or pod.name.startswith("shared")
    return bool(pod.reason)


def _tour_pods(snapshot: Snapshot, policy: str) -> list[dict[str, Any]]:
    """Pods that fit on most machines, and one that fits on none."""
    zones = [
        [zone.resources["cpu"].allocatable // 1000 for zone in node.topology.zones]
        for node in snapshot.nodes
        if node.topology is not None
    ]
    # A policy that aligns nothing gives a pod the CPUs of all zones.
    aligned = policy == "single-numa-node"
    largest = max(max(node) if aligned else sum(node) for node in zones)
    gpus = any(
        GPU in zone.resources
        for node in snapshot.nodes
        if node.topology is not None
        for zone in node.topology.zones
    )
    wanted: list[tuple[str, dict[str, str], bool]] = [
        ("pinned-1", {"cpu": "2", "memory": "1Gi"}, True),
        ("pinned-2", {"cpu": "4", "memory": "2Gi"}, True),
        ("shared-1", {"cpu": "500m", "memory": "1Gi"}, False),
        ("too-large", {"cpu": str(largest + 1), "memory": "1Gi"}, True),
    ]
    if gpus:
        wanted.insert(2, ("gpu-1", {"cpu": "2", "memory": "1Gi", GPU: "1"}, True))
    made = [
        workload.pod(name, {"requests": amounts, **({"limits": amounts} if exact else {})}, 3600)
        for name, amounts, exact in wanted
    ]
    if any(node.has_pci for node in snapshot.nodes):
        amounts = {"cpu": "2", "memory": "1Gi"}
        pod = workload.pod("dra-1", {"requests": amounts, "limits": amounts}, 3600)
        made.append(workload.claiming(pod))
    return made


async def _until(
    cluster: Cluster, observer: Observer, done: Callable[[Snapshot], bool], what: str
) -> None:
    async def reached() -> None:
        while not done(observer.look()):  # noqa: ASYNC110 - what is waited for has many sources
            await asyncio.sleep(0.05)

    patience = _STEP_SECONDS + _STEP_SECONDS_PER_NODE * len(cluster.nodes)
    tasks = [asyncio.ensure_future(reached()), asyncio.ensure_future(cluster.failed())]
    finished, rest = await asyncio.wait(
        tasks, timeout=patience, return_when=asyncio.FIRST_COMPLETED
    )
    for task in rest:
        task.cancel()
    await asyncio.wait(tasks)
    if not finished:
        raise errors.RteError(
            f"the demo gave up after {patience:g} s: it did not come to pass that {what}; "
            "try again on a less busy machine, or with fewer --nodes"
        )
    for task in finished:
        task.result()
