"""StatefulSets: numbered pods, each with the claims of its number, in order.

Source: kubernetes ``pkg/controller/statefulset``. Not done: retention of claims, and revisions as
objects.
"""

from __future__ import annotations

import contextlib
import copy

from rte.k8s.podspec import is_ready
from rte.sim.apiserver import StatusError
from rte.sim.controllers.controller import (
    REVISION,
    Controller,
    Obj,
    has_ended,
    is_leaving,
    owned_by,
    template_hash,
)

_SOURCE = "statefulset-controller"
_POD_NAME, _INDEX = "statefulset.kubernetes.io/pod-name", "apps.kubernetes.io/pod-index"


class StatefulSets(Controller):
    """See the module."""

    watched = ("statefulsets", "pods")
    made = "Create Pod {pod} in StatefulSet {owner} successful"
    dropped = "Delete Pod {pod} in StatefulSet {owner} successful"

    def sync(self) -> None:
        """One look at everything."""
        pods = self.api.list("pods").items
        for item in self.api.list("statefulsets").items:
            if not is_leaving(item):
                mine = {_number(pod): pod for pod in owned_by(item, pods)}
                self._tell(item, mine)
                with contextlib.suppress(StatusError):  # a refused pod is tried again
                    self._step(item, mine)

    def _step(self, item: Obj, mine: dict[int, Obj]) -> None:
        """One step, or under the policy Parallel all that can be done at once."""
        spec = item["spec"]
        ordered = spec["podManagementPolicy"] == "OrderedReady"
        first = (spec.get("ordinals") or {}).get("start", 0)
        numbers = range(first, first + spec["replicas"])
        for number in numbers:
            pod = mine.get(number)
            if pod is None:
                self._make(item, number)
            elif has_ended(pod) and not is_leaving(pod):
                self.drop_pod(item, pod, _SOURCE)
            if ordered and (pod is None or not is_ready(pod) or is_leaving(pod)):
                return
        surplus = sorted(mine.keys() - set(numbers), reverse=True)
        revision, partition = _revision(item), _partition(item)
        outdated = [
            number
            for number in sorted(mine, reverse=True)
            if partition is not None and number >= first + partition
            if mine[number]["metadata"]["labels"][REVISION] != revision
        ]
        for number in surplus or outdated[:1]:
            if not is_leaving(mine[number]):
                self.drop_pod(item, mine[number], _SOURCE)
            if ordered:
                return

    def _make(self, item: Obj, number: int) -> None:
        metadata, spec = item["metadata"], copy.deepcopy(item["spec"]["template"]["spec"])
        name = f"{metadata['name']}-{number}"
        volumes = {volume["name"]: volume for volume in spec.get("volumes") or ()}
        for template in item["spec"].get("volumeClaimTemplates") or ():
            volume = template["metadata"]["name"]
            claim = f"{volume}-{name}"
            volumes[volume] = {"name": volume, "persistentVolumeClaim": {"claimName": claim}}
            key = (metadata["namespace"], claim)
            if self.api.store.get("persistentvolumeclaims", key) is None:
                labels = item["spec"]["selector"].get("matchLabels") or {}
                body = {"metadata": {"name": claim, "labels": labels}, "spec": template["spec"]}
                self.api.create("persistentvolumeclaims", body, metadata["namespace"])
        spec |= {"hostname": name, "subdomain": item["spec"].get("serviceName", "")}
        spec["volumes"] = list(volumes.values())
        marks = {REVISION: _revision(item), _POD_NAME: name, _INDEX: str(number)}
        self.make_pod(item, _SOURCE, labels=marks, spec=spec, name=name)

    def _tell(self, item: Obj, mine: dict[int, Obj]) -> None:
        before, revision = item.get("status") or {}, _revision(item)
        fresh = sum(pod["metadata"]["labels"][REVISION] == revision for pod in mine.values())
        ready = sum(is_ready(pod) for pod in mine.values())
        done = fresh == ready == len(mine) == item["spec"]["replicas"]
        current = revision if done else before.get("currentRevision", revision)
        of_current = fresh if current == revision else len(mine) - fresh
        counts = {"readyReplicas": ready, "currentReplicas": of_current, "updatedReplicas": fresh}
        self.set_status(
            "statefulsets",
            item,
            {
                "observedGeneration": item["metadata"]["generation"],
                "replicas": len(mine),
                **{name: count for name, count in counts.items() if count},
                "currentRevision": current,
                "updateRevision": revision,
                "collisionCount": 0,
                "availableReplicas": ready,
            },
        )


def _revision(item: Obj) -> str:
    return f"{item['metadata']['name']}-{template_hash(item)}"


def _partition(item: Obj) -> int | None:
    rolling = item["spec"]["updateStrategy"].get("rollingUpdate")
    return int(rolling["partition"]) if rolling else None


def _number(pod: Obj) -> int:
    return int(pod["metadata"]["labels"][_INDEX])
