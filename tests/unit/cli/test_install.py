"""``rte install`` prints the commands that install rte, or runs just these."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from rte import __version__
from rte.cli import main
from rte.cli.install import LOADERS

ROOT = Path(__file__).parents[3]
LAYOUTS = sorted(path.name for path in (ROOT / "manifests/layouts").iterdir())
TO_A_REGISTRY = ("--layout", "kubeadm", "--registry", "registry.example.com/team")


@pytest.fixture(autouse=True)
def clone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)


def printed(capsys: pytest.CaptureFixture[str], *words: str) -> list[str]:
    assert main(["install", *words]) == 0
    return capsys.readouterr().out.splitlines()


def images_of(lines: list[str], verb: str) -> list[str]:
    """The references to images in the lines that begin so."""
    return sorted(
        word.strip("'|")
        for line in lines
        if line.startswith(verb)
        for word in line.split()
        if "/rte-" in word and "manifests" not in word
    )


def test_images_have_one_name_from_the_build_to_the_manifests(capsys) -> None:
    lines = printed(capsys, *TO_A_REGISTRY)
    built = [
        f"registry.example.com/team/rte-{part}:{__version__}" for part in ("agent", "scheduler")
    ]
    assert images_of(lines, "docker build") == images_of(lines, "docker push") == built
    assert images_of(lines, "kubectl kustomize") == built
    other = printed(capsys, *TO_A_REGISTRY, "--tag", "mine", "--builder", "podman")
    assert images_of(other, "podman push") == images_of(other, "kubectl kustomize")
    assert images_of(other, "podman build")[0].endswith("/rte-agent:mine")


@pytest.mark.parametrize("where", sorted(LOADERS))
def test_without_a_registry_images_go_to_the_nodes_of_this_machine(capsys, where: str) -> None:
    lines = printed(capsys, "--layout", "k3s", "--load", where)
    names = {f"localhost/rte-{part}:{__version__}" for part in ("agent", "scheduler")}
    assert set(images_of(lines, "kubectl kustomize")) == names
    assert {name for name in names if any(name in line for line in lines[2::2])} == names
    assert not any("push" in line for line in lines)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_every_layout_can_be_installed(capsys, layout: str) -> None:
    lines = printed(capsys, "--layout", layout, "--registry", "r.example.com:5000")
    assert any(f"kubectl kustomize manifests/layouts/{layout} " in line for line in lines)
    assert any("kubelet-serving-ca" in line for line in lines) is (layout == "openshift")


def test_the_agent_alone(capsys) -> None:
    lines = printed(capsys, *TO_A_REGISTRY, "--without-scheduler")
    assert not any("scheduler" in line for line in lines)


def test_the_names_that_are_replaced_are_those_of_the_manifests() -> None:
    for part in ("agent", "scheduler"):
        (image,) = yaml.safe_load((ROOT / f"manifests/{part}/kustomization.yaml").read_text())[
            "images"
        ]
        assert image == {"name": f"rte-{part}", "newName": f"rte-{part}", "newTag": __version__}


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("--layout", "kind", "--load", "kind"), "--layout kind: there are gke, k0s"),
        (("--layout", "k3s", "--registry", "http://x"), "--registry http://x: expected HOST/PATH"),
        (("--layout", "k3s", "--registry", "x", "--tag", "a b"), "--tag a b"),
        (("--layout", "k3s", "--load", "k3s", "--builder", "buildah"), "give --registry"),
        (("--layout", "k3s", "--load", "k3s", "--source", "docs"), "docs: no clone"),
        (("--layout", "k3s"), "--registry --load is required"),
    ],
)
def test_what_cannot_be_installed_is_told_in_one_line(capsys, words, told: str) -> None:
    assert main(["install", *words]) == 2
    assert told in capsys.readouterr().err


@pytest.fixture
def programs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Programs that note how they are called; answers whether kubectl finds the CRD."""
    (tmp_path / "bin").mkdir()
    log = tmp_path / "log"
    for name in ("docker", "kubectl"):
        program = tmp_path / "bin" / name
        program.write_text(
            f'#!/bin/sh\necho "{name} $*" >> {log}\n[ "$*" != "$RTE_TEST_FAILS" ] || exit 3\n'
            'case "$*" in *"-f -") cat >/dev/null;; "get crd"*) exit 1;; esac\n'
        )
        program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:/usr/bin:/bin")
    return log


def test_apply_runs_what_is_printed(programs: Path, capfd) -> None:
    assert main(["install", *TO_A_REGISTRY, "--apply"]) == 0
    ran = programs.read_text().splitlines()
    assert ran[0].startswith("docker build --target agent")
    assert "kubectl create -k manifests/crd" in ran
    assert ran.count("kubectl apply -f -") == 2
    assert ran[-1] == "kubectl rollout status -n rte-system deploy/rte-scheduler --timeout=300s"
    assert "`rte doctor` checks it" in capfd.readouterr().err


def test_the_first_command_that_fails_ends_it(programs: Path, capfd, monkeypatch) -> None:
    push = f"push registry.example.com/team/rte-agent:{__version__}"
    monkeypatch.setenv("RTE_TEST_FAILS", push)
    assert main(["install", *TO_A_REGISTRY, "--apply"]) == 1
    assert programs.read_text().splitlines()[-1] == f"docker {push}"
    assert "failed with exit code 3" in capfd.readouterr().err
