"""Nodes without a kubelet, and budgets of the pods on them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.random_worlds.words import (
    APPS,
    EFFECTS,
    HOST,
    NAMESPACES,
    TAINTS,
    ZONE,
    ZONES,
    tagged,
    taint_value,
)

if TYPE_CHECKING:
    import random

    from tests.cluster.api import Object
    from tests.random_worlds.words import World


def node(chooser: random.Random, name: str) -> Object:
    """A node, ready."""
    labels = {HOST: name, "rank": str(chooser.randrange(1, 9))}
    if chooser.random() < 0.9:
        labels[ZONE] = chooser.choice(ZONES)
    if chooser.random() < 0.7:
        labels["disk"] = chooser.choice(("ssd", "hdd", ""))
    taints = [
        tagged({"key": key, "effect": chooser.choice(EFFECTS)}, value=taint_value(chooser, key))
        for key in TAINTS
        if chooser.random() < 0.15
    ]
    amounts = {
        "cpu": chooser.choice(("2", "4", "8")),
        "memory": chooser.choice(("4Gi", "16Gi")),
        "pods": chooser.choice(("4", "110")),
        "ephemeral-storage": chooser.choice(("5Gi", "50Gi")),
        "example.com/card": chooser.choice(("0", "2")),
    }
    if chooser.random() < 0.2:
        amounts["example.com/gpu"] = "1"
    spec: Object = {"taints": taints}
    if chooser.random() < 0.08:
        spec["unschedulable"] = True
    ready = {"type": "Ready", "status": "True"}
    return {
        "metadata": {"name": name, "labels": labels},
        "spec": spec,
        "status": {"capacity": amounts, "allocatable": amounts, "conditions": [ready]},
    }


def add_budget(chooser: random.Random, world: World, name: str) -> None:
    """A PodDisruptionBudget that has something left, or nothing."""
    path = f"/apis/policy/v1/namespaces/{chooser.choice(sorted(NAMESPACES))}/poddisruptionbudgets"
    wanted = {"matchLabels": {"app": chooser.choice(APPS)}}
    spec = {"minAvailable": 1, "selector": wanted}
    world.objects.append((path, {"metadata": {"name": name}, "spec": spec}))
    allowed = {"disruptionsAllowed": chooser.choice((0, 1)), "currentHealthy": 1}
    counts = {"desiredHealthy": 1, "expectedPods": 1, "observedGeneration": 1}
    world.statuses.append((f"{path}/{name}", allowed | counts))
