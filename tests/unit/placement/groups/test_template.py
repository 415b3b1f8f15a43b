"""Templates: any text with the ids of an allocation."""

from __future__ import annotations

from typing import Any

import pytest

from rte.placement.groups.template import TemplateError, render

RECORD: dict[str, Any] = {
    "groups": [{"name": "m0", "zone": None, "cpus": {"workers": [3, 19], "feeders": [[2]]}}],
    "devices": {"0000:17:00.0": {"uuid": "GPU-1"}},
}


@pytest.mark.parametrize(
    ("template", "text"),
    [
        ("cpus=${groups[0].cpus.workers}", "cpus=3,19"),
        ("${groups[0].cpus.workers[1]}$${x}", "19${x}"),
        ("${groups[0].cpus.feeders}", "[[2]]"),
        ('${devices["0000:17:00.0"].uuid}', "GPU-1"),
        ("[${groups[0].zone}]", "[]"),
        ("no place $ here", "no place $ here"),
    ],
)
def test_a_place_is_filled_in(template: str, text: str) -> None:
    assert render(template, RECORD) == text


@pytest.mark.parametrize(
    "template", ["${}", "${groups[7]}", "${groups.x}", "${.a}", "${groups[0]name}", "${a b}"]
)
def test_a_place_that_leads_nowhere_is_told(template: str) -> None:
    with pytest.raises(TemplateError):
        render(template, RECORD)
