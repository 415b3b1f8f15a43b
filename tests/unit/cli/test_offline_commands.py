"""``rte simulate`` and ``rte explain`` on files: what a user types and sees."""

import gzip
import json
from pathlib import Path

import pytest

from rte import errors
from rte.cli import live, main
from tests.unit.cli.objects import node_objects, pod_yaml


def test_explain_says_where_a_pod_fits_and_what_is_short_elsewhere(write, capsys):
    cluster = write("cluster.yaml", [*node_objects("full", (4, 5)), *node_objects("half", (4,))])
    pod = write("pod.yaml", [pod_yaml("new", 5)])
    assert main(["explain", "-f", pod, "--from", cluster]) == 0
    out = capsys.readouterr().out
    assert "default/new fits 1 of 2 nodes; best: half" in out
    assert "* half: fits (c0 in zone 1)" in out
    assert "- full: TopologyAffinityError" in out
    assert "zones 0-1: cpu 3 free of 5 wanted (2 short)" in out
    assert "would fit without: default/full-0" in out


def test_explain_exits_1_when_nothing_fits_and_speaks_json(write, capsys):
    cluster = write("cluster.yaml", node_objects("only", (7, 8)))
    pod = write("pod.yaml", [pod_yaml("new", 4)])
    assert main(["explain", "-f", pod, "--from", cluster, "-o", "json"]) == 1
    answer = json.loads(capsys.readouterr().out)
    assert answer["chosen"] is None
    (node,) = answer["nodes"]
    assert node["reason"]
    assert node["zones"][0]["short"] == {"cpu": 4}


def test_explain_finds_a_pod_by_name(write, capsys):
    cluster = write("cluster.yaml", [*node_objects("n", (7,)), pod_yaml("waits", 4)])
    assert main(["explain", "waits", "--from", cluster]) == 0
    assert "best: n" in capsys.readouterr().out
    assert main(["explain", "n-0", "--from", cluster]) == 0
    assert "is bound to n" in capsys.readouterr().out
    assert main(["explain", "nobody", "--from", cluster]) == 2
    assert "pod default/nobody not found" in capsys.readouterr().err


def test_explain_knows_the_claims_and_volumes_of_the_files(write, capsys):
    here = {"key": "metadata.name", "operator": "In", "values": ["b"]}
    storage = [
        {
            "apiVersion": "v1", "kind": "PersistentVolumeClaim",
            "metadata": {
                "name": "data", "annotations": {"pv.kubernetes.io/bind-completed": "yes"},
            },
            "spec": {"volumeName": "pv", "accessModes": ["ReadWriteOnce"]},
            "status": {"phase": "Bound"},
        },
        {
            "apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": "pv"},
            "spec": {
                "capacity": {"storage": "1Gi"},
                "nodeAffinity": {"required": {"nodeSelectorTerms": [{"matchFields": [here]}]}},
            },
        },
    ]  # fmt: skip
    nodes = [*node_objects("a"), *node_objects("b")]
    volume = {"name": "d", "persistentVolumeClaim": {"claimName": "data"}}
    pod = write("pod.yaml", [pod_yaml("p", 4, volumes=[volume])])
    known = write("known.yaml", [*nodes, *storage])
    assert main(["explain", "-f", pod, "--from", known]) == 0
    assert "default/p fits 1 of 2 nodes; best: b" in capsys.readouterr().out
    unknown = write("unknown.yaml", nodes)
    assert main(["explain", "-f", pod, "--from", unknown]) == 1
    assert 'persistentvolumeclaim "data" not found' in capsys.readouterr().out


async def test_what_a_user_may_not_read_is_left_out_with_a_note(capsys):
    class Refusing:
        async def get(self, path):
            if path.endswith(("/nodes", "/pods")):
                return {"items": [{"metadata": {"name": "one"}}]}
            if path.endswith("/persistentvolumes"):
                raise errors.KubeError("persistentvolumes is forbidden", status=403)
            raise errors.KubeError("not found", status=404)

    found = await live.read_objects(Refusing())
    assert [item["kind"] for item in found] == ["Node", "Pod"]
    (note,) = capsys.readouterr().err.splitlines()
    assert note.startswith("note: judged without PersistentVolume objects: ")
    assert "persistentvolumes is forbidden" in note


def test_explain_tells_what_a_restart_of_a_kubelet_would_do(write, capsys):
    cluster = write("cluster.yaml", node_objects("n", (7,)))
    assert main(["explain", "--restart", "n", "--from", cluster]) == 0
    assert "+ n: a restart does no harm" in capsys.readouterr().out
    assert main(["explain", "--restart", "--from", cluster]) == 0
    assert capsys.readouterr().out == "a restart does no harm on any node\n"
    assert main(["explain", "--restart", "m", "--from", cluster]) == 2
    assert "node m not found" in capsys.readouterr().err


