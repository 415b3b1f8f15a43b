"""Reports of a neighbouring release are read in either order of upgrade: the format is additive."""

from __future__ import annotations

import json

import pytest

from rte import nrt
from rte.nrt import NODE_STATE_ANNOTATION, node_state

from .states import busy_reading

#: Keys that a report may lack: a release before the key had none of what it tells.
ADDED = ("podHoldings",)


def test_a_report_of_a_newer_release_is_read_for_what_is_understood() -> None:
    text = node_state.encode(busy_reading(16, 2, 4).state)
    newer = json.loads(text)
    holdings = [held for pod in newer["holdings"].values() for held in pod.values()]
    records = [newer, newer["config"], newer["topology"], *newer["memory"].values(), *holdings]
    records += newer["devices"].values()
    assert len(records) > 6
    for record in records:
        record["sinceNextRelease"] = {"any": ["thing", 1]}
    assert node_state.decode(json.dumps(newer)) == node_state.decode(text)


@pytest.mark.parametrize("key", ADDED)
def test_a_report_of_an_older_release_lacks_what_was_added_since(key: str) -> None:
    document = json.loads(node_state.encode(busy_reading(16, 2, 4).state))
    document.pop(key, None)
    assert node_state.decode(json.dumps(document)).pod_holdings == {}


def test_the_object_of_a_newer_release_is_read_too() -> None:
    obj = nrt.encode(busy_reading(16, 2, 4))
    known = nrt.decode(obj)
    assert known.state is not None
    newer = json.loads(json.dumps(obj))
    newer["metadata"]["annotations"]["topology.rte.dev/since-next-release"] = "?"
    newer["attributes"].append({"name": "sinceNextRelease", "value": "?"})
    for zone in newer["zones"]:
        zone.setdefault("attributes", []).append({"name": "sinceNextRelease", "value": "?"})
    state = json.loads(newer["metadata"]["annotations"][NODE_STATE_ANNOTATION])
    newer["metadata"]["annotations"][NODE_STATE_ANNOTATION] = json.dumps({**state, "new": []})
    read = nrt.decode(newer)
    assert (read.problems, read.state) == ((), known.state)
