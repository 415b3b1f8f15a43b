"""``rte topology -o svg``: what is drawn, where it stands, and in whose colour."""

from __future__ import annotations

import itertools
import json
import re
from collections import Counter
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING
from xml.etree import ElementTree as ET

import pytest

from rte import accounting
from rte.model import bits
from rte.model.node import (
    ClaimedDevice,
    DevicePool,
    Holding,
    KubeletConfig,
    MemoryAmounts,
    MemoryBlock,
    NodeReading,
    NodeState,
    PodRef,
    ZoneMemory,
)
from rte.sysfs import read_machine
from rte.view import drawing

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rte.model.machine import Machine

FIXTURES = Path(__file__).parents[3] / "fixtures" / "sysfs"
NAMES = sorted(path.name for path in FIXTURES.iterdir())
SVG = "{http://www.w3.org/2000/svg}"
GIB = 1 << 30
H100 = {("0x10de", "0x2330"): "NVIDIA Corporation GH100 [H100 SXM5 80GB]"}


@dataclass(frozen=True)
class Box:
    """A rectangle or the base line of a text, where it stands on the page."""

    kind: str
    x: float
    y: float
    width: float
    height: float
    words: str


def machine_of(name: str) -> Machine:
    return read_machine(FIXTURES / name / "sys", FIXTURES / name / "proc")


def boxes(svg: str) -> list[Box]:
    def walk(element: ET.Element, x: float, y: float) -> Iterator[Box]:
        if match := re.match(r"translate\(([\d.]+) ([\d.]+)\)", element.get("transform", "")):
            x, y = x + float(match[1]), y + float(match[2])
        if element.tag in {f"{SVG}rect", f"{SVG}text"}:
            title = element.find(f"{SVG}title")
            yield Box(
                element.get("class", ""),
                *(x + float(element.get("x", 0)), y + float(element.get("y", 0))),
                *(float(element.get("width", 0)), float(element.get("height", 0))),
                (element if title is None else title).text or "",
            )
        for child in element:
            yield from walk(child, x, y)

    return list(walk(ET.fromstring(svg), 0, 0))


def rectangles(svg: str, kind: str) -> list[Box]:
    return [box for box in boxes(svg) if box.kind.split()[:1] == [kind] and box.width > 14]


def held_reading() -> NodeReading:
    """Containers with CPUs, memory, devices of plugins and of a claim; a whole pod with CPUs."""
    machine = machine_of("32-2s-gpus")
    amounts = MemoryAmounts(
        total=112 * GIB, system_reserved=GIB, allocatable=111 * GIB, reserved=16 * GIB,
        free=95 * GIB,
    )  # fmt: skip
    state = NodeState(
        topology=accounting.kubelet_topology(machine),
        config=KubeletConfig(cpu_policy="static", memory_policy="Static"),
        reserved=bits.of([0, 16]),
        shared=machine.online & ~bits.of([2, 18, 3, 19]),
        memory={0: ZoneMemory(assignments=1, group=1, amounts={"memory": amounts})},
        devices={
            "nvidia.com/gpu": DevicePool(
                ids=("0000:13:00.0", "0000:93:00.0"), zones=(1, 2), healthy=0b01
            ),
            "example.com/vf": DevicePool(ids=("0000:02:00.2",), zones=(1,), healthy=1),
            "example.com/fpga": DevicePool(ids=("f0", "f1"), zones=(2, None), healthy=3),
        },
        holdings={
            "u": {
                "main": Holding(
                    cpus=bits.of([2, 18]),
                    memory=(MemoryBlock("memory", 1, 16 * GIB),),
                    devices={"nvidia.com/gpu": 1, "example.com/vf": 1, "example.com/fpga": 1},
                )
            }
        },
        pod_holdings={"w": Holding(cpus=bits.of([3, 19]))},
    )
    pods = (
        PodRef(uid="u", namespace="lab", name="a<b>&c", exclusive=True),
        PodRef(uid="v", namespace="lab", name="claims"),
        PodRef(uid="w", namespace="lab", name="whole"),
    )
    device = ClaimedDevice(
        namespace="lab", claim="c", driver="gpu.example.com", pool="n1", device="gpu-3"
    )
    return NodeReading(
        node_name="n1", machine=machine, state=state, pods=pods, claimed={"v": {"c": (device,)}}
    )


