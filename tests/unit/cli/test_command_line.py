"""Whatever is typed: one line that is true, an exit code as documented, never a traceback."""

from __future__ import annotations

import contextlib
import io
import os
import re
import signal
import subprocess
import sys

import pytest
import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from rte import __main__ as first_process
from rte import cli, config
from tests.depth import scaled

#: Commands that end by themselves whatever they are given.
OFFLINE = ("topology", "explain", "fit", "defrag", "simulate", "import", "render", "snapshot")
JUNK = (
    "",
    " ",
    "-",
    "--",
    "-1",
    "0",
    "1e999",
    "NaN",
    "None",
    "*",
    "a*b",
    "/",
    "../..",
    "\n",
    "é",
    "🦀",
)
WORDS = (
    *JUNK,
    "2x8",
    "2x8*2",
    "2x8,sockets=0",
    "9x9,threads=7",
    "default/pod",
    "nhd",
    "triad",
    "labels",
)
relaxed = settings(
    max_examples=scaled(1000),
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)


@pytest.fixture(autouse=True)
def nowhere(monkeypatch, tmp_path):
    """No cluster, no settings, an empty folder."""
    for name in os.environ:
        if name.startswith(("RTE_", "KUBE")):
            monkeypatch.delenv(name)
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "no-kubeconfig"))
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)


def typed(words: list[str]) -> tuple[int, str, str]:
    """Exit code, stdout and stderr."""
    out, err = io.TextIOWrapper(io.BytesIO()), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            code = cli.main(words)
        except SystemExit as exit_:  # --help and --version of argparse
            code = int(exit_.code or 0)
    out.flush()
    return code, out.buffer.getvalue().decode(), err.getvalue()


def flags_of(command: str) -> list[str]:
    code, out, _ = typed([command, "--help"])
    assert code == 0
    return sorted(set(re.findall(r"(?<![\w-])--?[a-z][a-z-]*", out)) - {"--help", "-h"})


def check(words: list[str]) -> tuple[int, str]:
    code, _, err = typed(words)
    assert code in (0, 1, 2), words
    lines = [line for line in err.splitlines() if ": note: " not in line]
    if code == 2:
        assert len(lines) == 1, (words, err)
        assert lines[0].startswith("rte"), err
    return code, err


FLAGS = {command: flags_of(command) for command in cli.every_command()}
commands = st.sampled_from(list(cli.every_command()))


@st.composite
def lines(draw, among=OFFLINE):
    """A command with flags of its own and junk for values."""
    command = draw(st.sampled_from(among))
    left_out = ("--apply", "--from", "--file", "-f")
    flags = ["-o", *(flag for flag in FLAGS[command] if flag not in left_out)]
    word = st.sampled_from(WORDS) | st.sampled_from(flags) | st.text("a0/=,:*-é", max_size=6)
    return [command, *draw(st.lists(word, max_size=6))]


@given(
    lines(among=tuple(cli.every_command())),
    st.integers(0, 6),
    st.text("abcdefgh", min_size=3, max_size=9),
)
@relaxed
def test_wrong_command_lines_end_in_one_line(words, place, unknown):
    place = min(1 + place, len(words))
    if "--" in words[:place]:
        place = 1
    code, err = check([*words[:place], f"--{unknown}{place}", *words[place:]])
    assert code == 2
    assert "Traceback" not in err


@given(lines())
@relaxed
def test_any_words_of_a_command_end_in_a_documented_exit_code(words):
    assert "Traceback" not in check(words)[1]


scalars = (
    st.none() | st.booleans() | st.integers(-2, 99) | st.sampled_from(["", "a", "1Gi", "x y", "-1"])
)
values = st.recursive(
    scalars,
    lambda inner: (
        st.lists(inner, max_size=2)
        | st.dictionaries(
            st.sampled_from(
                [
                    "name",
                    "limits",
                    "requests",
                    "cpu",
                    "memory",
                    "resources",
                    "image",
                    "labels",
                    "items",
                ]
            ),
            inner,
            max_size=3,
        )
    ),
    max_leaves=6,
)
bodies = st.fixed_dictionaries(
    {},
    optional={
        "kind": st.sampled_from(
            ["Pod", "Node", "NodeResourceTopology", "Deployment", "List", "Job", "Namespace", ""]
        )
        | scalars,
        "apiVersion": scalars,
        "metadata": st.fixed_dictionaries(
            {}, optional={"name": values, "namespace": values, "annotations": values}
        )
        | values,
        "spec": st.fixed_dictionaries(
            {},
            optional={
                "containers": values,
                "replicas": values,
                "template": values,
                "nodeName": values,
                "schedulerName": values,
            },
        )
        | values,
        "status": values,
        "zones": values,
    },
)


