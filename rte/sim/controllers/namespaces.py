"""Namespaces: each has a service account, and when it is deleted its content goes first.

Sources: kubernetes ``pkg/controller/namespace``, ``pkg/controller/serviceaccount``.
"""

from __future__ import annotations

import contextlib

from rte.sim.apiserver import Query, StatusError
from rte.sim.controllers.controller import Controller, Obj, is_leaving

_AGAIN_SECONDS = 0.2


class Namespaces(Controller):
    """See the module."""

    watched = ("namespaces",)

    def sync(self) -> float | None:
        """One look at everything; again soon while content is on its way out."""
        waits = False
        for item in self.api.list("namespaces").items:
            name = item["metadata"]["name"]
            if is_leaving(item):
                waits |= not self._empty(item)
            elif not self.api.store.get("serviceaccounts", (name, "default")):
                self.api.create("serviceaccounts", {"metadata": {"name": "default"}}, name)
        return _AGAIN_SECONDS if waits else None

    def _empty(self, item: Obj) -> bool:
        """Delete the content; True when nothing is left and the namespace is gone."""
        name = item["metadata"]["name"]
        kinds = [kind for kind in self.api.served() if kind.namespaced]
        left = 0
        for kind in kinds:
            found = self.api.list(kind, Query(namespace=name)).items
            left += len(found)
            for obj in found:
                if not is_leaving(obj):
                    with contextlib.suppress(StatusError):
                        self.api.delete(kind, obj["metadata"]["name"], name)
        if left:
            return False
        body = {**item, "spec": {**item["spec"], "finalizers": []}}
        with contextlib.suppress(StatusError):
            self.api.update("namespaces", body, subresource="finalize")
        return True
