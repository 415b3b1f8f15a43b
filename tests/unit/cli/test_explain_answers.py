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


def test_node_totals_stand_beside_the_zones_that_refuse(write, cluster, capsys):
    """6 CPUs are free on the node, in two zones of which neither has five."""
    pod = write("pod.yaml", [pod_yaml("new", 5)])
    code, out = explained(capsys, "-f", pod, "--from", cluster)
    assert code == 0
    assert "node totals: cpu 6 free of 5 wanted; memory 30 GiB free of 1 GiB wanted" in out


def test_another_schedulers_pod_is_told(write, cluster, capsys, monkeypatch):
    pod = write("pod.yaml", [pod_yaml("new", 3)])
    assert (
        "schedulerName is default-scheduler, not rte-scheduler"
        in (explained(capsys, "-f", pod, "--from", cluster)[1])
    )
    mine = write("mine.yaml", [pod_yaml("new", 3, schedulerName="rte-scheduler")])
    assert "schedulerName" not in explained(capsys, "-f", mine, "--from", cluster)[1]
    monkeypatch.setenv("RTE_SCHEDULER_NAME", "default-scheduler")
    assert "schedulerName" not in explained(capsys, "-f", pod, "--from", cluster)[1]


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