@given(
    st.sampled_from(
        [
            ["explain", "-f", "FILE", "--from", "NODES"],
            ["explain", "--all", "--from", "FILE"],
            ["explain", "--restart", "--from", "FILE"],
            ["fit", "-f", "FILE", "--from", "NODES"],
            ["fit", "-f", "FILE", "--machine", "2x8", "--empty"],
            ["defrag", "-f", "FILE", "--from", "NODES"],
            ["defrag", "--from", "FILE"],
            ["simulate", "-f", "FILE", "--machine", "1x4"],
            ["simulate", "-f", "FILE", "-f", "NODES"],
            ["topology", "FILE"],
            ["import", "nhd", "labels", "-f", "FILE"],
            ["import", "nhd", "triadset", "-f", "FILE"],
            ["import", "nhd", "triad", "FILE"],
            ["render", "template", "FILE", "--allocation", "FILE"],
            ["render", "triad", "FILE", "--allocation", "FILE"],
        ]
    ),
    st.lists(bodies | values, max_size=2),
)
@relaxed
def test_any_objects_in_files_end_in_a_documented_exit_code(tmp_path, words, documents):
    file, nodes = tmp_path / "file.yaml", tmp_path / "nodes.yaml"
    file.write_text(yaml.safe_dump_all(documents))
    if not nodes.exists():
        from tests.unit.cli.objects import node_objects

        nodes.write_text(yaml.safe_dump_all(node_objects("n", (2,))))
    names = {"FILE": str(file), "NODES": str(nodes)}
    assert "Traceback" not in check([names.get(word, word) for word in words])[1]


@pytest.mark.parametrize(
    "text", ["\0", "{", "a: [", "- &a [*a]", "\xff", "!!python/object:x {}", "%"]
)
@pytest.mark.parametrize("command", ["simulate", "explain", "fit"])
def test_files_that_are_no_yaml(command, text, tmp_path):
    file = tmp_path / "file"
    file.write_bytes(text.encode("latin-1"))
    code, err = check(
        [command, "-f", str(file), *(["--machine", "2x8"] if command != "explain" else [])]
    )
    assert code == 2
    assert str(file) in err


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["topologi"], "unknown command topologi, did you mean topology?"),
        (["--kubeconfig", "x"], "give a command before --kubeconfig"),
        (["simulate", "--machin", "2x8"], "unknown argument --machin, did you mean --machine?"),
        (
            ["run", "--sysfs-rot=/sys"],
            "unknown argument --sysfs-rot=/sys, did you mean --sysfs-root?",
        ),
        (["fit", "--xyzzy"], "unknown argument --xyzzy"),
        (["fit", "--fil", "x"], "unknown argument --fil, did you mean --file?"),
        (["fit", "--all"], "the following arguments are required: -f/--file"),
        (["fit", "--all", "--", "--fil"], "the following arguments are required: -f/--file"),
        (["--verson"], "unknown argument --verson, did you mean --version?"),
        (["topology", "384-2s-nps3"], "did you mean 384-2s-nps4?"),
        (["--"], "COMMAND"),
    ],
)
def test_the_nearest_name_is_told(words, told):
    code, err = check(words)
    assert code == 2
    assert told in err


def test_alone_it_shows_its_commands():
    code, out, err = typed([])
    assert (code, err) == (0, "")
    assert all(command in out for command in cli.every_command())


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["run", "--node-name", "Bad_Name!"], "--node-name: expected the name of a Node"),
        (["run", "--node-name", "a" * 254], "--node-name: expected the name of a Node"),
        (["demo", "--port", "80000"], "--port 80000: give 1 to 65535"),
        (["demo", "--port", "-1"], "--port -1: give 1 to 65535"),
        (["demo", "--nodes", "few"], "argument --nodes: expected a whole number, got 'few'"),
        (["demo", "--chaos", "-3"], "--chaos -3: give seconds above 0"),
        (["demo", "--once", "--chaos"], "--chaos cannot be used with --once or --compare"),
        (["view", "--listen", "1:2:3"], "bad listen address '1:2:3': expected HOST:PORT"),
        (["snapshot", "x.zip"], "ends with .tar, .tar.gz, .tar.xz or .tar.bz2"),
        (
            ["simulate", "--machine", "2x8", "--kubelet-version", "1.2"],
            "--kubelet-version 1.2: no rules for kubelet 1.2: 1.",
        ),
        (["topology", ""], "'' names no machine; a machine is a shape (2x32)"),
        (["topology", "2x4,memory=4"], "give a unit, for example memory=4Gi"),
    ],
)
def test_impossible_values_are_refused_with_what_is_possible(words, told):
    code, err = check(words)
    assert code == 2
    assert told in err


