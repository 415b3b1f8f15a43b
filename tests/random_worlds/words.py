"""The words of which random clusters are made, so that what is drawn apart meets."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import random

    from tests.cluster.api import Object

NODES = 12
NAMESPACES = {"default": {}, "blue": {"team": "blue", "env": "prod"}, "red": {"team": "red"}}

HOST, ZONE = "kubernetes.io/hostname", "topology.kubernetes.io/zone"
BETA_ZONE = "failure-domain.beta.kubernetes.io/zone"
ZONES = ("a", "b", "c")
APPS = ("web", "db", "cache")
TIERS = ("front", "back")
TAINTS = ("dedicated", "spot", "rank")
EFFECTS = ("NoSchedule", "NoExecute", "PreferNoSchedule")
DRIVERS = ("fast.example.com", "slow.example.com")

#: Priority classes; nobody is evicted for the patient.
PATIENT, PUSHY = "patient", "pushy"
PRIORITIES = {PATIENT: 0, "low": -10, "middle": 5, PUSHY: 10, "high": 100}


@dataclass
class World:
    """Objects in the order in which they are created.

    Attributes:
        namespaces, objects: (path of the collection, object).
        statuses: (path of an object, its status).
        leaving: paths of pods that have been asked to end.
        waiting: pods that a scheduler is to place.
    """

    namespaces: list[tuple[str, Object]] = field(default_factory=list)
    objects: list[tuple[str, Object]] = field(default_factory=list)
    statuses: list[tuple[str, Object]] = field(default_factory=list)
    leaving: list[str] = field(default_factory=list)
    waiting: list[Object] = field(default_factory=list)


def taint_value(chooser: random.Random, key: str) -> str:
    """A value of taints, and of tolerations, with this key."""
    return str(chooser.randrange(1, 9)) if key == "rank" else chooser.choice(("", "x", "y"))


def some_hosts(chooser: random.Random) -> list[str]:
    """Names of nodes."""
    return [f"n{number}" for number in chooser.sample(range(NODES), 4)]


def tagged(item: Object, **more: Any) -> Object:
    """The item with those of the others that say something."""
    return item | {key: value for key, value in more.items() if value}
