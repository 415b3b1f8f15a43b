from __future__ import annotations

import json
from dataclasses import fields, replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import structs

from rte import errors
from rte.model.node import DevicePool, Holding, KubeletConfig, NodeState, Topology
from rte.nrt import node_state, runs
from tests.depth import scaled

from .states import busy_reading, regular_topology, states


def canonical(state: NodeState) -> NodeState:
    """The same state with devices ordered and named by class, as the annotation has them."""
    orders: dict[str, list[int]] = {}
    devices: dict[str, DevicePool] = {}
    for name, pool in state.devices.items():
        labels = [(-1 if zones is None else zones, index) for index, zones in enumerate(pool.zones)]
        orders[name] = order = [index for _, index in sorted(labels)]
        devices[name] = DevicePool(
            ids=tuple(str(number) for number in range(len(order))),
            zones=tuple(pool.zones[index] for index in order),
            healthy=_moved(pool.healthy, order),
            complete=pool.complete,
        )
    return replace(
        state,
        devices=devices,
        holdings={
            uid: {
                container: structs.replace(
                    held,
                    devices={name: _moved(m, orders[name]) for name, m in held.devices.items()},
                )
                for container, held in containers.items()
            }
            for uid, containers in state.holdings.items()
        },
    )


def _moved(mask: int, order: list[int]) -> int:
    return sum(1 << new for new, old in enumerate(order) if mask >> old & 1)


@given(states())
def test_a_state_survives_the_annotation_up_to_device_names(state: NodeState) -> None:
    assert canonical(node_state.decode(node_state.encode(state))) == canonical(state)


@given(states())
def test_made_up_device_names_ascend_and_stay_when_encoded_again(state: NodeState) -> None:
    decoded = node_state.decode(node_state.encode(state))

    for pool in decoded.devices.values():
        assert list(pool.ids) == sorted(set(pool.ids))
    assert canonical(node_state.decode(node_state.encode(decoded))) == canonical(decoded)


def test_every_field_of_the_model_is_in_the_annotation() -> None:
    """A field that somebody adds must be published, or prediction would run on its default."""
    state = replace(busy_reading(16, 2, 2).state, pod_holdings={"uid": Holding(cpus=1)})
    document = json.loads(node_state.encode(state))

    assert len(document["config"]) == len(fields(KubeletConfig))
    assert len(document) - 1 == len(fields(NodeState))
    assert len(document["topology"]) == len(fields(Topology)) - 1 + 5  # one column per CPU fact


def test_equal_states_give_equal_text_whatever_the_order_of_their_tables() -> None:
    state = busy_reading(16, 2, 5).state
    shuffled = replace(
        state,
        holdings=dict(reversed(state.holdings.items())),
        memory=dict(reversed(state.memory.items())),
    )

    assert node_state.encode(shuffled) == node_state.encode(state)


def test_no_topology_and_a_topology_without_zones_stay_apart() -> None:
    pool = DevicePool(ids=("a", "b", "c"), zones=(None, 0, 1), healthy=0b011, complete=False)
    state = NodeState(
        topology=regular_topology(4, 1), config=KubeletConfig(), devices={"vendor.com/gpu": pool}
    )

    decoded = node_state.decode(node_state.encode(state)).devices["vendor.com/gpu"]

    health = {zones: decoded.healthy >> i & 1 for i, zones in enumerate(decoded.zones)}
    assert health == {None: 1, 0: 1, 1: 0}
    assert decoded.complete is False


def test_a_device_that_init_and_app_container_share_is_taken_once() -> None:
    pool = DevicePool(ids=("a", "b", "c"), zones=(1, 1, 1), healthy=0b111)
    holdings = {
        "uid": {
            "init": Holding(devices={"vendor.com/gpu": 0b001}),
            "app": Holding(devices={"vendor.com/gpu": 0b011}),
        }
    }
    state = NodeState(
        topology=regular_topology(4, 1),
        config=KubeletConfig(),
        devices={"vendor.com/gpu": pool},
        holdings=holdings,
    )

    text = node_state.encode(state)

    held = node_state.decode(text).holdings["uid"]
    assert held["init"].devices["vendor.com/gpu"] & held["app"].devices["vendor.com/gpu"]
    assert json.loads(text)["devices"]["vendor.com/gpu"]["classes"] == [
        {"zones": "0", "total": 3, "healthy": 3, "free": 1}
    ]


