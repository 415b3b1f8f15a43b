"""Annotations of pods, operators' files: read, or refused in one line, whatever is in them."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from functools import partial
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rte.model.bits import parse_list
from rte.placement.groups.allocation import (
    ANNOTATION,
    GivenCPUs,
    GivenNIC,
    GroupAllocation,
    GroupCPUs,
    GroupsAllocation,
    QueueCPUs,
    Record,
)
from rte.placement.groups.delivery import networks
from rte.placement.groups.delivery.containers import DeviceError, cpus_for, gpus_for
from rte.placement.groups.document import RequestError
from rte.placement.groups.holdings import GroupHolder, conflicts, held_by, used_by
from rte.placement.groups.inventory import DEFAULT_POLICY, Policy
from rte.placement.groups.nhd import dialect
from rte.placement.groups.parsing import parse_request
from rte.placement.groups.policies import Policies, read_policies
from tests.unit.placement.groups.nodes import two_sockets
from tests.unit.placement.groups.test_replay import NODE, placed

RECORD = Record(
    pod="u",
    node="n",
    allocation=GroupsAllocation(
        groups=(
            GroupAllocation(
                name="g",
                zone=0,
                cpus=GroupCPUs(feeders=((2,),), queues=(QueueCPUs(18, 3),)),
                gpus=("0000:17:10.0",),
                nics=(GivenNIC("0000:17:20.0", 10, 5, "0000:17:20.1", exclusive=True),),
                hugepages={"1Gi": {0: 1}},
            ),
        ),
        misc=GivenCPUs(cpus=(4,)),
    ),
    devices={"0000:17:20.0": {"name": "e0", "mac": "m"}, "0000:17:20.1": {"name": "e1"}},
)

values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=4),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner),
    max_leaves=4,
)


def paths(value: Any, at: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    inner = value.items() if isinstance(value, dict) else enumerate(value)
    found = [at] if at else []
    for key, each in inner:
        found += paths(each, (*at, key)) if isinstance(each, dict | list) else [(*at, key)]
    return found


@given(st.data())
def test_no_damaged_record_crashes_anything(data: st.DataObject) -> None:
    document = json.loads(RECORD.text())
    path = data.draw(st.sampled_from(paths(document)))
    place = document
    for key in path[:-1]:
        place = place[key]
    place[path[-1]] = data.draw(values)

    held = held_by([GroupHolder("u", "n", json.dumps(document))], two_sockets())

    assert len(held.allocations) + len(held.unreadable) <= 1
    used_by(held.allocations)
    assert list(conflicts(held.allocations)) == []
    assert all("\n" not in why for why in held.unreadable.values())


@given(st.data(), st.sampled_from(["", "nvidia.com/gpu=${uuid}", "x/y=${address}"]))
def test_no_damaged_record_crashes_what_containers_are_given(
    data: st.DataObject, template: str
) -> None:
    document = json.loads(RECORD.text())
    path = data.draw(st.sampled_from(paths(document)))
    place = document
    for key in path[:-1]:
        place = place[key]
    place[path[-1]] = data.draw(values)
    annotations = {ANNOTATION: json.dumps(document)}

    parse_list(cpus_for(annotations, "u", "n"))
    try:
        names = gpus_for(annotations, "u", "n", template)
    except DeviceError as error:
        assert template in str(error)
    else:
        assert all("=" in name for name in names)


@pytest.mark.parametrize(
    ("old", "new"), [('"rx":10', '"rx":-10'), ('{"0":1}', '{"0":-1}'), ('"misc":{', '"misc":[')]
)
def test_nobody_holds_less_than_nothing(old: str, new: str) -> None:
    assert old in RECORD.text()

    held = held_by([GroupHolder("u", "n", RECORD.text().replace(old, new))], two_sockets())

    assert list(held.unreadable) == ["u"]


@given(st.data())
def test_no_damaged_file_of_nhd_crashes_anything(data: st.DataObject) -> None:
    words = re.split(r"(\W)", placed())
    for _ in range(data.draw(st.integers(1, 4))):
        number = data.draw(st.integers(0, len(words) - 1))
        words[number] = data.draw(
            st.sampled_from(["", "5", "-1", "99999999999", "[", ")", "( )", '"x"', "{ }", "true"])
        )

    held = held_by([GroupHolder("u", "n", adopts=partial(dialect.held, "".join(words)))], NODE)

    used_by(held.allocations)
    assert len(held.allocations) + len(held.unreadable) == 1


@given(st.text(max_size=60), st.text(max_size=60))
def test_no_text_crashes_the_reading(record: str, nhd: str) -> None:
    holders = [
        GroupHolder("a", "n", record),
        GroupHolder("b", "n", adopts=partial(dialect.held, nhd)),
        GroupHolder("c", "n", "", record),
    ]

    assert not held_by(holders, two_sockets()).allocations


def test_a_record_counts_before_what_nhd_wrote() -> None:
    held = held_by(
        [GroupHolder("u", "n", RECORD.text(), adopts=partial(dialect.held, "a ="))], two_sockets()
    )

    assert held.allocations == {"u": RECORD.allocation}


#: What RECORD answers.
REQUEST = {
    "version": 1,
    "misc": {"count": 1},
    "groups": [
        {"name": "g", "gpus": [{"feeders": 1}], "queues": [{"rx": 0.01, "tx": 0.005}],
         "nics": [{"redundant": True, "exclusive": True}], "hugepages": {"1Gi": 1}}
    ],
}  # fmt: skip


def a_holder(uid: str = "u", wish: Any = REQUEST, **changed: Any) -> GroupHolder:
    """A pod whose annotation alone says what it holds."""
    text = json.dumps({**json.loads(RECORD.text()), "pod": uid, **changed})
    request = parse_request(json.dumps(wish)) if wish else None
    return GroupHolder(uid, "n", annotation=text, request=request)


def test_what_a_pod_only_says_counts_if_it_is_just_what_it_asks_for() -> None:
    """So has a pod that an earlier release has bound, and nobody gets more by it than by asking."""
    assert held_by([a_holder()], two_sockets()).allocations == {"u": RECORD.allocation}


MORE = {"zone": None, "cpus": [4, 5]}


@pytest.mark.parametrize(
    "holder",
    [
        a_holder(wish=None),
        a_holder(wish={**REQUEST, "misc": {"count": 2}}),
        a_holder(wish={**REQUEST, "hugepages": {"1Gi": 1}}),
        a_holder(wish={**REQUEST, "groups": [{**REQUEST["groups"][0], "name": "h"}]}),  # type: ignore[index]
        a_holder(wish={**REQUEST, "groups": [{**REQUEST["groups"][0], "gpus": []}]}),  # type: ignore[index]
        a_holder(misc=MORE),
        a_holder(hugepages={"1Gi": {"0": 7}}),
        a_holder(node="other"),
        GroupHolder("u", "n", annotation="x", request=parse_request(json.dumps(REQUEST))),
        GroupHolder(
            "u", "n", annotation='{"version": 2}', request=parse_request(json.dumps(REQUEST))
        ),
    ],
)
def test_what_a_pod_only_says_and_cannot_have_been_given_holds_nothing(holder: GroupHolder) -> None:
    held = held_by([holder], two_sockets())

    assert (held.allocations, held.unreadable) == ({}, {})


def test_what_a_pod_only_says_never_takes_what_is_recorded_for_another() -> None:
    other = replace(RECORD, pod="o")

    held = held_by([a_holder(), GroupHolder("o", "n", other.text())], two_sockets())

    assert held.allocations == {"o": RECORD.allocation}


def test_what_is_recorded_counts_whatever_the_annotation_says() -> None:
    forged = a_holder(misc=MORE)._replace(recorded=RECORD.text())

    assert held_by([forged], two_sockets()).allocations == {"u": RECORD.allocation}


@pytest.mark.parametrize(
    ("template", "existing", "wanted"),
    [
        ("${name}@${name}", "", "e0@e0,e1@e1"),
        ("host", "mgmt, kube/ipam@eth1", "mgmt, kube/ipam@eth1,host,host"),
        ("sys/${name}", '{"name": "a"}',
         [{"name": "a"}, {"name": "e0", "namespace": "sys"}, {"name": "e1", "namespace": "sys"}]),
        ('{"name": "nad", "deviceID": "${address}"}', "mgmt",
         [{"name": "mgmt"}, {"name": "nad", "deviceID": "0000:17:20.0"},
          {"name": "nad", "deviceID": "0000:17:20.1"}]),
    ],
)  # fmt: skip
def test_networks_are_named_beside_what_is_there(template: str, existing: str, wanted: Any) -> None:
    got = networks.selection(template, RECORD, existing)

    assert (got if isinstance(wanted, str) else json.loads(got)) == wanted


@given(st.text(alphabet='[]{}",:name@/x ', max_size=30))
def test_no_network_annotation_crashes_the_merge(existing: str) -> None:
    try:
        got = networks.selection("${name}@${name}", RECORD, existing)
    except networks.NetworkError as error:
        assert "\n" not in str(error)
    else:
        assert [it["name"] for it in networks.elements(got)][-2:] == ["e0", "e1"]


def test_rules_of_classes_of_nodes() -> None:
    policies = read_policies(
        {
            "nicSharing": "bandwidth",
            "nicMinGbps": 2.5,
            "classes": [
                {"labels": {"pool": "radio"}, "settleFor": ["all"], "strategy": "spread"},
                {"labels": {"pool": "x", "y": ""}, "networks": "${name}"},
            ],
        }
    )

    default = Policy(nic_sharing="bandwidth", nic_min_mbps=2_500)
    assert policies.of({}) == policies.of({"pool": "x"}) == default
    assert policies.of({"pool": "radio"}).settle_for == ("all",)
    assert policies.of({"pool": "radio"}).nic_min_mbps == 2_500
    assert policies.of({"pool": "x", "y": ""}).networks == "${name}"
    assert read_policies(None) == Policies(default=DEFAULT_POLICY)


@pytest.mark.parametrize(
    ("document", "why"),
    [
        ([], "must be an object"),
        ({"nicSharing": "none"}, "nicSharing: must be one of"),
        ({"nicHeadroom": 90}, "nicHeadroom: is not known; known are nicHeadroomPercent"),
        ({"nicHeadroomPercent": 0}, "must be 1 to 100"),
        ({"settleSeconds": -1}, "settleSeconds: must be 0 to"),
        ({"settleFor": ["cpu"]}, "settleFor[0]: must be one of"),
        ({"classes": [{}]}, "classes[0]: needs labels"),
        ({"classes": [{"labels": {"a": 1}}]}, "classes[0].labels.a: must be a text"),
        ({"networks": "${mtu}"}, "networks: the allocation has no mtu"),
        ({"networks": "@x"}, "names no network"),
        ({"nicMinGbps": 0.0001}, "at most three decimals"),
        ({"nicMinGbps": float("nan")}, "nicMinGbps"),
    ],
)
def test_a_wrong_rule_is_told_with_its_place(document: Any, why: str) -> None:
    with pytest.raises(RequestError) as error:
        read_policies(document)
    assert why in str(error.value)
