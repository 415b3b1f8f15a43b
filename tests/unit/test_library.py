"""The library as Python people expect it, and as docs/library.md shows it."""

from __future__ import annotations

import ast
import doctest
import gzip
import json
from pathlib import Path

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

import rte
from rte import accounting, errors, library, nrt
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


def node(**given) -> library.Node:
    return library.node("2x8", **given)


def test_a_pod_is_a_dict_a_file_or_a_pod(tmp_path: Path) -> None:
    file = tmp_path / "pod.yaml"
    file.write_text(yaml.safe_dump(pod_yaml("p", 2)))
    read = library.pod(pod_yaml("p", 2))
    assert library.pod(file) == library.pod(str(file)) == library.pod(read) == read


def test_a_named_machine_becomes_a_node_with_the_kubelet_that_is_asked_for() -> None:
    made = node(policy="restricted", scope="pod", version="v1.35.4", name="n")
    assert (made.name, made.state.kubelet_version) == ("n", "v1.35.4")
    assert (made.state.config.topology_policy, made.state.config.topology_scope) == (
        "restricted",
        "pod",
    )
    assert str(made.cpus) == "0-15"
    assert str(made.free) == "1-15"


def test_a_kubelets_file_and_its_document_make_the_same_node(tmp_path: Path) -> None:
    document = {"cpuManagerPolicy": "static", "reservedSystemCPUs": "0-1"}
    file = tmp_path / "kubelet.yaml"
    head = {"kind": "KubeletConfiguration", "apiVersion": "kubelet.config.k8s.io/v1beta1"}
    file.write_text(yaml.safe_dump(head | document))
    of_document, of_file = node(kubelet=document), node(kubelet=file)
    assert str(of_document.free) == "2-15"
    assert of_document.state == of_file.state
    assert of_file.state.config.node_reserved["memory"] == 100 << 20  # the kubelet's default
    restricted = node(kubelet=file, policy="restricted", scope="pod").state.config
    assert (restricted.topology_policy, restricted.topology_scope) == ("restricted", "pod")


def test_a_key_that_no_kubelet_has_is_refused_in_a_file_too(tmp_path: Path) -> None:
    file = tmp_path / "kubelet.yaml"
    file.write_text(
        "kind: KubeletConfiguration\napiVersion: kubelet.config.k8s.io/v1beta1\nmaxPod: 7\n"
    )
    with pytest.raises(errors.UsageError, match=r"kubelet.yaml: .*'maxPod', did you mean maxPods"):
        node(kubelet=file)


def test_pods_follow_each_other_and_count_for_totals() -> None:
    answer = library.admit(node(), pod_yaml("a", 4))
    assert answer.admitted
    assert answer.cpus == set(answer.rows()[0]["cpus"]) == library.CPUSet(answer.cpus)
    assert answer.cpus.isdisjoint(answer.node.free)
    assert library.fit(node(), pod_yaml("p", 4)).total == 3
    assert library.fit(answer.node, pod_yaml("p", 4)).total == 2
    assert not library.admit(answer.node, pod_yaml("b", 8)).cpus - answer.node.free


def test_a_report_brings_its_kubelet_and_what_its_pods_hold() -> None:
    answer = library.admit(node(), pod_yaml("a", 4))
    again = library.node(nrt.encode(answer.node.reading))
    assert again.free == answer.node.free
    assert (
        library.fit(again, pod_yaml("p", 4)).rows()
        == library.fit(answer.node, pod_yaml("p", 4)).rows()
    )
    with pytest.raises(errors.UsageError, match="kubelet of its own: leave policy out"):
        library.node(nrt.encode(answer.node.reading), policy="none")


def test_rows_are_flat_and_pictures_are_svg() -> None:
    answer = library.admit(node(devices={"e.com/gpu": "0/1"}), pod_yaml("a", 4))
    for shown in (library.machine("2x8"), answer.node, answer, library.fit(node(), answer.pod)):
        keys = [set(row) for row in shown.rows()]
        assert keys
        assert all(keys[0] == more for more in keys)
        assert not any(
            isinstance(value, dict | list) for row in shown.rows() for value in row.values()
        )
    for shown in (library.machine("2x8"), answer.node, answer):
        assert shown._repr_svg_().startswith("<svg ")


