"""A week in minutes: ``python -m bench.scheduler_week [--pods 50000]``.

The whole scheduler against the embedded API, with simulated kubelets of mixed policies. Pods come,
run and go: pinned, sharing, wide, and urgent ones that go first. Pods end once no more of those
that wait have begun for a moment, so the cluster is full most of the time. It is watched all the
time whether a pod sleeps in the queue although a node takes it. Prints one JSON line: pods
by fate, refusals, rate, memory after a fifth and at the end, what is left in the scheduler's
tables (``nodes.gone`` are pods that ended in the last five minutes). The API keeps a bounded
history, and events are taken out as their time to live would.

With ``--blind`` a third of the nodes are not like the others: of these, every other one has no
report at all (its kubelet may refuse pods; nobody else's may), the rest an agent that is dead half
of the time.
"""

from __future__ import annotations

import argparse
import asyncio
import collections
import contextlib
import gc
import json
import random
import sys
import tempfile
import time
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psutil

from bench.lib.witness import takers
from rte.kube import credentials
from rte.kube.client import Client
from rte.scheduler.settings import AGENT_LEASE_LABELS, SchedulerSettings
from rte.scheduler.shell.service import Scheduler
from rte.sim import machines
from rte.sim.apiserver import API, APIServer, DeleteOptions, StatusError
from rte.sim.demo.cluster import crd
from rte.sim.fleet import SimulatedFleet

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping, Sequence


#: Settings of the kubelets, in turn.
POLICIES: tuple[Mapping[str, Any], ...] = (
    {"policy": "single-numa-node"},
    {"policy": "single-numa-node", "scope": "pod"},
    {"policy": "restricted"},
    {"policy": "none", "cpu_policy": "none", "memory_policy": "None"},
)

#: A pod is wrongly Pending when so many looks in a row, so far apart, find a place for it.
LOOKS, LOOK_EVERY_S = 4, 0.05

#: Nobody ends until for so long nobody has begun.
QUIET_S = 0.1

_EVENTS = "events"

#: An agent that dies now and then renews its Lease for so long, and then does not.
ALIVE_S, DEAD_S = 60.0, 60.0


@dataclass
class Week:
    """What has happened so far."""

    wanted: int
    created: int = 0
    ran: int = 0
    evicted: int = 0
    alive: set[str] = field(default_factory=set)
    running: set[str] = field(default_factory=set)
    failed: list[str] = field(default_factory=list)
    over: list[str] = field(default_factory=list)
    began: float = 0.0
    wrongly_pending: list[str] = field(default_factory=list)
    change: asyncio.Event = field(default_factory=asyncio.Event)


def pod(rng: random.Random, name: str) -> dict[str, Any]:
    """Mostly pinned pods of one or two containers; some share, some are wide and urgent."""
    urgent = rng.random() < 0.02
    kind = "wide" if urgent else rng.choices(("pinned", "two", "shared", "wide"), (6, 2, 2, 1))[0]
    sizes = {"pinned": (1, 2, 3, 4, 6), "two": (1, 2), "shared": (1, 2), "wide": (12, 14)}[kind]
    boxes = []
    for index in range(2 if kind == "two" else 1):
        amounts = {"cpu": str(rng.choice(sizes)), "memory": f"{rng.choice((64, 128, 256))}Mi"}
        resources = {"requests": amounts}
        if kind != "shared":
            resources["limits"] = amounts
        boxes.append({"name": f"c{index}", "image": "i:1", "resources": resources})
    spec: dict[str, Any] = {"schedulerName": "rte-scheduler", "containers": boxes}
    spec["terminationGracePeriodSeconds"] = 0
    if urgent:
        spec["priorityClassName"] = "urgent"
    labels = {"app": f"a{rng.randrange(50)}", "number": name}
    return {"metadata": {"name": name, "labels": labels}, "spec": spec}


@contextlib.asynccontextmanager
async def scheduler_of(server: APIServer, folder: Path) -> AsyncIterator[Scheduler]:
    """A running scheduler that has listed everything."""
    server.write_kubeconfig(folder / "kubeconfig")
    async with Client(credentials.load(folder / "kubeconfig", {})) as client:
        settings = SchedulerSettings(listen="", leader_elect=False, reserve_after=2.0)
        scheduler = Scheduler(client, settings)
        task = asyncio.create_task(scheduler.run(), name="scheduler")
        try:
            while scheduler.readiness.reasons and not task.done():
                await asyncio.sleep(0.01)
            yield scheduler
        finally:
            task.cancel()
            await asyncio.wait([task])
            if not task.cancelled():
                task.result()


