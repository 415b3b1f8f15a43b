"""What is printed reads as English: one CPU is no "1 CPUs", and nothing is told of 0."""

from __future__ import annotations

import ast
import re
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from rte.cli import main
from rte.model.words import counted, share
from tests.unit.cli.objects import node_objects, pod_yaml

if TYPE_CHECKING:
    from collections.abc import Iterator

SOURCES = sorted((Path(__file__).parents[3] / "rte").rglob("*.py"))
_NOUNS = (
    "CPUs|GPUs|NICs|zones|cores|sockets|threads|nodes|pods|containers|devices|claims|groups|gangs|"
    "moves|objects|lines|errors|warnings|agents|reports|places|copies|holders|conflicts"
)
_COUNTED = re.compile(rf"^ (?:more |other |free |waiting )?(?:{_NOUNS})\b")
#: A count of one with a noun of several, and nothing counted.
WRONG = re.compile(
    rf"(?<![\d./-])1 (?:more |other |free )?(?:{_NOUNS})\b|(?<![\d./])0 (?:lack|of 1|on each)\b"
)
#: A share of several, or Kubernetes' own words.
_NO_COUNT = re.compile(r"/$|Insufficient $")
#: Expressions in places where they are more than one, or no number.
_SEVERAL = {
    "grouping.py: len(zone.nics)": "beyond MAX_NICS",
    "pods.py: len(found)": "more than the one that is asked for",
    "fit.py: len(pods)": "beyond MOST_PODS",
    "topology.py: width": "cores of one thread are written otherwise",
    "live.py: kind": "of an object",
    "ownership.py: count": "kubectl's words, which has others for one conflict",
    "search.py: self._limit": "thousands",
}


def counts(path: Path) -> Iterator[str]:
    """``{number} nouns`` in a file's f-strings, where the number may be one."""
    for node in ast.walk(ast.parse(path.read_text())):
        if not isinstance(node, ast.JoinedStr):
            continue
        for place, part in enumerate(node.values[:-1]):
            after = node.values[place + 1]
            before = node.values[place - 1] if place else None
            said = str(before.value) if isinstance(before, ast.Constant) else ""
            if (
                isinstance(part, ast.FormattedValue)
                and isinstance(after, ast.Constant)
                and _COUNTED.match(str(after.value))
                and not ast.unparse(part.value).rpartition(".")[2].strip("_").isupper()
                and not _NO_COUNT.search(said)
                and f"{path.name}: {ast.unparse(part.value)}" not in _SEVERAL
            ):
                yield f"{path.name}:{node.lineno}: {ast.unparse(node)}"


def test_counts_are_written_in_one_place() -> None:
    """``words.counted`` knows one from several; limits are constants of more than one."""
    assert [found for path in SOURCES for found in counts(path)] == []


def test_the_check_can_fail(tmp_path: Path) -> None:
    source = tmp_path / "x.py"
    source.write_text("print(f'{n} pods wait', f'{MOST} pods', f'0/{n} nodes are available')")
    assert list(counts(source)) == ["x.py:1: f'{n} pods wait'"]
    assert WRONG.search("Of 2 zones 1 CPUs")
    assert WRONG.search("keeps 0 of 1 pods")
    assert not WRONG.search("11 CPUs, 0.1 CPUs, zone 0-1 CPUs")


@pytest.mark.parametrize(
    ("count", "told"), [(0, "0 pods"), (1, "1 pod"), (2, "2 pods"), (0.5, "0.5 pods")]
)
def test_one_is_told_from_several(count: float, told: str) -> None:
    assert counted(count, "pod") == told


@pytest.mark.parametrize(
    ("some", "total", "told"),
    [(0, 1, "no pod"), (1, 1, "1 pod"), (0, 3, "none of 3 pods"), (2, 3, "2 of 3 pods")],
)
def test_some_of_all_are_told_without_a_count_of_nothing(some: int, total: int, told: str) -> None:
    assert share(some, total, "pod") == told


@pytest.mark.parametrize("cpus", [1, 2, 7, 9, 20])
@pytest.mark.parametrize("held", [(), (1,), (7, 7), (6, 7)], ids=str)
def test_small_clusters_are_told_in_the_singular(write, capsys, held, cpus: int) -> None:
    """One node, one pod, one CPU: where a plural would be wrong."""
    cluster = write("cluster.yaml", node_objects("n", held))
    pod = write("pod.yaml", [pod_yaml("new", cpus)])
    for words in (
        ("explain", "-f", pod, "--from", cluster),
        ("fit", "-f", pod, "--from", cluster),
        ("fit", "-f", pod, "--from", cluster, "--count", "1"),
        ("fit", "-f", pod, "--empty", "--from", cluster),
        ("simulate", "-f", pod, "--machine", "2x8"),
        ("defrag", "-f", pod, "--from", cluster),
        ("explain", "--restart", "--from", cluster),
        ("explain", "--restart", "n", "--from", cluster),
        ("drain", "n", "--from", cluster),
        ("topology", "2x1"),
    ):
        main(list(words))
        printed = "".join(capsys.readouterr())
        assert not WRONG.search(printed), printed
        assert "node-0" not in printed
