"""The public names of the library, as docs/library.md uses them."""

from __future__ import annotations

import doctest
import gzip
from pathlib import Path

import pytest

import rte
from rte import accounting, errors, library
from rte.library import Verdict, admit
from rte.model.pod import QOS
from tests.unit.cli.objects import node_objects, pod_yaml

ROOT = Path(__file__).parents[2]


def test_public_names_are_there_and_types_are_shipped() -> None:
    assert all(hasattr(library, name) for name in library.__all__)
    assert (Path(rte.__file__).parent / "py.typed").exists()


def test_a_manifest_gets_the_api_servers_defaults() -> None:
    pod = library.Pod.from_manifest(pod_yaml("p", 2))
    assert pod.uid == "default/p"
    assert pod.qos is QOS.GUARANTEED
    assert pod.containers[0].requests["cpu"] == 2000


def test_a_stored_pod_keeps_its_uid() -> None:
    stored = pod_yaml("p", 2)
    stored["metadata"]["uid"] = "u-1"
    assert library.Pod.from_manifest(stored).uid == "u-1"


@pytest.mark.parametrize("wrong", [None, [], {"kind": "Node"}, {"kind": "Pod"}, {"spec": 3}])
def test_what_is_no_pod_is_refused(wrong) -> None:
    with pytest.raises(errors.ParseError):
        library.Pod.from_manifest(wrong)


def test_a_state_is_read_from_a_report_and_predicts() -> None:
    state = library.NodeState.from_nrt(node_objects("n", (7,))[1])
    assert admit(state, library.Pod.from_manifest(pod_yaml("p", 8))).verdict is Verdict.ADMITTED
    refused = admit(state, library.Pod.from_manifest(pod_yaml("p", 9)))
    assert refused.reason == "TopologyAffinityError"


def test_another_exporters_report_is_refused() -> None:
    report = node_objects("n")[1]
    report["metadata"]["annotations"] = {}
    with pytest.raises(errors.ParseError, match="node-state"):
        library.NodeState.from_nrt(report)


@pytest.mark.parametrize("name", sorted(path.name for path in (ROOT / "fixtures/sysfs").iterdir()))
def test_a_machine_made_of_a_kubelets_topology_gives_that_topology(name: str) -> None:
    topology = accounting.kubelet_topology(library.read_machine(ROOT / "fixtures/sysfs" / name))
    assert accounting.kubelet_topology(accounting.machine_of(topology)).zones == topology.zones
    again = accounting.kubelet_topology(accounting.machine_of(topology)).cpus
    assert [(c.cpu, c.core, c.socket, c.zone) for c in again] == [
        (c.cpu, c.core, c.socket, c.zone) for c in topology.cpus
    ]


def test_the_documented_recipes_run(monkeypatch) -> None:
    """docs/library.md from top to bottom; ``text`` is the first recorded case."""
    cases = gzip.decompress((ROOT / "tests/vectors/rte_case.jsonl.gz").read_bytes())
    monkeypatch.chdir(ROOT)
    failed, attempted = doctest.testfile(
        str(ROOT / "docs/library.md"),
        module_relative=False,
        globs={"text": cases.splitlines()[0]},
    )
    assert attempted > 15
    assert not failed
