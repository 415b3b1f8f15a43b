"""What goes wrong: acts that are faults, each with a knob."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from rte.sim.apiserver import StatusError
from tests.world.acts import act
from tests.world.cluster import GPU

if TYPE_CHECKING:
    import random

    from tests.world.cluster import World
    from tests.world.nodes import Node

_VERSIONS = ("v1.34.2", "v1.35.4", "v1.36.1", "v1.37.1")
_NRTS = "noderesourcetopologies"


def _place(chance: random.Random) -> dict[str, Any]:
    return {"place": round(chance.random(), 3)}


def _placed_for(*seconds: float) -> Any:
    def draw(chance: random.Random) -> dict[str, Any]:
        return {**_place(chance), "seconds": chance.choice(seconds)}

    return draw


def _node(world: World, place: float) -> Node:
    return list(world.nodes.values())[int(place * len(world.nodes))]


def _anybody(world: World, place: float) -> Any:
    everybody = [
        *world.schedulers.values(),
        *(node.agent for node in world.nodes.values()),
        *(node.process for node in world.nodes.values()),
    ]
    return everybody[int(place * len(everybody))]


def _client(world: World, place: float) -> Any:
    """A scheduler half of the time, else an agent."""
    if place < 0.5:
        return list(world.schedulers.values())[int(2 * place * len(world.schedulers))]
    return _node(world, 2 * place - 1).agent


# --- processes ---


@act("kill-scheduler", draw=_placed_for(0.5, 5, 30), weight=4, fault=True)
def kill_scheduler(world: World, *, number: int, place: float, seconds: float) -> None:
    """A replica loses its power."""
    name = list(world.schedulers)[int(place * len(world.schedulers))]
    process = world.schedulers[name]
    if not process.dead:
        process.die()
        world.later(seconds, world.start_scheduler, name)


@act("stop-scheduler", draw=_placed_for(0.5, 5), weight=3, fault=True)
def stop_scheduler(world: World, *, number: int, place: float, seconds: float) -> None:
    """A replica is stopped as it should be."""
    name = list(world.schedulers)[int(place * len(world.schedulers))]
    process = world.schedulers[name]
    if not process.dead and process.task is not None:
        process.task.cancel()
        world.later(seconds, world.restart_scheduler, name)


@act("kill-agent", draw=_placed_for(0.5, 10, 120), weight=3, fault=True)
def kill_agent(world: World, *, number: int, place: float, seconds: float) -> None:
    """An agent loses its power."""
    node = _node(world, place)
    if not node.agent.dead:
        node.agent.die()
        node.upset["agent"] = world.now()
        world.later(seconds, world.start_agent, node.name)


@act("stop-agent", draw=_placed_for(0.5, 60), weight=2, fault=True)
def stop_agent(world: World, *, number: int, place: float, seconds: float) -> None:
    """An agent is stopped as it should be."""
    node = _node(world, place)
    if not node.agent.dead:
        world.stops[node.name].set()
        world.later(seconds, world.restart_agent, node.name)


@act("overlap-agent", draw=_place, weight=2, fault=True)
def overlap_agent(world: World, *, number: int, place: float) -> None:
    """A new agent is started before the old one is stopped."""
    node = _node(world, place)
    if not node.agent.dead:
        world.overlap_agent(node)


@act("kill-kubelet", draw=_placed_for(1, 10, 90), weight=3, fault=True)
async def kill_kubelet(world: World, *, number: int, place: float, seconds: float) -> None:
    """A kubelet dies, and is started again."""
    node = _node(world, place)
    if node.up:
        await node.stop_kubelet()
        node.upset["kubelet"] = world.now()
        world.later(seconds, world.start_kubelet, node)


@act("upgrade-kubelet",
     draw=lambda c: {**_place(c), "version": c.choice(_VERSIONS)},
     fault=True)  # fmt: skip
async def upgrade_kubelet(world: World, *, number: int, place: float, version: str) -> None:
    """A kubelet of another release takes over."""
    node = _node(world, place)
    if node.up:
        await node.stop_kubelet()
        node.version = node.kubelet.version = version
        node.upset["kubelet"] = world.now()
        world.later(2.0, world.start_kubelet, node)


@act("hang-kubelet", draw=_placed_for(3, 40), weight=2, fault=True)
def hang_kubelet(world: World, *, number: int, place: float, seconds: float) -> None:
    """A kubelet does nothing for a while."""
    node = _node(world, place)
    node.hung = True
    node.upset["kubelet"] = world.now()
    world.later(seconds, setattr, node, "hung", False)


# --- the network and the API server ---


@act("cut", draw=lambda c: {**_place(c), "seconds": c.choice((1, 10, 100)),
                            "refuses": c.random() < 0.4}, weight=6, fault=True)  # fmt: skip
def cut(world: World, *, number: int, place: float, seconds: float, refuses: bool) -> None:
    """The link of one process and the API server is lost."""
    process = _anybody(world, place)
    if process.link.until <= world.now():
        process.link.since = world.now()
    process.link.until = max(process.link.until, world.now() + seconds)
    process.link.refuses = refuses
    world.upset_of(process, "link")


@act("slow", draw=lambda c: {**_place(c), "seconds": 60, "slow": c.choice((0.05, 0.5, 3.0))},
     weight=3, fault=True)  # fmt: skip
def slow(world: World, *, number: int, place: float, seconds: float, slow: float) -> None:
    """Everything takes longer between one process and the API server."""
    link = _anybody(world, place).link
    link.slow_s, link.slow_until = slow, world.now() + seconds


@act("api-away", draw=lambda c: {"seconds": c.choice((1, 5, 30)), "refuses": c.random() < 0.5},
     fault=True)  # fmt: skip
def api_away(world: World, *, number: int, seconds: float, refuses: bool) -> None:
    """The API server is away for all."""
    world.api_away_until, world.api_refuses = world.now() + seconds, refuses
    for node in world.nodes.values():
        node.upset["link"] = world.now() + seconds
    if refuses:
        for watch in world.api.store.watches():
            watch.stop()


@act("errors", draw=lambda c: {
    **_place(c), "code": c.choice((409, 410, 429, 500, 503, 504)), "seconds": c.choice((2, 20, 90)),
    "part": c.choice(("", "", "binding", "leases", "noderesourcetopologies", "pods")),
    "chance": c.choice((0.3, 1.0)),
}, weight=6, fault=True)  # fmt: skip
def api_errors(
    world: World, *, number: int, place: float, code: int, seconds: float, part: str, chance: float
) -> None:
    """The API server answers one process with errors."""
    _client(world, place).link.fails = (code, world.now() + seconds, part, chance)


@act("lose", draw=lambda c: {**_place(c), "count": c.choice((1, 1, 3))}, weight=6, fault=True)
def lose(world: World, *, number: int, place: float, count: int) -> None:
    """Answers to the next writes get lost."""
    _client(world, place).link.loses += count


@act("double", draw=lambda c: {**_place(c), "count": 1}, weight=4, fault=True)
def double(world: World, *, number: int, place: float, count: int) -> None:
    """The next writes arrive twice."""
    process = _client(world, place)
    process.link.doubles += count
    process.unsure_until = world.now() + 120.0


@act("crash", draw=lambda c: {**_place(c), "writes": c.choice((0, 1, 2, 5)),
                              "after": c.random() < 0.5}, weight=6, fault=True)  # fmt: skip
def crash(world: World, *, number: int, place: float, writes: int, after: bool) -> None:
    """A process dies before or after one of its next writes."""
    process = _client(world, place)
    if not process.dead:
        process.link.crash = (writes, after)


@act("drop-watches", draw=lambda c: {}, weight=3, fault=True)
def drop_watches(world: World, *, number: int) -> None:
    """All watches end."""
    for watch in world.api.store.watches():
        watch.stop()


@act("compact", draw=lambda c: {"old": c.random() < 0.5}, weight=3, fault=True)
def compact(world: World, *, number: int, old: bool) -> None:
    """History is forgotten and all watches end; lists may be as old as they are allowed to be."""
    if old:
        world.old_lists_until = world.now() + 30.0
    else:
        world.api.store.compact()
    for watch in world.api.store.watches():
        watch.stop()


@act("old-lists", draw=lambda c: {"seconds": 60}, weight=2, fault=True)
def old_lists(world: World, *, number: int, seconds: float) -> None:
    """An API server that lags behind answers lists, and history is forgotten but for the last."""
    world.old_lists_until = world.now() + seconds
    store = world.api.store
    store.compact(max(store.compacted, store.revision - 30))
    for watch in store.watches():
        watch.stop()


@act("restore", draw=lambda c: {"bumped": c.random() < 0.5}, fault=True)
def restore(world: World, *, number: int, bumped: bool) -> None:
    """An etcd is restored from its last backup."""
    world.restore(bumped=bumped)


# --- clocks, files, devices ---


@act("clock", draw=lambda c: {**_place(c), "by": c.choice((-7200.0, -60.0, 60.0, 86400.0))},
     weight=2, fault=True)  # fmt: skip
def step_clock(world: World, *, number: int, place: float, by: float) -> None:
    """The wall clock of a machine is set."""
    machine = _anybody(world, place).machine
    world.skews[machine] = by if not world.skews.get(machine) else 0.0


@act("late-files", draw=_placed_for(20, 120), weight=2, fault=True)
def late_files(world: World, *, number: int, place: float, seconds: float) -> None:
    """Changes of files are told late."""
    _node(world, place).directory.late_until = world.now() + seconds
    _node(world, place).upset["files"] = world.now() + seconds


@act("lost-files", draw=_placed_for(20, 120), weight=2, fault=True)
def lost_files(world: World, *, number: int, place: float, seconds: float) -> None:
    """Changes of files are not told at all."""
    _node(world, place).directory.lost_until = world.now() + seconds
    _node(world, place).upset["files"] = world.now() + seconds


@act("device-ill", draw=_placed_for(30, 300), weight=2, fault=True)
def device_ill(world: World, *, number: int, place: float, seconds: float) -> None:
    """A device is not healthy for a while."""
    node = _node(world, place)
    pool = node.kubelet.state.devices.get(GPU)
    if pool is not None and node.up:
        node.upset["device"] = world.now() + 1.0
        node.kubelet.set_devices({GPU: replace(pool, healthy=pool.healthy & ~1)})
        world.later(seconds, world.heal_device, node)


# --- objects ---


@act("rival", draw=lambda c: {**_place(c), "zones": c.random() < 0.5}, weight=2, fault=True)
def rival(world: World, *, number: int, place: float, zones: bool) -> None:
    """Somebody else writes a node's report."""
    name = _node(world, place).name
    body: dict[str, Any] = {"metadata": {"labels": {"touched": str(number)}}}
    if zones:
        body["zones"] = [
            {"name": "node-0", "type": "Node",
             "resources": [{"name": "cpu", "capacity": "999", "allocatable": "999",
                            "available": "999"}]},
        ]  # fmt: skip
    with suppress(StatusError):
        world.api.patch(_NRTS, name, body)


