"""``rte explain`` of pods with processing groups: what they would get, and what a node has left."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from rte.cli import grouping, main
from rte.scheduler.front.answers import explain_pod, parse_answer
from rte.scheduler.front.groups import GroupsAnswer
from tests.unit.scheduler.groups.rack import Rack, asking

if TYPE_CHECKING:
    from collections.abc import Callable

KINDS = {"nodes": "Node", "pods": "Pod", "reports": "NodeResourceTopology"}
#: All six cores that a zone has to give.
HALF = asking({"queues": [{"rx": 40, "tx": 20}], "workers": 8}, misc={"count": 1})
GPU = asking({"gpus": [{"feeders": 1}], "workers": 1}, hugepages={"1Gi": 2})


@pytest.fixture
def rack() -> Rack:
    rack = Rack()
    rack.server("a")
    return rack


def explained(capsys: Any, write: Callable[..., str], rack: Rack, *pods: Any) -> tuple[int, str]:
    objects = [{"kind": KINDS[kind], **obj} for (kind, _), obj in rack.objects.items()]
    files = "--from", write("cluster.yaml", objects), "-f", write("pods.yaml", list(pods))
    code = main(["explain", *files])
    return code, capsys.readouterr().out


def a_pod(text: str, name: str = "new", **options: Any) -> dict[str, Any]:
    other = Rack()
    uid = other.asks(text, name=name, **options)
    return {"kind": "Pod", "apiVersion": "v1", **other.objects["pods", uid]}


def test_what_a_pod_would_get_is_told_group_by_group(rack: Rack, write, capsys) -> None:
    code, out = explained(capsys, write, rack, a_pod(HALF))

    assert code == 0
    assert "fits 1 node; best: a" in out
    (line,) = (each for each in out.splitlines() if "g0" in each)
    assert line.strip().startswith("g0 in zone 0: rx ")
    assert "workers" in line
    assert "rx 40 tx 20 Gb/s" in line
    assert "misc in zone 0: CPUs " in out


def test_what_a_node_has_left_and_who_stands_in_the_way_is_told(rack: Rack, write, capsys) -> None:
    for name in ("p1", "p2"):
        rack.asks(HALF, name=name)
    code, out = explained(capsys, write, rack, a_pod(HALF))

    assert code == 1
    assert "- a: processing groups: cpus" in out
    assert "free in zone 0: 0 cores (0 CPUs); GPU Tesla V100-SXM2-16GB (2); pages of 1Gi: 16" in out
    assert "would fit without: default/p1, default/p2" in out


def test_a_node_that_takes_no_such_pods_says_nothing_of_what_is_free(
    rack: Rack, write, capsys
) -> None:
    code, out = explained(capsys, write, rack, a_pod(asking({"workers": 1}, nodeGroups=["x"])))

    assert code == 1
    assert "- a: processing groups: node-group" in out
    assert "free in" not in out


def test_a_wrong_request_goes_nowhere_and_is_told_with_its_place(rack: Rack, write, capsys) -> None:
    code, out = explained(capsys, write, rack, a_pod(asking({"workers": "many"})))

    assert code == 1
    assert "groups[0].workers: must be" in out
    assert "free in" not in out


def test_the_rules_of_the_site_count(rack: Rack, write, capsys, tmp_path) -> None:
    """Half of a NIC may be given away."""
    objects = [{"kind": KINDS[kind], **obj} for (kind, _), obj in rack.objects.items()]
    files = ["--from", write("cluster.yaml", objects), "-f", write("pods.yaml", [a_pod(HALF)])]
    policy = tmp_path / "policy.yaml"
    policy.write_text("nicHeadroomPercent: 30\n")

    assert main(["explain", *files]) == 0
    assert main(["explain", *files, "--groups-policy", str(policy)]) == 1
    assert "NIC " in capsys.readouterr().out
    assert main(["explain", *files, "--groups-policy", str(tmp_path / "none")]) == 2


@pytest.mark.parametrize("text", [HALF, GPU, asking({"workers": 99})])
def test_an_answer_comes_back_as_it_was_sent(rack: Rack, text: str) -> None:
    """``rte explain --scheduler`` prints what a running scheduler answers."""
    rack.asks(HALF)
    uid = rack.asks(text, name="late", nodeSelector={"x": "y"})
    answer = explain_pod(rack.machine.cluster, rack.machine.cycle, rack.view(uid))
    sent = json.loads(json.dumps(answer.as_json()))

    assert parse_answer(sent) == answer


def test_everything_that_is_given_is_told() -> None:
    nic = {"address": "0000:1a:00.0", "rx": 10_000, "tx": 5_500, "backup": "0000:1a:00.1"}
    group = {
        "name": "g", "zone": None, "gpus": ["0000:19:00.0"], "nics": [nic],
        "cpus": {"feeders": [[2]], "queues": [{"rx": 18, "tx": 3}], "workers": [], "helpers": [5]},
        "hugepages": {"1Gi": {"0": 1}},
    }  # fmt: skip
    gets = {"groups": [group], "misc": {"zone": 1, "cpus": [9, 10]}, "devices": {},
            "hugepages": {"2Mi": {"1": 4}}}  # fmt: skip

    assert grouping.lines(GroupsAnswer(gets=gets)) == [
        (
            "g: feeders 2; rx 18; tx 3; helpers 5; GPU of unknown model (0000:19:00.0); "
            "NIC without a name (0000:1a:00.0, back-up 0000:1a:00.1) rx 10 tx 5.5 Gb/s; "
            "pages of 1Gi in zone 0: 1"
        ),
        "misc in zone 1: CPUs 9-10",
        "pages of 2Mi in zone 1: 4",
    ]
