"""A forged report costs milliseconds: what it stands for is bounded before it is made."""

from __future__ import annotations

import json
import time
from typing import TYPE_CHECKING, Any

import pytest

from rte import errors
from rte.model import bits
from rte.nrt import device_zones, group_inventory, node_state, reader

from .states import busy_reading

if TYPE_CHECKING:
    from collections.abc import Callable

DEEP = "[" * 3000 + "]" * 3000


def good() -> dict[str, Any]:
    document: dict[str, Any] = json.loads(node_state.encode(busy_reading(16, 2, 4).state))
    return document


def rows(number: int, each: int) -> list[dict[str, Any]]:
    return [{"zones": str(i), "total": each, "healthy": each} for i in range(number)]


def classes(document: dict[str, Any]) -> None:
    document["devices"] = {"a": {"complete": True, "classes": rows(40, 65535)}}


def resources(document: dict[str, Any]) -> None:
    document["devices"] = {
        str(i): {"complete": True, "classes": rows(1, 65535)} for i in range(3000)
    }


def held(document: dict[str, Any]) -> None:
    document["devices"] = {"a": {"complete": True, "classes": rows(1, 60000)}}
    document["holdings"] = {
        "uid": {f"c{i}": {"devices": {"a": [[0, "0-59999"]]}} for i in range(3000)}
    }


def distances(document: dict[str, Any]) -> None:
    document["topology"]["zones"] = [
        {"id": i, "memory": 1, "hugepages": {}, "distances": f"{i}x65536"} for i in range(1000)
    ]


def zones(document: dict[str, Any]) -> None:
    document["topology"]["zones"] = [
        {"id": i, "memory": 1, "hugepages": {}, "distances": ""} for i in range(3000)
    ]


def columns(document: dict[str, Any]) -> None:
    document["topology"] |= dict.fromkeys(
        ("cpu", "core", "socket", "zone", "uncore"), "0-65535," * 8000 + "0"
    )


@pytest.mark.parametrize("change", [classes, resources, held, distances, zones, columns])
def test_a_node_state_that_stands_for_too_much(change: Callable[[dict[str, Any]], None]) -> None:
    document = good()
    change(document)
    text = json.dumps(document, separators=(",", ":"))
    began = time.process_time()
    with pytest.raises(errors.ParseError):
        node_state.decode(text)
    assert time.process_time() - began < 0.5


@pytest.mark.parametrize(
    "part",
    [
        {"cores": {"0": " ".join(["0-65535"] * 30000)}},
        {"zones": {"0": {"1Gi": 10**4000}}},
        {"zones": {"999999999": {"1Gi": 1}}},
        {"cores": {"0": "0 ,"}},
        {"gpus": [{"address": "a", "zone": 10**12}]},
        {"gpus": [{"address": "a", "path": -1}]},
    ],
)
def test_an_inventory_that_stands_for_too_much(part: dict[str, Any]) -> None:
    began = time.process_time()
    with pytest.raises(errors.ParseError):
        group_inventory.decode(json.dumps({"version": 1, "zones": {"0": {"1Gi": 1}}} | part))
    assert time.process_time() - began < 0.5


def test_depth_is_refused_in_every_annotation() -> None:
    for decode in (node_state.decode, device_zones.decode, group_inventory.decode):
        with pytest.raises(errors.MalformedError):
            decode('{"version":1,"x":' + DEEP + "}")


def test_as_many_devices_as_a_node_may_have_are_read() -> None:
    document = good()
    document["devices"] = {"a": {"complete": True, "classes": rows(1, bits.MAX_ID)}}
    assert len(node_state.decode(json.dumps(document)).devices["a"].ids) == bits.MAX_ID


def test_a_zone_that_cannot_be_is_none() -> None:
    assert reader.zone_id("node-999999999") is None
    assert reader.zone_id("node-65535") == 65535