@pytest.mark.parametrize(
    ("kind", "told"), [("Service", " but Service\n"), ("pod", " but pod, did you mean Pod?\n")]
)
def test_a_file_without_pods_is_told_with_what_it_holds(kind, told, tmp_path):
    file = tmp_path / "a.yaml"
    file.write_text(yaml.safe_dump({"apiVersion": "v1", "kind": kind, "metadata": {"name": "a"}}))
    code, err = check(["fit", "-f", str(file), "--machine", "2x8"])
    assert code == 2
    assert err.endswith(f"holds no pod{told}")


@pytest.mark.parametrize("command", [["view"], ["explain", "p"], ["drain", "n"]])
def test_a_file_without_a_node_is_no_cluster(command, tmp_path):
    file = tmp_path / "a.yaml"
    file.touch()
    code, err = check([*command, "--from", str(file)])
    assert code == 2
    assert f"{file}: no Node in it" in err


def test_commands_and_what_they_do_are_on_one_line():
    _, out, _ = typed(["--help"])
    assert all(re.search(rf"(?m)^    {name} +\w", out) for name in cli.every_command())


def test_a_full_disk_is_told_without_the_number_of_the_error(monkeypatch):
    def full(_: object) -> int:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("rte.cli.topology.run", full)
    code, _, err = typed(["topology", "2x8"])
    assert (code, err) == (1, "rte topology: No space left on device\n")


def test_unknown_variables_are_told_and_foreign_ones_are_not(monkeypatch):
    monkeypatch.setenv("RTE_SYSFS_ROT", "/sys")
    for name in ("RTE_SDK", "RTE_AGENT_SERVICE_HOST", "RTE_AGENT_PORT_9101_TCP_ADDR", "RTE_PORT"):
        monkeypatch.setenv(name, "x")
    assert config.unknown_variables(os.environ) == [
        "RTE_SYSFS_ROT is no setting of rte, did you mean RTE_SYSFS_ROOT?"
    ]
    _, _, err = typed(["topology", "2x8"])
    assert err == (
        "rte topology: note: RTE_SYSFS_ROT is no setting of rte, did you mean RTE_SYSFS_ROOT?\n"
    )


@pytest.mark.parametrize("command", cli.every_command())
def test_help_has_an_example_and_the_exit_codes(command):
    code, out, _ = typed([command, "--help"])
    assert code == 0
    assert f"example: rte {command}" in out
    assert re.search(r"exit code: 0 done; 1 .*; 2 wrong usage", out)


@pytest.mark.parametrize(
    "command", ["topology", "explain", "fit", "defrag", "snapshot", "simulate"]
)
def test_settings_of_a_command_have_all_three_ways(command):
    options = [option for option in config.SETTINGS if command in option.commands]
    assert options
    for option in options:
        assert f"--{option.name}" in FLAGS[command]


@pytest.mark.parametrize("command", ["run", "scheduler"])
def test_help_tells_every_default(command):
    told = " ".join(typed([command, "--help"])[1].split()).replace("- ", "-")
    for option in config.SETTINGS:
        if command in option.commands and option.default:
            assert f"(default: {option.default.replace('- ', '-')})" in told


def test_the_first_process_of_a_container_ends_when_asked_before_it_has_begun(monkeypatch) -> None:
    own, before = os.getpid(), signal.getsignal(signal.SIGTERM)
    monkeypatch.setattr(cli, "main", lambda: os.kill(own, signal.SIGTERM))
    monkeypatch.setattr(os, "getpid", lambda: 1)
    try:
        with pytest.raises(SystemExit) as ended:
            first_process.main()
    finally:
        signal.signal(signal.SIGTERM, before)
    assert ended.value.code == 128 + signal.SIGTERM


def test_what_ends_the_first_process_is_there_before_the_command_line_is_loaded() -> None:
    loads = "import sys, rte.__main__; print('rte.cli' in sys.modules, 'argparse' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", loads], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["False", "False"]


def test_the_agents_image_has_no_simulations_and_says_so(monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "rte.sim", None)
    monkeypatch.delitem(sys.modules, "rte.cli.simulate", raising=False)
    assert cli.main(["simulate", "-f", "pods.yaml", "--machine", "2x8"]) == 2
    assert capsys.readouterr().err == (
        "rte simulate: this is the agent's image, which holds no simulations: "
        "run it in the scheduler's\n"
    )
