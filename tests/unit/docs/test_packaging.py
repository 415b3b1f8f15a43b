"""What is shipped beside the wheel: a plugin for kubectl (krew), shortcuts and columns for k9s."""

from __future__ import annotations

import os
import shlex
import subprocess
from pathlib import Path

import pytest
import yaml

from rte import cli

ROOT = Path(__file__).parents[3]
PACKAGING = ROOT / "packaging"
SHORTCUTS = yaml.safe_load((PACKAGING / "k9s/plugins.yaml").read_text())["plugins"]


@pytest.mark.parametrize("name", SHORTCUTS)
def test_a_shortcut_of_k9s_types_a_command_that_exists(name: str) -> None:
    plugin = SHORTCUTS[name]
    assert plugin["command"] == "bash"
    flag, line = plugin["args"]
    assert flag == "-c"
    subprocess.run(["bash", "-n", "-c", line], check=True)
    words = shlex.split(line.replace("<(", "'<(").replace(") 2>", ")' 2>"))
    rte = words[1 : next(i for i, word in enumerate(words) if word.startswith("<(")) + 1]
    assert words[0] == "rte"
    cli._parse(rte, rte[0])
    kinds = {
        "explain": ["pods"],
        "defrag": ["pods"],
        "topology": ["nodes", "noderesourcetopologies"],
    }
    assert plugin["scopes"] == kinds[rte[0]]
    assert len({each["shortCut"] for each in SHORTCUTS.values()}) == len(SHORTCUTS)


def test_the_columns_for_k9s_are_those_of_the_crd() -> None:
    crd = yaml.safe_load((ROOT / "manifests/crd/noderesourcetopologies.yaml").read_text())
    (view,) = yaml.safe_load((PACKAGING / "k9s/views.yaml").read_text())["views"].items()
    group, version, resource = view[0].split("/")
    assert (group, resource) == (crd["spec"]["group"], crd["spec"]["names"]["plural"])
    (served,) = (each for each in crd["spec"]["versions"] if each["name"] == version)
    shown = {column["name"].upper() for column in served["additionalPrinterColumns"]}
    assert set(view[1]["columns"]) - {"NAME"} <= shown
    assert view[1]["sortColumn"].partition(":")[0] in view[1]["columns"]


def test_the_manifest_for_krew_follows_its_rules() -> None:
    """pkg/index/validation of krew: name, version, one line of 50 characters, platforms."""
    manifest = yaml.safe_load((PACKAGING / "krew/rte.yaml").read_text())
    assert manifest["apiVersion"] == "krew.googlecontainertools.github.com/v1alpha2"
    assert manifest["metadata"]["name"] == "rte"
    spec = manifest["spec"]
    assert spec["version"].startswith("v")
    assert len(spec["shortDescription"]) <= 50
    assert "\n" not in spec["shortDescription"]
    (platform,) = spec["platforms"]
    assert {platform["uri"], platform["sha256"]} == {"URL", "SHA256"}
    assert (PACKAGING / "krew" / platform["bin"]).stat().st_mode & 0o111


@pytest.fixture
def plugin(tmp_path: Path) -> Path:
    """As krew unpacks it, linked from its folder of programs."""
    store = tmp_path / "store"
    store.mkdir()
    (store / "rte_numa-9.9-py3-none-any.whl").touch()
    launcher = store / "kubectl-rte"
    launcher.write_bytes((PACKAGING / "krew/kubectl-rte").read_bytes())
    launcher.chmod(0o755)
    linked = tmp_path / "bin/kubectl-rte"
    linked.parent.mkdir()
    linked.symlink_to(launcher)
    return linked


def launch(plugin: Path, tmp_path: Path, *words: str) -> subprocess.CompletedProcess[str]:
    """With a python3 that makes environments whose pip and rte tell what they are asked."""
    tools = tmp_path / "tools"
    tools.mkdir(exist_ok=True)
    python = tools / "python3"
    python.write_text(
        "#!/bin/sh\n"
        '[ "$1" = -c ] && exit "${TOO_OLD:-0}"\n'
        'mkdir -p "$3/bin"\n'
        'printf \'#!/bin/sh\\necho pip: "$@"; exit ${PIP_FAILS:-0}\\n\' > "$3/bin/python"\n'
        'printf \'#!/bin/sh\\necho rte: "$@"\\n\' > "$3/bin/kubectl-rte"\n'
        'chmod +x "$3"/bin/*\n'
    )
    python.chmod(0o755)
    env = {
        **os.environ,
        "PATH": f"{tools}:/usr/bin:/bin",
        "XDG_CACHE_HOME": str(tmp_path / "cache"),
    }
    return subprocess.run(
        [plugin, *words], capture_output=True, text=True, env=env, check=False
    )  # fmt: skip


def test_the_first_use_installs_and_the_next_ones_do_not(plugin: Path, tmp_path: Path) -> None:
    first = launch(plugin, tmp_path, "explain", "a b")
    assert (first.returncode, first.stdout) == (0, "rte: explain a b\n")
    assert (
        f"pip: -m pip --disable-pip-version-check install {tmp_path}/store/rte_numa-9.9"
        in first.stderr
    )
    again = launch(plugin, tmp_path, "--version")
    assert (again.stdout, again.stderr) == ("rte: --version\n", "")


def test_an_installation_that_failed_is_begun_anew(
    plugin: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PIP_FAILS", "1")
    failed = launch(plugin, tmp_path)
    assert failed.returncode == 1
    assert failed.stderr.splitlines()[-1].startswith("kubectl rte: pip could not install it")
    monkeypatch.delenv("PIP_FAILS")
    assert launch(plugin, tmp_path, "fit").stdout == "rte: fit\n"
