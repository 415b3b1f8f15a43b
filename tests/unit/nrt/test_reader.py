from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rte import errors, nrt
from rte.model.node import Amounts
from tests.depth import scaled

from .states import busy_reading
from .test_node_state import json_values


def document(**parts: object) -> dict:
    return {"metadata": {"name": "n0"}, **parts}


def zone(name: str, *resources: tuple[str, object, object, object], **more: object) -> dict:
    rows = [
        {"name": r, "capacity": c, "allocatable": a, "available": v} for r, c, a, v in resources
    ]
    return {"name": name, "type": "Node", "resources": rows, **more}


@pytest.mark.parametrize(
    ("legacy", "settings"),
    [
        ("SingleNUMANodePodLevel", ("single-numa-node", "pod")),
        ("SingleNUMANodeContainerLevel", ("single-numa-node", "container")),
        ("BestEffortPodLevel", ("best-effort", "pod")),
        ("BestEffortContainerLevel", ("best-effort", "container")),
        ("RestrictedPodLevel", ("restricted", "pod")),
        ("RestrictedContainerLevel", ("restricted", "container")),
        ("Restricted", ("none", "container")),
        ("BestEffort", ("none", "container")),
        ("None", ("none", "container")),
        ("SingleNUMANode", ("none", "container")),
    ],
)
def test_a_v1alpha1_object_tells_its_settings_by_legacy_policy(
    legacy: str, settings: tuple[str, str]
) -> None:
    decoded = nrt.decode(
        document(
            apiVersion="topology.node.k8s.io/v1alpha1",
            topologyPolicies=[legacy, "BestEffortPodLevel"],
            zones=[],
        )
    )

    assert (decoded.policy, decoded.scope) == settings


@pytest.mark.parametrize(
    ("attributes", "settings"),
    [
        ([("topologyManagerPolicy", "restricted")], ("restricted", "pod")),
        ([("topologyManagerScope", "container")], ("single-numa-node", "container")),
        ([("topologyManagerPolicy", "Restricted")], ("single-numa-node", "pod")),
        ([("TopologyManagerPolicy", "restricted")], ("single-numa-node", "pod")),
        (
            [
                ("topologyManagerPolicy", "none"),
                ("topologyManagerPolicy", "best-effort"),
                ("topologyManagerPolicy", "bad"),
            ],
            ("best-effort", "pod"),
        ),
    ],
)
def test_attributes_override_the_legacy_policy_one_by_one(
    attributes: list[tuple[str, str]], settings: tuple[str, str]
) -> None:
    decoded = nrt.decode(
        document(
            topologyPolicies=["SingleNUMANodePodLevel"],
            attributes=[{"name": name, "value": value} for name, value in attributes],
        )
    )

    assert (decoded.policy, decoded.scope) == settings


def test_amounts_are_read_by_value_in_any_spelling() -> None:
    decoded = nrt.decode(
        document(
            zones=[
                zone(
                    "node-0",
                    ("cpu", "2k", 4, "1500m"),
                    ("memory", "64Gi", "1e3", "16777216Ki"),
                    ("vendor.com/gpu", "8", "8", "7"),
                )
            ]
        )
    )

    assert decoded.zones[0].resources == {
        "cpu": Amounts(2_000_000, 4000, 1500),
        "memory": Amounts(64 << 30, 1000, 16 << 30),
        "vendor.com/gpu": Amounts(8, 8, 7),
    }
    assert decoded.problems == ()


@pytest.mark.parametrize(
    ("name", "kind", "ids"),
    [
        ("node-0", "Node", [0]),
        ("node-07", "Node", [7]),
        ("node-+7", "Node", [7]),
        ("node--1", "Node", []),
        ("node- 1", "Node", []),
        ("node-1-2", "Node", []),
        ("Node-1", "Node", []),
        ("node-", "Node", []),
        ("node_3", "Node", []),
        ("node-0", "Socket", []),
        ("node-0", "", []),
    ],
)
def test_only_numa_zones_count(name: str, kind: str, ids: list[int]) -> None:
    decoded = nrt.decode(document(zones=[{"name": name, "type": kind}]))

    assert [zone.id for zone in decoded.zones] == ids


def test_a_malformed_part_is_named_and_the_rest_is_read() -> None:
    decoded = nrt.decode(
        document(
            zones=[
                "nonsense",
                zone("node-0", ("cpu", "1", "1", "many"), ("memory", "1", "1", "1")),
                zone(
                    "node-1",
                    costs=[{"name": "node-0", "value": 21}, {"name": "node-x", "value": 1}],
                ),
            ],
            attributes="nonsense",
        )
    )

    assert [sorted(zone.resources) for zone in decoded.zones] == [["memory"], []]
    assert decoded.zones[1].costs == {0: 21}
    assert len(decoded.problems) == 3
    assert any("node-0, cpu" in line and "many" in line for line in decoded.problems)


def test_a_damaged_node_state_leaves_the_zones() -> None:
    encoded = nrt.encode(busy_reading(8, 2, 1))
    encoded["metadata"]["annotations"][nrt.NODE_STATE_ANNOTATION] = '{"version":1'

    decoded = nrt.decode(encoded)

    assert decoded.state is None
    assert len(decoded.zones) == 2
    assert [line for line in decoded.problems if "node-state" in line and "\n" not in line]


def test_a_node_state_of_another_version_is_none_with_the_reason() -> None:
    encoded = nrt.encode(busy_reading(8, 2, 1))
    encoded["metadata"]["annotations"][nrt.NODE_STATE_ANNOTATION] = '{"version":9}'

    decoded = nrt.decode(encoded)

    assert decoded.state is None
    assert "this program reads version 1" in decoded.problems[0]


def test_a_foreign_exporters_object_is_no_problem() -> None:
    """As resource-topology-exporter writes it: no annotation of ours, no method for the pods."""
    decoded = nrt.decode(
        document(
            attributes=[{"name": "nodeTopologyPodsFingerprint", "value": "pfp0v001abc"}],
            zones=[zone("node-0", ("cpu", "4", "4", "4"))],
        )
    )

    assert decoded.state is None
    assert decoded.problems == ()
    assert decoded.fingerprint == "pfp0v001abc"


@pytest.mark.parametrize("obj", [{}, {"metadata": {}}, {"metadata": {"name": ""}}, [], None, 3])
def test_what_is_no_named_object_is_refused(obj: object) -> None:
    with pytest.raises(errors.ParseError, match=r"metadata\.name"):
        nrt.decode(obj)


@given(
    st.dictionaries(
        st.sampled_from(["zones", "attributes", "topologyPolicies", "apiVersion"]),
        json_values,
    ),
    json_values,
)
@settings(max_examples=scaled(1000))
def test_garbage_in_any_part_is_named_in_one_line(parts: dict, annotations: object) -> None:
    decoded = nrt.decode({"metadata": {"name": "n", "annotations": annotations}, **parts})

    assert not any("\n" in line for line in decoded.problems)


@given(
    st.lists(
        st.fixed_dictionaries(
            {
                "name": st.just("node-1"),
                "type": st.just("Node"),
                "resources": json_values,
                "costs": json_values,
            }
        ),
        max_size=2,
    )
)
@settings(max_examples=scaled(1000))
def test_garbage_inside_a_zone_is_named_in_one_line(zones: list) -> None:
    decoded = nrt.decode(document(zones=zones))

    assert len(decoded.zones) == len(zones)
    assert not any("\n" in line for line in decoded.problems)
