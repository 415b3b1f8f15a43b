from __future__ import annotations

import json
from dataclasses import replace

import orjson
import pytest
from hypothesis import given
from msgspec import structs

from rte import errors, nrt
from rte.model.machine import CPU, Machine, PCIZones, Zone
from rte.model.node import DevicePool, Holding, KubeletConfig, NodeReading, NodeState, PodRef
from rte.nrt import koordinator, node_state, numaplacement
from rte.nrt.attributes import sign
from tests.conformance import consumers

from .states import GIB, busy_reading, machine_of, regular_topology, states

API_LIMIT = 256 * 1024


def attributes(document: dict) -> dict[str, str]:
    return {item["name"]: item["value"] for item in document["attributes"]}


def annotation_bytes(document: dict) -> int:
    table = document["metadata"]["annotations"]
    return sum(len(key) + len(value.encode()) for key, value in table.items())


def with_config(reading: NodeReading, **changes: object) -> NodeReading:
    state = reading.state
    return replace(reading, state=replace(state, config=replace(state.config, **changes)))


BARE = NodeReading(
    node_name="n0",
    machine=Machine(
        cpus=tuple(
            CPU(id=i, core=i % 2, die=0, socket=0, zone=0, siblings=0b101 << i % 2, online=i != 3)
            for i in range(4)
        ),
        zones=(
            Zone(
                id=0,
                cpus=0b0111,
                memory_bytes=8 * GIB,
                hugepages={1 << 21: 3, 1 << 30: 1},
                distances={0: 10, 3: 30},
            ),
            Zone(id=3, cpus=0, memory_bytes=2 * GIB, distances={0: 30, 3: 10}),
        ),
    ),
)


def test_kinds_of_cores_are_attributes_of_machines_that_have_several() -> None:
    kinds = ("performance", "performance", "efficiency", "low-power")
    cpus = tuple(
        structs.replace(cpu, kind=kind) for cpu, kind in zip(BARE.machine.cpus, kinds, strict=True)
    )
    told = attributes(nrt.encode(replace(BARE, machine=replace(BARE.machine, cpus=cpus))))
    assert told["performanceCPUs"] == "0-1"
    assert told["efficiencyCPUs"] == "2"
    assert "lowPowerCPUs" not in told, "its only CPU is off-line"
    assert not {"performanceCPUs", "efficiencyCPUs"} & attributes(nrt.encode(BARE)).keys()


def test_a_bare_machine_is_all_available_under_policy_none() -> None:
    document = nrt.encode(BARE)

    assert document["apiVersion"] == "topology.node.k8s.io/v1alpha2"
    assert document["kind"] == "NodeResourceTopology"
    assert document["topologyPolicies"] == ["None"]
    assert attributes(document) == {
        "topologyManagerPolicy": "none",
        "topologyManagerScope": "container",
        "freeCPUs": "node-0:3 node-3:0",
    }
    assert nrt.NODE_STATE_ANNOTATION not in document["metadata"]["annotations"]
    everything = [
        (r["name"], r["capacity"]) for zone in document["zones"] for r in zone["resources"]
    ]
    assert everything == [
        ("cpu", "3"),
        ("hugepages-1Gi", "1073741824"),
        ("hugepages-2Mi", "6291456"),
        ("memory", "8589934592"),
        ("cpu", "0"),
        ("memory", "2147483648"),
    ]
    for zone in document["zones"]:
        for amounts in zone["resources"]:
            assert amounts["capacity"] == amounts["allocatable"] == amounts["available"]


def test_zones_are_named_and_ordered_by_id_with_costs_for_each_other() -> None:
    zones = nrt.encode(BARE)["zones"]

    assert [(zone["name"], zone["type"]) for zone in zones] == [
        ("node-0", "Node"),
        ("node-3", "Node"),
    ]
    assert zones[0]["costs"] == [
        {"name": "node-0", "value": 10},
        {"name": "node-3", "value": 30},
    ]


def test_zones_sort_by_number_and_not_by_text() -> None:
    zones = nrt.encode(busy_reading(96, 12, 0))["zones"]

    assert [zone["name"] for zone in zones] == [f"node-{i}" for i in range(12)]


