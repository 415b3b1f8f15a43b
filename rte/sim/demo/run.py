"""The two ways of showing the demo: live until interrupted, or a short tour."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import signal
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.live import Live

from rte import errors
from rte.model.words import counted
from rte.sim.demo import chaos, keys, view, workload
from rte.sim.demo.cluster import GPU, NAMESPACE, DemoCluster
from rte.sim.demo.snapshot import SnapshotCollector

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Coroutine, Sequence

    from rte.sim.demo.cluster import Settings
    from rte.sim.demo.snapshot import DemoSnapshot, PodLine

_REFRESH_SECONDS = 0.25
_KEYS = "↑ ↓ PgUp PgDn Home End scroll  |  q or Ctrl-C ends"
#: Longest wait for a step of the tour: so much, and more for each node.
_STEP_SECONDS, _STEP_SECONDS_PER_NODE = 30.0, 2.0
#: Of more pods the first and the last are named.
_SHOWN = 12
#: Pods of a tour with a comparison, beside the few that show something each.
_FILLING = 60


@asynccontextmanager
async def _quiet_cluster(
    settings: Settings, *, compare: bool
) -> AsyncIterator[tuple[DemoCluster, DemoCluster | None]]:
    """A cluster whose programs log errors only (the screen is for what they do), and on demand a
    second one of the same machines with plain rules.
    """
    logger = logging.getLogger("rte")
    before = logger.level
    logger.setLevel(logging.ERROR)
    try:
        async with contextlib.AsyncExitStack() as stack:
            cluster = await stack.enter_async_context(DemoCluster(settings))
            beside = replace(settings, plain=True, port=0)
            yield (
                cluster,
                await stack.enter_async_context(DemoCluster(beside)) if compare else None,
            )
    finally:
        logger.setLevel(before)


async def live(
    settings: Settings,
    *,
    rate: float,
    seed: int,
    compare: bool = False,
    faults: chaos.Chaos | None = None,
) -> bool:
    """Show a cluster with pods that come and go until SIGINT or SIGTERM; False: some were lost.

    ``compare``: the same pods are placed by plain Kubernetes rules as well. ``faults`` are played
    meanwhile; it ends with them as well, and says then what they have done.
    """
    console = Console()
    stop = asyncio.Event()
    _on_signals(stop.set)
    async with _quiet_cluster(settings, compare=compare) as (cluster, beside):
        pods = workload.come_and_go(
            cluster.api, rate=rate, seed=seed, groups=cluster.has_groups,
            beside=beside.api if beside else None,
        )  # fmt: skip
        storm = [faults.play(cluster, seed)] if faults else []
        await _until_stopped(cluster, beside, console, stop, pods, *storm)
        lost = await faults.lost(cluster) if faults else []
    for line in lost or ["Nothing was lost."] * bool(faults):
        console.print(line, highlight=False, soft_wrap=True)
    return not lost


def _on_signals(act: Callable[[], object]) -> None:
    """Whatever asks the process to end: the cluster must not stay behind."""
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT):
        loop.add_signal_handler(number, act)


async def _until_stopped(
    cluster: DemoCluster,
    beside: DemoCluster | None,
    console: Console,
    stop: asyncio.Event,
    *users: Coroutine[Any, Any, None],
) -> None:
    await cluster.served()
    observer = SnapshotCollector(cluster, beside)
    cluster.remark = lambda: view.remark(observer.beside())
    # A terminal that cannot move its cursor would stay empty.
    drawn = console.is_terminal and not console.is_dumb_terminal and has_signs(console)
    show = _screen if drawn else _lines
    failures = [each.failed() for each in (cluster, beside) if each is not None]
    work = (*users, show(console, observer, _commands(cluster), stop), *failures, stop.wait())
    tasks = [asyncio.ensure_future(coroutine) for coroutine in work]
    done, rest = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    for task in rest:
        task.cancel()
    await asyncio.wait(rest)
    last = observer.look()
    observer.close()
    for task in done:
        task.result()
    for line in view.summary_lines(last):
        console.print(line, highlight=False, soft_wrap=True)


def _commands(cluster: DemoCluster) -> list[str]:
    return [
        f"export KUBECONFIG={cluster.kubeconfig}",
        f"in a browser: {cluster.page}",
        f"kubectl get -n {NAMESPACE} pods  |  kubectl get nrt  |  rte explain -n {NAMESPACE} POD",
    ]


async def _screen(
    console: Console, observer: SnapshotCollector, commands: Sequence[str], stop: asyncio.Event
) -> None:
    commands = [*commands, _KEYS]
    top = 0
    with (
        keys.pressed() as pressed,
        Live(console=console, screen=True, auto_refresh=False, transient=True) as screen,
    ):
        while True:
            size = view.Screen(width=console.width, height=console.height, plain=_is_plain(console))
            snapshot = observer.look()
            drawn, most = view.draw(snapshot, size, commands, scroll=top)
            screen.update(drawn, refresh=True)
            top = min(top, most)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_REFRESH_SECONDS):
                    key = await pressed.get()
                    if key in ("q", "\x03"):
                        stop.set()
                    page = size.height // 2
                    top = max(0, min(most, keys.scrolled(key, top, page=page, most=most)))


def has_signs(console: Console) -> bool:
    """Whether the terminal's encoding has the signs of a drawing, which not all do."""
    try:
        "▀▲╌●…".encode(console.encoding)
    except UnicodeEncodeError:
        return False
    return True


