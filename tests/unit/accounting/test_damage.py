"""Damaged state files through the whole way: a sound NRT or one clear line, never a traceback."""

from __future__ import annotations

import copy
import json
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from rte import accounting, errors
from rte.kubelet import statefiles
from rte.model.kubelet import NodePod, StateFiles, combine
from rte.nrt import encode
from tests.checkpoints import sealed
from tests.depth import scaled
from tests.unit.accounting import nodes
from tests.unit.kubelet import samples

GIB = nodes.GIB
#: Matches nodes.build_machine(): zones 0-1 of 16 GiB, 2 GiB of each in huge pages.
FILES: dict[str, dict[str, Any]] = {
    "cpu": {
        "policyName": "static",
        "defaultCpuSet": "0,4-7,9-15",
        "entries": {"a": {"c": "1-2"}, "b": {"i": "3", "c": "3,8"}},
    },
    "memory": {
        "policyName": "Static",
        "machineState": {
            str(zone): {
                "numberOfAssignments": assignments,
                "memoryMap": {
                    "hugepages-1Gi": samples.table(0, 0, 0),
                    "hugepages-2Mi": samples.table(2 * GIB, 0, 0),
                    "memory": samples.table(16 * GIB, GIB, reserved),
                },
                "cells": [zone],
            }
            for zone, assignments, reserved in ((0, 2, 3 * GIB), (1, 0, 0))
        },
        "entries": {
            "a": {"c": [{"numaAffinity": [0], "type": "memory", "size": GIB}]},
            "b": {"c": [{"numaAffinity": [0], "type": "memory", "size": 2 * GIB}]},
        },
    },
    "allocated": {"data": '{"entries":{"a":{"ContainerResources":{"c":{}}},"b":{}}}'},
    "devices": samples.DEVICE_CHECKPOINT,
}
PARSERS = {
    "cpu": statefiles.parse_cpu_state,
    "memory": statefiles.parse_memory_state,
    "allocated": statefiles.parse_allocated_pods,
    "devices": statefiles.parse_device_checkpoint,
}
PODS = [
    NodePod(uid="a", namespace="n", name="a"),
    NodePod(uid="b", namespace="n", name="b", terminal=True),
]


def run(documents: dict[str, dict[str, Any]]) -> dict[str, Any]:
    files = StateFiles(
        **{
            name: PARSERS[name](json.dumps(sealed(document)))
            for name, document in documents.items()
        }
    )
    view = combine(files, config=nodes.STATIC, version="v1.35.4")
    return encode(accounting.build_reading("n", nodes.build_machine(), view, PODS))


def places(document: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    items = (
        list(document.items())
        if isinstance(document, dict)
        else list(enumerate(document))
        if isinstance(document, list)
        else []
    )
    found = [(*path, key) for key, _ in items]
    for key, value in items:
        found += places(value, (*path, key))
    return found


PLACES = [(name, path) for name, document in FILES.items() for path in places(document)]
VALUES = st.sampled_from(
    [None, {}, [], "", "0", "1-2", "0-15", "3,70", "memory", "hugepages-2Mi", "x", "60000"]
)
VALUES |= st.integers(-2, 70)
VALUES |= st.sampled_from([GIB, 3 * GIB, (1 << 64) - 1, [0, 1], [9], ["0"]])


def test_the_undamaged_files_are_read() -> None:
    document = run(FILES)
    zone = {item["name"]: item for item in document["zones"][0]["resources"]}
    assert zone["cpu"]["available"] == "5"
    assert zone["memory"]["available"] == str(14 * GIB)


@settings(max_examples=scaled(600), deadline=None)
@given(damage=st.lists(st.tuples(st.sampled_from(PLACES), VALUES), min_size=1, max_size=3))
def test_damage_is_one_clear_line_or_a_sound_object(
    damage: list[tuple[tuple[str, tuple[Any, ...]], Any]],
) -> None:
    documents = copy.deepcopy(FILES)
    for (name, path), value in damage:
        target: Any = documents[name]
        for step in path[:-1]:
            try:
                target = target[step]
            except (KeyError, IndexError, TypeError):
                break
        else:
            fits = isinstance(target, list) and isinstance(path[-1], int)
            if isinstance(target, dict) or (fits and path[-1] < len(target)):
                target[path[-1]] = value
    try:
        document = run(documents)
    except errors.RteError as error:
        assert str(error)
        assert "\n" not in str(error)
        assert len(str(error)) < 500
    else:
        for zone in document["zones"]:
            for resource in zone["resources"]:
                amounts = [int(resource[part]) for part in ("available", "allocatable", "capacity")]
                assert all(amount >= 0 for amount in amounts)
