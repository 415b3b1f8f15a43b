"""Templates: any text with the ids of an allocation."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rte.placement.groups.delivery.template import TemplateError, render

RECORD: dict[str, Any] = {
    "groups": [
        {
            "name": "m0",
            "zone": None,
            "cpus": {"workers": [3, 19], "feeders": [[2]]},
            "gpus": ["0000:17:00.0", "0000:18:00.0"],
            "nics": [{"address": "0000:19:00.0", "rx": 10, "backup": "0000:19:00.1"}],
        },
        {"name": "m1", "gpus": [], "nics": []},
    ],
    "devices": {
        "0000:17:00.0": {"uuid": "GPU-1", "index": 0},
        "0000:18:00.0": {"uuid": "GPU-2", "index": 1},
        "0000:19:00.0": {"name": "e0", "mac": "02:00:00:00:19:00"},
        "0000:19:00.1": {"name": "e1"},
    },
}


@pytest.mark.parametrize(
    ("template", "text"),
    [
        ("cpus=${groups[0].cpus.workers}", "cpus=3,19"),
        ("${groups[0].cpus.workers[1]}$${x}", "19${x}"),
        ("${groups[0].cpus.feeders}", "[[2]]"),
        ('${devices["0000:17:00.0"].uuid}', "GPU-1"),
        ("${groups[0].gpus[1].uuid}", "GPU-2"),
        ("CUDA_VISIBLE_DEVICES=${groups[0].gpus.uuid}", "CUDA_VISIBLE_DEVICES=GPU-1,GPU-2"),
        ("${groups[0].gpus.index}", "0,1"),
        ("${groups[0].nics[0].name} ${groups[0].nics[0].rx}", "e0 10"),
        ("${groups[0].nics.mac}", "02:00:00:00:19:00"),
        ("${groups[0].nics[0].backup.name}", "e1"),
        ("[${groups[1].gpus.uuid}]", "[]"),
        ("${groups.name}", "m0,m1"),
        ("[${groups[0].zone}]", "[]"),
        ("no place $ here", "no place $ here"),
    ],
)
def test_a_place_is_filled_in(template: str, text: str) -> None:
    assert render(template, RECORD) == text


@pytest.mark.parametrize(
    "template",
    ["${}", "${groups[7]}", "${groups.x}", "${.a}", "${groups[0]name}", "${a b}",
     "${groups[0].gpus.mac}", "${groups[0].name.uuid}", "${groups[0].nics[0].backup.rx}"],
)  # fmt: skip
def test_a_place_that_leads_nowhere_is_told(template: str) -> None:
    with pytest.raises(TemplateError):
        render(template, RECORD)


@given(st.text(alphabet='${}[]."0123groupsdevicnam', max_size=40))
def test_no_template_crashes(template: str) -> None:
    try:
        render(template, RECORD)
    except TemplateError as error:
        assert str(error)


STEPS = st.sampled_from(
    ["groups", "gpus", "nics", "cpus", "devices", "uuid", "backup", "address", "name", "[0]", "[9]",
     '["0000:17:00.0"]', "workers", "zone"]
)  # fmt: skip


@given(st.lists(STEPS, min_size=1, max_size=6))
def test_no_path_crashes(steps: list[str]) -> None:
    path = "".join(step if step.startswith("[") else f".{step}" for step in steps).lstrip(".")
    try:
        render(f"${{{path}}}", RECORD)
    except TemplateError as error:
        assert path in str(error)
