"""Machines by name: one grammar for the library and every command that takes a machine.

A name is, in this order: a shape (``2x32``), a folder with ``sys/`` and ``proc/``, an archive of
``rte snapshot``, a file of NodeResourceTopologies, or a fixture.
"""

from __future__ import annotations

import asyncio
import re
import tarfile
import tempfile
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from rte import accounting, errors, nrt
from rte.kubelet import recorded
from rte.library.cpusets import CPUSet
from rte.model.node import NodeReading, PodRef
from rte.model.quantity import hugepage_resource
from rte.model.words import MACHINE, counted
from rte.nrt import koordinator
from rte.reader import files
from rte.sim import machines as shapes
from rte.sysfs import read_machine
from rte.view import drawing

if TYPE_CHECKING:
    from collections.abc import Coroutine, Sequence

    from rte.reader.json import Json

_SHAPE = re.compile(r"\d+x\d+(,.*)?")
#: Where fixtures lie: in the working directory, or beside the package in a clone.
_FIXTURES = (Path("fixtures/sysfs"), Path(__file__).parents[2] / "fixtures/sysfs")


@dataclass(frozen=True)
class NamedMachine:
    """A machine, and the kubelet that was found with it; a notebook shows it as a picture.

    Attributes:
        name: for nodes that are made of it.
        reading: the hardware; its state is None where no kubelet was found with it.
    """

    name: str
    reading: NodeReading

    @property
    def cpus(self) -> CPUSet:
        """All CPUs that are on-line."""
        return CPUSet(cpu.id for cpu in self.reading.machine.cpus if cpu.online)

    def rows(self) -> list[dict[str, object]]:
        """One flat row for each zone: id, CPUs, bytes of memory, pages of each size."""
        return [
            {
                "machine": self.name,
                "zone": zone.id,
                "cpus": CPUSet.of_mask(zone.cpus),
                "memory": zone.memory_bytes,
                **{hugepage_resource(size): count for size, count in zone.hugepages.items()},
            }
            for zone in self.reading.machine.zones
        ]

    def __repr__(self) -> str:
        zones = counted(len(self.reading.machine.zones), "zone")
        return f"<machine {self.name}: {counted(len(self.cpus), 'CPU')}, {zones}>"

    def _repr_svg_(self) -> str:
        return drawing.draw(self.reading.machine, self.reading)


def find(text: str) -> list[NamedMachine]:
    """The machine of that name; several where a file holds several NodeResourceTopologies; none
    where nothing here has the name.

    Raises:
        errors.RteError: what there is cannot be read.
    """
    if not text:
        return []
    path = Path(text)
    if _SHAPE.fullmatch(text):
        return [_from_shape(text)]
    if path.is_dir():
        return [_from_folder(path, _plain(path.resolve().name))]
    if path.is_file():
        return [_from_archive(path)] if _is_archive(path) else _from_reports(path)
    for fixtures in _FIXTURES:
        if (fixtures / text / "sys").is_dir():
            return [_from_folder(fixtures / text, _plain(path.name))]
    return []


def near(text: str) -> str:
    """``, did you mean NAME?`` where a fixture has nearly that name, else nothing."""
    names = [path.parent.name for fixtures in _FIXTURES for path in fixtures.glob("*/sys")]
    return errors.meant(text, names)


def only(found: Sequence[NamedMachine], text: str) -> NamedMachine:
    """The one machine of that name.

    Raises:
        errors.UsageError: the name stands for several.
    """
    if len(found) > 1:
        names = ", ".join(each.name for each in found[:5])
        raise errors.UsageError(f"{text} holds {len(found)} machines ({names} ...): give one")
    return found[0]


def from_report(obj: Json, pods: Sequence[PodRef] = ()) -> NamedMachine:
    """The machine that a NodeResourceTopology of rte's agent describes.

    Raises:
        errors.ParseError: it is none, or another exporter's, which tells zones but no CPUs.
    """
    report = nrt.decode(obj)
    if report.state is None:
        why = "; ".join(report.problems) or "another exporter's, which tells no CPUs"
        raise errors.ParseError("NodeResourceTopology", report.name, why)
    annotations = obj["metadata"].get("annotations") or {}
    known = {pod.uid: pod for pod in (*koordinator.holders(annotations), *pods)}
    return NamedMachine(
        report.name,
        NodeReading(
            node_name=report.name,
            machine=accounting.machine_of(report.state.topology),
            state=report.state,
            pods=tuple(known.values()),
        ),
    )


def _from_shape(text: str) -> NamedMachine:
    with tempfile.TemporaryDirectory(prefix="rte-shape-") as folder:
        machine = shapes.make(text, Path(folder) / "machine")
    return NamedMachine(_plain(text), NodeReading(node_name="", machine=machine))


def _from_folder(folder: Path, name: str) -> NamedMachine:
    if not (folder / "sys").is_dir():
        raise errors.UsageError(f"{folder} has no sys/ folder; a machine is {MACHINE}")
    machine = read_machine(folder / "sys", folder / "proc")
    state_dir = folder / "kubelet"
    if not state_dir.is_dir():
        return NamedMachine(name, NodeReading(node_name="", machine=machine))
    from rte.agent import oneshot
    from rte.agent.settings import AgentSettings

    config, answers = state_dir / "config.yaml", state_dir / "podresources.json"
    settings = AgentSettings(
        sysfs_root=folder / "sys",
        procfs_root=folder / "proc",
        kubelet_state_dir=state_dir,
        kubelet_config_file=config if config.is_file() else None,
        node_name=name,
        oneshot_timeout=1.0,
    )
    recording = recorded.Recording.parse(answers.read_text()) if answers.is_file() else None
    return NamedMachine(name, _run(oneshot.read_node(settings, machine, recording)))


def _is_archive(path: Path) -> bool:
    try:
        return tarfile.is_tarfile(path)
    except OSError as error:
        raise errors.UsageError(f"cannot read {path}: {error.strerror}") from error


def _from_archive(path: Path) -> NamedMachine:
    with tempfile.TemporaryDirectory(prefix="rte-snapshot-") as folder:
        try:
            with tarfile.open(path) as archive:
                archive.extractall(folder, filter=_inside)  # noqa: S202 - that is what it checks
        except (tarfile.TarError, OSError, EOFError, ValueError) as error:
            raise errors.UsageError(f"{path} is no archive of rte snapshot: {error}") from error
        return _from_folder(Path(folder), _plain(path.name.partition(".tar")[0]))


def _inside(member: tarfile.TarInfo, folder: str) -> tarfile.TarInfo | None:
    """Plain files, folders and links of the three trees that a snapshot has."""
    if not re.match(r"(\./)?(sys|proc|kubelet)(/|$)", member.name):
        return None
    return tarfile.data_filter(member, folder)


def _from_reports(path: Path) -> list[NamedMachine]:
    reports = [
        item for item in files.load_objects([path]) if item["kind"] == "NodeResourceTopology"
    ]
    if not reports:
        raise errors.UsageError(f"{path} holds no NodeResourceTopology; a machine is {MACHINE}")
    return [from_report(item) for item in reports]


def _run(reading: Coroutine[None, None, NodeReading]) -> NodeReading:
    """In a thread of its own: a notebook's has an event loop already."""
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(asyncio.run, reading).result()


def _plain(name: str) -> str:
    """As a node may be called."""
    return re.sub(r"[^a-z0-9-]+", "-", name.lower()).strip("-") or "machine"
