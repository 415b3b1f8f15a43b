"""The resources served: names, behaviour flags and per-kind rules."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from rte.sim.apiserver import claims, meta, pods, status

if TYPE_CHECKING:
    from collections.abc import Callable

    from rte.sim.apiserver.status import Cause
    from rte.sim.apiserver.store import Obj
    from rte.sim.apiserver.structural import Definition


def _nothing(*_: Obj) -> None:
    return None


def _accept(*_: Obj) -> list[Cause]:
    return []


@dataclass(frozen=True, kw_only=True)
class Rules:
    """Per-kind behaviour; every callback may change its first argument in place.

    ``update`` and ``status`` get (new, old). ``generation`` names the fields whose change counts.
    """

    default: Callable[[Obj], None] = _nothing
    create: Callable[[Obj], None] = _nothing
    validate: Callable[[Obj], list[Cause]] = _accept
    update: Callable[[Obj, Obj], None] = _nothing
    validate_update: Callable[[Obj, Obj], list[Cause]] | None = None
    status: Callable[[Obj, Obj], None] = _nothing
    validate_status: Callable[[Obj, Obj], list[Cause]] = _accept
    generation: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Resource:
    """One resource in one version.

    Attributes:
        struct: type in ``types.json``; "" for custom resources.
        store: name of the table that holds its objects; versions of one resource share it.
        fields: selectable fields beyond ``metadata.name`` and ``metadata.namespace``.
        returns_object: DELETE answers with the object instead of a Status.
        unconditional: PUT without resourceVersion is allowed.
        create_on_update: PUT creates a missing object.
        definition: the CRD version behind a custom resource.
    """

    group: str
    version: str
    plural: str
    kind: str
    namespaced: bool
    struct: str = ""
    store: str = ""
    singular: str = ""
    short_names: tuple[str, ...] = ()
    categories: tuple[str, ...] = ()
    subresources: tuple[str, ...] = ()
    fields: tuple[str, ...] = ()
    check_name: Callable[[str], list[str]] = meta.subdomain
    returns_object: bool = False
    unconditional: bool = True
    create_on_update: bool = False
    rules: Rules = field(default_factory=Rules)
    definition: Definition | None = None

    @property
    def group_version(self) -> str:
        """``v1`` or ``group/version``."""
        return f"{self.group}/{self.version}" if self.group else self.version

    @property
    def table(self) -> str:
        """The store's table."""
        return self.store or (f"{self.plural}.{self.group}" if self.group else self.plural)

    @property
    def has_status(self) -> bool:
        """Whether status is written through its own subresource."""
        return "status" in self.subresources


def _default_node(node: Obj) -> None:
    capacity = node["status"].get("capacity")
    if capacity and not node["status"].get("allocatable"):
        node["status"]["allocatable"] = dict(capacity)
    elif capacity:
        node["status"]["allocatable"] = {**capacity, **node["status"]["allocatable"]}


def _validate_node(node: Obj) -> list[Cause]:
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


_EFFECTS = ("NoSchedule", "PreferNoSchedule", "NoExecute")


def _keep_status(new: Obj, old: Obj) -> None:
    new.pop("status", None)
    if "status" in old:
        new["status"] = old["status"]


def _keep_spec(new: Obj, old: Obj) -> None:
    new["spec"] = old["spec"]


def _create_namespace(namespace: Obj) -> None:
    namespace["status"] = {"phase": "Active"}
    finalizers = list(namespace["spec"].get("finalizers") or ())
    if "kubernetes" not in finalizers:
        namespace["spec"]["finalizers"] = [*finalizers, "kubernetes"]


def _default_namespace(namespace: Obj) -> None:
    name = namespace["metadata"].get("name")
    if name:
        labels = namespace["metadata"].get("labels") or {}
        namespace["metadata"]["labels"] = {**labels, "kubernetes.io/metadata.name": name}


def _keep_namespace(new: Obj, old: Obj) -> None:
    new["spec"]["finalizers"] = old["spec"].get("finalizers", [])
    _keep_status(new, old)


def _default_secret(secret: Obj) -> None:
    secret.setdefault("type", "Opaque")


