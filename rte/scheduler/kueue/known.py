"""Kueue's objects, and templates of claims, as watches tell them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rte import errors
from rte.scheduler.kueue import objects
from rte.scheduler.kueue.claims import read_template
from rte.scheduler.kueue.messages import CHECKS, FLAVORS, TEMPLATES, WORKLOADS

if TYPE_CHECKING:
    from rte.placement.dra.objects import ResourceClaim
    from rte.reader.json import Json, JsonObject
    from rte.scheduler.kueue.objects import AdmissionCheck, CheckState, Flavor, Workload


class KueueKnown:
    """What there is, for the AdmissionChecks of one controller name.

    Attributes:
        checks: by name, ours only.
        flavors: by name.
        templates: the claims that are made from ResourceClaimTemplates, by ``namespace/name``.
        workloads: by ``namespace/name``.
    """

    def __init__(self, controller: str) -> None:
        self._controller = controller
        self.checks: dict[str, AdmissionCheck] = {}
        self.flavors: dict[str, Flavor] = {}
        self.templates: dict[str, ResourceClaim] = {}
        self.workloads: dict[str, Workload] = {}

    def ours(self, workload: Workload) -> list[CheckState]:
        """How our checks stand for the Workload."""
        return [check for check in workload.checks.values() if check.name in self.checks]

    def keys(self, collection: str) -> set[str]:
        """What is known of a collection."""
        return set(self._table(collection))

    def take(self, collection: str, obj: Json) -> str:
        """An object was added or changed; its key, empty where that is no news to us.

        Raises:
            errors.ParseError: it is malformed; what was known of it is forgotten.
        """
        metadata = obj.get("metadata") or {}
        key = str(metadata.get("name") or "")
        if collection in (WORKLOADS, TEMPLATES):
            key = f"{metadata.get('namespace')}/{key}"
        try:
            return key if self._set(collection, key, obj) else ""
        except errors.ParseError as error:
            self.drop(collection, key)
            raise errors.ParseError(collection, key, str(error)) from None

    def drop(self, collection: str, key: str) -> bool:
        """An object is gone; whether it was known."""
        return self._table(collection).pop(key, None) is not None

    def _table(self, collection: str) -> JsonObject:
        tables: dict[str, JsonObject] = {
            WORKLOADS: self.workloads,
            CHECKS: self.checks,
            FLAVORS: self.flavors,
            TEMPLATES: self.templates,
        }
        return tables[collection]

    def _set(self, collection: str, key: str, obj: Json) -> bool:
        if collection == FLAVORS:
            flavor = objects.read_flavor(obj)
            is_news = self.flavors.get(key) != flavor
            self.flavors[key] = flavor
            return is_news
        if collection == TEMPLATES:
            template = read_template(obj)
            is_news = self.templates.get(key) != template
            self.templates[key] = template
            return is_news
        if collection == CHECKS:
            check = objects.read_check(obj)
            if check.controller == self._controller:
                self.checks[key] = check
            return key in self.checks
        workload, known = objects.read_workload(obj), self.workloads.get(key)
        if known is not None and known.uid == workload.uid and workload.number < known.number:
            return False
        self.workloads[key] = workload
        return True
