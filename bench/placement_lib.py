"""How long a prediction takes: ``python -m bench.placement_lib [--seconds 0.3]``.

Medians of many runs, one JSON line each, with the bar (on a quiet machine) and the ratio to a naive
baseline of the same run: a set-based picker that sorts Python sets as the kubelet's Go code does.
"""

from __future__ import annotations

import argparse
import itertools
import json
import random
import statistics
import time
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from rte import placement
from rte.model import bits
from rte.model.node import CPUInfo, KubeletConfig, NodeState, Topology, ZoneInfo
from rte.model.pod import QOS, Container, Pod
from rte.placement.fleet import places, scores, screen
from rte.placement.kubelet.cpu import distributed, pickers

if TYPE_CHECKING:
    from collections.abc import Callable

GIB = 2**30


def topology(sockets: int, zones: int, cores: int) -> Topology:
    """``zones`` per socket, ``cores`` per zone, two threads; siblings are half the CPUs apart."""
    half = sockets * zones * cores
    cpus = []
    for cpu in range(2 * half):
        core = cpu % half
        zone = core // cores
        cpus.append(CPUInfo(cpu, core, zone // zones, zone, zone))
    count = sockets * zones
    return Topology(
        cpus=tuple(cpus),
        zones=tuple(
            ZoneInfo(
                id=zone,
                memory_bytes=64 * GIB,
                distances=tuple(10 if zone == other else 20 for other in range(count)),
            )
            for zone in range(count)
        ),
        sockets=sockets,
    )


def node(machine: Topology, policy: str = "single-numa-node") -> NodeState:
    return placement.initial_state(
        machine,
        KubeletConfig(
            topology_policy=policy,
            cpu_policy="static",
            cpu_reservation_milli=2000,
            memory_policy="Static",
            reserved_memory={0: {"memory": GIB}},
        ),
        {},
        "v1.35.4",
    )


def pod(uid: str, cpus: int, memory: int = 2 * GIB) -> Pod:
    amounts = {"cpu": 1000 * cpus, "memory": memory}
    return Pod(
        uid=uid,
        qos=QOS.GUARANTEED,
        containers=(Container(name="main", requests=amounts, limits=amounts),),
    )


def half_full(state: NodeState) -> NodeState:
    target = state.topology.all_cpus.bit_count() // 2
    number = 0
    while (state.shared & ~state.reserved).bit_count() > target:
        answer = placement.admit(state, pod(f"held-{number}", 2 + 2 * (number % 4)))
        assert answer.admitted, answer.message
        state = answer.state
        number += 1
    # Every third one ends, so that free CPUs lie scattered; the node is filled up again.
    for gone in range(0, number, 3):
        state = placement.remove(state, f"held-{gone}")
    while (state.shared & ~state.reserved).bit_count() > target:
        state = placement.admit(state, pod(f"held-{number}", 2)).state
        number += 1
    return state


def scattered(machine: Topology) -> int:
    """Half of the cores, every other one, and single threads of some more."""
    cores = machine.all_cpus.bit_count() // 2
    whole = bits.of(core for core in range(0, cores, 2))
    return whole | whole << cores | bits.of(core for core in range(1, cores, 8))


def many_nodes(seconds: float) -> None:
    """5,000 nodes of mixed shapes: 80 different states, each on many nodes."""
    rng = random.Random(7)
    filled = [
        partly_full(node(topology(*shape), policy), part, rng)
        for shape in ((2, 1, 16), (2, 4, 24), (2, 2, 16), (1, 1, 16), (2, 4, 8))
        for policy in ("single-numa-node", "restricted", "best-effort", "none")
        for part in (0.2, 0.5, 0.8, 0.95)
    ]
    table = screen.NodeTable()
    states = {f"node-{number}": replace(rng.choice(filled)) for number in range(5000)}
    for name, state in states.items():
        table.put(name, state)
    shape = pod("new", 12, 8 * GIB)
    score = scores.CLASSIC["MostAllocated"]
    begin = time.perf_counter()
    for name in list(states)[:250]:
        placement.admit(states[name], shape)
    naive = (time.perf_counter() - begin) * 20
    report("screen of 5,000 nodes", partial(table.screen, shape), 3.0, seconds, naive)
    report(
        "8 places for a shape never seen",
        partial(places.find_places, table, shape, score),
        9.0,
        seconds,
        naive,
    )
    finder = places.Finder(table, score)
    turn = itertools.cycle(found.node for found in finder.find(shape))

    def after_a_change() -> None:
        name = next(turn)
        table.put(name, replace(table.states[name]))
        finder.find(shape)

    report("8 places again, one node changed", after_a_change, 0.5, seconds, naive)


def partly_full(state: NodeState, part: float, rng: random.Random) -> NodeState:
    left = (1 - part) * state.topology.all_cpus.bit_count()
    for number in range(400):
        if (state.shared & ~state.reserved).bit_count() <= left:
            break
        answer = placement.admit(state, pod(f"held-{number}", rng.choice((2, 4, 6, 8))))
        state = answer.state if answer.admitted else state
    for gone in range(0, 400, 4):
        state = placement.remove(state, f"held-{gone}")
    return state


def naive_take_packed(machine: pickers.Layout, available: int, count: int) -> int:
    """The packed picker over Python sets, with the sorting rules and nothing kept between calls."""
    cpus = {
        cpu: (zone.id, core.id)
        for zone in machine.zones
        for core in machine.cores
        for cpu in bits.members(zone.cpus & core.cpus)
    }
    free = set(bits.members(available))
    result: set[int] = set()

    def inside(place: int, unit: int) -> set[int]:
        return {cpu for cpu in free if cpus[cpu][place] == unit}

    for whole in (True, False):
        zones = sorted(
            {cpus[cpu][0] for cpu in free}, key=lambda zone: (len(inside(0, zone)), zone)
        )
        for zone in zones:
            cores = {cpus[cpu][1] for cpu in inside(0, zone)}
            for core in sorted(cores, key=lambda core: (len(inside(1, core)), core)):
                members = inside(1, core)
                if whole and (len(members) != 2 or count - len(result) < 2):
                    continue
                for cpu in sorted(members):
                    if len(result) < count:
                        result.add(cpu)
                        free.discard(cpu)
    return bits.of(result)


def median(call: Callable[[], object], seconds: float) -> float:
    """Median seconds of one call, in batches long enough for the clock."""
    call()
    begin = time.perf_counter()
    call()
    once = max(1e-9, time.perf_counter() - begin)
    batch = max(1, int(0.002 / once))
    times = []
    end = time.perf_counter() + seconds
    while time.perf_counter() < end or len(times) < 5:
        begin = time.perf_counter()
        for _ in range(batch):
            call()
        times.append((time.perf_counter() - begin) / batch)
    return statistics.median(times)


def report(
    name: str, call: Callable[[], object], bar_ms: float, seconds: float, baseline: float | None
) -> None:
    took = median(call, seconds)
    row = {"name": name, "ms": round(took * 1e3, 4), "bar_ms": bar_ms, "ok": took * 1e3 <= bar_ms}
    if baseline is not None:
        row["times_faster_than_naive"] = round(baseline / took, 1)
    print(json.dumps(row), flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=0.3, help="for each figure")
    seconds = parser.parse_args().seconds
    small, large = topology(2, 1, 16), topology(2, 4, 24)
    for machine, count, admission_bar, packed_bar in (
        (small, 4, 0.25, 0.06),
        (large, 96, 1.5, 0.4),
    ):
        cpus = machine.all_cpus.bit_count()
        plan = pickers.layout_of(machine)
        free = scattered(machine)
        naive = median(partial(naive_take_packed, plan, free, count), seconds / 3)
        report(
            f"packed picker, {count} of {cpus}",
            partial(pickers.take_packed, plan, free, count),
            packed_bar,
            seconds,
            naive,
        )
        report(
            f"distributed picker, {count} of {cpus}",
            partial(distributed.take_distributed, plan, free, count, 1),
            10 * packed_bar,
            seconds,
            naive,
        )
        for policy in ("single-numa-node", "restricted", "best-effort", "none"):
            report(
                f"admission under {policy} on {cpus} CPUs",
                partial(placement.admit, half_full(node(machine, policy)), pod("new", 4)),
                admission_bar,
                seconds,
                naive,
            )
    many_nodes(seconds)


if __name__ == "__main__":
    main()
