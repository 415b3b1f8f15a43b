"""Rules of the core group but pods: nodes, namespaces, volumes, services."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rte.sim.apiserver import status
from rte.sim.apiserver.kinds import meta
from rte.sim.apiserver.kinds.resource import KindRules, keep_status

if TYPE_CHECKING:
    from collections.abc import Callable

    from rte.sim.apiserver.status import Cause
    from rte.sim.apiserver.storage.store import Obj


def _default_node(node: Obj) -> None:
    """What is allocatable is the capacity unless a kubelet says otherwise."""
    capacity = node["status"].get("capacity")
    if capacity and not node["status"].get("allocatable"):
        node["status"]["allocatable"] = dict(capacity)
    elif capacity:
        node["status"]["allocatable"] = {**capacity, **node["status"]["allocatable"]}


_EFFECTS = ("NoSchedule", "PreferNoSchedule", "NoExecute")


def _validate_node(node: Obj) -> list[Cause]:
    """Rules for the taints of a node."""
    out: list[Cause] = []
    seen: set[tuple[str, str]] = set()
    for index, taint in enumerate(node["spec"].get("taints") or ()):
        path = f"metadata.taints[{index}]"  # sic
        out += [
            status.invalid(f"{path}.key", taint["key"], why)
            for why in meta.qualified_name(taint["key"])
        ]
        if not taint["effect"]:
            out.append(status.required(f"{path}.effect"))
        elif taint["effect"] not in _EFFECTS:
            out.append(status.unsupported(f"{path}.effect", taint["effect"], _EFFECTS))
        if (taint["key"], taint["effect"]) in seen:
            out.append(status.Cause(path, "Duplicate", "Duplicate value"))
        seen.add((taint["key"], taint["effect"]))
    return out


def _validate_node_update(new: Obj, old: Obj) -> list[Cause]:
    """What may not change in a node."""
    out = _validate_node(new)
    before = old["spec"].get("podCIDRs")
    if before and new["spec"].get("podCIDRs") != before:
        text = 'node updates may not change podCIDR except from "" to valid'
        out.append(status.forbidden("spec.podCIDRs", text))
    return out


def _create_namespace(namespace: Obj) -> None:
    """A new namespace is active, and has a finalizer until its content is gone."""
    namespace["status"] = {"phase": "Active"}
    finalizers = list(namespace["spec"].get("finalizers") or ())
    if "kubernetes" not in finalizers:
        namespace["spec"]["finalizers"] = [*finalizers, "kubernetes"]


def _default_namespace(namespace: Obj) -> None:
    """A namespace is labelled with its name."""
    name = namespace["metadata"].get("name")
    if name:
        labels = namespace["metadata"].get("labels") or {}
        namespace["metadata"]["labels"] = {**labels, "kubernetes.io/metadata.name": name}


def _keep_namespace(new: Obj, old: Obj) -> None:
    """Finalizers and status have sub-resources of their own."""
    new["spec"]["finalizers"] = old["spec"].get("finalizers", [])
    keep_status(new, old)


def _protected(finalizer: str) -> Callable[[Obj], None]:
    """A new volume or claim is pending, and protected while it is in use."""

    def create(item: Obj) -> None:
        item["status"] = {"phase": "Pending"}
        finalizers = item["metadata"].get("finalizers") or []
        if finalizer not in finalizers:
            item["metadata"]["finalizers"] = [*finalizers, finalizer]

    return create


def _default_service(item: Obj) -> None:
    for port in item["spec"].get("ports", ()):
        if port.get("targetPort") in (None, 0, ""):
            port["targetPort"] = port["port"]


def _create_service(item: Obj) -> None:
    """An address out of the range for services (nothing forwards to it here)."""
    spec = item["spec"]
    if spec["type"] != "ExternalName" and not spec.get("clusterIP"):
        number = int(item["metadata"]["uid"][:4], 16)
        spec["clusterIP"] = f"10.96.{number >> 8}.{number & 255}"
    if spec["type"] != "ExternalName":
        spec.setdefault("clusterIPs", [spec["clusterIP"]])
        spec |= {"ipFamilies": ["IPv4"], "ipFamilyPolicy": "SingleStack"}


RULES = {
    "core/v1.Node": KindRules(
        default=_default_node, validate=_validate_node, validate_update=_validate_node_update
    ),
    "core/v1.Namespace": KindRules(
        default=_default_namespace, create=_create_namespace, update=_keep_namespace
    ),
    "core/v1.PersistentVolumeClaim": KindRules(create=_protected("kubernetes.io/pvc-protection")),
    "core/v1.PersistentVolume": KindRules(create=_protected("kubernetes.io/pv-protection")),
    "core/v1.Service": KindRules(default=_default_service, create=_create_service),
}
