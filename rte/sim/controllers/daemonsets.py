"""DaemonSets: a pod on each node that its template suits.

Source: kubernetes ``pkg/controller/daemon``. Not done: surges, and revisions as objects.
"""

from __future__ import annotations

import contextlib
import copy

from rte.k8s import selectors, wire
from rte.k8s.podspec import is_ready
from rte.k8s.tolerations import taints_of, tolerates
from rte.sim.apiserver import StatusError
from rte.sim.controllers.controller import (
    REVISION,
    Controller,
    Obj,
    has_ended,
    is_leaving,
    owned_by,
    share,
    template_hash,
)

_SOURCE = "daemonset-controller"
_AFFINITY = "requiredDuringSchedulingIgnoredDuringExecution"
#: What every pod of a DaemonSet bears (``daemon/util`` AddOrUpdateDaemonPodTolerations).
_BORNE = (
    ("not-ready", "NoExecute"), ("unreachable", "NoExecute"), ("disk-pressure", "NoSchedule"),
    ("memory-pressure", "NoSchedule"), ("pid-pressure", "NoSchedule"),
    ("unschedulable", "NoSchedule"),
)  # fmt: skip


class DaemonSets(Controller):
    """See the module."""

    watched = ("daemonsets", "nodes", "pods")

    def sync(self) -> None:
        """One look at everything."""
        nodes, pods = self.api.list("nodes").items, self.api.list("pods").items
        for item in self.api.list("daemonsets").items:
            if not is_leaving(item):
                with contextlib.suppress(StatusError):  # refused pods are tried again
                    self._step(item, nodes, owned_by(item, pods))

    def _step(self, item: Obj, nodes: list[Obj], mine: list[Obj]) -> None:
        spec, mark = _pod_spec(item), template_hash(item)
        wanted = {node["metadata"]["name"] for node in nodes if _suits(spec, node)}
        held: dict[str, Obj] = {}
        leaving = set()
        for pod in mine:
            node = _node_of(pod)
            if is_leaving(pod):
                leaving.add(node)
            elif node in held or node not in wanted or has_ended(pod):
                self.drop_pod(item, pod, _SOURCE)
            else:
                held[node] = pod
        fresh = [pod for pod in held.values() if pod["metadata"]["labels"].get(REVISION) == mark]
        ready = [pod for pod in held.values() if is_ready(pod)]
        counts = {
            "updatedNumberScheduled": len(fresh),
            "numberAvailable": len(ready),
            "numberUnavailable": len(wanted) - len(ready),
        }
        self.set_status(
            "daemonsets",
            item,
            {
                "currentNumberScheduled": len(held),
                "desiredNumberScheduled": len(wanted),
                "numberMisscheduled": 0,
                "numberReady": len(ready),
                "observedGeneration": item["metadata"]["generation"],
                **{name: count for name, count in counts.items() if count},
            },
        )
        self._renew(item, held, fresh, missing=len(wanted) - len(ready))
        for name in sorted(wanted - held.keys() - leaving):
            self.make_pod(item, _SOURCE, labels={REVISION: mark}, spec=_for_node(spec, name))

    def _renew(self, item: Obj, held: dict[str, Obj], fresh: list[Obj], *, missing: int) -> None:
        """Pods of older templates go, as many at a time as may be missing."""
        rolling = item["spec"]["updateStrategy"].get("rollingUpdate")
        if rolling is None:
            return
        room = share(rolling["maxUnavailable"], len(held), up=True) - missing
        old = [pod for pod in held.values() if pod not in fresh]
        broken = [pod for pod in old if not is_ready(pod)]
        whole = [pod for pod in old if is_ready(pod)]
        for pod in [*broken, *whole[: max(room, 0)]]:
            self.drop_pod(item, pod, _SOURCE)


def _pod_spec(item: Obj) -> Obj:
    spec: Obj = copy.deepcopy(item["spec"]["template"]["spec"])
    borne = [
        {"key": f"node.kubernetes.io/{name}", "operator": "Exists", "effect": effect}
        for name, effect in _BORNE
    ]
    spec["tolerations"] = [*(spec.get("tolerations") or ()), *borne]
    return spec


def _suits(spec: Obj, node: Obj) -> bool:
    rules = wire.read(spec, wire.PodRules, "pod template")
    metadata = node["metadata"]
    chosen = selectors.node_selection(rules).matches(metadata["name"], metadata.get("labels") or {})
    return chosen and all(
        taint.effect == "PreferNoSchedule" or tolerates(rules.tolerations or (), taint)
        for taint in taints_of(node)
    )


def _for_node(spec: Obj, name: str) -> Obj:
    """The pod of one node: its affinity names that node alone."""
    term = {"matchFields": [{"key": "metadata.name", "operator": "In", "values": [name]}]}
    affinity = copy.deepcopy(spec.get("affinity") or {})
    affinity.setdefault("nodeAffinity", {})[_AFFINITY] = {"nodeSelectorTerms": [term]}
    return {**spec, "affinity": affinity}


def _node_of(pod: Obj) -> str:
    (term,) = pod["spec"]["affinity"]["nodeAffinity"][_AFFINITY]["nodeSelectorTerms"]
    return str(term["matchFields"][0]["values"][0])