def _is_plain(console: Console) -> bool:
    """Whether no colours are shown: ``NO_COLOR``, or output into a file."""
    return console.no_color or console.color_system is None


async def _lines(
    console: Console, observer: SnapshotCollector, commands: Sequence[str], _: asyncio.Event
) -> None:
    for command in commands:
        console.print(command, highlight=False, soft_wrap=True)
    while True:
        for event in observer.new_events():
            console.print(
                f"{event.time} {event.reason:<17} {event.pod:<12} {event.text}",
                markup=False, highlight=False, soft_wrap=True,
            )  # fmt: skip
        await asyncio.sleep(_REFRESH_SECONDS)


async def tour(settings: Settings, *, compare: bool = False) -> None:
    """Start a cluster, place a few pods, show where they are and what the NRTs say, and leave.

    ``compare``: the same pods are placed by plain Kubernetes rules as well.

    Raises:
        errors.RteError: the cluster did not come to life in time.
    """
    task = asyncio.current_task()
    if task is not None:
        _on_signals(task.cancel)
    console = Console(highlight=False, soft_wrap=True)
    console.print("Starting an API server, kubelets, agents and the scheduler ...")
    async with _quiet_cluster(settings, compare=compare) as (cluster, beside):
        observer = SnapshotCollector(cluster, beside)
        await _until(
            cluster, observer, lambda s: all(n.state and n.state.synced for n in s.nodes),
            "the agents have published their nodes",
        )  # fmt: skip
        console.print(view.zone_table(observer.look()))
        pods = _tour_pods(observer.look(), settings.policy)
        await _place(pods, cluster, beside, observer, console)
        if beside is not None:
            await _place(_filling(observer.look()), cluster, beside, observer, console)
        last = observer.look()
        for line in view.pod_lines(last, plain=_is_plain(console)):
            console.print(line)
        console.print()
        console.print(view.zone_table(last))
        console.print()
        for text in view.summary_lines(last):
            console.print(text)
        observer.close()


async def _place(
    objects: Sequence[dict[str, Any]],
    cluster: DemoCluster,
    beside: DemoCluster | None,
    observer: SnapshotCollector,
    console: Console,
) -> None:
    """Create pods and PodGroups, here and beside, until all have their answer."""
    names = [obj["metadata"]["name"] for obj in objects if obj.get("kind") != "PodGroup"]
    shown = names if len(names) <= _SHOWN else [*names[:2], "...", names[-1]]
    console.print(f"\nCreating {counted(len(names), 'pod')}: {', '.join(shown)}")
    many = len(observer.look().pods) + len(names)
    for obj in objects:
        workload.make(cluster.api, obj, beside.api if beside else None)
    await _until(
        cluster, observer,
        lambda s: len(s.pods) == many and all(_is_settled(p) for p in s.pods),
        "every pod runs, or is told why it fits nowhere",
    )  # fmt: skip
    if beside is not None:
        await _until(beside, observer, _is_beside_settled, "every pod beside has its answer")


def _is_beside_settled(snapshot: DemoSnapshot) -> bool:
    """Every pod under plain rules was placed and admitted or refused, or fits on no totals."""
    return snapshot.beside is not None and not snapshot.beside.undecided


def _is_settled(pod: PodLine) -> bool:
    """Runs, with its CPUs published if it gets any; or waits and was told why."""
    if pod.phase == "Running":
        held = pod.devices if pod.name.startswith("dra") else pod.cpus
        return bool(held) or pod.name.startswith("shared")
    return bool(pod.reason)


def _tour_pods(snapshot: DemoSnapshot, policy: str) -> list[dict[str, Any]]:
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
    amounts = {"cpu": "1", "memory": "512Mi"}
    made += workload.gang("gang", {"requests": amounts, "limits": amounts}, 3600)
    if any(node.has_groups for node in snapshot.nodes):
        made.append(workload.with_groups(workload.pod("groups-1", {}, 3600), 3))
    return made


def _filling(snapshot: DemoSnapshot) -> list[dict[str, Any]]:
    """Pods of more than half a zone, of the largest and of the smallest ones in turn.

    Of what a node has in all, parts are left over in each zone that no such pod can use; and a node
    of small zones has room for a large pod by its sum, but in no zone.
    """
    nodes = [
        [zone.resources["cpu"].allocatable // 1000 for zone in node.topology.zones]
        for node in snapshot.nodes
        if node.topology is not None and not node.has_groups
    ]
    largest = [max(zones) for zones in nodes]
    sizes = sorted({max(largest) // 2 + 1, min(largest) // 2 + 1})
    made = []
    for number in range(_FILLING):
        amounts = {"cpu": str(sizes[number % len(sizes)]), "memory": "256Mi"}
        limits = {"requests": amounts, "limits": amounts}
        made.append(workload.pod(f"fill-{number + 1}", limits, 3600))
    return made


async def _until(
    cluster: DemoCluster,
    observer: SnapshotCollector,
    done: Callable[[DemoSnapshot], bool],
    what: str,
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
