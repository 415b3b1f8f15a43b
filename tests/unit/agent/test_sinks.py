from __future__ import annotations

import io
import json
import stat

import pytest
import yaml

from rte import errors
from rte.agent import sinks
from rte.agent.settings import Output

DOCUMENT = {"kind": "NodeResourceTopology", "zones": [{"name": "node-0", "cpu": "12"}], "a": "null"}


def test_json_and_yaml_say_the_same_and_keep_text_as_text() -> None:
    assert json.loads(sinks.render(DOCUMENT, Output.JSON)) == DOCUMENT
    assert yaml.safe_load(sinks.render(DOCUMENT, Output.YAML)) == DOCUMENT
    assert sinks.render(DOCUMENT, Output.JSON).endswith(b"}\n")


def test_stdout_gets_the_text_as_it_is() -> None:
    stream = io.BytesIO()

    sinks.write_stdout(b"text\n", stream)

    assert stream.getvalue() == b"text\n"


def test_a_file_is_replaced_whole_and_readable_for_all(tmp_path) -> None:
    path = tmp_path / "nrt.json"
    path.write_text("old")
    inode = path.stat().st_ino

    sinks.write_file(path, b"new")

    assert path.read_text() == "new"
    assert path.stat().st_ino != inode
    assert stat.S_IMODE(path.stat().st_mode) == 0o644
    assert [entry.name for entry in tmp_path.iterdir()] == ["nrt.json"]


def test_a_link_to_the_file_stays_a_link(tmp_path) -> None:
    (tmp_path / "real").mkdir()
    target, link = tmp_path / "real" / "nrt.json", tmp_path / "nrt.json"
    link.symlink_to(target)

    sinks.write_file(link, b"new")

    assert link.is_symlink()
    assert target.read_text() == "new"


@pytest.mark.parametrize("place", ["absent/nrt.json", "taken"])
def test_a_place_that_cannot_be_written_is_one_line_and_leaves_nothing(tmp_path, place) -> None:
    (tmp_path / "taken").mkdir()

    with pytest.raises(errors.RteError, match=r"cannot write .*: ") as caught:
        sinks.write_file(tmp_path / place, b"new")

    assert "\n" not in str(caught.value)
    assert [entry.name for entry in tmp_path.iterdir()] == ["taken"]