def tables(scheduler: Scheduler) -> dict[str, int]:
    """Size of each table of the scheduler that speaks of pods."""
    out = {}
    owners = {
        "scheduler": scheduler,
        "machine": scheduler.machine,
        "cluster": scheduler.cluster,
        "storage": scheduler.cluster.storage,
        "matches": scheduler.cluster.matches,
        "queue": scheduler.queue,
        "room": vars(scheduler.machine)["_room"],
        "rejections": vars(scheduler.machine)["_kubelets"].rejections,
        "binding": scheduler.machine.binding,
        "timers": vars(scheduler.machine)["_timers"],
        "intake": scheduler.machine.intake,
        "reporter": scheduler.reporter,
        "feeds": scheduler.feeds,
    }
    for owner, value in owners.items():
        for name, table in vars(value).items():
            if isinstance(table, dict | set | list | collections.deque):
                lanes = table.values() if isinstance(table, dict) else ()
                heaps = [lane for lane in lanes if isinstance(lane, list)]
                # Lanes are there always; who stands in them is what counts.
                fixed = len(heaps) == len(table)
                out[f"{owner}.{name}"] = sum(map(len, heaps)) if fixed else len(table)
    entries = scheduler.cluster.nodes.values()
    out["nodes.gone"] = sum(len(entry.gone) for entry in entries)
    out["nodes.pods"] = sum(len(entry.pods) for entry in entries)
    out["nodes.awaited"] = sum(len(entry.awaited) for entry in entries)
    out["nodes.nominated"] = sum(len(entry.nominated) for entry in entries)
    out["cluster.shapes"] = len(scheduler.cluster.shapes)
    return out


async def follow(api: API, week: Week) -> None:
    """Note what becomes of each pod; one that runs has done its work soon after."""
    watch = api.watch("pods")
    try:
        while True:
            for kind, obj in await watch.batch():
                name, phase = obj["metadata"]["name"], obj["status"].get("phase")
                if kind == "DELETED":
                    week.evicted += name in week.alive
                    week.alive.discard(name)
                    week.running.discard(name)
                elif phase == "Running" and name in week.alive:
                    week.running.add(name)
                    week.began = time.monotonic()
                elif phase == "Failed" and name in week.alive:
                    week.failed.append(f"{name}: {obj['status'].get('reason')}")
                    week.over.append(name)
                    week.alive.discard(name)
                week.change.set()
    finally:
        watch.stop()


