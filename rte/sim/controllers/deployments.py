"""Deployments: a ReplicaSet for each template, one taking over from the others step by step.

Source: kubernetes ``pkg/controller/deployment`` (``sync.go``, ``rolling.go``, ``recreate.go``,
``progress.go``). Scaling a Deployment while it rolls goes to the newest ReplicaSet alone here.
"""

from __future__ import annotations

import copy
from contextlib import suppress
from datetime import timedelta
from typing import TYPE_CHECKING

from rte.sim.apiserver import StatusError
from rte.sim.controllers.controller import (
    Controller,
    Obj,
    has_ended,
    is_leaving,
    moment,
    owned_by,
    owner_reference,
    seconds_until,
    share,
    template_hash,
    with_condition,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

HASH = "pod-template-hash"
_SOURCE = "deployment-controller"
_REVISION = "deployment.kubernetes.io/revision"
_DESIRED = "deployment.kubernetes.io/desired-replicas"
_MOST = "deployment.kubernetes.io/max-replicas"
#: Annotations of a Deployment that its ReplicaSets do not get.
_OWN_NOTES = {"kubectl.kubernetes.io/last-applied-configuration", _REVISION, _DESIRED, _MOST}


class Deployments(Controller):
    """See the module."""

    watched = ("deployments", "replicasets", "pods")

    def sync(self) -> float | None:
        """One look at everything."""
        every, pods = self.api.list("replicasets").items, self.api.list("pods").items
        due: list[float] = []
        for item in self.api.list("deployments").items:
            if is_leaving(item):
                continue
            with suppress(StatusError):  # another writer was faster, which wakes us again
                due += self._step(item, owned_by(item, every), pods)
        return min(due, default=None)

    def _step(self, item: Obj, sets: list[Obj], pods: Sequence[Obj]) -> list[float]:
        newest = next((each for each in sets if _same_template(each, item)), None)
        if newest is None and not item["spec"].get("paused"):
            newest = self._make(item, sets)
            sets = [*sets, newest]
        older = [
            each for each in sets if newest is None or each["metadata"]["name"] != _name(newest)
        ]
        if newest is not None:
            newest = self._number(item, newest, older)
            if not item["spec"].get("paused"):
                self._roll(item, newest, older, pods)
                self._clean_up(item, older)
        return self._tell(item, newest, older)

    def _make(self, item: Obj, sets: Sequence[Obj]) -> Obj:
        """A ReplicaSet for the present template."""
        template = copy.deepcopy(item["spec"]["template"])
        mark = template_hash(item)
        labels = {**(template["metadata"].get("labels") or {}), HASH: mark}
        template["metadata"]["labels"] = labels
        selector = copy.deepcopy(item["spec"]["selector"])
        selector["matchLabels"] = {**selector.get("matchLabels", {}), HASH: mark}
        first = not sets and item["spec"]["strategy"]["type"] == "RollingUpdate"
        replicas = item["spec"]["replicas"] if first else 0
        made = self.api.create(
            "replicasets",
            {
                "metadata": {
                    "name": f"{_name(item)}-{mark}",
                    "labels": labels,
                    "annotations": {**_notes(item), **_sizes(item)},
                    "ownerReferences": [owner_reference(item)],
                },
                "spec": {
                    "replicas": replicas,
                    "selector": selector,
                    "template": template,
                    **_kept(item["spec"], "minReadySeconds"),
                },
            },
            item["metadata"]["namespace"],
        )  # fmt: skip
        if replicas:
            self._told_scaled(item, made, 0, replicas)
        return made

    def _number(self, item: Obj, newest: Obj, older: Sequence[Obj]) -> Obj:
        """The newest ReplicaSet has the highest revision, and the Deployment says which that is."""
        top = max((_revision(each) for each in older), default=0)
        mine = _revision(newest)
        if mine <= top:
            mine = top + 1
        namespace, wanted = item["metadata"]["namespace"], {_REVISION: str(mine)}
        if _revision(newest) != mine:
            body = {"metadata": {"annotations": wanted}}
            newest = self.api.patch("replicasets", _name(newest), body, namespace)
        if _revision(item) != mine:
            body = {"metadata": {"annotations": wanted}}
            self.api.patch("deployments", _name(item), body, namespace, subresource="status")
        return newest

    def _roll(self, item: Obj, newest: Obj, older: Sequence[Obj], pods: Sequence[Obj]) -> None:
        wanted = item["spec"]["replicas"]
        if item["spec"]["strategy"]["type"] == "Recreate":
            for each in older:
                self._scale(item, each, 0)
            left = [pod for each in older for pod in owned_by(each, pods) if not has_ended(pod)]
            if not left:
                self._scale(item, newest, wanted)
            return
        surge, missing = _surge(item), _unavailable(item)
        total = sum(each["spec"]["replicas"] for each in (newest, *older))
        have = newest["spec"]["replicas"]
        if have > wanted:
            self._scale(item, newest, wanted)
        elif have < wanted:
            room = wanted + surge - total
            if room > 0:
                self._scale(item, newest, min(wanted, have + room))
                return
        new_missing = newest["spec"]["replicas"] - newest["status"].get("availableReplicas", 0)
        spare = total - (wanted - missing) - new_missing
        for each in sorted(older, key=_revision):  # those that do not serve first
            useless = each["spec"]["replicas"] - each["status"].get("availableReplicas", 0)
            take = min(useless, max(spare, 0))
            if take:
                self._scale(item, each, each["spec"]["replicas"] - take)
                return
        serving = sum(each["status"].get("availableReplicas", 0) for each in (newest, *older))
        spare = serving - (wanted - missing)
        for each in sorted(older, key=_revision):
            take = min(each["spec"]["replicas"], max(spare, 0))
            if take:
                self._scale(item, each, each["spec"]["replicas"] - take)
                return

    def _scale(self, item: Obj, each: Obj, replicas: int) -> None:
        before = each["spec"]["replicas"]
        if before == replicas:
            return
        body = {"metadata": {"annotations": _sizes(item)}, "spec": {"replicas": replicas}}
        self.api.patch("replicasets", _name(each), body, item["metadata"]["namespace"])
        self._told_scaled(item, each, before, replicas)

    def _told_scaled(self, item: Obj, each: Obj, before: int, after: int) -> None:
        way = "up" if after > before else "down"
        text = f"Scaled {way} replica set {_name(each)} from {before} to {after}"
        self.record(_SOURCE, item, "ScalingReplicaSet", text)

    def _clean_up(self, item: Obj, older: Sequence[Obj]) -> None:
        """Old ReplicaSets without pods are kept for ``kubectl rollout undo``, but not all."""
        empty = [
            each
            for each in older
            if not each["spec"]["replicas"]
            and not each["status"].get("replicas")
            and not is_leaving(each)
        ]
        surplus = max(len(empty) - item["spec"]["revisionHistoryLimit"], 0)
        for each in sorted(empty, key=_revision)[:surplus]:
            self.delete("replicasets", each)

    def _tell(self, item: Obj, newest: Obj | None, older: Sequence[Obj]) -> list[float]:
        """Write the status; returns when the deadline for progress is missed."""
        sets = [*older, *([newest] if newest else [])]
        fresh = {
            _name(each): self.api.get("replicasets", _name(each), each["metadata"]["namespace"])
            for each in sets
        }

        def total(field: str, among: Sequence[Obj] = tuple(fresh.values())) -> int:
            return sum(each["status"].get(field, 0) for each in among)

        wanted, available = item["spec"]["replicas"], total("availableReplicas")
        mine = [fresh[_name(newest)]] if newest else []
        counts = {
            "replicas": total("replicas"),
            "updatedReplicas": total("replicas", mine),
            "readyReplicas": total("readyReplicas"),
            "availableReplicas": available,
            "unavailableReplicas": max(wanted - available, 0),
        }
        before = item.get("status") or {}
        enough = available >= wanted - _unavailable(item)
        available_now = {
            "type": "Available",
            "status": "True" if enough else "False",
            "reason": "MinimumReplicasAvailable" if enough else "MinimumReplicasUnavailable",
            "message": f"Deployment {'has' if enough else 'does not have'} minimum availability.",
        }
        now = self.api.now()
        times = {"lastUpdateTime": now, "lastTransitionTime": now}
        conditions = with_condition(before.get("conditions") or (), available_now, **times)
        done = counts["updatedReplicas"] == counts["replicas"] == available == wanted
        due: list[float] = []
        if newest is not None:
            progress, due = self._progress(item, newest, counts, done=done)
            if progress:
                moved = any(counts[key] != before.get(key, 0) for key in counts)
                if moved:  # a step ahead: the deadline runs anew
                    conditions = [one for one in conditions if one["type"] != progress["type"]]
                conditions = with_condition(conditions, progress, **times)
        self.set_status(
            "deployments",
            item,
            {
                "observedGeneration": item["metadata"]["generation"],
                **{name: count for name, count in counts.items() if count},
                "terminatingReplicas": total("terminatingReplicas"),
                "conditions": conditions,
            },
        )
        return due

    def _progress(
        self, item: Obj, newest: Obj, counts: Obj, *, done: bool
    ) -> tuple[Obj | None, list[float]]:
        """The condition Progressing, and when its deadline is over."""
        before = item.get("status") or {}
        conditions = before.get("conditions") or ()
        old = next((one for one in conditions if one["type"] == "Progressing"), None)
        told = {"type": "Progressing", "status": "True"}
        name = f'ReplicaSet "{_name(newest)}"'
        if done:
            text = f"{name} has successfully progressed."
            return {**told, "reason": "NewReplicaSetAvailable", "message": text}, []
        if item["spec"].get("paused"):
            return None, []
        moved = any(counts[key] != before.get(key, 0) for key in counts)
        if old is None or moved or old["reason"] == "NewReplicaSetAvailable":
            return {**told, "reason": "ReplicaSetUpdated", "message": f"{name} is progressing."}, []
        limit = timedelta(seconds=item["spec"]["progressDeadlineSeconds"])
        left = seconds_until(moment(old["lastUpdateTime"]) + limit, moment(self.api.now()))
        if left or old["status"] == "False":
            return None, [left] if left else []
        text = f"{name} has timed out progressing."
        reason = "ProgressDeadlineExceeded"
        return {**told, "status": "False", "reason": reason, "message": text}, []


def _name(obj: Obj) -> str:
    return str(obj["metadata"]["name"])


def _kept(spec: Obj, name: str) -> Obj:
    return {name: spec[name]} if name in spec else {}


def _notes(item: Obj) -> Obj:
    notes = item["metadata"].get("annotations") or {}
    return {key: value for key, value in notes.items() if key not in _OWN_NOTES}


def _sizes(item: Obj) -> Obj:
    wanted = item["spec"]["replicas"]
    return {_DESIRED: str(wanted), _MOST: str(wanted + _surge(item))}


def _revision(obj: Obj) -> int:
    return int((obj["metadata"].get("annotations") or {}).get(_REVISION, 0))


def _same_template(each: Obj, item: Obj) -> bool:
    mine = copy.deepcopy(each["spec"]["template"])
    mine["metadata"]["labels"].pop(HASH, None)
    theirs = copy.deepcopy(item["spec"]["template"])
    (theirs["metadata"].get("labels") or {}).pop(HASH, None)
    return bool(mine == theirs)


def _surge(item: Obj) -> int:
    rolling = item["spec"]["strategy"].get("rollingUpdate")
    return share(rolling["maxSurge"], item["spec"]["replicas"], up=True) if rolling else 0


def _unavailable(item: Obj) -> int:
    """How many may be missing; one, if neither more nor less were allowed."""
    rolling = item["spec"]["strategy"].get("rollingUpdate")
    if not rolling:
        return 0
    missing = share(rolling["maxUnavailable"], item["spec"]["replicas"], up=False)
    return max(missing, 0 if _surge(item) else 1)
