"""ReplicaSets: as many pods as they say, ended ones replaced.

Source: kubernetes ``pkg/controller/replicaset``.
"""

from __future__ import annotations

import contextlib
from datetime import timedelta

from rte.k8s.podspec import is_ready
from rte.sim.apiserver import StatusError
from rte.sim.controllers.controller import (
    Controller,
    Obj,
    has_ended,
    is_leaving,
    moment,
    owned_by,
    ready_since,
    seconds_until,
)

_SOURCE = "replicaset-controller"
_PHASES = {"Pending": 0, "": 0, "Unknown": 1, "Running": 2}


class ReplicaSets(Controller):
    """See the module."""

    watched = ("replicasets", "pods")

    def sync(self) -> float | None:
        """One look at everything."""
        due: list[float] = []
        pods = self.api.list("pods").items
        for item in self.api.list("replicasets").items:
            mine = [pod for pod in owned_by(item, pods) if not has_ended(pod)]
            active = [pod for pod in mine if not is_leaving(pod)]
            if not is_leaving(item):
                self._adjust(item, active)
            due += self._tell(item, active, terminating=len(mine) - len(active))
        return min(due, default=None)

    def _adjust(self, item: Obj, active: list[Obj]) -> None:
        missing = item["spec"]["replicas"] - len(active)
        with contextlib.suppress(StatusError):  # refused pods are tried again at the next change
            for _ in range(missing):
                self.make_pod(item, _SOURCE)
        for pod in sorted(active, key=_worth)[: max(-missing, 0)]:
            self.drop_pod(item, pod, _SOURCE)

    def _tell(self, item: Obj, active: list[Obj], *, terminating: int) -> list[float]:
        """Write the status; returns in how many seconds pods become available."""
        ready = [pod for pod in active if is_ready(pod)]
        patience, now = item["spec"].get("minReadySeconds", 0), moment(self.api.now())
        left = [seconds_until(ready_since(pod) + timedelta(seconds=patience), now) for pod in ready]
        due = [seconds for seconds in left if seconds]
        wanted = item["spec"]["template"]["metadata"].get("labels") or {}
        full = sum(
            wanted.items() <= (pod["metadata"].get("labels") or {}).items() for pod in active
        )
        counts = {
            "fullyLabeledReplicas": full,
            "readyReplicas": len(ready),
            "availableReplicas": len(ready) - len(due),
        }
        kept = item.get("status") or {}
        self.set_status(
            "replicasets",
            item,
            {
                "replicas": len(active),
                **{name: count for name, count in counts.items() if count},
                "terminatingReplicas": terminating,
                "observedGeneration": item["metadata"]["generation"],
                **({"conditions": kept["conditions"]} if "conditions" in kept else {}),
            },
        )
        return due


def _worth(pod: Obj) -> tuple[bool, int, bool, tuple[int, ...]]:
    """Those that are worth least come first: without a node, not running, not ready, youngest."""
    age = tuple(-ord(letter) for letter in pod["metadata"]["creationTimestamp"])
    phase = _PHASES.get(pod["status"].get("phase", ""), 0)
    return bool(pod["spec"].get("nodeName")), phase, is_ready(pod), age
