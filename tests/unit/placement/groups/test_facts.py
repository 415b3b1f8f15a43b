"""Labels of a Node as facts: ours first, NHD's where ours are not."""

from __future__ import annotations

import pytest

from rte.placement.groups.facts import node_facts, site_values


@pytest.mark.parametrize(
    ("labels", "groups"),
    [
        ({}, ("default",)),
        ({"NHD_GROUP": "b.a"}, ("a", "b")),
        ({"NHD_GROUP": "b", "topology.rte.dev/node-groups": "c"}, ("c",)),
        ({"topology.rte.dev/node-groups": ""}, ("default",)),
    ],
)
def test_a_node_without_groups_is_in_the_default_one(
    labels: dict[str, str], groups: tuple[str, ...]
) -> None:
    assert node_facts(labels).groups == groups


@pytest.mark.parametrize(
    ("labels", "wanted"),
    [
        ({}, False),
        ({"topology.rte.dev/maintenance": "true"}, True),
        ({"topology.rte.dev/maintenance": "false"}, False),
        ({"sigproc.viasat.io/maintenance": "not_scheduled"}, False),
        ({"sigproc.viasat.io/maintenance": "scheduled"}, True),
        (
            {"sigproc.viasat.io/maintenance": "on", "topology.rte.dev/maintenance": "false"},
            False,
        ),
    ],
)
def test_maintenance_is_said_by_a_label(labels: dict[str, str], wanted: bool) -> None:
    assert node_facts(labels).maintenance == wanted


def test_values_of_the_site_come_from_labels() -> None:
    labels = {"DATA_PLANE_VLAN": "7", "values.topology.rte.dev/vlan": "8", "DATA_DEFAULT_GW": "g"}

    assert site_values(labels) == {"vlan": "8", "gateway": "g"}
