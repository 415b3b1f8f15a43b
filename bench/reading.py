"""Reading, accounting and encoding of a large node: 384 CPUs, 8 zones, 200 pods.

    python -m bench.reading [--runs N] [--profile]

The bar is 15 ms for all of it, hardware included, with the caches of rte empty, as in the first
reading of a process. ``again`` is a later reading: the hardware is known, the caches are full.
``floor`` is the baseline: the same files read, the same documents and messages decoded by the same
C libraries, the same object written as JSON, and nothing made of it.
"""

from __future__ import annotations

import argparse
import cProfile
import json
import os
import pstats
import statistics
import sys
import tempfile
import time
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any
from unittest import mock

import orjson

from rte import accounting
from rte.agent import memory
from rte.kubelet import PLUGIN_DIR, podresources, statefiles
from rte.kubelet._pb import podresources_pb2 as pb
from rte.model import bits
from rte.model.kubelet import NodePod, combine
from rte.model.node import KubeletConfig, NodeReading
from rte.nrt import encode
from rte.sysfs import read_machine
from tests.checkpoints import sealed
from tests.machines import Shape, generate

if TYPE_CHECKING:
    from collections.abc import Callable

    from rte.model.machine import Machine

BAR_MS = 15.0
GIB = 1 << 30
ZONES, CPUS, PODS, PINNED = 8, 384, 200, 176
GPU = "example.com/gpu"


def write_machine(directory: Path) -> None:
    """Two sockets, four zones each, SMT pairs (n, n + 192), an L3 cache for every eight cores.

    With every file that a kubelet reads of such a machine, and /proc/cpuinfo at its real size.
    """
    shape = Shape(
        sockets=2,
        zones=ZONES // 2,
        cores=CPUS // ZONES // 2,
        threads=2,
        l3_cores=8,
        memory=(96 * GIB,),
        pools={2 << 20: (8192,), GIB: (0,)},
    )
    generate(shape, directory, full=True)
    cpuinfo = directory / "proc/cpuinfo"
    flags = " ".join(f"flag{number}" for number in range(190))
    blocks = cpuinfo.read_text().rstrip("\n").split("\n\n")
    cpuinfo.write_text("".join(f"{block}\nflags\t\t: {flags}\n\n" for block in blocks))


def forget() -> None:
    """Empty the caches of rte: the first reading of a process finds none."""
    for name, module in list(sys.modules.items()):
        if name.partition(".")[0] == "rte":
            for value in vars(module).values():
                if hasattr(value, "cache_clear"):
                    value.cache_clear()


