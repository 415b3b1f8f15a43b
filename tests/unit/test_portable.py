"""What is not the agent runs where there is no Linux: what Python has only there is made absent."""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]

#: Runs before everything else: as on macOS, as far as modules and names of the library go.
ELSEWHERE = """
import sys
class Absent:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] == "asyncinotify":
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
sys.meta_path.insert(0, Absent())
import importlib.util
find_spec = importlib.util.find_spec
importlib.util.find_spec = lambda name, package=None: (
    None if name == "asyncinotify" else find_spec(name, package)
)
import ctypes, os, select, signal, socket
ONLY_LINUX = {
    os: ("O_PATH", "O_TMPFILE", "memfd_create", "eventfd", "pidfd_open", "sched_getaffinity",
         "sched_setaffinity", "posix_fadvise", "getrandom", "copy_file_range", "setns", "unshare"),
    select: ("epoll",),
    signal: ("pidfd_send_signal", "SIGPWR", "SIGSTKFLT"),
    socket: ("AF_NETLINK", "AF_PACKET", "SO_PEERCRED", "SO_BINDTODEVICE"),
}
for module, names in ONLY_LINUX.items():
    for name in names:
        if hasattr(module, name):
            delattr(module, name)
"""


def elsewhere(code: str, timeout: float = 120) -> str:
    done = subprocess.run(
        [sys.executable, "-c", ELSEWHERE + code],
        capture_output=True, text=True, cwd=ROOT, timeout=timeout, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_every_module_can_be_imported() -> None:
    elsewhere(
        """
import importlib, pkgutil, rte
for module in pkgutil.walk_packages(rte.__path__, "rte."):
    if module.name != "rte.__main__":
        importlib.import_module(module.name)
"""
    )


@pytest.mark.parametrize(
    ("command", "shown"),
    [
        ("topology 32-2s-gpus", "PCIe root pci0000:90"),
        ("fit -f {pod} --machine 2x8", "fit"),
        ("simulate -f {pod} --machine 2x8", "default/job"),
        ("demo --once --nodes 1 --shape 2x4", "NodeResourceTopology"),
    ],
)
def test_commands_for_people_work(command: str, shown: str, tmp_path: Path) -> None:
    pod = tmp_path / "pod.yaml"
    pod.write_text(
        "{kind: Pod, apiVersion: v1, metadata: {name: job}, spec: {containers: [{name: main, "
        "image: i, resources: {limits: {cpu: '2', memory: 1Gi}}}]}}"
    )
    words = command.format(pod=pod).split()
    assert shown in elsewhere(f"from rte import cli\nsys.exit(cli.main({words!r}))")


def test_the_wheel_is_for_every_system() -> None:
    """No compiled part of ours; what only Linux has is asked for only there."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    assert "hooks" not in project["tool"]["hatch"]["build"]["targets"]["wheel"]
    (inotify,) = (d for d in project["project"]["dependencies"] if d.startswith("asyncinotify"))
    assert inotify.endswith("; sys_platform == 'linux'")
    assert not [*(ROOT / "rte").rglob("*.so"), *(ROOT / "rte").rglob("*.pyx")]


#: Modules of the libraries that an extra brings.
EXTRAS = {"scheduler": {"numpy", "cel_expr_python", "zstandard"}, "demo": {"rich", "shtab"}}

#: Runs commands in turn, without the libraries of any extra.
BARE = """
import sys
class Absent:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {absent}:
            raise ModuleNotFoundError("No module named " + name, name=name)
sys.meta_path.insert(0, Absent())
from rte.cli import main
for words in {lines}:
    try:
        code = main(words.split())
    except SystemExit as exit_:
        code = exit_.code
    print(code, flush=True, file=sys.stderr)
"""


def test_a_command_without_its_libraries_says_in_one_line_what_to_install() -> None:
    lacking = [
        "demo --once", "simulate -f x --machine 2x8", "completion bash",
        "scheduler", "explain default/x", "fit -f x", "defrag x", "view", "topology 2x8",
    ]  # fmt: skip
    whole = ["help topology", "--help", "help import", "help render", "help nri", "help run"]
    code = BARE.format(absent=set().union(*EXTRAS.values()), lines=lacking + whole)
    told = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT, check=False
    ).stderr
    for words in lacking:
        line, told = told.split("\n2\n", 1)
        command = words.split()[0]
        extra = "demo" if command in ("demo", "simulate", "completion") else "scheduler"
        install = rf"pip install 'rte-numa\[{extra}\]'"
        assert re.fullmatch(rf"rte {command}: \w+ is not installed: {install}", line), line
    assert told == "0\n" * len(whole)


@pytest.mark.parametrize("command", ["run", "nri", "render", "topology", "snapshot", "import"])
def test_what_runs_in_the_agents_image_needs_no_simulation_and_none_of_its_libraries(
    command: str,
) -> None:
    """The image holds no ``rte/sim`` and what requirements-agent.txt names alone."""
    shown = elsewhere(
        f"""
class NotInTheImage:
    def find_spec(self, name, path=None, target=None):
        if name.startswith("rte.sim") or name.partition(".")[0] in ("numpy", "kubernetes", "celpy"):
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)
sys.meta_path.insert(0, NotInTheImage())
from rte import cli
print(cli.main([{command!r}, "--help"]))
"""
    )
    assert "usage: rte" in shown


def test_the_extra_for_people_has_all_that_others_have() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    for extra, modules in EXTRAS.items():
        lines = [
            line for line in project["optional-dependencies"][extra] if "rte-numa[" not in line
        ]
        assert {re.split("[>=]", line)[0].replace("-", "_") for line in lines} == modules
    assert "rte-numa[scheduler]" in project["optional-dependencies"]["demo"]
