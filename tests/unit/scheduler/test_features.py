"""Each field of the newest PodSpec is owned by one plugin, and the documentation says so."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from rte.scheduler.cache.cluster import Cluster
from rte.scheduler.framework.plugin import feature_table
from rte.scheduler.loop.cycle import Cycle
from tests.unit.scheduler.build import World, pod_object

if TYPE_CHECKING:
    from rte.scheduler.framework.plugin import Plugin

HERE = Path(__file__).parent
ROOT = HERE.parents[2]

#: Field names of core/v1 PodSpec, PodAffinity and the like; the file says of which release.
FIELDS = json.loads((HERE / "podspec-fields.json").read_text())


def plugins() -> tuple[Plugin, ...]:
    return Cycle(Cluster()).profile.plugins


def test_somebody_owns_every_field_of_the_newest_podspec() -> None:
    owned = {field for plugin in plugins() for field in plugin.owns}
    tops = {field.split(".")[0] for field in owned}
    assert set(FIELDS["PodSpec"]) - tops == set()
    assert tops - set(FIELDS["PodSpec"]) == set(), "no such field"
    for parent in ("affinity", "volumes"):
        whole = parent in owned
        parts = {f"{parent}.{name}" for name in FIELDS[parent]}
        assert whole or parts - owned == set()


def test_no_field_has_two_owners() -> None:
    owned = [field for plugin in plugins() for field in plugin.owns]
    assert len(owned) == len(set(owned))


def test_the_table_in_the_documentation_is_what_the_plugins_declare() -> None:
    text = (ROOT / "docs/scheduler.md").read_text()
    assert feature_table(plugins()) in text, "run .ci/features"


@pytest.mark.parametrize(
    ("part", "named"),
    [
        ({"workloadRef": {"name": "w"}}, "workloadRef"),
        ({"labels": {"pod-group.scheduling.sigs.k8s.io/name": "g"}}, "scheduler-plugins"),
        ({"annotations": {"gang.scheduling.koordinator.sh/name": "g"}}, "min-available"),
        ({"annotations": {"scheduling.k8s.io/group-name": "g"}}, "Volcano"),
    ],
)
def test_what_is_not_honoured_is_refused_by_name(part: dict[str, object], named: str) -> None:
    world = World()
    world.node("n", bare=True)
    pod = world.pod(pod_object(cpu="1", **part))
    assert world.place(pod) is None
    (reason,) = world.why(pod)
    assert named in reason