def test_the_object_belongs_to_the_node_once_its_uid_is_known() -> None:
    document = nrt.encode(BARE, nrt.WriterOptions(owner_uid="1234"))

    assert document["metadata"]["ownerReferences"] == [
        {"apiVersion": "v1", "kind": "Node", "name": "n0", "uid": "1234"}
    ]
    assert "ownerReferences" not in nrt.encode(BARE)["metadata"]


@pytest.mark.parametrize(
    ("policy", "scope", "legacy"),
    [
        ("single-numa-node", "pod", "SingleNUMANodePodLevel"),
        ("single-numa-node", "container", "SingleNUMANodeContainerLevel"),
        ("restricted", "pod", "RestrictedPodLevel"),
        ("restricted", "container", "RestrictedContainerLevel"),
        ("best-effort", "pod", "BestEffortPodLevel"),
        ("best-effort", "container", "BestEffortContainerLevel"),
        ("none", "pod", "None"),
        ("none", "container", "None"),
    ],
)
def test_policy_and_scope_are_told_to_new_and_old_consumers(
    policy: str, scope: str, legacy: str
) -> None:
    reading = with_config(busy_reading(8, 2, 0), topology_policy=policy, topology_scope=scope)
    document = nrt.encode(reading)

    assert document["topologyPolicies"] == [legacy]
    assert "topologyPolicies" not in nrt.encode(reading, nrt.WriterOptions(legacy_policies=False))
    assert attributes(document)["topologyManagerPolicy"] == policy
    assert attributes(document)["topologyManagerScope"] == scope


def test_the_limit_of_zones_is_told_when_it_is_not_the_default() -> None:
    reading = with_config(
        busy_reading(8, 2, 0), topology_options={"max-allowable-numa-nodes": "16"}
    )

    assert attributes(nrt.encode(reading))["topologyManagerMaxNUMANodes"] == "16"
    assert "topologyManagerMaxNUMANodes" not in attributes(nrt.encode(busy_reading(8, 2, 0)))


PODS = (
    PodRef(uid="1", namespace="default", name="web", exclusive=False),
    PodRef(uid="2", namespace="default", name="db", exclusive=True),
)


@pytest.mark.parametrize(
    ("method", "covered"),
    [
        (nrt.Method.ALL, [("default", "web"), ("default", "db")]),
        (nrt.Method.EXCLUSIVE, [("default", "db")]),
    ],
)
def test_the_fingerprint_covers_what_its_method_says(method: nrt.Method, covered: list) -> None:
    reading = replace(busy_reading(8, 2, 0), pods=PODS)

    told = attributes(nrt.encode(reading, nrt.WriterOptions(fingerprint=method)))

    assert told["nodeTopologyPodsFingerprint"] == sign(covered)
    assert told["nodeTopologyPodsFingerprintMethod"] == method


def test_a_node_without_pods_has_the_fingerprint_of_nothing() -> None:
    told = attributes(nrt.encode(busy_reading(8, 2, 0)))

    assert told["nodeTopologyPodsFingerprint"] == "pfp0v001ef46db3751d8e999"


def test_the_fingerprint_can_be_switched_off() -> None:
    told = attributes(nrt.encode(busy_reading(8, 2, 1), nrt.WriterOptions(fingerprint=None)))

    assert not any("Fingerprint" in name for name in told)


def test_reserved_and_held_cpus_and_memory_come_off() -> None:
    reading = busy_reading(16, 2, 2)  # pods on cores 1 and 2 of zone 0; CPUs 0 and 8 reserved

    zone = nrt.encode(reading)["zones"][0]

    rows = {row.pop("name"): row for row in zone["resources"]}
    assert rows["cpu"] == {"capacity": "8", "allocatable": "6", "available": "2"}
    assert rows["memory"]["capacity"] == str(64 * GIB)
    assert rows["memory"]["allocatable"] == str(61 * GIB)
    assert attributes(nrt.encode(reading))["freeCPUs"] == "node-0:2 node-1:8"


def test_excluded_resources_vanish_from_every_zone() -> None:
    document = nrt.encode(BARE, nrt.WriterOptions(exclude_resources=("hugepages-*", "memory")))

    assert [[r["name"] for r in zone["resources"]] for zone in document["zones"]] == [
        ["cpu"],
        ["cpu"],
    ]


