"""Machines by name: one grammar for every command that takes a machine.

A name is, in this order: a shape (``2x32``), a folder with ``sys/`` and ``proc/``, an archive of
``rte snapshot``, a file of NodeResourceTopologies, a fixture, or a node of the cluster.
"""

from __future__ import annotations

import asyncio
import re
import tarfile
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rte import accounting, errors, nrt
from rte.cli import inputs, live
from rte.cli.parsing import MACHINE
from rte.kube import resources
from rte.kubelet import recorded
from rte.model.node import NodeReading, PodRef
from rte.nrt import koordinator
from rte.sim import machines as shapes
from rte.sysfs import read_machine

if TYPE_CHECKING:
    import argparse
    from collections.abc import Mapping, Sequence

    from rte.model.kubelet import NodePod

_SHAPE = re.compile(r"\d+x\d+(,.*)?")
#: Where fixtures lie: in the working directory, or beside the package in a clone.
_FIXTURES = (Path("fixtures/sysfs"), Path(__file__).parents[2] / "fixtures/sysfs")


@dataclass(frozen=True)
class Named:
    """What a name stands for.

    Attributes:
        name: for nodes that are made of it.
        reading: the hardware; its state is None where no kubelet was found with it.
    """

    name: str
    reading: NodeReading


def find(text: str, args: argparse.Namespace) -> list[Named]:
    """The machine of that name; several where a file holds several NodeResourceTopologies.

    Raises:
        errors.RteError: there is none of that name, or what there is cannot be read.
    """
    path = Path(text)
    if _SHAPE.fullmatch(text):
        return [_from_shape(text)]
    if path.is_dir():
        return [_from_folder(path, _plain(path.resolve().name))]
    if path.is_file():
        return [_from_archive(path)] if _is_archive(path) else _from_reports(path)
    for fixtures in _FIXTURES:
        if text and (fixtures / text / "sys").is_dir():
            return [_from_folder(fixtures / text, _plain(path.name))]
    if not re.fullmatch(r"[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?", text):
        raise errors.UsageError(f"{text!r} names no machine; a machine is {MACHINE}")
    return [asyncio.run(_from_cluster(text, args))]


def find_one(text: str, args: argparse.Namespace) -> Named:
    """As :func:`find`, for commands that show one machine.

    Raises:
        errors.RteError: likewise, or the name stands for several.
    """
    found = find(text, args)
    if len(found) > 1:
        names = ", ".join(each.name for each in found[:5])
        raise errors.UsageError(f"{text} holds {len(found)} machines ({names} ...): give one")
    return found[0]


def from_report(obj: Mapping[str, Any], pods: Sequence[PodRef] = ()) -> Named:
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
    return Named(
        report.name,
        NodeReading(
            node_name=report.name,
            machine=accounting.machine_of(report.state.topology),
            state=report.state,
            pods=tuple(known.values()),
        ),
    )


def _from_shape(text: str) -> Named:
    with tempfile.TemporaryDirectory(prefix="rte-shape-") as folder:
        machine = shapes.make(text, Path(folder) / "machine")
    return Named(_plain(text), NodeReading(node_name="", machine=machine))


def _from_folder(folder: Path, name: str) -> Named:
    if not (folder / "sys").is_dir():
        raise errors.UsageError(f"{folder} has no sys/ folder; a machine is {MACHINE}")
    machine = read_machine(folder / "sys", folder / "proc")
    state_dir = folder / "kubelet"
    if not state_dir.is_dir():
        return Named(name, NodeReading(node_name="", machine=machine))
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
    return Named(name, asyncio.run(oneshot.read_node(settings, machine, recording)))


def _is_archive(path: Path) -> bool:
    try:
        return tarfile.is_tarfile(path)
    except OSError as error:
        raise errors.UsageError(f"cannot read {path}: {error.strerror}") from error


def _from_archive(path: Path) -> Named:
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


def _from_reports(path: Path) -> list[Named]:
    reports = [
        item for item in inputs.load_objects([path]) if item["kind"] == "NodeResourceTopology"
    ]
    if not reports:
        raise errors.UsageError(f"{path} holds no NodeResourceTopology; a machine is {MACHINE}")
    return [from_report(item) for item in reports]


async def _from_cluster(name: str, args: argparse.Namespace) -> Named:
    from rte.accounting import liveness

    try:
        async with live.connect(args) as client:
            obj = await client.get(resources.NRTS.path(name))
            try:
                selector = {"fieldSelector": f"spec.nodeName={name}"}
                items = (await client.get(resources.PODS.path(), **selector)).get("items") or ()
            except errors.KubeError as error:
                if error.status != 403:  # the report names those that hold CPUs
                    raise
                items = ()
    except errors.KubeError as error:
        raise errors.UsageError(
            f"{name} is no fixture, folder or file, and as a node of the cluster: {error}"
        ) from error
    there: list[NodePod] = [liveness.node_pod(item) for item in items]
    return from_report(obj, [PodRef(pod.uid, pod.namespace, pod.name) for pod in there])


def _plain(name: str) -> str:
    """As a node may be called."""
    return re.sub(r"[^a-z0-9-]+", "-", name.lower()).strip("-") or "machine"
