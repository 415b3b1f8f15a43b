"""The same pods under plain Kubernetes rules, which see a node's totals and no zones.

Filter and score are those of kube-scheduler's NodeResourcesFit with the strategy LeastAllocated
(``pkg/scheduler/framework/plugins/noderesources``); of equal nodes the first by name is taken, and
nodes with taints are left alone.
"""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING, Any

from rte.k8s import podspec
from rte.model import quantity
from rte.model.totals import totals_of
from rte.placement.groups import request
from rte.sim.controllers.controller import Controller, has_ended

if TYPE_CHECKING:
    from collections.abc import Mapping

    from rte.sim.apiserver import API

_SCORED = ("cpu", "memory")


class PlainScheduler(Controller):
    """Binds every pod by totals.

    Attributes:
        waiting: UIDs of the pods that fit on no node's totals.
    """

    watched = ("pods", "nodes")

    def __init__(self, api: API) -> None:
        super().__init__(api)
        self.waiting: set[str] = set()

    def sync(self) -> None:
        """One look at everything."""
        pods = self.api.list("pods").items
        room = {
            node["metadata"]["name"]: quantity.parse_list(node["status"].get("allocatable") or {})
            for node in self.api.list("nodes").items
            if podspec.is_ready(node) and not node["spec"].get("taints")
        }
        free = {name: dict(amounts) for name, amounts in room.items()}
        for pod in pods:
            where = pod["spec"].get("nodeName")
            if where in free and not has_ended(pod):
                _take(free[where], pod)
        self.waiting = set()
        for pod in pods:
            if pod["spec"].get("nodeName") or has_ended(pod):
                continue
            wanted = totals_of(podspec.parse_pod(pod))
            fitting = [
                name
                for name, amounts in free.items()
                if all(amounts.get(what, 0) >= count for what, count in wanted.items())
            ]
            if not fitting:
                self.waiting.add(pod["metadata"]["uid"])
                continue
            best = max(sorted(fitting), key=lambda name: _score(free[name], room[name], wanted))
            metadata = pod["metadata"]
            body = {
                "metadata": {"name": metadata["name"]},
                "target": {"kind": "Node", "name": best},
            }
            self.api.bind(metadata["name"], metadata["namespace"], body)
            _take(free[best], pod)


def counterpart(obj: dict[str, Any]) -> dict[str, Any] | None:
    """A pod of the demo as plain Kubernetes gets it; None: these rules here know nothing of it.

    Pods of a gang count one by one. Claims and processing groups have no counterpart.
    """
    if obj.get("kind") == "PodGroup" or "resourceClaims" in obj["spec"]:
        return None
    if request.ANNOTATION in (obj["metadata"].get("annotations") or {}):
        return None
    out = copy.deepcopy(obj)
    out["spec"].pop("schedulingGroup", None)
    out["spec"]["schedulerName"] = "default-scheduler"
    return out


def _take(free: dict[str, int], pod: Mapping[str, Any]) -> None:
    for name, amount in totals_of(podspec.parse_pod(pod)).items():
        free[name] = free.get(name, 0) - amount


def _score(free: Mapping[str, int], room: Mapping[str, int], wanted: Mapping[str, int]) -> int:
    """LeastAllocated: the mean of what is left of CPU and memory, in percent."""
    left = [
        (free[name] - wanted.get(name, 0)) * 100 // room[name] for name in _SCORED if room.get(name)
    ]
    return sum(left) // max(len(left), 1)