@pytest.mark.parametrize("name", NAMES)
def test_every_cpu_and_zone_is_drawn_once_inside_the_page(name: str) -> None:
    svg = drawing.draw(machine_of(name))
    wanted = json.loads((FIXTURES / name / "expected.json").read_text())
    drawn = boxes(svg)
    cpus = [match[1] for box in drawn if (match := re.match(r"CPU (\d+)", box.words))]
    zones = [int(b.words[5:]) for b in drawn if b.kind == "t" and b.words.startswith("Zone ")]
    page = drawn[0]
    assert Counter(cpus) == Counter(str(cpu["id"]) for cpu in wanted["cpus"])
    assert sorted(zones) == [zone["id"] for zone in wanted["zones"]]
    assert max(box.x + box.width for box in drawn) <= page.width
    assert max(box.y + box.height for box in drawn) <= page.height


@pytest.mark.parametrize("name", NAMES)
def test_columns_align(name: str) -> None:
    """Sockets are equally wide, stand on common left edges, and those of a row end on one line."""
    svg = drawing.draw(machine_of(name))
    titles = {(b.x, b.y) for b in boxes(svg) if b.kind == "t" and b.words.startswith("Socket")}
    sockets = [box for box in rectangles(svg, "socket") if (box.x + 10, box.y + 22) in titles]
    assert len(sockets) == len(titles)
    assert len({round(box.width) for box in sockets}) <= 1
    for row in {box.y for box in sockets}:
        assert len({box.height for box in sockets if box.y == row}) == 1
    columns = max(Counter(box.y for box in sockets).values(), default=0)
    assert len({round(box.x) for box in sockets}) == columns


def test_caches_have_their_sizes() -> None:
    words = [box.words for box in boxes(drawing.draw(machine_of("32-2s-gpus")))]
    assert "L3 0 · 60 MiB" in words
    assert "caches of each core: L1d 48 KiB, L1i 48 KiB, L2 2 MiB" in words
    assert "L3 0" in [box.words for box in boxes(drawing.draw(machine_of("64-2s")))]


def test_devices_have_names() -> None:
    words = [box.words for box in boxes(drawing.draw(machine_of("32-2s-gpus"), names=H100))]
    assert words.count("GPU NVIDIA Corporation GH100 [H100 SXM5 80GB]") == 4
    assert "NIC ens0np0 15b3:101d 400 Gb/s" in words
    assert "NVMe nvme0 SIMULATED SSD 3.84TB" in words


def test_holders_have_their_colour_on_all_that_they_hold() -> None:
    reading = held_reading()
    drawn = boxes(drawing.draw(reading.machine, reading))
    legend = {
        box.words.partition(":")[0]: swatch.kind.split()[-1]
        for swatch, box in itertools.pairwise(drawn)
        if box.kind == "d" and ":" in box.words
    }
    assert list(legend) == ["lab/a<b>&c main", "lab/claims c", "lab/whole (whole pod)"]

    def tips(holder: str) -> list[str]:
        kind = legend[holder]
        return [
            b.words for b in drawn if kind in b.kind.split() and (b.width, b.height) != (14, 12)
        ]

    assert [tip.split(" · ")[0] for tip in tips("lab/a<b>&c main")] == [
        "CPU 2",
        "CPU 18",
        "0000:02:00.2 NIC eno1v1 15b3:101d 25 Gb/s up VF of 0000:02:00.0",
        "0000:13:00.0 GPU 10de:2330",
        "example.com/fpga f0",
    ]
    assert all("lab/a<b>&c main" in tip for tip in tips("lab/a<b>&c main"))
    assert [tip.split(" · ")[0] for tip in tips("lab/whole (whole pod)")] == ["CPU 3", "CPU 19"]
    assert tips("lab/claims c") == ["gpu.example.com n1/gpu-3 · claim lab/c · held by lab/claims c"]
    kinds = {box.words.split(" · ")[0]: box.kind for box in drawn if box.words.startswith("CPU ")}
    assert kinds["CPU 0"] == "cpu reserved"
    assert kinds["CPU 5"] == "cpu shared"