def test_the_kubelets_own_reading_counts_for_zones_it_knows() -> None:
    """A CPU that came or went after the kubelet's start changes nothing before it restarts."""
    reading = busy_reading(8, 2, 0)
    changed = replace(reading.machine.zones[0], cpus=1, memory_bytes=GIB)
    new = Zone(id=5, cpus=1 << 60, memory_bytes=GIB, distances={5: 10})
    machine = replace(reading.machine, zones=(changed, reading.machine.zones[1], new))

    zones = nrt.encode(replace(reading, machine=machine))["zones"]

    assert zones[0]["resources"][0]["capacity"] == "4"
    assert zones[2]["name"] == "node-5"
    assert zones[2]["resources"] == [
        {"name": "cpu", "capacity": "1", "allocatable": "0", "available": "0"},
        {"name": "memory", "capacity": str(GIB), "allocatable": "0", "available": "0"},
    ]


@given(states())
def test_encoding_is_deterministic_and_its_own_inverse_for_zones(state: NodeState) -> None:
    reading = NodeReading(node_name="n", machine=machine_of(state.topology), state=state)

    document = nrt.encode(reading)

    assert orjson.dumps(document) == orjson.dumps(nrt.encode(reading))
    decoded = nrt.decode(orjson.loads(orjson.dumps(document)))
    assert decoded.problems == ()
    assert [zone.id for zone in decoded.zones] == [zone.id for zone in state.topology.zones]
    assert (decoded.policy, decoded.scope) == (
        state.config.topology_policy,
        state.config.topology_scope,
    )
    assert decoded.state is not None
    assert decoded.state.topology == state.topology


def test_a_thousand_cpus_with_250_pods_stay_within_200_kib() -> None:
    encoded = nrt.build(busy_reading(1024, 8, 250), nrt.WriterOptions())

    assert encoded.dropped == ()
    assert annotation_bytes(encoded.object) <= 200 * 1024


def test_a_thousand_cpus_in_64_zones_stay_within_200_kib() -> None:
    encoded = nrt.build(busy_reading(1024, 64, 250), nrt.WriterOptions())

    assert encoded.dropped == ()
    assert annotation_bytes(encoded.object) <= 200 * 1024


def test_pod_allocations_go_first_when_the_object_grows_too_large() -> None:
    reading = busy_reading(1024, 8, 250)
    containers = {f"a-sidecar-with-a-long-name-{i}": Holding() for i in range(13)}
    state = replace(
        reading.state,
        holdings={uid: held | containers for uid, held in reading.state.holdings.items()},
    )

    encoded = nrt.build(replace(reading, state=state), nrt.WriterOptions())

    assert encoded.dropped == (koordinator.POD_CPU_ALLOCS,)
    assert koordinator.CPU_TOPOLOGY in encoded.object["metadata"]["annotations"]
    assert annotation_bytes(encoded.object) <= 200 * 1024
    assert nrt.decode(encoded.object).state is not None


def with_devices(reading: NodeReading, *, resources: int) -> NodeReading:
    """Each pod holds one device of each of so many resources with names of 63 letters."""
    assert reading.state is not None
    pods = sorted(reading.state.holdings)
    zones = len(reading.state.topology.zones)
    pool = DevicePool(
        ids=tuple(f"dev-{number:05d}" for number in range(len(pods))),
        zones=tuple(1 << number % zones for number in range(len(pods))),
        healthy=(1 << len(pods)) - 1,
    )
    names = [f"example.com/{'r' * 60}{number:03d}" for number in range(resources)]
    holdings = {
        uid: {
            name: structs.replace(held, devices=dict.fromkeys(names, 1 << number))
            for name, held in reading.state.holdings[uid].items()
        }
        for number, uid in enumerate(pods)
    }
    state = replace(reading.state, devices=dict.fromkeys(names, pool), holdings=holdings)
    return replace(reading, state=state)


def test_long_names_of_resources_are_written_once_where_space_is_short() -> None:
    reading = with_devices(busy_reading(384, 8, 250), resources=20)
    encoded = nrt.build(reading, nrt.WriterOptions())
    annotations = encoded.object["metadata"]["annotations"]

    assert annotation_bytes(encoded.object) <= 200 * 1024
    assert nrt.NODE_STATE_ANNOTATION not in encoded.dropped
    decoded = nrt.decode(encoded.object).state
    assert decoded is not None
    assert decoded.devices.keys() == reading.state.devices.keys()
    held = [name for pod in decoded.holdings.values() for it in pod.values() for name in it.devices]
    assert len(held) == 250 * 20
    assert nrt.build(reading, nrt.WriterOptions()) == encoded
    # A release that does not know the list finds no such resource: it refuses.
    document = json.loads(annotations[nrt.NODE_STATE_ANNOTATION])
    del document["names"]
    with pytest.raises(errors.ParseError, match="no such device resource"):
        node_state.decode(json.dumps(document))


