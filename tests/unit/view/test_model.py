"""What the page shows of a node, a pod and the cluster."""

from __future__ import annotations

import json
from dataclasses import replace

from rte.scheduler.framework import objects
from rte.scheduler.framework.node import Report
from rte.view import model
from tests.unit.view.clusters import (
    DRIVER,
    GIB,
    World,
    add_node,
    claim,
    filled,
    idle,
    offer,
    place,
    pod_object,
    wait,
)


def shown(world: World, name: str = "n"):
    document = model.node(world.cluster.nodes[name])
    assert document is not None
    json.dumps(document)
    return document


def test_a_nodes_zones_show_what_is_free_of_each() -> None:
    world = World()
    add_node(world, "n", idle())
    assert place(world, "n", "a", 4, gpus=1)
    first, second = shown(world)["zones"]
    assert (first["id"], first["free"], first["cpus"]) == (0, 11, 15)
    assert first["memory"]["memory"] == [62 * GIB, 63 * GIB]
    assert first["devices"] == {"example.com/gpu": [0, 1]}
    assert (second["free"], second["cpus"]) == (16, 16)
    assert second["devices"] == {"example.com/gpu": [1, 1]}


def test_a_pod_shows_where_it_lies_and_what_it_holds() -> None:
    world = World()
    add_node(world, "n", idle())
    assert place(world, "n", "a", 4, gpus=1)
    (pod,) = shown(world)["pods"]
    assert pod["pod"] == "default/a"
    assert (pod["cpus"], pod["zones"], pod["aligned"]) == ("1-2,17-18", [0], True)
    (container,) = pod["containers"]
    assert container["memory"] == [["memory", "0", GIB]]
    assert container["devices"] == [["example.com/gpu", [["gpu0", "0"]]]]


def test_a_pod_across_zones_is_told() -> None:
    world = World()
    add_node(world, "n", idle(policy="best-effort"))
    assert place(world, "n", "wide", 20)
    (pod,) = shown(world)["pods"]
    assert pod["aligned"] is False
    assert pod["zones"] == [0, 1]


def test_a_pod_on_its_way_is_shown_where_it_will_lie() -> None:
    world = World()
    add_node(world, "n", idle())
    world.cluster.set_pod(
        objects.read_pod(pod_object("new", 2, node="n"), world.cluster.shapes), 0.0
    )
    (pod,) = shown(world)["pods"]
    assert pod["confirmed"] is False
    assert pod["cpus"] == "1,17"


def test_pods_of_the_shared_pool_are_there_without_cpus() -> None:
    world = World()
    add_node(world, "n", idle())
    obj = pod_object("shared", 1, node="n", phase="Running")
    del obj["spec"]["containers"][0]["resources"]
    world.cluster.set_pod(objects.read_pod(obj, world.cluster.shapes), 0.0)
    assert [(pod["pod"], pod["cpus"]) for pod in shown(world)["pods"]] == [("default/shared", "")]


def test_why_a_node_is_not_trusted_is_told() -> None:
    world = World()
    add_node(world, "n", replace(idle(), synced=False))
    assert shown(world)["trust"] == "node(s) whose kubelet is re-admitting its pods"
    world.cluster.set_report("n", Report(broken="x"), 0.0)
    assert "malformed" in shown(world)["trust"]
    world.cluster.set_report("n", None, 0.0)
    assert shown(world)["zones"] == []
    assert shown(world)["trust"] == "no report of rte's agent"


def test_pools_are_those_of_the_cloud_else_equal_hardware() -> None:
    state = idle(2, 16)
    assert model.pool_of({"eks.amazonaws.com/nodegroup": "big"}, state.topology) == "big"
    assert model.pool_of({}, state.topology) == "2 zones of 16 CPUs"
    assert model.pool_of({}, None) == "other nodes"


def test_equal_hardware_is_described_once() -> None:
    assert model.machine_key(idle(2, 16).topology) == model.machine_key(idle(2, 16).topology)
    assert model.machine_key(idle(2, 16).topology) != model.machine_key(idle(4, 8).topology)
    described = model.machine(idle(2, 4).topology)
    assert described["zones"][1] == {"id": 1, "sockets": [1], "cores": [[2, 6], [3, 7]]}
    assert described["distances"] == [[10, 21], [21, 10]]


def test_a_waiting_pod_has_its_schedulers_reason() -> None:
    world = World()
    wait(world, "large", 33, "why not")
    (pod,) = world.cluster.pods.values()
    document = model.waiting(pod)
    assert (document["pod"], document["reason"], document["cpus"]) == (
        "default/large",
        "why not",
        33,
    )


def test_a_sample_tells_free_largest_and_stranded() -> None:
    zones = [{"free": 3}, {"free": 5}]
    sample = model.sample([{"zones": zones}, {"zones": [{"free": 2}]}, {"zones": []}], 4)
    assert sample == {"free": 10, "largest": 5, "stranded": 3, "waiting": 4}


def test_every_node_of_a_filled_cluster_can_be_written() -> None:
    world = filled(30)
    documents = [model.node(entry) for entry in world.cluster.nodes.values()]
    assert len(json.dumps(documents)) / 30 < 4000


def test_devices_of_claims_are_shown_with_their_zones_and_holders() -> None:
    world = World()
    add_node(world, "n", idle(gpus=0))
    offer(world, "n", {"gpu-0": 0, "gpu-1": 1, "gpu-2": 1, "far": None})
    assert place(world, "n", "train", 4)
    claim(world, "train", "n", "gpu-0")
    shown = model.node(world.cluster.nodes["n"], world.cluster.devices)
    assert shown is not None
    assert [zone["devices"] for zone in shown["zones"]] == [{DRIVER: [0, 1]}, {DRIVER: [2, 2]}]
    (pod,) = shown["pods"]
    assert pod["containers"][-1]["name"] == "claim train-gpu"
    assert pod["containers"][-1]["devices"] == [(DRIVER, [["gpu-0", "0"]])]
    assert pod["aligned"]


def test_a_device_beside_its_pod_is_told() -> None:
    world = World()
    add_node(world, "n", idle(gpus=0))
    offer(world, "n", {"gpu-0": 0, "gpu-1": 1})
    assert place(world, "n", "train", 4)
    claim(world, "train", "n", "gpu-1")
    shown = model.node(world.cluster.nodes["n"], world.cluster.devices)
    assert shown is not None
    assert not shown["pods"][0]["aligned"]
    assert shown["pods"][0]["zones"] == [0, 1]


def test_nothing_is_shown_of_pools_that_are_incomplete() -> None:
    world = World()
    add_node(world, "n", idle(gpus=0))
    offer(world, "n", {"gpu-0": 0}, slices=2)
    shown = model.node(world.cluster.nodes["n"], world.cluster.devices)
    assert shown is not None
    assert shown["zones"][0]["devices"] == {}