def write_kubelet(machine: Machine, directory: Path) -> tuple[bytes, bytes, list[NodePod]]:
    """State files of 200 pods; returns the podresources answers and the API's pods."""
    free = {zone.id: list(bits.members(zone.cpus & ~0b1111)) for zone in machine.zones}
    held: dict[str, dict[str, str]] = {}
    memory: dict[str, Any] = {}
    rows = {
        zone.id: {
            "memory": [96 * GIB, GIB, 79 * GIB, 0],
            "hugepages-1Gi": [0, 0, 0, 0],
            "hugepages-2Mi": [16 * GIB, 0, 16 * GIB, 0],
        }
        for zone in machine.zones
    }
    counts = dict.fromkeys(rows, 0)
    allocated: dict[str, Any] = {}
    entries: list[dict[str, Any]] = []
    listing, pods = pb.ListPodResourcesResponse(), []
    for number in range(PODS):
        uid, name = f"00000000-0000-4000-8000-{number:012d}", f"workload-{number}"
        pods.append(NodePod(uid=uid, namespace="default", name=name))
        allocated[uid] = {"ContainerResources": {"main": {"requests": {"cpu": "2"}}}}
        pod = listing.pod_resources.add(name=name, namespace="default")
        container = pod.containers.add(name="main")
        if number >= PINNED:
            continue
        zone = number % ZONES
        cpus = [free[zone].pop() for _ in range(2)]
        held[uid] = {"main": ",".join(map(str, sorted(cpus)))}
        container.cpu_ids.extend(cpus)
        blocks = []
        for resource, size in (("memory", GIB), ("hugepages-2Mi", GIB // 4)):
            blocks.append({"numaAffinity": [zone], "type": resource, "size": size})
            rows[zone][resource][3] += size
            counts[zone] += 1
            block = container.memory.add(memory_type=resource, size=size)
            block.topology.nodes.add(ID=zone)
        memory[uid] = {"main": blocks}
        if number < 64:
            device = f"gpu-{number:03d}"
            entries.append(
                {
                    "PodUID": uid,
                    "ContainerName": "main",
                    "ResourceName": GPU,
                    "DeviceIDs": {str(zone): [device]},
                    "AllocResp": "CgkKA0ZPTxICYmE=",
                }
            )
            given = container.devices.add(resource_name=GPU, device_ids=[device])
            given.topology.nodes.add(ID=zone)
    answer = pb.AllocatableResourcesResponse(cpu_ids=range(4, CPUS))
    for number in range(64):
        device = answer.devices.add(resource_name=GPU, device_ids=[f"gpu-{number:03d}"])
        device.topology.nodes.add(ID=number % ZONES)
    default = machine.online
    for containers in held.values():
        default &= ~bits.parse_list(containers["main"])
    keys = ("total", "systemReserved", "allocatable", "reserved", "free")
    plugins = directory / PLUGIN_DIR
    plugins.mkdir()
    for path, document in (
        (
            directory / "cpu_manager_state",
            {"policyName": "static", "defaultCpuSet": bits.format_list(default), "entries": held},
        ),
        (
            directory / "memory_manager_state",
            {
                "policyName": "Static",
                "machineState": {
                    str(zone): {
                        "numberOfAssignments": counts[zone],
                        "memoryMap": {
                            resource: dict(
                                zip(keys, (*amounts, amounts[2] - amounts[3]), strict=True)
                            )
                            for resource, amounts in row.items()
                        },
                        "cells": [zone],
                    }
                    for zone, row in rows.items()
                },
                "entries": memory,
            },
        ),
        (directory / "allocated_pods_state", {"data": json.dumps({"entries": allocated})}),
        (
            plugins / "kubelet_internal_checkpoint",
            {
                "Data": {
                    "PodDeviceEntries": entries,
                    "RegisteredDevices": {GPU: [f"gpu-{number:03d}" for number in range(64)]},
                }
            },
        ),
    ):
        path.write_text(json.dumps(sealed(document)))
    return listing.SerializeToString(), answer.SerializeToString(), pods


def files_of(action: Callable[[], object]) -> list[str]:
    """The files that an action opens."""
    really_open = os.open
    places: dict[int, str] = {}
    files = []

    def record(path: str, flags: int, mode: int = 0o777, *, dir_fd: int | None = None) -> int:
        fd = really_open(path, flags, mode, dir_fd=dir_fd)
        places[fd] = path if dir_fd is None else f"{places[dir_fd]}/{path}"
        if not flags & os.O_DIRECTORY:
            files.append(places[fd])
        return fd

    with mock.patch.object(os, "open", record):
        action()
    return files


def read_only(files: list[str]) -> None:
    for file in files:
        fd = os.open(file, os.O_RDONLY)
        while len(os.read(fd, 1 << 16)) == 1 << 16:
            pass
        os.close(fd)


class Stopwatch:
    """Milliseconds of each stage: on the clock, and of the processor."""

    def __init__(self) -> None:
        self.wall: dict[str, list[float]] = {}
        self.cpu: dict[str, list[float]] = {}
        self.restart()

    def restart(self) -> None:
        self._sums = [0.0, 0.0]
        self._last = time.perf_counter(), time.process_time()

    def lap(self, stage: str) -> None:
        now = time.perf_counter(), time.process_time()
        for number, table in enumerate((self.wall, self.cpu)):
            spent = (now[number] - self._last[number]) * 1000
            self._sums[number] += spent
            table.setdefault(stage, []).append(spent)
        self._last = time.perf_counter(), time.process_time()

    def finish(self, label: str) -> None:
        self.wall.setdefault(label, []).append(self._sums[0])
        self.cpu.setdefault(label, []).append(self._sums[1])


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=50)
    parser.add_argument("--profile", action="store_true")
    options = parser.parse_args()
    memory.begin()
    config = KubeletConfig(
        topology_policy="single-numa-node",
        cpu_policy="static",
        reserved_cpus=0b1111,
        cpu_reservation_milli=4000,
        memory_policy="Static",
        reserved_memory={zone: {"memory": GIB} for zone in range(ZONES)},
        node_reserved={"cpu": 4000, "memory": 8 * GIB},
    )
    with tempfile.TemporaryDirectory() as name:
        hardware, directory = Path(name) / "hardware", Path(name) / "kubelet"
        directory.mkdir()
        write_machine(hardware)
        listing, allocatable, pods = write_kubelet(read(hardware), directory)
        watch = Stopwatch()

        def once(previous: NodeReading | None = None) -> NodeReading:
            if previous is None:
                forget()
            label = "again" if previous else "first"
            watch.restart()
            if previous is None:
                machine = read(hardware)
                watch.lap("first: read sysfs")
            else:
                machine = previous.machine
            files = statefiles.read_state_files(directory)
            watch.lap(f"{label}: read state files")
            view = combine(
                files,
                config=config,
                version="v1.35.4",
                epoch="1",
                pods=podresources.decode_pods(
                    pb.ListPodResourcesResponse.FromString(listing).pod_resources
                ),
                allocatable=podresources.decode_allocatable(
                    pb.AllocatableResourcesResponse.FromString(allocatable)
                ),
            )
            watch.lap(f"{label}: decode podresources")
            state = previous.state if previous else None
            result = accounting.build_reading(
                "node", machine, view, pods, accounting.ReadingOptions(previous=state)
            )
            watch.lap(f"{label}: account")
            encode(result)
            watch.lap(f"{label}: encode")
            watch.finish(f"{label}: together")
            return result

        result = once()
        assert not result.machine.warnings, result.machine.warnings
        assert not result.disagreements, result.disagreements
        assert result.state is not None
        assert len(result.state.holdings) == PINNED
        shown, pods = pods, [*pods[20:], *(replace(pod, terminal=True) for pod in pods[:20])]
        ended = once()
        assert ended.state is not None
        assert len(ended.state.holdings) == PINNED - 20
        pods = shown
        files = files_of(lambda: read(hardware))
        states = [path for path in directory.rglob("*") if path.is_file()]
        written = encode(result)

        def floor() -> None:
            watch.restart()
            read_only(files)
            for path in states:
                document = orjson.loads(path.read_bytes())
                if "data" in document:
                    orjson.loads(document["data"])
            pb.ListPodResourcesResponse.FromString(listing)
            pb.AllocatableResourcesResponse.FromString(allocatable)
            orjson.dumps(written)
            watch.lap("floor")

        watch = Stopwatch()
        profiler = cProfile.Profile()
        for _ in range(options.runs):
            floor()
            if options.profile:
                profiler.enable()
            result = once()
            profiler.disable()
            once(result)
        if options.profile:
            pstats.Stats(profiler).sort_stats("cumulative").print_stats(60)
    median = {name: statistics.median(times) for name, times in watch.wall.items()}
    met = True
    for name in sorted(median, key=lambda name: not name.startswith("first")):
        row: dict[str, Any] = {
            "name": name,
            "ms": round(median[name], 2),
            "best_ms": round(min(watch.wall[name]), 2),
            "cpu_ms": round(statistics.median(watch.cpu[name]), 2),
        }
        if name == "first: together":
            met = median[name] <= BAR_MS
            row |= {"bar_ms": BAR_MS, "ok": met}
        if name.endswith("together"):
            row["times_the_floor"] = round(median[name] / median["floor"], 1)
        print(json.dumps(row))
    return 0 if met else 1


def read(hardware: Path) -> Machine:
    return read_machine(hardware / "sys", hardware / "proc")


if __name__ == "__main__":
    raise SystemExit(main())