def test_names_stay_in_place_where_there_is_space() -> None:
    """Releases without the list of names read that."""
    reading = with_devices(busy_reading(64, 2, 20), resources=3)
    short = node_state.encode(reading.state, short=True)
    assert node_state.decode(short) == node_state.decode(node_state.encode(reading.state))
    text = nrt.encode(reading)["metadata"]["annotations"][nrt.NODE_STATE_ANNOTATION]
    assert text == node_state.encode(reading.state)
    assert "names" not in json.loads(text)


def test_what_does_not_fit_alone_takes_nothing_else_with_it() -> None:
    reading = with_devices(busy_reading(384, 8, 250), resources=20)
    encoded = nrt.build(reading, nrt.WriterOptions(max_annotation_bytes=90 * 1024))
    assert encoded.dropped == (nrt.NODE_STATE_ANNOTATION,)
    assert koordinator.POD_CPU_ALLOCS in encoded.object["metadata"]["annotations"]


def test_prediction_loses_its_annotation_last_and_the_zones_stay() -> None:
    encoded = nrt.build(busy_reading(64, 2, 20), nrt.WriterOptions(max_annotation_bytes=100))

    assert encoded.dropped[-1] == nrt.NODE_STATE_ANNOTATION
    assert annotation_bytes(encoded.object) <= 100
    assert len(encoded.object["zones"]) == 2


def test_every_annotation_that_is_written_is_known_as_ours() -> None:
    reading = busy_reading(8, 2, 1)
    hardware = replace(reading.machine, pci_zones=PCIZones(roots={"pci0000:17": 0}))
    options = nrt.WriterOptions(groups=True)
    written = nrt.encode(replace(reading, machine=hardware), options)["metadata"]["annotations"]

    assert set(written) == set(nrt.ANNOTATIONS)


def test_koordinators_annotations_can_be_switched_off() -> None:
    document = nrt.encode(busy_reading(8, 2, 1), nrt.WriterOptions(koordinator=False))

    assert set(document["metadata"]["annotations"]) == {nrt.NODE_STATE_ANNOTATION}
    assert nrt.decode(document).state.topology == busy_reading(8, 2, 1).state.topology


# Placement data


def test_placement_is_told_under_single_numa_node() -> None:
    reading = busy_reading(16, 2, 7)  # cores 1-3 are in zone 0, cores 4-7 in zone 1
    document = nrt.encode(reading)

    assert attributes(document)[numaplacement.METADATA_ATTRIBUTE] == (
        "npv0v001::ve=leb89::cc=7::nn=2::bn=1"
    )
    vector = document["zones"][0]["attributes"][0]
    assert vector["name"] == numaplacement.VECTOR_ATTRIBUTE
    payload = consumers.parse_metadata(
        attributes(document)[numaplacement.METADATA_ATTRIBUTE], {0: vector["value"]}
    )
    containers = [(pod.namespace, pod.name, "application") for pod in reading.pods]
    assert list(consumers.decode(payload, containers).values()) == [0, 0, 0, 1, 1, 1, 1]
    assert "attributes" not in document["zones"][1]


@pytest.mark.parametrize("policy", ["none", "best-effort", "restricted"])
def test_placement_is_silent_under_other_policies(policy: str) -> None:
    document = nrt.encode(with_config(busy_reading(16, 2, 7), topology_policy=policy))

    assert numaplacement.METADATA_ATTRIBUTE not in attributes(document)
    assert not any("attributes" in zone for zone in document["zones"])


def test_placement_is_silent_when_a_device_spans_zones() -> None:
    state = NodeState(
        topology=regular_topology(8, 2),
        config=KubeletConfig(topology_policy="single-numa-node"),
        devices={"vendor.com/gpu": DevicePool(ids=("a",), zones=(0b11,), healthy=1)},
        holdings={"2": {"c": Holding(devices={"vendor.com/gpu": 1})}},
    )
    reading = NodeReading(node_name="n", machine=machine_of(state.topology), state=state, pods=PODS)

    assert numaplacement.METADATA_ATTRIBUTE not in attributes(nrt.encode(reading))
