"""What an owner leaves behind goes with it, as the propagation policy of the deletion says.

Source: kubernetes ``pkg/controller/garbagecollector``.
"""

from __future__ import annotations

import contextlib

from rte.sim.apiserver import StatusError
from rte.sim.controllers.controller import Controller, Obj, is_leaving

#: What owns or is owned in a cluster of one process.
_TABLES = (
    "pods", "replicasets", "deployments", "daemonsets", "statefulsets", "jobs", "resourceclaims",
)  # fmt: skip
_FOREGROUND, _ORPHAN = "foregroundDeletion", "orphan"


class Garbage(Controller):
    """See the module."""

    watched = _TABLES

    def sync(self) -> None:
        """One look at everything."""
        every = [(name, obj) for name in _TABLES for obj in self.api.list(name).items]
        known = {self.api.resource(name).kind for name in _TABLES}
        alive = {obj["metadata"]["uid"]: obj for _, obj in every}
        for name, obj in every:
            with contextlib.suppress(StatusError):  # changed meanwhile: that wakes us again
                self._collect(name, obj, alive, known)
                self._release(name, obj, every)

    def _collect(self, name: str, obj: Obj, alive: dict[str, Obj], known: set[str]) -> None:
        """Delete what has lost all its owners, or whose owner waits for it."""
        owners = obj["metadata"].get("ownerReferences") or ()
        if not owners or is_leaving(obj) or any(one["kind"] not in known for one in owners):
            return
        left = [alive[one["uid"]] for one in owners if one["uid"] in alive]
        if not left:
            self.delete(name, obj, propagation="Background")
        elif all(_waits(owner, _FOREGROUND) for owner in left):
            self.delete(name, obj, propagation="Foreground" if name != "pods" else "Background")

    def _release(self, name: str, obj: Obj, every: list[tuple[str, Obj]]) -> None:
        """Let an owner go once its dependents are gone, or are told that they have none."""
        if not (_waits(obj, _ORPHAN) or _waits(obj, _FOREGROUND)):
            return
        uid = obj["metadata"]["uid"]
        dependents = [
            (table, each)
            for table, each in every
            if any(one["uid"] == uid for one in each["metadata"].get("ownerReferences") or ())
        ]
        if _waits(obj, _ORPHAN):
            for table, each in dependents:
                owners = [o for o in each["metadata"]["ownerReferences"] if o["uid"] != uid]
                self._patch(table, each, {"ownerReferences": owners or None})
        elif any(_blocks(each, uid) for _, each in dependents):
            return
        rest = [f for f in obj["metadata"]["finalizers"] if f not in (_ORPHAN, _FOREGROUND)]
        self._patch(name, obj, {"finalizers": rest or None})

    def _patch(self, name: str, obj: Obj, metadata: Obj) -> None:
        own = obj["metadata"]
        self.api.patch(name, own["name"], {"metadata": metadata}, own.get("namespace", ""))


def _waits(obj: Obj, finalizer: str) -> bool:
    return is_leaving(obj) and finalizer in (obj["metadata"].get("finalizers") or ())


def _blocks(obj: Obj, uid: str) -> bool:
    owners = obj["metadata"].get("ownerReferences") or ()
    return any(one["uid"] == uid and one.get("blockOwnerDeletion") for one in owners)
