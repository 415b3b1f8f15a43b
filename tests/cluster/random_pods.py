"""Random pods of every kind that the kubelet's managers tell apart.

Sizes fit machines of some 24 CPUs and 16 GiB, so that pods compete and some are too large.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from rte.model import quantity
from tests.cluster import pods

if TYPE_CHECKING:
    import random
    from collections.abc import Collection, Mapping

    from tests.cluster.api import Object

_MIB = 1 << 20
_MEMORY = ("64Mi", "256Mi", "512Mi", "1Gi")
_PAGES = "hugepages-2Mi"


@dataclass(frozen=True, kw_only=True)
class Kinds:
    """Which pods are drawn.

    Attributes:
        devices: extended resources that containers ask for.
        pod_level: share of pods with a pod-level stanza (KEP-2837).
    """

    devices: Collection[str] = ()
    pod_level: float = 0.2


def draw(chooser: random.Random, kinds: Kinds, *, name: str, node: str) -> Object:
    """A pod for a node: one to three containers, often with init containers and sidecars."""
    stanza: Object | None = None
    if chooser.random() < 0.06:
        main = [pods.container(chooser.choice((10, 14)), chooser.choice(("2Gi", "9Gi")))]
        init: list[Object] = []
    else:
        pinned = chooser.random() < 0.75
        whole = chooser.random() < kinds.pod_level
        main = [
            _container(chooser, kinds, pinned=pinned, sized=not whole or chooser.random() < 0.5)
            for _ in range(chooser.choice((1, 1, 1, 2, 2, 3)))
        ]
        init = [
            _container(
                chooser, kinds, pinned=pinned, sized=not whole or chooser.random() < 0.5,
                sidecar=chooser.random() < 0.5,
            )
            for _ in range(chooser.choice((0, 0, 0, 1, 1, 2)))
        ]  # fmt: skip
        if whole:
            stanza = _stanza(chooser, [*main, *init])
    more = {} if stanza is None else {"resources": stanza}
    return pods.pod(
        *main, init=init, node=node, name=name, **{"terminationGracePeriodSeconds": 1, **more}
    )


def _container(
    chooser: random.Random, kinds: Kinds, *, pinned: bool, sized: bool, sidecar: bool | None = None
) -> Object:
    """One container; ``sidecar`` is None for an app container, False for an init container.

    Args:
        pinned: requests equal limits.
        sized: it asks for CPUs and memory at all.
    """
    cpu = chooser.choice((1, 1, 2, 2, 3, 4, 6, "700m", "1500m"))
    memory = chooser.choice(_MEMORY)
    wanted: dict[str, str] = {"cpu": str(cpu), "memory": memory} if sized else {}
    if sized and chooser.random() < 0.15:
        wanted[_PAGES] = chooser.choice(("32Mi", "64Mi", "256Mi"))
    if kinds.devices and chooser.random() < 0.25:
        for _ in range(chooser.choice((1, 1, 1, 2))):
            wanted[chooser.choice(sorted(kinds.devices))] = str(chooser.choice((1, 1, 1, 2)))
    limits = dict(wanted)
    if not pinned and sized:
        for name in ("cpu", "memory"):
            match chooser.randrange(4):
                case 0:
                    del limits[name]
                case 1:
                    limits[name] = "8" if name == "cpu" else "2Gi"
                case 2 if len(limits) > 1 and _PAGES not in limits:
                    del limits[name], wanted[name]
    made = pods.container(limits=limits, sidecar=bool(sidecar))
    made["resources"]["requests"] = wanted
    if sidecar is False:
        made["command"] = ["true"]
    return made


def _stanza(chooser: random.Random, containers: Collection[Object]) -> Object:
    """Pod-level resources that cover what the containers ask for, some exactly, some with room."""
    requests: dict[str, int] = {}
    limits: dict[str, int] = {}
    for container in containers:
        for which, total in (("requests", requests), ("limits", limits)):
            for name, text in container["resources"][which].items():
                if name in ("cpu", "memory", _PAGES):
                    total[name] = total.get(name, 0) + quantity.parse_resource(name, text)
    cpu = max(requests.get("cpu", 0), limits.get("cpu", 0))
    memory = max(requests.get("memory", 0), limits.get("memory", 0))
    cpu += chooser.choice((0, 0, 1000, 2000)) or (0 if cpu else 2000)
    memory += chooser.choice((0, 0, 256 * _MIB)) or (0 if memory else 256 * _MIB)
    if chooser.random() < 0.1:
        cpu += 500
    whole = {"cpu": cpu, "memory": memory}
    pages = max(requests.get(_PAGES, 0), limits.get(_PAGES, 0))
    if pages or chooser.random() < 0.15:
        whole[_PAGES] = pages + chooser.choice((0, 32 * _MIB)) or 32 * _MIB
    match chooser.randrange(8):
        case 0:
            return {"requests": _texts({key: whole[key] for key in ("cpu", "memory")})}
        case 1:
            return {"requests": _texts(whole), "limits": _texts(whole | {"cpu": cpu + 1000})}
        case 2 | 3:
            return {"limits": _texts(whole)}
        case _:
            return {"requests": _texts(whole), "limits": _texts(whole)}


def _texts(amounts: Mapping[str, int]) -> dict[str, Any]:
    return {
        name: f"{amount}m" if name == "cpu" else f"{amount // _MIB}Mi"
        for name, amount in amounts.items()
    }
