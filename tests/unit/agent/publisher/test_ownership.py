"""What of an NRT object is ours, and when another writer is a rival."""

from __future__ import annotations

import copy
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rte.agent.publisher.ownership import (
    OWN_PREFIX,
    Tolerance,
    annotations_of,
    apply,
    difference,
    last_foreign_writer,
)

WANTED: dict[str, Any] = {
    "metadata": {
        "name": "n0",
        "annotations": {f"{OWN_PREFIX}node-state": "s", "node.koordinator.sh/cpu-topology": "t"},
        "ownerReferences": [{"kind": "Node", "name": "n0", "uid": "u"}],
    },
    "topologyPolicies": ["None"],
    "attributes": [{"name": "a", "value": "b"}],
    "zones": [{"name": "node-0", "type": "Node"}],
}


def test_an_equal_object_needs_no_write():
    assert difference(copy.deepcopy(WANTED), WANTED) == {}


def test_labels_foreign_annotations_and_server_fields_are_not_ours():
    stored = copy.deepcopy(WANTED)
    stored["metadata"] |= {"labels": {"x": "y"}, "uid": "1", "generation": 7}
    stored["metadata"]["annotations"]["other.example/x"] = "1"
    assert difference(stored, WANTED) == {}


def test_what_we_published_and_no_longer_want_is_removed():
    stored = copy.deepcopy(WANTED)
    stored["metadata"]["annotations"] |= {f"{OWN_PREFIX}old": "1", "node.koordinator.sh/x": "2"}
    assert difference(stored, WANTED, {"node.koordinator.sh/x"}) == {
        "metadata": {"annotations": {f"{OWN_PREFIX}old": None, "node.koordinator.sh/x": None}}
    }


def test_an_absent_list_and_an_empty_one_are_the_same():
    stored = {**copy.deepcopy(WANTED), "attributes": []}
    assert difference(stored, {**WANTED, "attributes": []}) == {}
    del stored["attributes"]
    assert difference(stored, {**WANTED, "attributes": []}) == {}


NODE, OTHER = (
    WANTED["metadata"]["ownerReferences"][0],
    {"kind": "Operator", "name": "o", "uid": "o"},
)


@pytest.mark.parametrize(
    ("there", "after"),
    [
        ([], [NODE]),
        (None, [NODE]),
        ([OTHER], [OTHER, NODE]),
        ([{**NODE, "uid": "of the node before"}, OTHER], [OTHER, NODE]),
        ([OTHER, {**NODE, "blockOwnerDeletion": True}], None),
        ([{"kind": "Namespace", "name": "nfd", "uid": "n"}, NODE], [NODE]),
        ([{"kind": "Namespace", "name": "nfd", "uid": "n"}], [NODE]),
    ],
)
def test_the_node_becomes_an_owner_and_other_owners_stay(there: Any, after: Any):
    stored = copy.deepcopy(WANTED)
    stored["metadata"]["ownerReferences"] = there
    expected = {"metadata": {"ownerReferences": after}} if after else {}
    assert difference(stored, WANTED) == expected
    assert difference(stored, WANTED, adopts=False) == {}
    assert difference(stored, WANTED, sharing=True) == expected


def test_sharing_leaves_annotations_that_are_not_ours_alone_to_the_other():
    theirs = {"node.koordinator.sh/cpu-topology": "theirs"}
    stored = {**copy.deepcopy(WANTED), "zones": [{"name": "theirs"}]}
    stored["metadata"]["annotations"] = theirs
    assert difference(stored, WANTED, theirs.keys(), sharing=True) == {
        "metadata": {"annotations": {f"{OWN_PREFIX}node-state": "s"}},
        "zones": WANTED["zones"],
    }


