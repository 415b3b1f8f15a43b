from __future__ import annotations

import io
import json
import logging

import pytest

from rte.telemetry import logs
from rte.telemetry.logs import Format, Level, LogSettings


@pytest.fixture
def log():
    """Lines written under the given settings; the former handlers come back afterwards."""
    root = logging.getLogger()
    handlers, level = list(root.handlers), root.level

    def write(settings: LogSettings, **record: object) -> str:
        stream = io.StringIO()
        logs.setup(settings, stream)
        arguments = {"msg": "a thing happened", "level": logging.INFO, **record}
        logging.getLogger("rte.somewhere").log(**arguments)
        return stream.getvalue()

    yield write
    root.handlers[:] = handlers
    root.setLevel(level)


def test_text_has_event_level_logger_and_fields(log) -> None:
    line = log(LogSettings(), extra={"node": "n1", "cpus": "0-3,8", "why": "it did\nso"})

    assert line.startswith("time=20")
    assert (
        'level=info event="a thing happened" logger=rte.somewhere node=n1 cpus=0-3,8 '
        'why="it did\\nso"\n'
    ) in line
    assert line.count("\n") == 1


def test_json_keeps_types(log) -> None:
    line = log(
        LogSettings(format=Format.JSON), extra={"count": 3, "ok": True, "none": None, "odd": {1}}
    )

    fields = json.loads(line)
    assert fields["event"] == "a thing happened"
    assert (fields["count"], fields["ok"], fields["none"], fields["odd"]) == (3, True, None, "{1}")


@pytest.mark.parametrize("form", list(Format))
def test_an_error_and_odd_text_stay_on_one_line(log, form: Format) -> None:
    try:
        int("two\nlines")
    except ValueError:
        line = log(
            LogSettings(format=form), exc_info=True, msg="odd \ud800 %s", extra={"huge": 2**80}
        )

    assert line.count("\n") == 1
    assert "two" in line
    assert "Traceback" in line


def test_less_severe_events_are_not_written(log) -> None:
    assert log(LogSettings(level=Level.WARNING)) == ""