@act("delete-report", draw=_place, weight=2, fault=True)
def delete_report(world: World, *, number: int, place: float) -> None:
    """Somebody deletes a node's report."""
    with suppress(StatusError):
        world.api.delete(_NRTS, _node(world, place).name)


@act("delete-lease", draw=lambda c: {**_place(c), "scheduler": c.random() < 0.3}, fault=True)
def delete_lease(world: World, *, number: int, place: float, scheduler: bool) -> None:
    """Somebody deletes a Lease."""
    with suppress(StatusError):
        if scheduler:
            world.api.delete("leases.coordination.k8s.io", "rte-scheduler", "kube-system")
        else:
            world.api.delete("leases.coordination.k8s.io", _node(world, place).name, "rte-agents")


@act("new-node", draw=_place, fault=True)
async def new_node(world: World, *, number: int, place: float) -> None:
    """A node is deleted and made again under its name."""
    node = _node(world, place)
    if not node.up:
        return
    node.upset["kubelet"] = world.now()
    await node.stop_kubelet()
    with suppress(StatusError):
        world.api.delete("nodes", node.name)
    world.later(20.0, world.start_kubelet, node)


@act("namesake", draw=_place, weight=2, fault=True)
def namesake(world: World, *, number: int, place: float) -> None:
    """A pod is deleted by force, and another one of its name is made at once."""
    pods = [obj for _, obj in world.api.store.items("pods", namespace="default")]
    pods = [one for one in pods if not one["metadata"].get("ownerReferences")]
    if pods:
        world.remake(pods[int(place * len(pods))])