def test_explain_marks_rules_that_are_assumed(write, capsys):
    cluster = write(
        "cluster.yaml", [*node_objects("new", version="v1.37.99"), *node_objects("old")]
    )
    pod = write("pod.yaml", [pod_yaml("p", 5)])
    assert main(["explain", "-f", pod, "--from", cluster]) == 0
    assert capsys.readouterr().out.count("kubelet v1.37.99 is taken for v1.37.") == 1


@pytest.mark.parametrize("text", ["", "{", "3", '{"rteCase": 7}', '{"rteCase": 1}'])
def test_a_file_that_is_no_case_is_named(text, tmp_path, capsys):
    path = tmp_path / "case.json"
    path.write_text(text)
    assert main(["explain", "--case", str(path)]) == 2
    error = capsys.readouterr().err
    assert error.count("\n") == 1
    assert "case.json" in error


def test_explain_replays_cases_as_text_and_json(tmp_path, capsys):
    samples = Path(__file__).parents[2] / "vectors/rte_case.jsonl.gz"
    lines = gzip.decompress(samples.read_bytes()).decode().splitlines()[:3]
    path = tmp_path / "cases.jsonl"
    path.write_text("\n".join(lines) + "\n")
    assert main(["explain", "--case", str(path)]) == 0
    assert capsys.readouterr().out.count("not reproduced: this rte predicts") == 3
    assert main(["explain", "--case", str(path), "-o", "json"]) == 0
    answers = json.loads(capsys.readouterr().out)
    assert [answer["reproduced"] for answer in answers] == [False] * 3
    assert answers[0]["replayed"]["result"] == "exact"


def test_simulate_compares_ways_of_deciding_under_the_kubelets_rules(write, capsys):
    """12 CPUs fit a node by totals, and no zone: only node totals sends the pod there."""
    files = write(
        "all.yaml", [*node_objects("a"), *node_objects("b"), pod_yaml("p", 12), pod_yaml("q", 8)]
    )
    assert main(["simulate", "-f", files, "--compare", "-o", "json"]) == 1
    outcomes = {each["strategy"]: each for each in json.loads(capsys.readouterr().out)["outcomes"]}
    assert outcomes["NextFit"]["rejections"] == {}
    assert outcomes["zone-arithmetic"]["rejections"] == {}
    assert outcomes["node-totals"]["rejections"]["TopologyAffinityError"] >= 2
    assert all(list(each["unplaced"]) == ["default/p"] for each in outcomes.values())


def test_simulate_draws_who_holds_what(write, capsys):
    files = write("all.yaml", [*node_objects("a", (3,)), pod_yaml("p", 4)])
    assert main(["simulate", "-f", files]) == 0
    out = capsys.readouterr().out
    assert "1 pod placed by NextFit" in out
    assert "default/p -> a  c0 in zone 0" in out
    assert "A default/a-0, B default/p" in out


def test_simulate_replicas_on_a_fixture(write, capsys):
    template = {"metadata": {"labels": {}}, "spec": pod_yaml("x", 24)["spec"]}
    workload = {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "w"},
        "spec": {"replicas": 3, "template": template},
    }
    files = write("w.yaml", [workload])
    assert main(["simulate", "-f", files, "--machine", "64-2s"]) == 1
    out = capsys.readouterr().out
    assert "2 of 3 pods placed" in out
    assert "default/w-2 -> nowhere: 1x " in out


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["simulate"], "give nodes and pods"),
        (["simulate", "--machine", "nowhere"], "no fixture, folder or file"),
        (["simulate", "--machine", "64-2s*0"], "no number of nodes"),
        (["simulate", "-f", "{missing}"], "cannot read"),
        (["explain"], "name a pod"),
        (["explain", "a", "-f", "b"], "one of the two"),
        (["explain", "a", "--restart", "n"], "--restart takes a node"),
        (["explain", "--case", "{missing}"], "cannot read"),
    ],
)
def test_wrong_usage_is_one_line_and_exit_code_2(arguments, words, capsys, tmp_path):
    filled = [word.replace("{missing}", str(tmp_path / "no.yaml")) for word in arguments]
    assert main(filled) == 2
    error = capsys.readouterr().err
    assert error.count("\n") == 1
    assert any(word in error for word in words.split("|"))


