"""A sample of the fuzzer; and it finds the faults that were there, when they are planted again."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from decimal import Decimal
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import msgspec
import pytest

from rte import errors
from rte.k8s import gang
from rte.model import bits, quantity
from rte.nrt import group_inventory, node_state
from rte.placement.koordinator.devices import request
from rte.placement.kubelet import memory
from rte.reader import jsontext
from tests.depth import sampled, scaled
from tests.fuzz import agent, doors, kueue, scheduler
from tests.fuzz.values import keys

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from types import ModuleType

    from rte.model.node import MemoryBlock, ZoneMemory

CASES = scaled(3000)

#: Within so many cases each fault that is planted is found.
PLANTED = 4000


def test_what_nobody_expects_ends_nothing_in_the_scheduler() -> None:
    assert not [str(each) for each in scheduler.run(CASES, seed=1)]


def test_what_nobody_expects_ends_nothing_in_the_agent() -> None:
    assert not [str(each) for each in agent.run(CASES // 5, seed=1)]


@pytest.mark.parametrize("part", [doors, kueue])
def test_what_nobody_expects_is_answered_at_every_door_and_for_kueue(part: ModuleType) -> None:
    assert not [str(each) for each in part.run(CASES // 5, seed=1)]


def test_the_keys_are_those_of_the_code() -> None:
    known = {"topology.rte.dev/groups", "topology.rte.dev/allocation", "koordinator.sh/qosClass"}
    assert known <= set(keys())


def test_a_case_is_the_same_in_every_process() -> None:
    """Whatever the order of sets, and whatever was made before."""
    load = "import random; from tests.fuzz.scheduler import draw; "
    show = f"print([draw(random.Random(number), number) for number in range({scaled(200)})])"
    drawn = [
        subprocess.run(
            [sys.executable, "-c", load + before + show],
            env={**os.environ, "PYTHONHASHSEED": seed},
            capture_output=True,
            check=True,
        ).stdout
        for seed, before in (("1", ""), ("2", "draw(random.Random(0), 0); "))
    ]
    assert drawn[0] == drawn[1]


class AnyJoint(msgspec.Struct, rename="camel"):
    """Devices to be chosen together, whatever is said of them."""

    device_types: Any = None
    required_scope: Any = ""


class AnyPartition(request.PartitionSpec, frozen=True, rename="camel"):
    """A partition of GPUs, whatever is said of it."""

    ring_bus_bandwidth: Any = None


def _exponents(patch: pytest.MonkeyPatch) -> None:
    """Numbers of processing groups may have any exponent."""
    patch.setattr(jsontext, "_fraction", lambda text: Decimal(text).quantize(Decimal(1)))


def _sums(patch: pytest.MonkeyPatch) -> None:
    """Amounts of waiting and of bound pods are added up beyond 64 bits."""
    patch.setattr(quantity, "MOST", 1 << 200)


def _deep_gangs(patch: pytest.MonkeyPatch) -> None:
    """The groups of a gang may nest as deep as a parser can follow."""

    def load(text: str, what: str) -> object:
        try:
            return json.loads(text)
        except ValueError as error:
            raise errors.MalformedError(what, text, str(error)) from None

    patch.setattr(gang, "jsontext", SimpleNamespace(load=load))


def _deep_inventories(patch: pytest.MonkeyPatch) -> None:
    """The inventory of a node may nest as deep as a parser can follow."""

    def decode(text: str, kind: type[msgspec.Struct], what: str) -> msgspec.Struct:
        try:
            return msgspec.json.decode(text, type=kind)
        except (ValueError, TypeError) as error:
            raise errors.MalformedError(what, text, str(error)) from None

    patch.setattr(group_inventory, "jsontext", SimpleNamespace(decode=decode))


def _many_devices(patch: pytest.MonkeyPatch) -> None:
    """Each class of devices is bounded, all of them together are not."""
    patch.setattr(node_state, "_MOST_DEVICES", 1 << 60)


def _kinds_of_devices(patch: pytest.MonkeyPatch) -> None:
    """Types of devices that are to be chosen together may be anything."""
    patch.setattr(request, "_Joint", AnyJoint)


def _bandwidths(patch: pytest.MonkeyPatch) -> None:
    """Lists and objects are asked for as quantities."""
    patch.setattr(quantity, "parse", lambda text, *, scale=1: quantity._parse(text, scale))
    patch.setattr(request, "PartitionSpec", AnyPartition)


def _unknown_memory(patch: pytest.MonkeyPatch) -> None:
    """What a container holds of memory is given back to the zone of which it is said to be."""

    def release(rows: memory.Rows, blocks: Iterable[MemoryBlock]) -> dict[int, ZoneMemory]:
        for block in blocks:
            for zone in bits.members(block.zones):
                rows[zone].amounts[block.resource]  # no row, and no such resource, was expected
        return given_back(rows, blocks)

    given_back = memory.release
    patch.setattr(memory, "release", release)


@pytest.mark.parametrize(
    ("fault", "sign"),
    sampled(
        [
            (_exponents, "InvalidOperation"),
            (_kinds_of_devices, "TypeError"),
            (_deep_gangs, "RecursionError"),
            (_deep_inventories, "RecursionError"),
            (_many_devices, "ms of CPU"),
            (_sums, "Overflow|64-bit"),
            (_bandwidths, "TypeError"),
            (_unknown_memory, "KeyError"),
        ]
    ),
)
def test_planted_faults_are_found(
    monkeypatch: pytest.MonkeyPatch, fault: Callable[[pytest.MonkeyPatch], None], sign: str
) -> None:
    with monkeypatch.context() as patch:
        fault(patch)
        if "ms of CPU" not in sign:  # what takes time on a machine that others use is no sign
            patch.setattr(scheduler, "CPU_S", 60.0)
        found = scheduler.run(PLANTED, seed=3)
    assert found
    assert re.search(sign, found[0].what), found[0]
