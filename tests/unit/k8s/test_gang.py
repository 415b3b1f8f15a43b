"""Gangs of every source, as their objects say it."""

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rte import errors
from rte.k8s import gang, wire
from rte.k8s.gang import GangKey, GangSource
from rte.scheduler.framework import objects

PREFIX = "gang.scheduling.koordinator.sh/"


def pod(spec=None, **metadata):
    return {"metadata": {"namespace": "ns", "name": "p", **metadata}, "spec": spec or {}}


def gang_of(obj):
    """As read_pod asks."""
    spec = obj.get("spec", {})
    whole = {**obj, "spec": {"containers": [], **spec} if isinstance(spec, dict) else spec}
    read = wire.read({"metadata": {}, **whole}, wire.PodObject, "pod")
    return objects.gang_of(read.metadata, read.spec)


@pytest.mark.parametrize(
    ("obj", "key"),
    [
        (pod(), None),
        (
            pod({"schedulingGroup": {"podGroupName": "g"}}),
            GangKey(GangSource.POD_GROUP, "ns", "g"),
        ),
        (
            pod({"workloadRef": {"name": "w", "podGroup": "g"}}),
            GangKey(GangSource.WORKLOAD, "ns", "w/g"),
        ),
        (
            pod({"workloadRef": {"name": "w", "podGroup": "g", "podGroupReplicaKey": "3"}}),
            GangKey(GangSource.WORKLOAD, "ns", "w/g/3"),
        ),
        (
            pod(labels={"scheduling.x-k8s.io/pod-group": "g"}),
            GangKey(GangSource.SCHEDULER_PLUGINS, "ns", "g"),
        ),
        (
            pod(labels={"pod-group.scheduling.sigs.k8s.io": "g"}),
            GangKey(GangSource.SCHEDULER_PLUGINS, "ns", "g"),
        ),
        (pod(annotations={f"{PREFIX}name": "g"}), GangKey(GangSource.KOORDINATOR, "ns", "g")),
        ({}, None),
    ],
)
def test_a_pod_names_its_gang(obj, key):
    assert gang_of(obj) == key


def test_a_pod_group_of_1_37():
    found = gang.parse_pod_group(
        {
            "metadata": {"name": "g", "namespace": "ns"},
            "spec": {
                "schedulingPolicy": {"gang": {"minCount": 4}},
                "schedulingConstraints": {"topology": [{"key": "rack"}]},
                "disruptionMode": {"all": {}},
            },
        }
    )
    assert found.key == GangKey(GangSource.POD_GROUP, "ns", "g")
    assert (found.min_count, found.topology_key, found.is_disrupted_whole) == (4, "rack", True)


def test_levels_of_a_network_are_annotations_the_narrowest_first():
    metadata = {"annotations": {"topology.rte.dev/preferred-topology": "example.com/rack, block"}}
    spec = {"schedulingPolicy": {"gang": {"minCount": 4}}}
    found = gang.parse_pod_group({"metadata": metadata, "spec": spec})
    assert (found.topology_key, found.preferred_keys) == ("", ("example.com/rack", "block"))
    metadata["annotations"]["topology.rte.dev/required-topology"] = "zone"
    other = gang.parse_plugins_pod_group({"metadata": metadata, "spec": {"minMember": 2}})
    assert (other.topology_key, other.preferred_keys) == ("zone", ("example.com/rack", "block"))


def test_a_pod_group_of_1_36_writes_its_disruption_mode_as_text():
    spec = {"schedulingPolicy": {"gang": {"minCount": 1}}, "disruptionMode": "PodGroup"}
    assert gang.parse_pod_group({"spec": spec}).is_disrupted_whole
    assert not gang.parse_pod_group({"spec": {**spec, "disruptionMode": "Pod"}}).is_disrupted_whole


def test_a_basic_group_is_no_gang():
    assert gang.parse_pod_group({"spec": {"schedulingPolicy": {"basic": {}}}}).min_count is None


def test_a_workload_of_1_35_holds_its_groups():
    key = GangKey(GangSource.WORKLOAD, "ns", "w/workers/0")
    groups = [
        {"name": "driver", "policy": {"basic": {}}},
        {"name": "workers", "policy": {"gang": {"minCount": 8}}},
    ]
    found = gang.parse_workload({"spec": {"podGroups": groups}}, key)
    assert (found.key, found.min_count) == (key, 8)
    assert gang.parse_workload({"spec": {"podGroups": groups[:1]}}, key) is None