def _validate_event(event: Obj) -> list[Cause]:
    involved = event["involvedObject"].get("namespace", "")
    if involved and involved != event["metadata"].get("namespace"):
        return [
            status.invalid("involvedObject.namespace", involved, "does not match event.namespace")
        ]
    return []


def _validate_new_event(event: Obj) -> list[Cause]:
    """The stricter rules of events.k8s.io/v1 (the object is in core form)."""
    out = _validate_event(event)
    wanted = (
        ("eventTime", "eventTime"),
        ("reportingController", "reportingComponent"),
        ("reportingInstance", "reportingInstance"),
        ("action", "action"),
        ("reason", "reason"),
    )
    out += [status.required(path) for path, name in wanted if not event.get(name)]
    if event.get("type") not in ("Normal", "Warning"):
        out.append(status.invalid("type", event.get("type", ""), ""))
    return out


def _validate_lease(lease: Obj) -> list[Cause]:
    spec = lease["spec"]
    return [
        status.invalid(f"spec.{name}", spec[name], "must be greater than " + bound)
        for name, low, bound in (
            ("leaseDurationSeconds", 1, "0"),
            ("leaseTransitions", 0, "or equal to 0"),
        )
        if spec.get(name) is not None and spec[name] < low
    ]


def _validate_priority_class(item: Obj) -> list[Cause]:
    name, value = item["metadata"].get("name", ""), item["value"]
    if name.startswith("system-"):
        if name in ("system-cluster-critical", "system-node-critical"):
            return []
        return [
            status.forbidden(
                "metadata.name",
                "priority class names with 'system-' prefix are reserved for system use only",
            )
        ]
    if value > 1_000_000_000:
        return [
            status.forbidden(
                "value", "maximum allowed value of a user defined priority is 1000000000"
            )
        ]
    return []


def _validate_node_update(new: Obj, old: Obj) -> list[Cause]:
    out = _validate_node(new)
    before = old["spec"].get("podCIDRs")
    if before and new["spec"].get("podCIDRs") != before:
        text = 'node updates may not change podCIDR except from "" to valid'
        out.append(status.forbidden("spec.podCIDRs", text))
    return out


def _default_priority_class(item: Obj) -> None:
    item.setdefault("preemptionPolicy", "PreemptLowerPriority")


def _default_storage_class(item: Obj) -> None:
    item.setdefault("reclaimPolicy", "Delete")
    item.setdefault("volumeBindingMode", "Immediate")


def _default_volume_claim(item: Obj) -> None:
    item["spec"].setdefault("volumeMode", "Filesystem")


def _create_volume_claim(item: Obj) -> None:
    item["status"] = {"phase": "Pending"}
    finalizers = item["metadata"].get("finalizers") or []
    if "kubernetes.io/pvc-protection" not in finalizers:
        item["metadata"]["finalizers"] = [*finalizers, "kubernetes.io/pvc-protection"]


def _default_volume(item: Obj) -> None:
    item["spec"].setdefault("persistentVolumeReclaimPolicy", "Retain")
    item["spec"].setdefault("volumeMode", "Filesystem")


def _create_volume(item: Obj) -> None:
    item["status"] = {"phase": "Pending"}
    finalizers = item["metadata"].get("finalizers") or []
    if "kubernetes.io/pv-protection" not in finalizers:
        item["metadata"]["finalizers"] = [*finalizers, "kubernetes.io/pv-protection"]


def _create_budget(item: Obj) -> None:
    item["status"] = {
        "disruptionsAllowed": 0,
        "currentHealthy": 0,
        "desiredHealthy": 0,
        "expectedPods": 0,
    }


def _default_template(item: Obj) -> None:
    pods.set_spec_defaults(item["spec"]["template"]["spec"])
    if "replicas" not in item["spec"] and item.get("kind") == "ReplicaSet":
        item["spec"]["replicas"] = 1


_POD_FIELDS = (
    "spec.nodeName",
    "spec.restartPolicy",
    "spec.schedulerName",
    "spec.serviceAccountName",
    "spec.hostNetwork",
    "status.phase",
    "status.podIP",
    "status.podIPs",
    "status.nominatedNodeName",
)
_EVENT_FIELDS = (
    *(
        f"involvedObject.{name}"
        for name in (
            "kind",
            "namespace",
            "name",
            "uid",
            "apiVersion",
            "resourceVersion",
            "fieldPath",
        )
    ),
    "reason",
    "reportingComponent",
    "source",
    "type",
)