def test_devices_beyond_their_pool_are_refused_when_encoding() -> None:
    state = NodeState(
        topology=regular_topology(4, 1),
        config=KubeletConfig(),
        holdings={"uid": {"c": Holding(devices={"vendor.com/gpu": 1})}},
    )

    with pytest.raises(errors.InconsistentStateError, match=r"vendor\.com/gpu.*read again"):
        node_state.encode(state)


def test_another_version_is_refused_with_what_to_do() -> None:
    with pytest.raises(errors.ParseError, match="reads version 1; use the same release"):
        node_state.decode('{"version":2}')


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("topology.cpu", "0-7,3"),
        ("topology.zone", "0"),
        ("topology.core", "0x99999999"),
        ("topology.core", "7-0"),
        ("topology.zones", [{"id": -1}]),
        ("shared", "0-4000"),
        ("shared", 7),
        ("synced", "yes"),
        ("memory", {"9": {}}),
        ("memory", {"0": {"assignments": True}}),
        ("devices", {"vendor.com/gpu": {"complete": True, "classes": [{"zones": "0"}]}}),
        (
            "devices",
            {
                "vendor.com/gpu": {
                    "complete": True,
                    "classes": [{"zones": "0", "total": 2, "healthy": 1, "free": 1}],
                }
            },
        ),
        ("holdings", {"uid": {"c": {"cpus": "99"}}}),
        ("holdings", {"uid": {"c": {"devices": {"none/such": []}}}}),
        ("holdings", {"uid": {"c": {"memory": [["memory", "0"]]}}}),
        ("holdings", {"uid": {"c": "9"}}),
        ("holdings", {"uid": {"c": {"memory": [["memory", "0", 1 << 70]]}}}),
        ("config.maxPods", 110.0),
        ("admitted", [1]),
        ("config", []),
    ],
)
def test_damage_is_one_line_that_names_the_place(path: str, value: object) -> None:
    document = json.loads(node_state.encode(busy_reading(8, 1, 1).state))
    *parents, last = path.split(".")
    place = document
    for parent in parents:
        place = place[parent]
    place[last] = value

    with pytest.raises(errors.ParseError) as caught:
        node_state.decode(json.dumps(document))

    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("left", [{}, {"1"}])
def test_the_memory_manager_has_a_row_for_each_zone(left: set[str]) -> None:
    document = json.loads(node_state.encode(busy_reading(8, 2, 1).state))
    document["config"]["memoryManagerPolicy"] = "Static"
    assert node_state.decode(json.dumps(document)).memory.keys() == {0, 1}
    document["memory"] = {zone: row for zone, row in document["memory"].items() if zone in left}

    with pytest.raises(errors.ParseError, match="not a row for each zone"):
        node_state.decode(json.dumps(document))


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=10),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner),
    max_leaves=5,
)


@given(st.text() | json_values.map(json.dumps))
@settings(max_examples=scaled(1000))
def test_garbage_is_a_parse_error(text: str) -> None:
    with pytest.raises(errors.ParseError):
        node_state.decode(text)


@given(st.data())
@settings(max_examples=scaled(1000))
def test_a_damaged_annotation_is_a_state_or_a_parse_error(data: st.DataObject) -> None:
    document = json.loads(node_state.encode(busy_reading(8, 2, 2).state))
    place: object = document
    while True:
        keys = list(place) if isinstance(place, dict) else list(range(len(place)))  # type: ignore[arg-type]
        key = data.draw(st.sampled_from(keys))
        inner = place[key]  # type: ignore[index]
        if not isinstance(inner, dict | list) or not inner or data.draw(st.booleans()):
            place[key] = data.draw(json_values)  # type: ignore[index]
            break
        place = inner

    try:
        node_state.decode(json.dumps(document))
    except errors.ParseError as error:
        assert "\n" not in str(error)


@pytest.mark.parametrize(
    ("values", "text"),
    [
        ((), ""),
        ((5,), "5"),
        ((0, 1, 2, 3), "0-3"),
        ((0, 0, 0, 1, 1), "0x3,1x2"),
        ((0, 1, 0, 1), "0-1,0-1"),
        ((0, 0, 2, 2), "0x2,2x2"),
        ((-1, -1, 0), "-1x2,0"),
        ((-1, 0, 1), "-1,0-1"),
    ],
)
def test_columns_are_written_as_runs(values: tuple[int, ...], text: str) -> None:
    assert runs.encode(values) == text
    assert runs.decode(text) == values


@given(st.lists(st.integers(-3, 70000), max_size=40).map(tuple))
def test_any_column_survives_its_runs(values: tuple[int, ...]) -> None:
    assert runs.decode(runs.encode(values)) == values