def test_a_pod_group_of_scheduler_plugins_with_koordinators_annotations():
    found = gang.parse_plugins_pod_group(
        {
            "metadata": {
                "name": "g",
                "namespace": "ns",
                "annotations": {
                    f"{PREFIX}groups": '["ns/g","ns/h"]',
                    f"{PREFIX}mode": "NonStrict",
                    f"{PREFIX}match-policy": "only-waiting",
                },
            },
            "spec": {"minMember": 3, "scheduleTimeoutSeconds": 30},
        }
    )
    assert (found.min_count, found.timeout_s) == (3, 30.0)
    assert found.with_gangs == {"ns/g", "ns/h"}
    assert not found.gives_up
    assert not found.counts_running


def test_a_gang_of_annotations_alone():
    found = gang.parse_annotations(
        pod(
            annotations={
                f"{PREFIX}name": "g",
                f"{PREFIX}min-available": "2",
                f"{PREFIX}waiting-time": "1m30s",
            }
        )
    )
    assert (found.key.name, found.min_count, found.timeout_s) == ("g", 2, 90.0)
    assert (found.gives_up, found.counts_running) == (True, True)


@pytest.mark.parametrize(
    ("parse", "obj"),
    [
        (gang_of, pod({"workloadRef": {"name": "w"}})),
        (gang_of, pod({"schedulingGroup": "g"})),
        (gang_of, {"metadata": []}),
        (gang.parse_pod_group, {"spec": {}}),
        (gang.parse_pod_group, {"spec": {"schedulingPolicy": {"gang": {"minCount": 0}}}}),
        (gang.parse_pod_group, {"spec": {"schedulingPolicy": {"gang": {"minCount": True}}}}),
        (
            gang.parse_pod_group,
            {
                "spec": {
                    "schedulingPolicy": {"basic": {}},
                    "schedulingConstraints": {"topology": [{"key": "a"}, {"key": "b"}]},
                }
            },
        ),
        (gang.parse_plugins_pod_group, {"spec": {"minMember": "many"}}),
        (
            gang.parse_plugins_pod_group,
            {"metadata": {"annotations": {f"{PREFIX}groups": "{"}}, "spec": {"minMember": 1}},
        ),
        (
            gang.parse_plugins_pod_group,
            {"metadata": {"annotations": {f"{PREFIX}groups": "[1]"}}, "spec": {"minMember": 1}},
        ),
        (
            gang.parse_plugins_pod_group,
            {
                "metadata": {"annotations": {"topology.rte.dev/preferred-topology": "a,,b"}},
                "spec": {"minMember": 1},
            },
        ),
        (
            gang.parse_plugins_pod_group,
            {
                "metadata": {
                    "annotations": {"topology.rte.dev/preferred-topology": "k," * 8 + "k"}
                },
                "spec": {"minMember": 1},
            },
        ),
        (gang.parse_annotations, pod(annotations={f"{PREFIX}name": "g"})),
        (
            gang.parse_annotations,
            pod(annotations={f"{PREFIX}min-available": "1", f"{PREFIX}waiting-time": "soon"}),
        ),
    ],
)
def test_what_no_api_server_accepts_is_named(parse, obj):
    with pytest.raises(errors.ParseError):
        parse(obj)


FIELDS = [
    "metadata",
    "spec",
    "schedulingPolicy",
    "gang",
    "minCount",
    "topology",
    "workloadRef",
    "schedulingConstraints",
    "annotations",
    "labels",
    "minMember",
    "disruptionMode",
]
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=8),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(FIELDS),
            inner,
            max_size=4,
        )
    ),
    max_leaves=12,
)


@given(obj=st.dictionaries(st.sampled_from(["metadata", "spec"]), JSON))
def test_whatever_the_object_is_the_answer_is_a_gang_or_a_parse_error(obj):
    for parse in (
        gang_of,
        gang.parse_pod_group,
        gang.parse_plugins_pod_group,
        gang.parse_annotations,
        lambda each: gang.parse_workload(each, GangKey(GangSource.WORKLOAD, "ns", "w/g")),
    ):
        with contextlib.suppress(errors.ParseError):
            parse(obj)
