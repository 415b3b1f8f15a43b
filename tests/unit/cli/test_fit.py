"""``rte fit``: what a user types and sees."""

import json

import pytest

from rte.cli import main
from tests.unit.cli.objects import node_objects, pod_yaml


@pytest.fixture
def cluster(write):
    """Nodes of two zones with 7 and 8 usable CPUs: one with 3 + 3 free, one with 3 + 8."""
    return write("cluster.yaml", [*node_objects("full", (4, 5)), *node_objects("half", (4,))])


def fits(capsys, *words):
    code = main(["fit", *words, "-o", "json"])
    return code, json.loads(capsys.readouterr().out)


def test_copies_are_counted_node_by_node(write, cluster, capsys):
    pod = write("pod.yaml", [pod_yaml("new", 3)])
    assert main(["fit", "-f", pod, "--from", cluster]) == 0
    out = capsys.readouterr().out
    assert "default/new: 5 fit, on 2 of 2 nodes" in out
    assert "half: 3 (node totals allow 3)" in out
    assert "full: 2 (node totals allow 2)" in out


@pytest.mark.parametrize("kinds", [("Pod",), ("NodeResourceTopology",)])
def test_files_without_a_node_are_refused(write, capsys, kinds):
    items = [*node_objects("a"), pod_yaml("b", 1)]
    file = write("some.yaml", [item for item in items if item["kind"] in kinds])
    pod = write("pod.yaml", [pod_yaml("new", 1)])
    assert main(["fit", "-f", pod, "--from", file]) == 2
    err = capsys.readouterr().err
    assert f"{file}: no Node in it" in err
    assert ("a report alone is a --machine" in err) is (kinds == ("NodeResourceTopology",))


def test_what_is_missing_is_told(write, cluster, capsys):
    pod = write("pod.yaml", [pod_yaml("new", 5)])
    code, answer = fits(capsys, "-f", pod, "--from", cluster)
    assert (code, answer["pods"], answer["exact"]) == (0, 1, True)
    assert answer["missing"] == {
        "node": "full",
        "zone": 0,
        "short": {"cpu": 2},
        "reason": "TopologyAffinityError",
    }
    assert main(["fit", "-f", pod, "--from", cluster]) == 0
    assert "zone 0 of full is short of 2 CPUs (TopologyAffinityError)" in capsys.readouterr().out


def test_nothing_fits_is_exit_code_1(write, cluster, capsys):
    code, answer = fits(capsys, "-f", write("pod.yaml", [pod_yaml("new", 9)]), "--from", cluster)
    assert (code, answer["pods"]) == (1, 0)


def test_a_gang_has_a_place_together_or_not(write, cluster, capsys):
    pods = [pod_yaml("a", 3), pod_yaml("b", 5), pod_yaml("c", 3), pod_yaml("d", 3)]
    gang = write("gang.yaml", pods)
    code, answer = fits(capsys, "-f", gang, "--from", cluster)
    assert (code, answer["verdict"], len(answer["places"])) == (0, "fits", 4)
    assert answer["places"]["default/b"] == "half"
    larger = write("larger.yaml", [*pods, pod_yaml("e", 5)])
    code, answer = fits(capsys, "-f", larger, "--from", cluster)
    assert (code, answer["verdict"]) == (1, "does not fit")
    assert answer["shortages"] == [{"pods": ["default/b", "default/e"], "places": 1}]
    assert fits(capsys, "-f", larger, "--from", cluster, "--min-count", "4")[0] == 0
    assert main(["fit", "-f", larger, "--from", cluster]) == 1
    assert "2 pods like default/b: 1 find a place" in capsys.readouterr().out


@pytest.mark.parametrize(("count", "code"), [("5", 0), ("6", 1)])
def test_count_asks_whether_so_many_fit_together(write, cluster, capsys, count, code):
    pod = write("pod.yaml", [pod_yaml("new", 3)])
    assert main(["fit", "-f", pod, "--from", cluster, "--count", count]) == code
    assert f"{count} pods" in capsys.readouterr().out


