"""``rte explain`` never says two things at once, and says what it is true of."""

from __future__ import annotations

import json

import pytest

from rte.cli import main
from tests.unit.cli.objects import node_objects, pod_yaml


@pytest.fixture
def cluster(write):
    return write("cluster.yaml", [*node_objects("a-full", (4, 5)), *node_objects("b-half", (4,))])


def explained(capsys, *words: str) -> tuple[int, str]:
    code = main(["explain", *words])
    return code, capsys.readouterr().out


def test_the_best_node_comes_first(write, cluster, capsys):
    pod = write("pod.yaml", [pod_yaml("new", 3)])
    _, out = explained(capsys, "-f", pod, "--from", cluster, "-o", "json")
    answer = json.loads(out)
    assert answer["nodes"][0]["node"] == answer["chosen"]


def test_a_smaller_request_is_proposed_only_where_it_would_help(write, capsys):
    """Neither for more than the node has left beside shared pods, nor where a taint refuses all."""
    node, report = node_objects("n")
    shared = pod_yaml("shared", memory="1Gi", nodeName="n")
    shared["spec"]["containers"] = [{"name": "c", "resources": {"requests": {"cpu": "11500m"}}}]
    pod = write("pod.yaml", [pod_yaml("new", 12)])
    _, told = explained(capsys, "-f", pod, "--from", write("used.yaml", [node, report, shared]))
    assert "node totals: cpu 3.5 free of 12 wanted" in told
    assert "would fit with cpu 3 in container c0" in told
    node["spec"] = {"taints": [{"key": "k", "effect": "NoSchedule"}]}
    _, told = explained(capsys, "-f", pod, "--from", write("tainted.yaml", [node, report]))
    assert "would fit" not in told


def test_node_totals_stand_beside_the_zones_that_refuse(write, cluster, capsys):
    """6 CPUs are free on the node, in two zones of which neither has five."""
    pod = write("pod.yaml", [pod_yaml("new", 5)])
    code, out = explained(capsys, "-f", pod, "--from", cluster)
    assert code == 0
    assert "node totals: cpu 6 free of 5 wanted; memory 30 GiB free of 1 GiB wanted" in out


def test_another_schedulers_pod_is_told(write, cluster, capsys, monkeypatch):
    pod = write("pod.yaml", [pod_yaml("new", 3)])
    assert (
        "its schedulerName is default-scheduler: this holds where rte serves that name (--also-for)"
        in (explained(capsys, "-f", pod, "--from", cluster)[1])
    )
    mine = write("mine.yaml", [pod_yaml("new", 3, schedulerName="rte-scheduler")])
    assert "schedulerName" not in explained(capsys, "-f", mine, "--from", cluster)[1]
    served = ("--also-for", "default-scheduler")
    assert "schedulerName" not in explained(capsys, "-f", pod, "--from", cluster, *served)[1]
    monkeypatch.setenv("RTE_SCHEDULER_NAME", "default-scheduler")
    assert "schedulerName" not in explained(capsys, "-f", pod, "--from", cluster)[1]


def test_nodes_that_say_the_same_are_told_once(write, capsys):
    pod = write("pod.yaml", [pod_yaml("new", 20)])
    code, out = explained(capsys, "-f", pod, "--machine", "2x16*3", "--machine", "2x32")
    assert code == 0
    assert "* 2x32: fits (c0 in zone 0)" in out
    assert "- 2x16-0, 2x16-1, 2x16-2: TopologyAffinityError" in out
    assert out.count("zones, for container c0") == 1
    assert out.endswith("* the best node, + fits, - does not fit\n")


def test_zones_that_say_the_same_are_told_once(write, capsys):
    pod = write("pod.yaml", [pod_yaml("new", 20)])
    code, out = explained(capsys, "-f", pod, "--machine", "4x16")
    assert code == 1
    assert "      zone 0: cpu 15 free of 20 wanted (5 short); memory" in out
    assert "      zones 1-3: cpu 16 free of 20 wanted (4 short); memory" in out


def test_a_running_pod_is_told_what_it_has(write, capsys):
    cluster = write("cluster.yaml", node_objects("n", (7,)))
    _, out = explained(capsys, "n-0", "--from", cluster)
    assert "  c0 is in zone 0: CPUs 1-3,8-11\n" in out