def test_devices_without_a_zone_and_sick_ones_are_shown_as_such() -> None:
    reading = held_reading()
    drawn = boxes(drawing.draw(reading.machine, reading))
    lost = next(box for box in drawn if box.words == "Devices without a known zone")
    f1 = next(box for box in drawn if box.words == "example.com/fpga f1 · free")
    assert f1.y > lost.y
    sick = [box.words for box in drawn if "sick" in box.kind.split() and box.width != 14]
    assert sick == ["0000:93:00.0 GPU 10de:2330 · nvidia.com/gpu 0000:93:00.0 · not healthy · free"]


def test_bars_are_explained_and_filled_as_far_as_memory_is_held() -> None:
    reading = held_reading()
    svg = drawing.draw(reading.machine, reading)
    words = [box.words for box in boxes(svg)]
    for label in (
        "memory, as its share of the zone",
        "huge pages",
        "memory held",
        "memory reserved",
    ):
        assert words.count(label) == 1
    assert any("95 GiB free" in text for text in words)
    held, mem = rectangles(svg, "held")[0], rectangles(svg, "mem")[0]
    assert held.width == pytest.approx(mem.width * 16 / 112, abs=0.2)
    bare = [box.words for box in boxes(drawing.draw(machine_of("64-2s")))]
    assert "memory held" not in bare
    assert "huge pages" not in bare


@pytest.mark.parametrize("name", ["64-2s-snc", "256-uv-72-zones", "1024-ia64-no-cache"])
def test_every_distance_can_be_read(name: str) -> None:
    """As a number, or, of many zones, from the tooltip of its place and the key of the shades."""
    machine = machine_of(name)
    drawn = boxes(drawing.draw(machine))
    if len(machine.zones) <= 16:
        numbers = Counter(box.words for box in drawn if box.kind == "n")
        for zone in machine.zones:
            numbers.subtract(str(distance) for distance in zone.distances.values())
        assert min(numbers.values()) >= 0
        return
    told = {}
    for box in drawn:
        if match := re.fullmatch(r"zone (\d+) to ([\d,-]+): (\d+)", box.words):
            for to in bits.members(bits.parse_list(match[2])):
                told[int(match[1]), to] = int(match[3])
    assert told == {(z.id, to): d for z in machine.zones for to, d in z.distances.items()}
    keys = {box.words.split()[0] for box in drawn if box.kind == "d"}
    assert {str(distance) for distance in told.values()} <= keys


def test_dark_mode_colours_all_that_light_mode_does() -> None:
    style = drawing.draw(machine_of("64-2s")).partition("<style>")[2].partition("</style>")[0]
    light, _, dark = style.partition("@media(prefers-color-scheme:dark)")
    rule = re.compile(r"([^{}]+)\{(fill|stroke):#[0-9a-f]+\}")
    assert {m[0] for m in rule.findall(light.splitlines()[1])} == {
        m[0] for m in rule.findall(dark.removeprefix("{"))
    }
    assert not re.search(r'(fill|stroke)="#', drawing.draw(machine_of("64-2s")))


def test_a_hostile_name_stays_text() -> None:
    machine = replace(machine_of("4-desktop-no-smt"), model="</svg><script>alert(1)</script>\x00")
    root = ET.fromstring(drawing.draw(machine))
    assert {element.tag.removeprefix(SVG) for element in root.iter()} <= {
        "svg", "style", "rect", "g", "text", "title",
    }  # fmt: skip
