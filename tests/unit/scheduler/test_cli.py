"""Flags of ``rte scheduler`` that cannot work are refused in one line."""

from __future__ import annotations

import pytest

from rte import cli


@pytest.mark.parametrize(
    ("flags", "word"),
    [
        (["--renew-seconds", "3"], "--renew-seconds"),
        (["--renew-seconds", "0"], "--renew-seconds"),
        (["--reserve-after", "-1"], "--reserve-after"),
        (["--shared-limit", "-0.5"], "--shared-limit"),
        (["--scheduler-name", ""], "--scheduler-name"),
        (["--lease-seconds", "1"], "--renew-seconds"),
        (["--listen", "here"], "HOST:PORT"),
        (["--extender-listen", "here"], "HOST:PORT"),
    ],
)
def test_bad_flags_are_usage_errors(
    flags: list[str], word: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["scheduler", *flags]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("rte scheduler: ")
    assert word in line


def test_a_kubeconfig_that_is_not_there_fails_in_one_line(
    tmp_path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["scheduler", "--listen", "off", "--kubeconfig", str(tmp_path / "no")]) == 1
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("rte scheduler: ")
