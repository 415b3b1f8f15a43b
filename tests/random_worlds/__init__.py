"""Random clusters and pods of every kind that kube-scheduler's filters tell apart.

The nodes are objects without a kubelet, and the pods on them are bound by their spec: a scheduler's
answers to the pods that wait follow from what the API server holds, and from nothing that moves.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.random_worlds import devices, nodes, pods, storage
from tests.random_worlds.words import NAMESPACES, NODES, PATIENT, PRIORITIES, World

if TYPE_CHECKING:
    import random

    from tests.cluster.api import Object

__all__ = ["NAMESPACES", "World", "draw"]


def draw(chooser: random.Random, *, waiting: int) -> World:
    """A world, the same for the same state of ``chooser``; so many pods wait."""
    world = World()
    for name, labels in NAMESPACES.items():
        if name != "default":
            item: Object = {"metadata": {"name": name, "labels": labels}}
            world.namespaces.append(("/api/v1/namespaces", item))
    for name, value in PRIORITIES.items():
        item = {"metadata": {"name": name}, "value": value}
        if name == PATIENT:
            item["preemptionPolicy"] = "Never"
        world.objects.append(("/apis/scheduling.k8s.io/v1/priorityclasses", item))
    world.objects.append(("/apis/node.k8s.io/v1/runtimeclasses", pods.HEAVY))
    for number in range(NODES):
        world.objects.append(("/api/v1/nodes", nodes.node(chooser, f"n{number}")))
    storage.add(chooser, world)
    devices.add(chooser, world)
    for number in range(4):
        nodes.add_budget(chooser, world, f"budget-{number}")
    for number in range(3 * NODES):
        pods.add_bound(chooser, world, f"there-{number}")
    for number in range(waiting):
        world.waiting.append(pods.draw(chooser, f"waits-{number}", waits=True))
    return world
