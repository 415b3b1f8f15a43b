"""The pods that Kueue would start are those that the scheduler then sees."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rte import errors
from rte.scheduler.framework.shape import Shapes
from rte.scheduler.kueue import objects
from rte.scheduler.kueue.objects import Flavor, read_flavor, read_workload
from rte.scheduler.kueue.pods import MOST_PODS, pods_of
from tests.unit.scheduler.kueue.quota import pod_set

if TYPE_CHECKING:
    from rte.scheduler.kueue.promises import Promised

FLAVORS = {
    "gold": {
        "nodeLabels": {"pool": "gold"},
        "tolerations": [{"key": "gold", "operator": "Exists"}],
    },
    "plain": {},
}


def flavors() -> dict[str, Flavor]:
    return {name: read_flavor({"spec": spec}) for name, spec in FLAVORS.items()}


def workload(*pod_sets: dict[str, Any], **status: Any) -> dict[str, Any]:
    spec = {"podSets": list(pod_sets), **status.pop("spec", {})}
    return {"metadata": {"name": "w", "namespace": "team"}, "spec": spec, "status": status}


def assigned(**assignment: Any) -> dict[str, Any]:
    return {"podSetAssignments": [{"name": "main", **assignment}]}


def pods(obj: dict[str, Any]) -> list[Promised]:
    found = pods_of(read_workload(obj), flavors(), {}, Shapes())
    assert not isinstance(found, str), found
    return found


def selector(promised: Promised) -> dict[str, str]:
    return promised.pod.shape.rules.node_selector or {}


def test_each_has_a_name_of_its_own_and_one_shape() -> None:
    found = pods(workload(pod_set(count=3)))
    assert [each.pod.key for each in found] == [f"team/w-main-{number}" for number in range(3)]
    assert len({each.pod.kubelet_uid for each in found}) == 3
    assert len({id(each.pod.shape) for each in found}) == 1


def test_flavors_add_labels_and_tolerations_to_those_of_the_template() -> None:
    own = [{"key": "own", "operator": "Exists"}]
    one = pod_set(nodeSelector={"disk": "fast"}, tolerations=own)
    given = assigned(flavors={"cpu": "gold", "memory": "gold", "example.com/gpu": "plain"})
    (found,) = pods(workload(one, admission=given))
    assert selector(found) == {"disk": "fast", "pool": "gold"}
    keys = [each.key for each in found.pod.shape.rules.tolerations or ()]
    assert keys == ["own", "gold"]


def test_what_other_checks_add_counts() -> None:
    update = {"name": "main", "nodeSelector": {"rack": "r1"}, "labels": {"a": "b"}}
    other = {"name": "main-2", "nodeSelector": {"rack": "r2"}}
    check = {"name": "p", "state": "Ready", "podSetUpdates": [update, other]}
    (found,) = pods(workload(pod_set(), admissionChecks=[check]))
    assert selector(found) == {"rack": "r1"}
    assert found.pod.labels["a"] == "b"


def test_a_topology_assignment_says_where_how_many_go() -> None:
    levels = ["rack", "kubernetes.io/hostname"]
    parts = [
        {
            "domainCount": 2,
            "valuesPerLevel": [
                {"universal": "r1"},
                {"individual": {"prefix": "n", "suffix": ".x", "roots": ["1", "2"]}},
            ],
            "podCounts": {"individual": [1, 2]},
        },
        {
            "domainCount": 1,
            "valuesPerLevel": [{"universal": "r2"}, {"individual": {"roots": ["m"]}}],
            "podCounts": {"universal": 1},
        },
    ]
    given = assigned(count=4, topologyAssignment={"levels": levels, "slices": parts})
    found = pods(workload(pod_set(count=9), admission=given))
    where = [(each.domain["rack"], each.domain["kubernetes.io/hostname"]) for each in found]
    assert where == [("r1", "n1.x"), ("r1", "n2.x"), ("r1", "n2.x"), ("r2", "m")]
    assert selector(found[0]) == {"rack": "r1", "kubernetes.io/hostname": "n1.x"}


@pytest.mark.parametrize(
    "part",
    [
        {"domainCount": 2, "valuesPerLevel": [{"universal": "a"}], "podCounts": {"universal": 1}},
        {"domainCount": 1, "valuesPerLevel": [], "podCounts": {"universal": 1}},
        {
            "domainCount": 3,
            "valuesPerLevel": [{"individual": {"roots": ["a"]}}],
            "podCounts": {"universal": 1},
        },
        {
            "domainCount": 3,
            "valuesPerLevel": [{"universal": "a"}],
            "podCounts": {"individual": [3]},
        },
    ],
    ids=["too few", "no value", "too few values", "too few counts"],
)
def test_an_assignment_that_contradicts_itself_is_waited_for(part: dict[str, Any]) -> None:
    given = assigned(topologyAssignment={"levels": ["rack"], "slices": [part]})
    found = pods_of(read_workload(workload(pod_set(count=3), admission=given)), {}, {}, Shapes())
    assert isinstance(found, str)
    assert "topologyAssignment" in found


@pytest.mark.parametrize(("kind", "priority"), [("PriorityClass", 7), ("WorkloadPriorityClass", 0)])
def test_pods_have_the_priority_of_a_class_of_pods_only(kind: str, priority: int) -> None:
    spec = {"priority": 7, "priorityClassRef": {"kind": kind, "name": "c"}}
    obj = workload(pod_set(), spec=spec)
    assert read_workload(obj).priority == 7
    assert pods(obj)[0].pod.priority == priority


def test_gates_are_gone_when_the_pods_are_placed() -> None:
    (found,) = pods(workload(pod_set(schedulingGates=[{"name": "kueue.x-k8s.io/topology"}])))
    assert not found.pod.gated


def test_more_pods_than_can_be_judged_are_told() -> None:
    found = pods_of(read_workload(workload(pod_set(count=MOST_PODS + 1))), {}, {}, Shapes())
    assert found == f"it has more than {MOST_PODS} pods"


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=3),
    lambda inner: (
        st.lists(inner, max_size=2) | st.dictionaries(st.text(max_size=3), inner, max_size=2)
    ),
    max_leaves=5,
)
FIELDS = st.sampled_from(
    ["nodeSelector", "tolerations", "containers", "priority", "schedulingGates", "affinity"]
)


@given(FIELDS, JSON)
def test_whatever_a_template_holds_it_is_read_or_refused(field: str, value: object) -> None:
    one = pod_set()
    one["template"]["spec"][field] = value
    _read_or_refused(one)


@given(st.sampled_from(["metadata", "spec"]), JSON)
def test_whatever_a_template_is_it_is_read_or_refused(field: str, value: object) -> None:
    _read_or_refused({**pod_set(), "template": {**pod_set()["template"], field: value}})


def _read_or_refused(one: dict[str, Any]) -> None:
    try:
        assert len(pods(workload(one))) == 1
    except errors.ParseError as error:
        assert "\n" not in str(error)


@given(st.dictionaries(st.sampled_from(["metadata", "spec", "status"]), JSON))
def test_whatever_an_object_is_it_is_read_or_refused(obj: dict[str, Any]) -> None:
    for read in (objects.read_workload, objects.read_check, objects.read_flavor):
        try:
            read({"metadata": {"name": "n"}, **obj})
        except errors.ParseError:
            continue