@pytest.mark.parametrize(
    ("content", "told"),
    [
        (b"kind: Pod\nmetadata:\n\tname: a\n",
         "is not YAML: line 3, column 1: a tab, and YAML is indented with spaces"),
        (b"kind: a: b", "is not YAML: line 1, column 8: "),
        ("kind: Pod".encode("utf-16"), "it is not UTF-8 text"),
        (None, ": No such file or directory\n"),
    ],
)  # fmt: skip
def test_what_is_wrong_with_a_file_is_said_where(content, told, tmp_path, capsys):
    path = tmp_path / "a.yaml"
    if content is not None:
        path.write_bytes(content)
    assert main(["simulate", "-f", str(path), "--machine", "2x8"]) == 2
    line = capsys.readouterr().err
    assert told in line
    assert "Errno" not in line
    assert line.count("\n") == 1


@pytest.mark.parametrize(
    "document",
    [
        "{kind: Node}", "{kind: Node, metadata: x}", "{kind: Node, metadata: [a]}",
        "{kind: Node, metadata: {name: a, labels: x}}", "{kind: Pod, spec: {nodeName: a}}",
        "{kind: Pod, metadata: x, spec: {nodeName: a}}",
        "{kind: Pod, metadata: {name: p}, spec: x}",
        "{kind: Pod, metadata: {name: p, uid: [a]}, spec: {nodeName: a}}",
        "{kind: Pod, metadata: {name: p}, spec: {nodeName: a}, status: 7}",
        "{kind: NodeResourceTopology, metadata: x}", "{kind: ResourceClaim, metadata: x}",
        "{kind: [a]}", "{kind: {a: b}}", "{kind: NodeList, items: [{metadata: x}]}",
        "{kind: List, items: [{kind: 3}]}", "{kind: PodDisruptionBudget, metadata: 3}",
        "{kind: ResourceSlice, spec: x}", "{kind: Namespace, metadata: {name: {}}}",
    ],
)  # fmt: skip
@pytest.mark.parametrize(
    "arguments",
    [
        ["explain", "--all", "--from", "{odd}"], ["explain", "x", "--from", "{odd}"],
        ["fit", "-f", "{pod}", "--from", "{odd}"], ["defrag", "--from", "{odd}"],
        ["simulate", "-f", "{odd}", "-f", "{pod}", "--machine", "2x8"], ["topology", "{odd}"],
        ["simulate", "-f", "{pod}", "--machine", "{odd}"],
    ],
)  # fmt: skip
def test_what_is_no_object_of_its_kind_ends_no_command_with_a_traceback(
    arguments, document, tmp_path, capsys
):
    odd, fine = tmp_path / "odd.yaml", tmp_path / "pod.yaml"
    odd.write_text(document)
    fine.write_text("{kind: Pod, metadata: {name: p}, spec: {containers: [{name: c, image: i}]}}")
    code = main([word.format(odd=odd, pod=fine) for word in arguments])
    told = capsys.readouterr().err
    assert code in (0, 1, 2)
    if code == 2:
        assert told.count("\n") == 1


@pytest.mark.parametrize("prefix", [b"", b"\xef\xbb\xbf"])
@pytest.mark.parametrize("end", [b"\n", b"\r\n"])
def test_files_of_windows_are_read(prefix, end, tmp_path, capsys):
    lines = [
        b"apiVersion: v1", b"kind: Pod", b"metadata: {name: p}", b"spec:", b"  containers:",
        b"  - {name: c, image: i, resources: {limits: {cpu: 2, memory: 1Gi}}}", b"",
    ]  # fmt: skip
    path = tmp_path / "a.yaml"
    path.write_bytes(prefix + end.join(lines))
    assert main(["simulate", "-f", str(path), "--machine", "2x8"]) == 0
    assert "1 pod placed" in capsys.readouterr().out


@pytest.mark.parametrize("text", ["{", "- 1\n- 2", "just text", "\x00"])
def test_a_file_that_holds_no_objects_is_named(text, tmp_path, capsys):
    path = tmp_path / "bad.yaml"
    path.write_text(text)
    assert main(["simulate", "-f", str(path)]) == 2
    assert "bad.yaml" in capsys.readouterr().err


def test_malformed_objects_are_left_out_with_a_note(write, capsys):
    broken = {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": "odd"},
        "status": {"allocatable": {"cpu": "x"}},
    }
    files = write("all.yaml", [*node_objects("a"), broken, pod_yaml("p", 4)])
    assert main(["simulate", "-f", files]) == 0
    assert "note: Node odd is left out" in capsys.readouterr().out
