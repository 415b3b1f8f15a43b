"""The pages about processing groups do what they show."""

from __future__ import annotations

import doctest
import re
import shlex
from pathlib import Path
from typing import TYPE_CHECKING

import yaml

from rte import cli
from tests.unit.placement.groups.test_nhd import FILE, LABELS, allocated, triad_set

if TYPE_CHECKING:
    import pytest

DOCS = Path(__file__).parents[4] / "docs"


def test_examples_of_the_page_about_groups() -> None:
    failed, tried = doctest.testfile(str(DOCS / "groups.md"), module_relative=False)

    assert tried > 10
    assert failed == 0


def test_every_command_of_the_page_about_nhd(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys
) -> None:
    monkeypatch.chdir(tmp_path)
    _, record = allocated()
    node = {"kind": "Node", "metadata": {"name": "n", "labels": LABELS}}
    for name, text in {
        "radio.cfg": FILE,
        "nodes.yaml": yaml.safe_dump(node),
        "triadsets.yaml": yaml.safe_dump(triad_set()),
        "allocation": record.text(),
        "app.env": "WORKERS=${groups[0].cpus.workers}\n",
    }.items():
        Path(name).write_text(text)
    blocks = re.findall(r"```sh\n(.*?)```", (DOCS / "nhd.md").read_text(), re.DOTALL)
    commands = [line for block in blocks for line in block.splitlines()]

    assert len(commands) >= 7
    for command in commands:
        program, *words = shlex.split(command)
        assert program == "rte"
        assert cli.main(words) == 0, command
    assert Path("filled.cfg").read_text()
