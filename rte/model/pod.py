"""A pod as the kubelet's admission sees it: containers in admission order, requests as integers."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum

from rte.model.quantity import ResourceList

#: A pod of more containers is not looked at: each costs its share of every prediction.
MOST_CONTAINERS = 1000


class QOS(StrEnum):
    """Quality-of-service class, spelt as in ``status.qosClass``."""

    GUARANTEED = "Guaranteed"
    BURSTABLE = "Burstable"
    BEST_EFFORT = "BestEffort"


class ContainerKind(StrEnum):
    """How a container takes part in a pod's life."""

    INIT = "init"  #: ordinary init container: runs to completion before the next
    SIDECAR = "sidecar"  #: restartable init container (restartPolicy: Always)
    APP = "app"


def _nothing() -> ResourceList:
    return ResourceList({})


@dataclass(frozen=True, kw_only=True, slots=True)
class Container:
    """One container's demands.

    In ``requests`` and ``limits`` defaults are applied: a limit without a request is a request too.
    """

    name: str
    kind: ContainerKind = ContainerKind.APP
    requests: ResourceList = field(default_factory=_nothing)
    limits: ResourceList = field(default_factory=_nothing)


@dataclass(frozen=True, kw_only=True)
class Pod:
    """A pod in admission order: init-type containers as declared, then app containers.

    ``pod_requests``/``pod_limits`` are the pod-level stanza (KEP-2837), None when there is none.
    ``uid`` is the key under which the kubelet keeps its state: for a static pod that is the
    ``kubernetes.io/config.hash`` of its mirror.
    """

    uid: str
    namespace: str = "default"
    name: str = ""
    qos: QOS
    containers: tuple[Container, ...]
    overhead: ResourceList = field(default_factory=_nothing)
    pod_requests: ResourceList | None = None
    pod_limits: ResourceList | None = None