def builtin() -> list[Resource]:
    """The built-in resources."""
    return [
        Resource(
            group="",
            version="v1",
            plural="pods",
            kind="Pod",
            struct="core/v1.Pod",
            namespaced=True,
            short_names=("po",),
            categories=("all",),
            subresources=("status", "binding", "eviction"),
            fields=_POD_FIELDS,
            returns_object=True,
            rules=Rules(
                default=pods.set_defaults,
                create=pods.prepare_create,
                validate=pods.validate_create,
                update=pods.prepare_update,
                validate_update=pods.validate_update,
                status=pods.prepare_status,
                validate_status=pods.validate_status,
            ),
        ),
        Resource(
            group="",
            version="v1",
            plural="nodes",
            kind="Node",
            struct="core/v1.Node",
            namespaced=False,
            short_names=("no",),
            subresources=("status",),
            fields=("spec.unschedulable",),
            rules=Rules(
                default=_default_node,
                validate=_validate_node,
                validate_update=_validate_node_update,
                update=_keep_status,
                status=_keep_spec,
            ),
        ),
        Resource(
            group="",
            version="v1",
            plural="namespaces",
            kind="Namespace",
            struct="core/v1.Namespace",
            namespaced=False,
            short_names=("ns",),
            subresources=("status", "finalize"),
            fields=("status.phase",),
            check_name=meta.dns_label,
            returns_object=True,
            rules=Rules(
                default=_default_namespace,
                create=_create_namespace,
                update=_keep_namespace,
                status=_keep_spec,
            ),
        ),
        _simple("", "v1", "configmaps", "ConfigMap", "core/v1.ConfigMap", short_names=("cm",)),
        _simple(
            "",
            "v1",
            "secrets",
            "Secret",
            "core/v1.Secret",
            fields=("type",),
            rules=Rules(default=_default_secret),
        ),
        _simple(
            "",
            "v1",
            "serviceaccounts",
            "ServiceAccount",
            "core/v1.ServiceAccount",
            short_names=("sa",),
            returns_object=True,
        ),
        _simple(
            "",
            "v1",
            "persistentvolumeclaims",
            "PersistentVolumeClaim",
            "core/v1.PersistentVolumeClaim",
            short_names=("pvc",),
            subresources=("status",),
            returns_object=True,
            rules=Rules(
                default=_default_volume_claim,
                create=_create_volume_claim,
                update=_keep_status,
                status=_keep_spec,
            ),
        ),
        _simple(
            "",
            "v1",
            "persistentvolumes",
            "PersistentVolume",
            "core/v1.PersistentVolume",
            namespaced=False,
            short_names=("pv",),
            subresources=("status",),
            returns_object=True,
            rules=Rules(
                default=_default_volume,
                create=_create_volume,
                update=_keep_status,
                status=_keep_spec,
            ),
        ),
        _simple(
            "resource.k8s.io",
            "v1",
            "resourceclaims",
            "ResourceClaim",
            "resource/v1.ResourceClaim",
            subresources=("status",),
            returns_object=True,
            rules=Rules(
                default=claims.set_defaults,
                create=claims.prepare_create,
                update=claims.prepare_update,
                validate_update=claims.validate_update,
                status=claims.prepare_status,
                validate_status=claims.validate_status,
            ),
        ),
        _simple(
            "resource.k8s.io",
            "v1",
            "resourceclaimtemplates",
            "ResourceClaimTemplate",
            "resource/v1.ResourceClaimTemplate",
            returns_object=True,
            rules=Rules(default=claims.set_template_defaults),
        ),
        _simple(
            "resource.k8s.io",
            "v1",
            "resourceslices",
            "ResourceSlice",
            "resource/v1.ResourceSlice",
            namespaced=False,
            fields=("spec.nodeName", "spec.driver"),
            returns_object=True,
            rules=Rules(generation=("spec",)),
        ),
        _simple(
            "resource.k8s.io",
            "v1",
            "deviceclasses",
            "DeviceClass",
            "resource/v1.DeviceClass",
            namespaced=False,
            returns_object=True,
            rules=Rules(generation=("spec",)),
        ),
        _simple(
            "resource.k8s.io",
            "v1",
            "devicetaintrules",
            "DeviceTaintRule",
            "resource/v1.DeviceTaintRule",
            namespaced=False,
            subresources=("status",),
            returns_object=True,
            rules=Rules(update=_keep_status, status=_keep_spec, generation=("spec",)),
        ),
        _simple(
            "",
            "v1",
            "events",
            "Event",
            "core/v1.Event",
            short_names=("ev",),
            fields=_EVENT_FIELDS,
            check_name=meta.path_segment,
            create_on_update=True,
            rules=Rules(validate=_validate_event),
        ),
        _simple(
            "events.k8s.io",
            "v1",
            "events",
            "Event",
            "events/v1.Event",
            store="events",
            short_names=("ev",),
            fields=_EVENT_FIELDS,
            check_name=meta.path_segment,
            create_on_update=True,
            rules=Rules(validate=_validate_new_event),
        ),
        _simple(
            "coordination.k8s.io",
            "v1",
            "leases",
            "Lease",
            "coordination/v1.Lease",
            unconditional=False,
            create_on_update=True,
            rules=Rules(validate=_validate_lease),
        ),
        _simple(
            "policy",
            "v1",
            "poddisruptionbudgets",
            "PodDisruptionBudget",
            "policy/v1.PodDisruptionBudget",
            short_names=("pdb",),
            subresources=("status",),
            unconditional=False,
            rules=Rules(
                create=_create_budget,
                update=_keep_status,
                status=_keep_spec,
                generation=("spec",),
            ),
        ),
        _simple(
            "scheduling.k8s.io",
            "v1",
            "priorityclasses",
            "PriorityClass",
            "scheduling/v1.PriorityClass",
            namespaced=False,
            short_names=("pc",),
            rules=Rules(
                default=_default_priority_class,
                validate=_validate_priority_class,
                generation=("value",),
            ),
        ),
        _simple(
            "storage.k8s.io",
            "v1",
            "storageclasses",
            "StorageClass",
            "storage/v1.StorageClass",
            namespaced=False,
            short_names=("sc",),
            returns_object=True,
            rules=Rules(default=_default_storage_class),
        ),
        _simple(
            "storage.k8s.io",
            "v1",
            "csinodes",
            "CSINode",
            "storage/v1.CSINode",
            namespaced=False,
            returns_object=True,
            unconditional=False,
        ),
        _simple(
            "storage.k8s.io",
            "v1",
            "csidrivers",
            "CSIDriver",
            "storage/v1.CSIDriver",
            namespaced=False,
            returns_object=True,
            unconditional=False,
        ),
        _simple(
            "storage.k8s.io",
            "v1",
            "csistoragecapacities",
            "CSIStorageCapacity",
            "storage/v1.CSIStorageCapacity",
            unconditional=False,
        ),
        _simple(
            "node.k8s.io",
            "v1",
            "runtimeclasses",
            "RuntimeClass",
            "node/v1.RuntimeClass",
            namespaced=False,
            unconditional=False,
        ),
        _simple(
            "apps",
            "v1",
            "replicasets",
            "ReplicaSet",
            "apps/v1.ReplicaSet",
            short_names=("rs",),
            categories=("all",),
            subresources=("status",),
            rules=Rules(
                default=_default_template,
                update=_keep_status,
                status=_keep_spec,
                generation=("spec",),
            ),
        ),
        _simple(
            "apps",
            "v1",
            "daemonsets",
            "DaemonSet",
            "apps/v1.DaemonSet",
            short_names=("ds",),
            categories=("all",),
            subresources=("status",),
            rules=Rules(
                default=_default_template,
                update=_keep_status,
                status=_keep_spec,
                generation=("spec",),
            ),
        ),
    ]


def _simple(group: str, version: str, plural: str, kind: str, struct: str, **more: Any) -> Resource:
    more.setdefault("namespaced", True)
    return Resource(group=group, version=version, plural=plural, kind=kind, struct=struct, **more)
