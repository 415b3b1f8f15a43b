"""``rte simulate --sweep``: which setting of the kubelets a load should have."""

from __future__ import annotations

import json
import xml.etree.ElementTree as ET

import pytest

from rte.cli import main, sweeps
from rte.errors import UsageError
from tests.unit.cli.objects import pod_yaml

HEADER = (
    "name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec,qos,pod_phase,"
    "creation_time,deletion_time,scheduled_time\n"
)
#: Two fill the machine for ten and twenty seconds, two more come meanwhile.
TRACE = HEADER + (
    "a,7000,1024,0,0,,LS,Succeeded,100,110,100\n"
    "b,8000,1024,0,0,,LS,Succeeded,100,125,105\n"
    "c,6000,1024,0,0,,LS,Succeeded,104,160,150\n"
    "d,1500,1024,0,0,,BE,Succeeded,106,107,106\n"
)


@pytest.fixture
def pods(write):
    """Nine of 3 CPUs: a node of 2 zones x 8 CPUs has room for five by totals, four by zones."""
    return write("pods.yaml", [pod_yaml(f"p{number}", 3) for number in range(9)])


@pytest.fixture
def trace(tmp_path):
    path = tmp_path / "trace.csv"
    path.write_text(TRACE)
    return str(path)


@pytest.fixture
def swept(capsys):
    def run(*words):
        code = main(["simulate", "--jobs", "1", *words])
        return code, capsys.readouterr().out

    return run


def test_every_combination_is_played_and_the_best_comes_first(pods, swept):
    code, out = swept(
        "-f", pods, "--machine", "2x8*2", "-o", "json",
        "--sweep", "policy=single-numa-node,none", "--sweep", "score=NextFit,node-totals",
    )  # fmt: skip
    rows = {row["name"]: row for row in json.loads(out)}
    assert code == 0
    assert set(rows) == {
        f"{policy}, {score}"
        for policy in ("single-numa-node", "none")
        for score in ("NextFit", "node-totals")
    }
    assert rows["none, NextFit"]["unplaced"] == 0
    assert rows["none, NextFit"]["utilisation"] == 27 / 30
    exact, blind = rows["single-numa-node, NextFit"], rows["single-numa-node, node-totals"]
    assert (exact["placed"], exact["rejections"]) == (8, 0)
    assert (blind["placed"], blind["rejections"] > 0) == (8, True)
    assert [row["name"].split(",")[0] for row in json.loads(out)][:2] == ["none", "none"]


def test_machines_of_several_kinds_are_a_mix(pods, swept):
    _, out = swept("-f", pods, "--sweep", "machine=2x8+2x8,2x8*2+4x8", "-o", "json")
    assert [(row["name"], row["placed"]) for row in json.loads(out)] == [
        ("2x8*2+4x8", 9),
        ("2x8+2x8", 8),
    ]


def test_seeds_change_the_order_and_are_averaged(write, swept):
    sizes = [(f"p{number}", size) for number, size in enumerate([5, 3, 3, 5, 2, 7, 1, 4])]
    mixed = write("mixed.yaml", [pod_yaml(name, size) for name, size in sizes])
    words = ("-f", mixed, "--machine", "2x8", "--sweep", "score=NextFit", "-o", "json")
    each = [
        json.loads(swept(*words, "--sweep", f"seed={seed}")[1])[0]["placed"] for seed in (1, 2, 3)
    ]
    together = json.loads(swept(*words, "--sweep", "seed=1-3")[1])[0]
    assert together["seeds"] == 3
    assert together["placed"] == sum(each) / 3
    assert swept(*words, "--sweep", "seed=1-3") == swept(*words, "--sweep", "seed=1-3")


