"""The pages about processing groups do what they show."""

from __future__ import annotations

import doctest
import re
import shlex
from pathlib import Path
from typing import TYPE_CHECKING

import yaml

from rte import cli
from rte.placement.groups.inventory import DEFAULT_POLICY
from rte.placement.groups.policies import read_policies
from tests.unit.placement.groups.test_nhd import FILE, LABELS, allocated, triad_set

if TYPE_CHECKING:
    import pytest

DOCS = Path(__file__).parents[4] / "docs"


def test_examples_of_the_page_about_groups() -> None:
    failed, tried = doctest.testfile(str(DOCS / "groups.md"), module_relative=False)

    assert tried > 10
    assert failed == 0


def commands_of_the_page_about_nhd() -> list[str]:
    blocks = re.findall(r"```sh\n(.*?)```", (DOCS / "nhd.md").read_text(), re.DOTALL)
    return [line for block in blocks for line in block.splitlines()]


def test_every_command_of_the_page_about_nhd(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys
) -> None:
    """Those of rte; tests/cluster/test_nhd.py has those of kubectl."""
    monkeypatch.chdir(tmp_path)
    _, record = allocated()
    node = {
        "kind": "Node",
        "metadata": {"name": "n", "labels": LABELS},
        "status": {"allocatable": {"hugepages-1Gi": "8Gi"}},
    }
    pod = {
        "kind": "Pod",
        "metadata": {"name": "p", "annotations": {"sigproc.viasat.io/nhd_config": FILE}},
        "spec": {"nodeName": "n"},
    }
    for name, text in {
        "radio.cfg": FILE,
        "nodes.yaml": yaml.safe_dump(node),
        "pods.yaml": yaml.safe_dump(pod),
        "triadsets.yaml": yaml.safe_dump(triad_set()),
        "allocation": record.text(),
        "app.env": "WORKERS=${groups[0].cpus.workers}\n",
    }.items():
        Path(name).write_text(text)
    commands = [shlex.split(line) for line in commands_of_the_page_about_nhd()]

    assert {words[0] for words in commands} == {"rte", "kubectl"}
    ours = [words[1:] for words in commands if words[0] == "rte"]
    assert len(ours) >= 7
    for words in ours:
        asked = words[: words.index(">")] if ">" in words else words
        assert cli.main(asked) == 0, words
    assert Path("filled.cfg").read_text()


def test_the_policy_of_the_page_is_the_default() -> None:
    (text,) = re.findall(
        r"```yaml\n(nicHeadroom.*?)```", (DOCS / "groups.md").read_text(), re.DOTALL
    )

    policies = read_policies(yaml.safe_load(text))

    assert policies.default == DEFAULT_POLICY
    assert policies.of({"pool": "radio"}).nic_sharing == "bandwidth"


def test_the_tests_that_the_page_about_nhd_names_are_there() -> None:
    names = set(re.findall(r"`((?:\w+/)*test_\w+\.py)`", (DOCS / "nhd.md").read_text()))
    there = [path.as_posix() for path in (DOCS.parent / "tests").rglob("test_*.py")]

    assert len(names) > 20
    assert [name for name in names if not any(path.endswith(f"/{name}") for path in there)] == []
