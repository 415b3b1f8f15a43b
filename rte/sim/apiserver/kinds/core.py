"""Rules of the core group but pods: nodes, namespaces, secrets, volumes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rte.sim.apiserver import status
from rte.sim.apiserver.kinds import meta
from rte.sim.apiserver.kinds.resource import keep_status

if TYPE_CHECKING:
    from rte.sim.apiserver.status import Cause
    from rte.sim.apiserver.storage.store import Obj


def default_node(node: Obj) -> None:
    """What is allocatable is the capacity unless a kubelet says otherwise."""
    capacity = node["status"].get("capacity")
    if capacity and not node["status"].get("allocatable"):
        node["status"]["allocatable"] = dict(capacity)
    elif capacity:
        node["status"]["allocatable"] = {**capacity, **node["status"]["allocatable"]}


_EFFECTS = ("NoSchedule", "PreferNoSchedule", "NoExecute")


def validate_node(node: Obj) -> list[Cause]:
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


def validate_node_update(new: Obj, old: Obj) -> list[Cause]:
    """What may not change in a node."""
    out = validate_node(new)
    before = old["spec"].get("podCIDRs")
    if before and new["spec"].get("podCIDRs") != before:
        text = 'node updates may not change podCIDR except from "" to valid'
        out.append(status.forbidden("spec.podCIDRs", text))
    return out


def create_namespace(namespace: Obj) -> None:
    """A new namespace is active, and has a finalizer until its content is gone."""
    namespace["status"] = {"phase": "Active"}
    finalizers = list(namespace["spec"].get("finalizers") or ())
    if "kubernetes" not in finalizers:
        namespace["spec"]["finalizers"] = [*finalizers, "kubernetes"]


def default_namespace(namespace: Obj) -> None:
    """A namespace is labelled with its name."""
    name = namespace["metadata"].get("name")
    if name:
        labels = namespace["metadata"].get("labels") or {}
        namespace["metadata"]["labels"] = {**labels, "kubernetes.io/metadata.name": name}


def keep_namespace(new: Obj, old: Obj) -> None:
    """Finalizers and status have sub-resources of their own."""
    new["spec"]["finalizers"] = old["spec"].get("finalizers", [])
    keep_status(new, old)


def default_secret(secret: Obj) -> None:
    """A secret without a type is opaque."""
    secret.setdefault("type", "Opaque")


def default_volume_claim(item: Obj) -> None:
    """Defaults of volume claims."""
    item["spec"].setdefault("volumeMode", "Filesystem")


def create_volume_claim(item: Obj) -> None:
    """A new claim is pending, and protected while it is in use."""
    item["status"] = {"phase": "Pending"}
    finalizers = item["metadata"].get("finalizers") or []
    if "kubernetes.io/pvc-protection" not in finalizers:
        item["metadata"]["finalizers"] = [*finalizers, "kubernetes.io/pvc-protection"]


def default_volume(item: Obj) -> None:
    """Defaults of persistent volumes."""
    item["spec"].setdefault("persistentVolumeReclaimPolicy", "Retain")
    item["spec"].setdefault("volumeMode", "Filesystem")


def create_volume(item: Obj) -> None:
    """A new volume is pending, and protected while it is in use."""
    item["status"] = {"phase": "Pending"}
    finalizers = item["metadata"].get("finalizers") or []
    if "kubernetes.io/pv-protection" not in finalizers:
        item["metadata"]["finalizers"] = [*finalizers, "kubernetes.io/pv-protection"]
