"""What others have written never commands our user's terminal."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rte import cli
from rte.cli.terminal import plain
from tests.unit.cli.objects import node_objects

#: Clears the screen, sets the title, reverses what follows, in seven bits and in eight.
NASTY = "\x1b[2J\x1b]0;owned\x07\r\u202e\x9b2J"


@given(st.text())
def test_text_is_left_as_it_is_and_commands_are_written_out(text: str) -> None:
    shown = plain(text)
    assert not any(ord(each) < 32 and each not in "\n\t" for each in shown)
    assert not any("\x7f" <= each <= "\x9f" or each in "\u202e\u2066" for each in shown)
    if all(each.isprintable() or each in "\n\t" for each in text):
        assert shown == text


def nasty_cluster() -> list[dict]:
    node, report, pod = node_objects("n0", (4,))
    pod["metadata"]["name"] = f"mine{NASTY}"
    pod["spec"]["nodeName"] = f"n0{NASTY}"
    return [
        json.loads(json.dumps(each).replace('"n0"', json.dumps(f"n0{NASTY}")))
        for each in (node, report, pod)
    ]


@pytest.mark.parametrize(
    "words",
    [
        ["explain", "--all"],
        ["explain", f"default/mine{NASTY}"],
        ["explain", f"default/other{NASTY}"],
        ["fit", "--request", "cpu=4"],
        ["defrag"],
        [f"no-such{NASTY}"],
        ["explain", f"--no-such{NASTY}"],
    ],
)
def test_no_command_hands_it_on(write, capfd, words: list[str]) -> None:
    file = write("cluster.yaml", nasty_cluster())
    given_file = words[0] in ("explain", "fit", "defrag")
    try:
        cli.main([*words, *(["--from", file] if given_file else [])])
    except SystemExit as end:
        assert end.code == 2
    captured = capfd.readouterr()
    said = captured.out + captured.err
    assert said
    assert not any(each in said for each in "\x1b\x07\r\u202e\x9b")


def test_the_picture_of_a_machine_is_text_too(capfd, tmp_path) -> None:
    assert cli.main(["topology", "--machine", str(tmp_path / f"x{NASTY}")]) != 0
    assert "\x1b" not in capfd.readouterr().err
