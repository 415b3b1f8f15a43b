"""Paths of the collections and objects that rte uses."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final
from urllib.parse import quote


@dataclass(frozen=True, slots=True)
class Resource:
    """One API resource.

    ``group`` is ``""`` for the core group.
    """

    group: str
    version: str
    plural: str
    namespaced: bool = False

    def path(self, name: str = "", namespace: str = "", subresource: str = "") -> str:
        """The URL path: of an object, or of the collection (``namespace`` "" = all of them)."""
        root = f"/apis/{self.group}" if self.group else "/api"
        parts = [root, self.version]
        if self.namespaced and namespace:
            parts += ["namespaces", quote(namespace, safe="")]
        parts += [self.plural, *(quote(part, safe="") for part in (name, subresource) if part)]
        return "/".join(parts)

    @property
    def api_version(self) -> str:
        """The ``apiVersion`` of its objects."""
        return f"{self.group}/{self.version}" if self.group else self.version


NRTS: Final = Resource("topology.node.k8s.io", "v1alpha2", "noderesourcetopologies")
NODES: Final = Resource("", "v1", "nodes")
PODS: Final = Resource("", "v1", "pods", namespaced=True)
LEASES: Final = Resource("coordination.k8s.io", "v1", "leases", namespaced=True)
RESOURCE_SLICES: Final = Resource("resource.k8s.io", "v1", "resourceslices")
DEVICE_CLASSES: Final = Resource("resource.k8s.io", "v1", "deviceclasses")
DEVICE_TAINT_RULES: Final = Resource("resource.k8s.io", "v1", "devicetaintrules")
RESOURCE_CLAIMS: Final = Resource("resource.k8s.io", "v1", "resourceclaims", namespaced=True)
CLAIM_TEMPLATES: Final = Resource(
    "resource.k8s.io", "v1", "resourceclaimtemplates", namespaced=True
)
EVENTS: Final = Resource("events.k8s.io", "v1", "events", namespaced=True)
BUDGETS: Final = Resource("policy", "v1", "poddisruptionbudgets", namespaced=True)
