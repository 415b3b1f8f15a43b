"""The built-in resources: ``kinds.json``, as a real API server tells, with the rules known here.

Kinds without rules are held like any object: manifests have them, and no controller acts upon them.
"""

from __future__ import annotations

from importlib import resources

import orjson

from rte.sim.apiserver.kinds import claims, core, custom, events, meta, pods, small, workloads
from rte.sim.apiserver.kinds.resource import KindRules, ServedResource, Subresource

#: Sub-resources of pods that their kubelet answers.
SESSIONS = ("log", "exec", "attach", "portforward")
_SUBRESOURCES = ("status", "scale", "binding", "eviction", "finalize", *SESSIONS)

#: By struct.
_RULES: dict[str, KindRules] = {
    "core/v1.Pod": pods.RULES,
    "events/v1.Event": KindRules(validate=events.validate_new_event),
    "core/v1.Event": KindRules(validate=events.validate_event),
    **{
        struct: KindRules(generation=("spec",))
        for struct in (
            "resource/v1.ResourceSlice", "resource/v1.DeviceClass", "resource/v1.DeviceTaintRule",
            "scheduling/v1beta1.PodGroup", "admissionregistration/v1.ValidatingAdmissionPolicy",
            "admissionregistration/v1.ValidatingAdmissionPolicyBinding", "networking/v1.Ingress",
        )
    },
    **core.RULES,
    **claims.RULES,
    **small.RULES,
    **workloads.RULES,
    **custom.RULES,
}  # fmt: skip
_FIELDS = {
    "core/v1.Pod": (
        "spec.nodeName", "spec.restartPolicy", "spec.schedulerName", "spec.serviceAccountName",
        "spec.hostNetwork", "status.phase", "status.podIP", "status.podIPs",
        "status.nominatedNodeName",
    ),
    "core/v1.Node": ("spec.unschedulable",),
    "core/v1.Namespace": ("status.phase",),
    "core/v1.Secret": ("type",),
    "resource/v1.ResourceSlice": ("spec.nodeName", "spec.driver"),
    "batch/v1.Job": ("status.successful",),
    **dict.fromkeys(
        ("core/v1.Event", "events/v1.Event"),
        (
            "involvedObject.kind", "involvedObject.namespace", "involvedObject.name",
            "involvedObject.uid", "involvedObject.apiVersion", "involvedObject.resourceVersion",
            "involvedObject.fieldPath", "reason", "reportingComponent", "source", "type",
        ),
    ),
}  # fmt: skip
_NAMES = {
    "core/v1.Namespace": meta.dns_label,
    **dict.fromkeys(
        ("core/v1.Event", "events/v1.Event", "rbac/v1.Role", "rbac/v1.ClusterRole",
         "rbac/v1.RoleBinding", "rbac/v1.ClusterRoleBinding"),
        meta.path_segment,
    ),
}  # fmt: skip
_MADE_BY_PUT = ("core/v1.Event", "events/v1.Event", "coordination/v1.Lease")
#: PUT has to name the version that it changes.
_CONDITIONAL = (
    "coordination/v1.Lease", "policy/v1.PodDisruptionBudget", "storage/v1.CSINode",
    "storage/v1.CSIDriver", "storage/v1.CSIStorageCapacity", "node/v1.RuntimeClass",
)  # fmt: skip


def builtin() -> list[ServedResource]:
    """The built-in resources."""
    text = resources.files("rte.sim.apiserver.schema").joinpath("kinds.json").read_bytes()
    out = []
    for row in orjson.loads(text):
        struct, subresources = row["struct"], row.pop("subresources")
        for key in ("short_names", "categories", "verbs"):
            row[key] = tuple(row[key])
        out.append(
            ServedResource(
                **row,
                store="events" if row["plural"] == "events" else "",
                subresources={
                    name: Subresource(*subresources[name])
                    for name in _SUBRESOURCES
                    if name in subresources
                },
                fields=_FIELDS.get(struct, ()),
                check_name=_NAMES.get(struct, meta.subdomain),
                unconditional=struct not in _CONDITIONAL,
                create_on_update=struct in _MADE_BY_PUT,
                rules=_RULES.get(struct, KindRules()),
            )
        )
    return out