def test_pods_of_a_trace_come_wait_and_go(trace, swept):
    """c waits for 6 s until a has ended, d for 14 s, as b is on the node until 120."""
    code, out = swept(
        "--trace", trace, "--machine", "2x8", "--sweep", "policy=restricted", "-o", "json"
    )
    (row,) = json.loads(out)
    assert code == 0
    assert (row["placed"], row["rejections"]) == (4, 0)
    assert row["waited"] == (0 + 0 + 6 + 14) / 4
    # CPU-seconds of the four, of 15 CPUs, from the first arrival until the end of d.
    used = (7 * 10 + 8 * 20 + 6 * 10 + 1.5) / (15 * 21)
    assert row["utilisation"] == pytest.approx(used)


def test_the_first_pods_of_a_trace(trace, swept):
    words = ("--trace", trace, "--machine", "2x8", "--sweep", "policy=none", "-o", "json")
    assert json.loads(swept(*words, "--most-pods", "2")[1])[0]["placed"] == 2


def test_many_processes_say_what_one_says(pods, capsys):
    words = ["simulate", "-f", pods, "--machine", "2x8*2", "--sweep", "policy=none,restricted"]
    main([*words, "--jobs", "1"])
    alone = capsys.readouterr().out
    main([*words, "--jobs", "2"])
    assert capsys.readouterr().out == alone
    assert alone.splitlines()[1].split()[:2] == ["none", "9"]


def test_a_picture_has_a_bar_for_every_setting_and_quantity(pods, swept):
    _, out = swept(
        "-f", pods, "--machine", "2x8", "--sweep", "policy=none,restricted,best-effort", "-o", "svg"
    )
    root = ET.fromstring(out)
    rectangles = [each for each in root if each.tag.endswith("rect")]
    assert len(rectangles) == 1 + 3 * 3


def test_a_setting_that_no_kubelet_takes_is_told_and_the_others_go_on(pods, swept):
    words = ("-f", pods, "--machine", "2x8", "--sweep", "kubelet-version=v1.2.3,v1.36.1")
    _, out = swept(*words)
    assert "no rules for kubelet v1.2.3" in out.splitlines()[-1]
    assert out.splitlines()[1].startswith("v1.36.1")


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("color=red", "give KEY=VALUE"),
        ("policy=", "give KEY=VALUE"),
        ("policy=strict", "policy is one of"),
        ("seed=x", "FIRST-LAST"),
        ("seed=1-99999", "more than"),
    ],
)
def test_what_is_no_sweep_is_refused(text, why):
    with pytest.raises(UsageError, match=why):
        sweeps.settings([text])


@pytest.mark.parametrize(
    ("content", "why"),
    [
        ("a,b\n1,2\n", "has no name"),
        (HEADER + "a,x,1,0,0,,LS,Running,0,1,0\n", "line 2: cpu_milli 'x' is no amount"),
        (HEADER + "a,-1,1,0,0,,LS,Running,0,1,0\n", "is no amount"),
        (HEADER + "a,1e99,1,0,0,,LS,Running,0,1,0\n", "is no amount"),
        (HEADER + "a,1\n", "line 2: memory_mib '' is no amount"),
        (HEADER + 2 * "a,1000,1,0,0,,LS,Running,0,1,0\n", "two pods are named a"),
    ],
)
def test_what_is_no_trace_is_refused_by_its_line(content, why, tmp_path, capsys):
    path = tmp_path / "t.csv"
    path.write_text(content)
    words = ["--trace", str(path), "--machine", "2x8", "--sweep", "policy=none", "--jobs", "1"]
    assert main(["simulate", *words]) == 2
    assert why in capsys.readouterr().err


def test_gpus_of_a_trace_are_devices(tmp_path, swept):
    path = tmp_path / "t.csv"
    path.write_text(HEADER + "a,4000,1024,2,1000,,LS,Running,0,1,0\n")
    words = ("--trace", str(path), "--machine", "2x8", "--sweep", "policy=single-numa-node")
    assert swept(*words)[0] == 1
    assert swept(*words, "--device", "nvidia.com/gpu=0/0/1/1")[0] == 0
    assert swept(*words, "--device", "nvidia.com/gpu=0/1")[0] == 1
