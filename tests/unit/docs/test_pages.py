"""The documentation names commands, files and events that exist; pictures are those of today."""

from __future__ import annotations

import ast
import os
import re
import shlex
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import yaml

from rte import accounting, cli, errors
from rte.model import bits
from rte.model.node import Holding, KubeletConfig, NodeReading, NodeState, PodRef
from rte.scheduler.report.reporter import REASONS
from rte.sysfs import read_machine
from rte.view import drawing
from tests import machines
from tests.documents import EVERY_PAGE, commands

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).parents[3]
DOCS = ROOT / "docs"
PICTURES = DOCS / "pictures"
#: Files that the pages name and that are not of the repository.
ELSEWHERE = {"rte/bytecode", "rte/nrt.json", "rte/sbom.cdx.json"}
RTE = re.compile(r"(?:^|[|;&] *)(?:[\w.]+/bin/|kubectl )?rte ([^|;&]*)")


def typed() -> Iterator[tuple[str, list[str]]]:
    """The words of each command line of ours, by page."""
    for page in EVERY_PAGE:
        for command in commands(page):
            for words in RTE.findall(re.sub(r"\d?>{1,2} *\S+", "", command.text)):
                if not (command.named or "…" in words):
                    yield f"{page}: {words}", shlex.split(words)


LINES = dict(typed())


def test_there_are_commands_of_every_kind() -> None:
    assert len(LINES) >= 40
    assert {words[0] for words in LINES.values()} >= set(cli.every_command()) - {"nri", "scheduler"}


@pytest.mark.parametrize("line", LINES)
def test_every_command_can_be_typed_as_it_is_written(line: str) -> None:
    """Its flags exist, with values that they take; nothing is run. Prose may leave words out."""
    words = LINES[line]
    if words[-1] in ("--help", "--version"):
        return
    try:
        cli._parse(words, next(word for word in words if not word.startswith("-")))
    except errors.UsageError as error:
        assert str(error).startswith("the following arguments are required"), error


@pytest.mark.parametrize("page", EVERY_PAGE)
def test_every_file_of_the_repository_that_is_named_exists(page: str) -> None:
    pattern = r"\b((?:manifests|bench|tests|fixtures|packaging|rte)/[\w./-]*\w)"
    named = set(re.findall(pattern, (ROOT / page).read_text())) - ELSEWHERE
    assert not {name for name in named if not any(ROOT.glob(name + "*"))}


def test_every_page_is_in_the_navigation_once() -> None:
    def walk(entry: object) -> Iterator[str]:
        if isinstance(entry, str):
            yield entry
        parts = entry.values() if isinstance(entry, dict) else entry
        for part in () if isinstance(parts, str) else parts:
            yield from walk(part)

    nav = list(walk(yaml.safe_load((ROOT / "mkdocs.yml").read_text())["nav"]))
    assert len(nav) == len(set(nav))
    pages = {str(page.relative_to(DOCS)) for page in DOCS.rglob("*.md")}
    assert pages <= set(nav)


def reasons() -> Iterator[str]:
    """What the scheduler's code gives as reasons of events."""
    for path in (ROOT / "rte/scheduler").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Call) and len(node.args) > 2:
                name = getattr(node.func, "attr", getattr(node.func, "id", ""))
                if name in ("Post", "event") and isinstance(node.args[2], ast.Constant):
                    yield node.args[2].value
            elif isinstance(node, ast.Assign) and getattr(node.targets[0], "id", "") == "tells":
                assert isinstance(node.value, ast.Constant)
                yield node.value.value


def test_every_event_is_documented_and_no_other() -> None:
    found = {reason for reason in reasons() if reason}
    assert found <= set(REASONS)
    source = "".join(
        path.read_text()
        for path in (ROOT / "rte/scheduler").rglob("*.py")
        if path.name != "reporter.py"
    )
    assert all(f'"{reason}"' in source for reason in REASONS)


def machine_picture() -> str:
    machine = read_machine(
        ROOT / "fixtures/sysfs/32-2s-gpus/sys", ROOT / "fixtures/sysfs/32-2s-gpus/proc"
    )
    names = {("0x10de", "0x2330"): "NVIDIA H100 80GB", ("0x15b3", "0x101d"): "NVIDIA ConnectX-6 Dx"}
    return drawing.draw(machine, names=names)


def fragmented_picture(folder: Path) -> str:
    """Two zones of eight CPUs, of which two are free in each."""
    machines.generate(
        machines.Shape(sockets=2, cores=8, model="4 CPUs free, 2 in each zone"), folder
    )
    machine = read_machine(folder / "sys", folder / "proc")
    held = {"web-0": "0-2", "web-1": "3-5", "db-0": "8-11", "db-1": "12-13"}
    cpus = {name: bits.parse_list(text) for name, text in held.items()}
    shared = machine.online
    for mask in cpus.values():
        shared &= ~mask
    state = NodeState(
        topology=accounting.kubelet_topology(machine),
        config=KubeletConfig(topology_policy="single-numa-node", cpu_policy="static"),
        shared=shared,
        holdings={name: {"main": Holding(cpus=mask)} for name, mask in cpus.items()},
    )
    pods = tuple(PodRef(uid=name, namespace="shop", name=name) for name in cpus)
    return drawing.draw(machine, NodeReading(node_name="", machine=machine, state=state, pods=pods))


@pytest.mark.parametrize("name", ["machine.svg", "fragmented.svg"])
def test_pictures_are_those_of_today(name: str, tmp_path: Path) -> None:
    """``RTE_PICTURES=docs/pictures`` writes them anew."""
    drawn = machine_picture() if name == "machine.svg" else fragmented_picture(tmp_path)
    if folder := os.environ.get("RTE_PICTURES"):
        (Path(folder) / name).write_text(drawn)
    assert (PICTURES / name).read_text() == drawn
