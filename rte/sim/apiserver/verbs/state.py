"""What all verbs share: the store, the resources that are served, the clock."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rte.sim.apiserver import status
from rte.sim.apiserver.kinds import builtin, custom
from rte.sim.apiserver.storage.store import Store

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from datetime import datetime

    from rte.sim.apiserver.kinds.resource import ServedResource
    from rte.sim.apiserver.storage.store import Key, Obj


class VerbState:
    """See the module.

    Args:
        history: changes kept for watches and paged lists.
        clock: now, in UTC.
    """

    def __init__(self, history: int, clock: Callable[[], datetime]) -> None:
        self.store = Store(history)
        self.clock = clock
        self._resources: dict[tuple[str, str, str], ServedResource] = {}
        for item in builtin.builtin():
            self._resources[item.group, item.version, item.plural] = item

    def served(self) -> Iterable[ServedResource]:
        """All resources, built-in and custom."""
        return self._resources.values()

    def resource(
        self, name: str, group: str | None = None, version: str | None = None
    ) -> ServedResource:
        """Find a resource by plural (``pods``, ``leases.coordination.k8s.io``), group, version.

        Raises:
            status.StatusError: 404, nothing like that is served.
        """
        plural, _, suffix = name.partition(".")
        group = suffix if group is None and suffix else group
        for item in self._resources.values():
            if (
                item.plural == plural
                and group in (None, item.group)
                and version in (None, item.version)
                and (version is not None or self._is_storage(item))
            ):
                return item
        raise status.unknown_resource()

    def _is_storage(self, item: ServedResource) -> bool:
        """Whether a custom resource's version is the stored one (built-in ones have only one)."""
        if item.definition is None:
            return True
        crd = self.store.get(custom.TABLE, ("", f"{item.plural}.{item.group}"))
        return crd is not None and any(
            v["storage"] and v["name"] == item.version for v in crd["spec"]["versions"]
        )

    def storage_version(self, kind: ServedResource) -> str:
        """The ``apiVersion`` in which objects of a resource are stored."""
        if kind.table == "events":
            return "v1"
        if kind.definition is None or self._is_storage(kind):
            return kind.group_version
        crd = self.store.get(custom.TABLE, ("", f"{kind.plural}.{kind.group}")) or {}
        version = next(v["name"] for v in crd["spec"]["versions"] if v["storage"])
        return f"{kind.group}/{version}"

    def stored(self, kind: ServedResource, key: Key) -> Obj:
        """The object as it is stored.

        Raises:
            status.StatusError: 404.
        """
        obj = self.store.get(kind.table, key)
        if obj is None:
            raise status.not_found(kind.plural, key[1], kind.group)
        return obj

    def wrote(self, kind: ServedResource, obj: Obj) -> None:
        """A definition that was written is served as it says."""
        if kind.table != custom.TABLE:
            return
        self._unserve(obj)
        for item in custom.served(obj):
            self._resources[item.group, item.version, item.plural] = item

    def removed(self, kind: ServedResource, obj: Obj) -> None:
        """A definition that is gone takes its objects and watches with it."""
        if kind.table != custom.TABLE:
            return
        self._unserve(obj)
        table = obj["metadata"]["name"]
        for key, _ in self.store.items(table):
            self.store.delete(table, key)
        for watch in self.store.watches(table):
            watch.stop()

    def _unserve(self, crd: Obj) -> None:
        spec = crd["spec"]
        for version in spec["versions"]:
            self._resources.pop((spec["group"], version["name"], spec["names"]["plural"]), None)

    def now(self) -> str:
        """The time as objects carry it."""
        return rfc3339(self.clock())


def rfc3339(moment: datetime) -> str:
    """A time of whole seconds as objects carry it."""
    return moment.strftime("%Y-%m-%dT%H:%M:%SZ")