def test_a_key_binds_the_gang_to_one_value(write, capsys):
    nodes = []
    for name, rack in (("n0", "r0"), ("n1", "r1")):
        objects = node_objects(name, (4,))
        objects[0]["metadata"]["labels"] = {"rack": rack}
        nodes += objects
    cluster = write("racks.yaml", nodes)
    two = write("two.yaml", [pod_yaml("a", 8), pod_yaml("b", 8)])
    assert fits(capsys, "-f", two, "--from", cluster)[0] == 0
    code, answer = fits(capsys, "-f", two, "--from", cluster, "--topology-key", "rack")
    assert (code, answer["blame"]) == (1, "topology key")


def test_a_preferred_key_is_kept_where_there_is_room(write, capsys):
    nodes = []
    for name, rack in (("n0", "r0"), ("n1", "r1"), ("n2", "r1")):
        objects = node_objects(name, (4,))
        objects[0]["metadata"]["labels"] = {"rack": rack}
        nodes += objects
    cluster = write("racks.yaml", nodes)
    prefers = ("--from", cluster, "--prefer-topology", "rack")
    two = write("two.yaml", [pod_yaml("a", 8), pod_yaml("b", 8)])
    code, answer = fits(capsys, "-f", two, *prefers)
    assert (code, answer["level"], set(answer["places"].values())) == (0, "rack", {"n1", "n2"})
    three = write("three.yaml", [pod_yaml("a", 8), pod_yaml("b", 8), pod_yaml("c", 8)])
    code, answer = fits(capsys, "-f", three, *prefers)
    assert (code, answer["level"]) == (0, "")


def test_empty_counts_per_kind_of_node(write, cluster, capsys):
    pod = write("pod.yaml", [pod_yaml("new", 5)])
    code, answer = fits(capsys, "-f", pod, "--from", cluster, "--empty")
    (kind,) = answer["empty"]
    assert (code, kind["nodes"], kind["pods"]) == (0, ["full", "half"], 2)


def test_after_is_the_cluster_as_it_would_be(write, cluster, capsys):
    words = ["-f", write("pod.yaml", [pod_yaml("new", 5)]), "--from", cluster, "--after"]
    assert fits(capsys, *words, "full=empty")[1]["nodes"] == {"full": 2, "half": 1}
    assert fits(capsys, *words, "full=default/full-0")[1]["nodes"] == {"full": 1, "half": 1}
    assert fits(capsys, *words, "half=gone")[1]["nodes"] == {"full": 0}


def test_machines_of_no_cluster(write, capsys):
    pod = write("pod.yaml", [pod_yaml("new", 8)])
    code, answer = fits(capsys, "-f", pod, "--machine", "64-2s*3")
    assert code == 0
    assert len(set(answer["nodes"].values())) == 1
    assert len(answer["nodes"]) == 3


def test_nodes_without_a_report_are_not_counted(write, capsys):
    node = node_objects("plain")[0]
    files = write("all.yaml", [*node_objects("a"), node])
    assert main(["fit", "-f", write("pod.yaml", [pod_yaml("new", 5)]), "--from", files]) == 0
    assert "note: 1 node(s) without a report of rte's agent: not counted" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("more", "words"),
    [
        (["--count", "0"], "give 1 to 100000"),
        (["--count", "999999999"], "give 1 to 100000"),
        (["--empty", "--after", "full=empty"], "leave --after out"),
        (["--min-count", "2"], "give 1 to 1, the number of pods"),
        (["--count", "3", "--min-count", "4"], "give 1 to 3"),
        (["--count", "3", "--min-count", "0"], "give 1 to 3"),
        (["--after", "full"], "no =WHAT follows"),
        (["--after", "nobody=empty"], "node 'nobody' not found"),
        (["--after", "full=default/nobody"], "pod default/nobody not found on full"),
    ],
)
def test_wrong_usage_is_one_line(write, cluster, capsys, more, words):
    pod = write("pod.yaml", [pod_yaml("new", 5)])
    assert main(["fit", "-f", pod, "--from", cluster, *more]) == 2
    error = capsys.readouterr().err
    assert words in error
    assert error.count("\n") == 1
