"""``rte completion``: every command and flag, in a real bash."""

from __future__ import annotations

import contextlib
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from rte import cli
from rte.cli import completion

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterator
    from pathlib import Path


def script(shell: str, capsys: pytest.CaptureFixture[str]) -> str:
    assert cli.main(["completion", shell]) == 0
    return capsys.readouterr().out


@pytest.fixture(scope="module")
def bash(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("completion") / "rte.bash"
    with path.open("w") as out, contextlib.redirect_stdout(out):
        assert cli.main(["completion", "bash"]) == 0
    return path


def complete(bash: Path, *words: str, folder: Path | None = None) -> list[str]:
    """What bash offers for the last word of ``rte WORD ...`` when Tab is pressed."""
    ask = (
        'source "$1"; shift\n'
        "spec=$(complete -p rte); function=${spec##*-F }; function=${function%% *}\n"
        'COMP_WORDS=(rte "$@"); COMP_CWORD=$#; COMPREPLY=()\n'
        '"$function" rte "${COMP_WORDS[COMP_CWORD]}" "${COMP_WORDS[COMP_CWORD-1]}"\n'
        "printf '%s\\n' \"${COMPREPLY[@]}\"\n"
    )
    done = subprocess.run(
        ["bash", "--norc", "-c", ask, "bash", str(bash), *words],
        capture_output=True, text=True, check=True, cwd=folder,
    )  # fmt: skip
    assert not done.stderr
    return done.stdout.split()


def flags(parser: argparse.ArgumentParser) -> Iterator[tuple[argparse.ArgumentParser, str]]:
    for action in completion._actions(parser):
        yield from ((parser, flag) for flag in action.option_strings)


def test_a_command_is_completed(bash: Path) -> None:
    assert complete(bash, "top") == ["topology"]
    assert set(cli.every_command()) <= set(complete(bash, ""))


@pytest.mark.parametrize("command", [name for name in cli.every_command() if name != "import"])
def test_every_flag_of_a_command_is_completed(bash: Path, command: str) -> None:
    _, commands = cli.build_parser()
    cli.configure(command, commands[command])
    wanted = {flag for _, flag in flags(commands[command]) if flag.startswith("--")}
    assert set(complete(bash, command, "--")) == wanted


def test_a_command_of_a_command_is_completed(bash: Path) -> None:
    assert complete(bash, "import", "n") == ["nhd"]
    assert "triadset" in complete(bash, "import", "nhd", "tri")
    assert "--fields" in complete(bash, "import", "nhd", "triad", "--f")


def test_values_are_completed(bash: Path, tmp_path: Path) -> None:
    (tmp_path / "pods.yaml").touch()
    (tmp_path / "folder").mkdir()
    assert complete(bash, "topology", "-o", "s") == ["svg"]
    assert complete(bash, "run", "--log-format", "") == ["text", "json"]
    assert complete(bash, "demo", "--policy", "single") == ["single-numa-node"]
    assert complete(bash, "explain", "-f", "po", folder=tmp_path) == ["pods.yaml"]
    assert complete(bash, "run", "--sysfs-root", "", folder=tmp_path) == ["folder"]
    assert complete(bash, "topology", "po", folder=tmp_path) == ["pods.yaml"]


@pytest.mark.parametrize("shell", completion.SHELLS)
def test_every_shell_knows_every_command_and_flag(
    shell: str, capsys: pytest.CaptureFixture[str]
) -> None:
    text = script(shell, capsys)
    for name in cli.every_command():
        assert name in text
        _, commands = cli.build_parser()
        cli.configure(name, commands[name])
        for _, flag in flags(commands[name]):
            # fish: -l long -s short
            assert (
                flag in text or f" {'-l' if flag[:2] == '--' else '-s'} {flag.lstrip('-')} " in text
            )


def test_what_is_not_installed_is_left_out(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """As in the agent's image, which has no NumPy and so no ``rte fit``."""
    real = cli.configure

    def configure(name: str, parser: cli.Parser) -> None:
        if name == "fit":
            raise ModuleNotFoundError("No module named 'numpy'", name="numpy")
        real(name, parser)

    monkeypatch.setattr(cli, "configure", configure)
    text = script("bash", capsys)
    assert "--min-count" not in text
    assert "--oneshot" in text


def test_without_the_library_one_line_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "shtab", None)
    assert cli.main(["completion", "bash"]) == 2
    assert capsys.readouterr().err == (
        "rte completion: shtab is not installed: pip install 'rte-numa[demo]'\n"
    )
