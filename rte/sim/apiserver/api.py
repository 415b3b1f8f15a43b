"""The API in process: every verb of the API server as a plain call on JSON objects.

The HTTP server is a thin layer above; scale tests use this class directly. Calls are synchronous
and atomic. Objects handed out are shared with the store: treat them as read-only.

What the real control plane does outside its API server is not done here either: nothing garbage
collects by ownerReferences, finishes a namespace, taints nodes or computes disruption budgets.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING

from rte.sim.apiserver.verbs import (
    applying,
    changing,
    creating,
    deleting,
    pods,
    reading,
    scaling,
)
from rte.sim.apiserver.verbs.state import VerbState

if TYPE_CHECKING:
    from collections.abc import Callable

    from rte.reader.json import JsonValue
    from rte.sim.apiserver.kinds.resource import ServedResource
    from rte.sim.apiserver.storage.query import Query, StoredPage
    from rte.sim.apiserver.storage.store import Obj, Watch
    from rte.sim.apiserver.verbs.bodies import WriteOptions
    from rte.sim.apiserver.verbs.deleting import DeleteOptions

_NAMESPACES = ("default", "kube-node-lease", "kube-public", "kube-system")

_MOVABLE = (
    "Used for system critical pods that must run in the cluster, but can be moved to another node "
    "if necessary."
)

_PRIORITIES = (
    (
        "system-node-critical",
        2_000_001_000,
        "Used for system critical pods that must not be moved from their current node.",
    ),
    (
        "system-cluster-critical",
        2_000_000_000,
        _MOVABLE,
    ),
)


class API(VerbState):
    """See the module. What a call refuses is a :class:`rte.sim.apiserver.status.StatusError`.

    Args:
        history: changes kept for watches and paged lists; older versions answer 410.
        clock: now, in UTC.
    """

    def __init__(
        self, *, history: int = 10_000, clock: Callable[[], datetime] | None = None
    ) -> None:
        super().__init__(history, clock or (lambda: datetime.now(UTC)))
        for name in _NAMESPACES:
            self.create("namespaces", {"metadata": {"name": name}})
        for name, value, text in _PRIORITIES:
            self.create(
                "priorityclasses",
                {"metadata": {"name": name}, "value": value, "description": text},
            )

    def _find(self, resource: str | ServedResource) -> ServedResource:
        return self.resource(resource) if isinstance(resource, str) else resource

    def get(self, resource: str | ServedResource, name: str, namespace: str = "") -> Obj:
        """Read one object."""
        return reading.get(self, self._find(resource), name, namespace)

    def list(self, resource: str | ServedResource, query: Query | None = None) -> StoredPage:
        """List; consistent also across pages."""
        return reading.list_page(self, self._find(resource), query)

    def watch(
        self, resource: str | ServedResource, query: Query | None = None, *, initial: bool = False
    ) -> Watch:
        """Watch from ``query.version``: "" and "0" (or ``initial``) begin with all that exists."""
        return reading.watch(self, self._find(resource), query, initial=initial)

    def create(
        self,
        resource: str | ServedResource,
        obj: Obj,
        namespace: str = "",
        options: WriteOptions | None = None,
    ) -> Obj:
        """Create an object; the body is copied."""
        return creating.create(self, self._find(resource), obj, namespace, options)

    def update(
        self,
        resource: str | ServedResource,
        obj: Obj,
        namespace: str = "",
        *,
        name: str = "",
        subresource: str = "",
        options: WriteOptions | None = None,
    ) -> Obj:
        """Replace an object, or its status."""
        return changing.update(
            self, self._find(resource), obj, namespace,
            name=name, subresource=subresource, options=options,
        )  # fmt: skip

    def patch(
        self,
        resource: str | ServedResource,
        name: str,
        body: JsonValue,
        namespace: str = "",
        *,
        content_type: str = changing.MERGE_PATCH,
        subresource: str = "",
        options: WriteOptions | None = None,
    ) -> Obj:
        """Patch an object, or its status."""
        return changing.patch(
            self, self._find(resource), name, body, namespace,
            content_type=content_type, subresource=subresource, options=options,
        )  # fmt: skip

    def apply(
        self,
        resource: str | ServedResource,
        name: str,
        body: JsonValue,
        namespace: str = "",
        *,
        options: WriteOptions,
        force: bool = False,
        subresource: str = "",
    ) -> Obj:
        """Server-side apply; ``options.manager`` names the applier."""
        return applying.apply(
            self, self._find(resource), name, body, namespace,
            options=options, force=force, subresource=subresource,
        )  # fmt: skip

    def delete(
        self,
        resource: str | ServedResource,
        name: str,
        namespace: str = "",
        options: DeleteOptions | None = None,
    ) -> tuple[Obj, bool]:
        """Delete; returns the object and whether it is gone (else it only began to terminate)."""
        return deleting.delete(self, self._find(resource), name, namespace, options)

    def delete_collection(
        self,
        resource: str | ServedResource,
        query: Query | None = None,
        options: DeleteOptions | None = None,
    ) -> StoredPage:
        """Delete all that the query selects; returns what was selected."""
        return deleting.delete_collection(self, self._find(resource), query, options)

    def bind(
        self, name: str, namespace: str, binding: Obj, options: WriteOptions | None = None
    ) -> None:
        """``pods/binding``: give a pod its node."""
        pods.bind(self, name, namespace, binding, options)

    def evict(self, name: str, namespace: str, options: DeleteOptions | None = None) -> None:
        """``pods/eviction``: delete a pod if its disruption budget allows it."""
        pods.evict(self, name, namespace, options)

    def scale(self, resource: str | ServedResource, name: str, namespace: str) -> Obj:
        """``scale``: how many pods a workload has."""
        return scaling.get(self, self._find(resource), name, namespace)

    def set_scale(
        self,
        resource: str | ServedResource,
        name: str,
        body: JsonValue,
        namespace: str,
        *,
        content_type: str = "",
        options: WriteOptions | None = None,
    ) -> Obj:
        """Replace the scale of a workload; with a content type ``body`` is a patch of it."""
        kind = self._find(resource)
        if content_type:
            return scaling.patch(
                self, kind, name, body, namespace,
                content_type=content_type, options=options,
            )  # fmt: skip
        return scaling.update(self, kind, body, namespace, name=name, options=options)
