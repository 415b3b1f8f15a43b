"""``rte run --oneshot`` on machines from fixtures, through the command line."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from rte import nrt
from rte.cli import main
from rte.model import bits
from rte.model.quantity import hugepage_resource

FIXTURES = Path(__file__).parents[3] / "fixtures" / "sysfs"
MACHINES = sorted(path.name for path in FIXTURES.iterdir())
#: Libraries that an agent without socket and API server has no use for.
HEAVY = {"aiohttp", "grpc", "kubernetes", "numpy", "prometheus_client", "rich"}


def flags(machine: str, *more: str) -> list[str]:
    root = FIXTURES / machine
    roots = ["--sysfs-root", str(root / "sys"), "--procfs-root", str(root / "proc")]
    return ["run", *roots, "--oneshot", *more]


def run(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, str, str]:
    code = main(list(words))
    out, err = capsys.readouterr()
    return code, out, err


@pytest.fixture(autouse=True)
def _clean_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("NODE_NAME", "KUBECONFIG", "RTE_CONFIG", "KUBERNETES_SERVICE_HOST"):
        monkeypatch.delenv(name, raising=False)


@pytest.mark.parametrize("machine", MACHINES)
def test_the_nrt_of_every_machine_is_what_the_machine_has(machine: str, capsys) -> None:
    code, out, _ = run(capsys, *flags(machine, "--sink", "stdout", "--node-name", "worker-1"))

    assert code == 0
    document = json.loads(out)
    expected = json.loads((FIXTURES / machine / "expected.json").read_text())
    assert document["metadata"]["name"] == "worker-1"
    assert [zone["name"] for zone in document["zones"]] == [
        f"node-{zone['id']}" for zone in expected["zones"]
    ]
    for zone, truth in zip(document["zones"], expected["zones"], strict=True):
        assert {row["name"]: row["capacity"] for row in zone["resources"]} == capacity(truth)
        for row in zone["resources"]:
            assert row["capacity"] == row["allocatable"] == row["available"]
        assert {cost["name"]: cost["value"] for cost in zone["costs"]} == {
            f"node-{other}": distance for other, distance in truth["distances"].items()
        }
    held_nowhere = json.loads(
        document["metadata"]["annotations"]["node.koordinator.sh/cpu-shared-pools"]
    )
    assert {pool["node"]: pool["cpuset"] for pool in held_nowhere} == {
        zone["id"]: zone["cpus"] for zone in expected["zones"] if zone["cpus"]
    }


def capacity(zone: dict[str, Any]) -> dict[str, str]:
    pools = {
        hugepage_resource(int(size)): str(int(size) * number)
        for size, number in zone["hugepages"].items()
    }
    cpus = bits.parse_list(zone["cpus"]).bit_count()
    return {"cpu": str(cpus), "memory": str(zone["memory_bytes"]), **pools}


def test_the_same_machine_gives_the_same_bytes(capsys) -> None:
    first = run(capsys, *flags("64-2s", "--sink", "stdout"))
    second = run(capsys, *flags("64-2s", "--sink", "stdout"))

    assert first[1] == second[1]


def test_yaml_says_the_same_as_json(capsys) -> None:
    as_json = run(capsys, *flags("64-2s", "--sink", "stdout"))[1]
    as_yaml = run(capsys, *flags("64-2s", "--sink", "stdout", "-o", "yaml"))[1]

    assert yaml.safe_load(as_yaml) == json.loads(as_json)


def test_a_file_gets_what_stdout_would(tmp_path: Path, capsys) -> None:
    path = tmp_path / "nrt.json"
    code, out, _ = run(capsys, *flags("64-2s", "--sink", f"file:{path}"))

    assert (code, out) == (0, "")
    assert path.read_text() == run(capsys, *flags("64-2s", "--sink", "stdout"))[1]


def test_consumers_read_the_bare_machine(capsys) -> None:
    decoded = nrt.decode(json.loads(run(capsys, *flags("64-2s", "--sink", "stdout"))[1]))

    assert decoded.problems == ()
    assert (decoded.policy, decoded.scope, decoded.state) == ("none", "container", None)


@pytest.mark.parametrize(
    ("words", "code", "message"),
    [
        (["--sink", "stdout", "--podresources-socket", "/nowhere/k.sock"], 1, "/nowhere/k.sock"),
        (["--sink", "stdout", "--kubelet-state-dir", "/nowhere"], 1, "--kubelet-state-dir"),
        (["--sink", "stdout", "--podresources-socket", "tcp://x"], 2, "podresources socket"),
        (
            ["--sink", "stdout", "--kubelet-state-dir", ".", "--kubelet-config-file", "/no"],
            1,
            "/no",
        ),
        (["--sink", "file:/nowhere/nrt.json"], 1, "cannot write /nowhere/nrt.json"),
        (["--sink", "kube", "--kubeconfig", "/nowhere/config"], 1, "/nowhere/config"),
        (["--sink", "printer"], 2, "--sink: expected kube, stdout or file:PATH"),
        (["--config", "/nowhere.yaml"], 2, "/nowhere.yaml"),
    ],
)
def test_what_was_asked_for_and_fails_is_one_line_and_the_right_code(
    words: list[str], code: int, message: str, capsys
) -> None:
    got, out, err = run(capsys, *flags("64-2s", *words))

    assert (got, out) == (code, "")
    lines = [line for line in err.splitlines() if line.startswith("rte run: ")]
    assert len(lines) == 1
    assert message in lines[0]
    assert "Traceback" not in err


def test_a_root_without_a_machine_is_one_line(tmp_path: Path, capsys) -> None:
    words = ["--sysfs-root", str(tmp_path), "--procfs-root", str(tmp_path)]
    code, _, err = run(capsys, "run", *words, "--oneshot", "--sink", "stdout")

    assert code == 1
    assert "rte run: no CPU found" in err


def test_a_bare_machine_needs_no_heavy_library() -> None:
    """Start to first NRT is bounded, and imports are most of it."""
    program = (
        "import sys; from rte.cli import main; code = main(sys.argv[1:]);"
        f"print(sorted({HEAVY} & set(sys.modules)), file=sys.stderr); sys.exit(code)"
    )
    command = [sys.executable, "-c", program, *flags("64-2s", "--sink", "stdout")]
    ended = subprocess.run(command, capture_output=True, text=True, check=True)

    assert ended.stderr.splitlines()[-1] == "[]"
    assert json.loads(ended.stdout)["kind"] == "NodeResourceTopology"