_KEYS = st.sampled_from([f"{OWN_PREFIX}a", f"{OWN_PREFIX}b", "node.koordinator.sh/x", "foreign/y"])
_OBJECTS = st.builds(
    lambda annotations, zones, attributes: {
        "metadata": {"annotations": annotations},
        "zones": zones,
        "attributes": attributes,
    },
    st.dictionaries(_KEYS, st.sampled_from("123"), max_size=4),
    st.lists(st.sampled_from([{"name": "node-0"}, {"name": "node-1"}]), max_size=2),
    st.lists(st.sampled_from([{"name": "a"}, {"name": "b"}]), max_size=2),
)


@given(stored=_OBJECTS, wanted=_OBJECTS, sharing=st.booleans())
def test_a_patch_brings_the_object_to_what_is_wanted_and_touches_nothing_foreign(
    stored: dict[str, Any], wanted: dict[str, Any], sharing: bool
):
    wanted["metadata"]["annotations"].pop("foreign/y", None)
    published = frozenset({"node.koordinator.sh/x"})
    after = apply(difference(stored, wanted, published, sharing=sharing), stored)
    assert difference(after, wanted, published, sharing=sharing) == {}
    before = stored["metadata"]["annotations"]
    assert after["metadata"]["annotations"].get("foreign/y") == before.get("foreign/y")
    assert after["zones"] == wanted["zones"]
    if sharing:
        key = "node.koordinator.sh/x"
        assert after["metadata"]["annotations"].get(key) == before.get(key)


def test_managed_fields_tell_what_is_ours_and_who_else_writes():
    stored = {
        "metadata": {
            "managedFields": [
                {
                    "manager": "rte-agent",
                    "time": "2026-01-01T00:00:09Z",
                    "fieldsV1": {"f:metadata": {"f:annotations": {".": {}, "f:a/b": {}}}},
                },
                {"manager": "koordlet", "time": "2026-01-01T00:00:05Z"},
                {"manager": "kubectl-edit", "time": "2026-01-01T00:00:01Z"},
            ]
        }
    }
    assert annotations_of(stored, "rte-agent") == {"a/b"}
    assert last_foreign_writer(stored, "rte-agent") == "koordlet"
    assert last_foreign_writer({}, "rte-agent") == ""


def test_a_few_overwrites_are_accidents_and_many_are_a_rival():
    tolerance = Tolerance(repairs=3, window_s=100)
    begins = [tolerance.foreign_write(now, ours_overwritten=True) for now in range(4)]
    assert begins == [False, False, False, True]
    assert tolerance.sharing
    assert not tolerance.foreign_write(5, ours_overwritten=True)


def test_overwrites_far_apart_and_harmless_edits_never_add_up():
    tolerance = Tolerance(repairs=3, window_s=100)
    assert not any(tolerance.foreign_write(now * 50, ours_overwritten=True) for now in range(50))
    assert not any(tolerance.foreign_write(now, ours_overwritten=False) for now in range(50))


def test_who_writes_again_at_once_is_repaired_ever_later_and_others_at_once():
    tolerance = Tolerance(repairs=0, reactions=3)
    assert tolerance.foreign_write(0, ours_overwritten=True)
    waits = []
    now = 1.0
    for _ in range(2):  # may be a coincidence
        tolerance.repaired(now)
        assert not tolerance.foreign_write(now + 0.1, ours_overwritten=True)
        assert tolerance.repair_at <= now
        now += 1
    for _ in range(8):
        tolerance.repaired(now)
        assert not tolerance.foreign_write(now + 0.1, ours_overwritten=True)
        waits.append(tolerance.repair_at - now)
        now = tolerance.repair_at
    assert waits == [1, 2, 4, 8, 16, 30, 30, 30]
    tolerance.repaired(now)
    assert not tolerance.foreign_write(now + 3, ours_overwritten=True)
    assert tolerance.repair_at <= now


def test_after_a_quiet_time_the_object_is_claimed_again_and_each_relapse_waits_longer():
    tolerance = Tolerance(repairs=0, quiet_s=10)
    assert tolerance.foreign_write(100, ours_overwritten=True)
    assert tolerance.claim_at() == 110
    tolerance.claim()
    assert tolerance.foreign_write(200, ours_overwritten=True)
    assert tolerance.claim_at() == 220