def test_a_prompt_shows_each_value_in_one_short_line() -> None:
    before = library.node("2x8", name="n")
    fits, refused = (library.admit(before, pod_yaml("a", cpus)) for cpus in (4, 9))
    shown = (library.machine("2x8"), before, fits, refused, library.fit(before, fits.pod))
    why = "TopologyAffinityError: Resources cannot be allocated with Topology locality"
    assert [repr(each) for each in shown] == [
        "<machine 2x8: 16 CPUs, 2 zones>",
        "<node n: 15 of 16 CPUs free, single-numa-node>",
        "<a on n: admitted, CPUs 1-2,9-10>",
        f"<a on n: refused, {why}>",
        "<a: 3 on 1 node>",
    ]


GPU = {
    "metadata": {"name": "p"},
    "spec": {"containers": [{"name": "c", "resources": {"limit": {}}}]},
}


@pytest.mark.parametrize(
    ("ask", "told"),
    [
        (lambda: library.machine("no-such"), "machine: 'no-such' names none"),
        (lambda: library.machine(7), "machine: expected a name, not int"),
        (lambda: node(policy="single"), "policy: 'single' is none of none, best-effort"),
        (lambda: node(scope="pods"), "scope: 'pods' is none of container, pod"),
        (lambda: node(kubelet={"cpuManagerPolcy": "none"}), "kubelet: .*mean cpuManagerPolicy"),
        (lambda: node(kubelet={"cpuManagerPolicy": "sttic"}), "kubelet: cpuManagerPolicy: 'sttic'"),
        (lambda: node(devices={"e.com/gpu": "x"}), "devices: e.com/gpu: 'x' is no set of zones"),
        (lambda: node(devices={"e.com/gpu": "7"}), "devices e.com/gpu: 2x8 has no zone 7"),
        (lambda: library.admit("2x8", pod_yaml("p", 1)), "node: expected what node"),
        (lambda: library.admit(node(), 7), "pod: expected a dict, the path"),
        (lambda: library.admit(node(), "/nowhere/pod.yaml"), "pod: cannot read /nowhere/pod.yaml"),
        (lambda: library.admit(node(), GPU), "pod: .*limit: the API knows no such field"),
        (lambda: library.admit(node(), {"metadata": {"uid": "u"}}), "pod: bad Pod: .*containers"),
        (lambda: library.fit(7, pod_yaml("p", 1)), "nodes: expected nodes, not int"),
        (lambda: library.fit([node(), node()], pod_yaml("p", 1)), "nodes: 2 have the name 2x8"),
    ],
)  # fmt: skip
def test_what_is_wrong_names_the_argument(ask, told: str) -> None:
    with pytest.raises(errors.RteError, match=f"^{told}") as caught:
        ask()
    assert "\n" not in str(caught.value)


@given(st.frozensets(st.integers(0, 300)), st.frozensets(st.integers(0, 300)))
def test_a_set_of_cpus_is_a_set(some: frozenset[int], more: frozenset[int]) -> None:
    one, other = library.CPUSet(some), library.CPUSet(more)
    assert list(one) == sorted(some)
    assert one == some
    assert library.CPUSet(str(one)) == one
    assert hash(one) == hash(library.CPUSet(some))
    assert (one & other, one | other, one - other, one ^ other) == (
        some & more,
        some | more,
        some - more,
        some ^ more,
    )
    assert isinstance(one & other, library.CPUSet)
    assert ((one <= other), len(one), 5 in one) == ((some <= more), len(some), 5 in some)


@pytest.mark.parametrize("wrong", ["0-", "3-1", "x", [-1], [1 << 20]])
def test_what_is_no_set_of_cpus_is_refused(wrong) -> None:
    with pytest.raises(errors.ParseError):
        library.CPUSet(wrong)


def test_the_notebook_runs_and_draws(monkeypatch) -> None:
    monkeypatch.chdir(ROOT)
    cells = json.loads((ROOT / "docs/examples/library.ipynb").read_text())["cells"]
    known: dict[str, object] = {}
    shown = []
    for cell in cells:
        if cell["cell_type"] != "code":
            continue
        body = ast.parse("".join(cell["source"]))
        last = body.body.pop()
        exec(compile(body, "notebook", "exec"), known)
        assert isinstance(last, ast.Expr)
        shown.append(eval(compile(ast.Expression(last.value), "notebook", "eval"), known))
    pictures = [each._repr_svg_() for each in shown if hasattr(each, "_repr_svg_")]
    assert len(pictures) == 2
    assert "training" in pictures[1]
    assert shown[-1][0] == 3
