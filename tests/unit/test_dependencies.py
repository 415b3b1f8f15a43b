"""The packages that rte asks for earn their place, and programs load what they need."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
#: Distribution -> what is imported of it, where the names differ.
MODULES = {
    "cel-expr-python": "cel_expr_python",
    "fnv-hash-fast": "fnv_hash_fast",
    "grpcio": "grpc",
    "prometheus-client": "prometheus_client",
    "protobuf": "google.protobuf",
    "pyyaml": "yaml",
}
#: Told by the user: each does what nothing of rte's own does beside it.
NAMED = {"grpcio", "kubernetes", "psutil", "pyyaml", "tenacity", "prometheus-client"}


def wanted(*extras: str) -> list[str]:
    lists = [PROJECT["dependencies"], *(PROJECT["optional-dependencies"][name] for name in extras)]
    names = [re.split(r"[\s<>=;\[]", line)[0].lower() for lines in lists for line in lines]
    return sorted({name for name in names if name != PROJECT["name"]})


def imported() -> set[str]:
    """Every module that some file of rte imports."""
    found = set()
    for path in (ROOT / "rte").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Import):
                found |= {name.name for name in node.names}
            elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
                found.add(node.module)
                found |= {f"{node.module}.{name.name}" for name in node.names}
    return found


IMPORTED = imported()


@pytest.mark.parametrize("name", wanted("scheduler", "demo"))
def test_a_package_that_is_asked_for_is_used(name: str) -> None:
    module = MODULES.get(name, name.replace("-", "_"))
    assert any(each == module or each.startswith(f"{module}.") for each in IMPORTED)


def test_packages_that_were_named_are_asked_for_by_the_agent_already() -> None:
    assert set(wanted()) >= NAMED


def test_a_package_that_is_used_is_asked_for() -> None:
    known = {MODULES.get(name, name.replace("-", "_")) for name in wanted("scheduler", "demo")}
    third = {
        name
        for name in IMPORTED
        if name.split(".")[0] not in {*sys.stdlib_module_names, "rte", "google"}
    }
    assert {name.split(".")[0] for name in third} <= known


def test_only_a_plugin_of_a_kubeconfig_loads_the_kubernetes_package(tmp_path: Path) -> None:
    """In a pod nothing does; 30 MiB of it would be the largest part of the agent."""
    (tmp_path / "config").write_text(
        "current-context: x\n"
        "contexts: [{name: x, context: {cluster: c, user: u}}]\n"
        "clusters: [{name: c, cluster: {server: 'http://127.0.0.1:1'}}]\n"
        "users: [{name: u, user: {token: t}}]\n"
    )
    program = (
        "import sys; from pathlib import Path; from rte.agent import daemon;"
        "from rte.kube import credentials; credentials.load(Path(sys.argv[1]), {});"
        "print('kubernetes' in sys.modules, 'psutil' in sys.modules)"
    )
    command = [sys.executable, "-c", program, str(tmp_path / "config")]
    ended = subprocess.run(command, capture_output=True, text=True, check=True)
    assert ended.stdout.split() == ["False", "False"]