async def live(api: API, week: Week, most: int, rng: random.Random) -> None:
    """Keep that many pods in the cluster; end those that run, in no particular order."""
    while week.created < week.wanted or week.alive:
        week.change.clear()
        while len(week.alive) < most and week.created < week.wanted:
            name = f"p{week.created}"
            week.created += 1
            week.alive.add(name)
            api.create("pods", pod(rng, name), "default")
        running = sorted(week.running) if time.monotonic() >= week.began + QUIET_S else []
        last = week.created == week.wanted
        for name in running if last else rng.sample(running, len(running) // 3 + bool(running)):
            week.running.discard(name)
            week.alive.discard(name)
            try:
                api.delete("pods", name, "default", DeleteOptions(grace=0))
            except StatusError:
                week.evicted += 1
            else:
                week.ran += 1
        while week.over:
            api.delete("pods", week.over.pop(), "default", DeleteOptions(grace=0))
        await asyncio.sleep(0.01)
        if not week.running:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(week.change.wait(), 1.0)


async def look(scheduler: Scheduler, week: Week) -> None:
    """Note pods that sleep although a node takes them, by a fresh look at all nodes."""
    seen: dict[str, int] = {}
    while True:
        await asyncio.sleep(LOOK_EVERY_S)
        before, seen = seen, {}
        for group in scheduler.queue.asleep():
            record = group.head()
            if record is not None and takers(scheduler.cluster, scheduler.cycle, record.pod):
                uid = record.pod.uid
                seen[uid] = before.get(uid, 0) + 1
                if seen[uid] == LOOKS:
                    week.wrongly_pending.append(record.pod.name)
            await asyncio.sleep(0)


async def sample(api: API, week: Week, out: list[tuple[int, int]]) -> None:
    """Resident memory now and then; old events go."""
    process, due = psutil.Process(), 0
    while True:
        await asyncio.sleep(0.1)
        if week.created >= due:
            due += max(1, week.wanted // 10)
            for _, event in list(api.store.items(_EVENTS)):
                meta = event["metadata"]
                api.delete(_EVENTS, meta["name"], meta.get("namespace", ""))
            gc.collect()
            out.append((week.created, process.memory_info().rss >> 20))
            print(f"{out[-1]}", file=sys.stderr, flush=True)


async def live_and_die(api: API, fleets: Sequence[SimulatedFleet], names: Sequence[str]) -> None:
    """Keep the Leases of these nodes' agents while they live, and have them publish."""
    namespace = SchedulerSettings.agent_namespace
    api.create("namespaces", {"metadata": {"name": namespace}})
    labels = dict([AGENT_LEASE_LABELS.split("=")])
    for name in names:
        lease = {"metadata": {"name": name, "labels": labels}, "spec": {"holderIdentity": name}}
        api.create("leases", lease, namespace)
    while True:
        is_alive = time.monotonic() % (ALIVE_S + DEAD_S) < ALIVE_S
        for fleet in fleets:
            (fleet.silent.difference_update if is_alive else fleet.silent.update)(names)
        for name in names if is_alive else ():
            renewed = {"spec": {"renewTime": f"{datetime.now(UTC):%Y-%m-%dT%H:%M:%S.%fZ}"}}
            api.patch("leases", name, renewed, namespace)
        await asyncio.sleep(5.0)


async def measure(
    pods: int, nodes: int, most: int, limit: float, seed: int = 1, *, blind: bool = False
) -> dict[str, Any]:
    """Run the week; figures as in the module's description."""
    rng, week, memory = random.Random(seed), Week(pods), list[tuple[int, int]]()
    begin = time.monotonic()
    async with contextlib.AsyncExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        api = API(history=5_000)
        server = await stack.enter_async_context(APIServer(api))
        api.create("customresourcedefinitions", crd())
        api.create("priorityclasses", {"metadata": {"name": "urgent"}, "value": 10})
        machine = machines.make("2x16", folder / "machine")
        fleets: list[SimulatedFleet] = []
        third = [f"n{number}" for number in range(nodes) if blind and number % 3 == 0]
        bare, mortal = set(third[::2]), third[1::2]
        for index, policy in enumerate(POLICIES):
            names = [f"n{number}" for number in range(nodes) if number % len(POLICIES) == index]
            fleet = SimulatedFleet(api, dict.fromkeys(names, machine), policy)
            fleet.silent = bare.intersection(names)
            fleets.append(await stack.enter_async_context(fleet))
        scheduler = await stack.enter_async_context(scheduler_of(server, folder))
        helpers = [
            asyncio.create_task(work, name=name)
            for name, work in (
                ("follow", follow(api, week)),
                ("look", look(scheduler, week)),
                ("sample", sample(api, week, memory)),
                ("agents", live_and_die(api, fleets, mortal)),
            )
        ]
        try:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(live(api, week, most, rng), limit)
            seconds = time.monotonic() - begin
            for _ in range(300):
                left = tables(scheduler)
                if not (
                    scheduler.cluster.pods
                    or left["nodes.awaited"]
                    or left["reporter._states"]
                    or left["reporter._events"]
                ):
                    break
                await asyncio.sleep(0.01)
        finally:
            for task in helpers:
                task.cancel()
            await asyncio.wait(helpers)
        for task in helpers:
            if not task.cancelled():
                task.result()
        scheduler.cluster.collect(time.monotonic())
        left = {name: size for name, size in tables(scheduler).items() if size}
        refused = {
            name: len(kubelet.refusals)
            for fleet in fleets
            for name, kubelet in fleet.kubelets.items()
        }
    early = next((mib for created, mib in memory if created >= pods // 5), 0)
    return {
        "pods": week.created,
        "ran": week.ran,
        "evicted": week.evicted,
        "failed": week.failed[:5],
        "refused": sum(number for name, number in refused.items() if name not in bare),
        "refused_without_report": sum(refused[name] for name in bare),
        "forgotten": len(week.alive),
        "wrongly_pending": len(week.wrongly_pending),
        "pods_per_s": round(week.created / seconds),
        "seconds": round(seconds, 1),
        "rss_mib_after_a_fifth": early,
        "rss_mib": memory[-1][1] if memory else 0,
        "left": left,
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--pods", type=int, default=50_000)
    parser.add_argument("--nodes", type=int, default=16)
    parser.add_argument("--open", type=int, default=150, help="pods in the cluster at a time")
    parser.add_argument("--limit", type=float, default=1800.0, help="seconds")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--blind", action="store_true", help="a third without reports or agents")
    args = parser.parse_args()
    run = measure(args.pods, args.nodes, args.open, args.limit, args.seed, blind=args.blind)
    result = asyncio.run(run)
    print(json.dumps(result))
    met = not (result["refused"] or result["forgotten"] or result["wrongly_pending"])
    return 0 if met and result["rss_mib"] <= 1.1 * result["rss_mib_after_a_fifth"] + 16 else 1


if __name__ == "__main__":
    sys.exit(main())