def test_no_node_fits_a_pod_that_goes_nowhere(write, cluster, capsys):
    gated = pod_yaml("new", 1, schedulingGates=[{"name": "example.com/wait"}])
    code, out = explained(capsys, "-f", write("pod.yaml", [gated]), "--from", cluster)
    if "wherever it goes" in out:
        assert code == 1
        assert ": fits" not in out


def test_all_pods_of_a_file_are_explained(write, cluster, capsys):
    pods = write("pods.yaml", [pod_yaml("small", 1), pod_yaml("large", 9)])
    code, out = explained(capsys, "-f", pods, "--from", cluster)
    assert code == 1
    assert "default/small fits 2 of 2 nodes" in out
    assert "default/large fits none of 2 nodes" in out
    _, text = explained(capsys, "-f", pods, "--from", cluster, "-o", "json")
    assert [answer["pod"] for answer in json.loads(text)] == ["default/small", "default/large"]


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"metadata": {}}, "metadata.name: Required value"),
        ({"metadata": {"name": "Bad_Name"}}, "metadata.name: Invalid value"),
        ({"spec": {}}, "spec.containers: Required value"),
        ({"spec": {"containers": [{"name": "c", "containers": []}]}}, "containers[0].containers"),
        (
            {"spec": {"containers": [{"name": "c", "resources": {"limits": {"cpu": "1x"}}}]}},
            "spec.containers[0].resources.limits[cpu]: ",
        ),
        (
            {
                "spec": {
                    "containers": [
                        {
                            "name": "c",
                            "resources": {"limits": {"cpu": "1"}, "requests": {"cpu": "2"}},
                        }
                    ]
                }
            },
            "spec.containers[0].resources.requests",
        ),
    ],
)
@pytest.mark.parametrize("command", ["explain", "fit", "defrag", "simulate"])
def test_a_manifest_is_refused_as_the_api_server_would(
    change, told, command, write, cluster, capsys
):
    file = write("pod.yaml", [pod_yaml("p", 1) | change])
    sources = ["-f", cluster] if command == "simulate" else ["--from", cluster]
    assert main([command, "-f", file, *sources]) == 2
    error = capsys.readouterr().err
    assert f"{file}: pod " in error
    assert told in error
    assert error.count("\n") == 1


@pytest.mark.parametrize("count", ["3", -1, 1.5, True, 10**9])
def test_replicas_that_are_no_number_are_refused(count, write, capsys):
    pod = pod_yaml("p", 1)
    workload = {
        "kind": "Deployment",
        "metadata": {"name": "w"},
        "spec": {"replicas": count, "template": {"spec": pod["spec"]}},
    }
    assert main(["simulate", "-f", write("w.yaml", [workload]), "--machine", "2x8"]) == 2
    assert "is no number of pods" in capsys.readouterr().err


def test_a_schedulers_address_that_is_no_url_is_told(capsys):
    assert main(["explain", "p", "--scheduler", "localhost:10260"]) == 2
    assert "expected a URL" in capsys.readouterr().err


def test_each_rules_score_stands_beside_the_nodes_that_take_the_pod(write, cluster, capsys):
    """``a-full`` has 3 CPUs left in one zone, ``b-half`` has a zone that nobody uses."""
    pod = write("pod.yaml", [pod_yaml("new", 5)])
    _, out = explained(capsys, "-f", pod, "--from", cluster, "-o", "json")
    best, other = json.loads(out)["nodes"]
    assert (best["node"], list(best["scores"])) == ("b-half", ["ZoneRoom"])
    assert not other["fits"]
    assert other["scores"] == {}
    assert (
        f"scores: ZoneRoom {best['scores']['ZoneRoom']:.0f}"
        in (explained(capsys, "-f", pod, "--from", cluster)[1])
    )


def test_a_refused_pod_is_told_what_would_let_it_in(write, cluster, capsys):
    pod = write("pod.yaml", [pod_yaml("new", 9)])
    code, out = explained(capsys, "-f", pod, "--from", cluster)
    assert code == 1
    assert "    would fit with cpu 8 in container c0\n" in out
    smaller = write("smaller.yaml", [pod_yaml("new", 8)])
    assert explained(capsys, "-f", smaller, "--from", cluster)[0] == 0
    _, text = explained(capsys, "-f", pod, "--from", cluster, "-o", "json")
    told = {node["node"]: node["advice"] for node in json.loads(text)["nodes"]}
    assert told["b-half"][0] == "would fit with cpu 8 in container c0"
