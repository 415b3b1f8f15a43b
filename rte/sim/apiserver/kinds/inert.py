"""Kinds of which the API server here knows no rule, and which no controller acts upon.

Manifests hold them; PodGroups are for the scheduler.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rte.sim.apiserver.kinds import meta
from rte.sim.apiserver.kinds.resource import KindRules, ServedResource, keep_spec, keep_status

if TYPE_CHECKING:
    from rte.sim.apiserver.storage.store import Obj

_RBAC = "rbac.authorization.k8s.io"


def _default_service(item: Obj) -> None:
    spec = item["spec"]
    spec.setdefault("sessionAffinity", "None")
    spec.setdefault("type", "ClusterIP")
    spec.setdefault("internalTrafficPolicy", "Cluster")
    for port in spec.get("ports", ()):
        port.setdefault("protocol", "TCP")
        if port.get("targetPort") in (None, 0, ""):
            port["targetPort"] = port["port"]


def _default_binding(item: Obj) -> None:
    if not item["roleRef"].get("apiGroup"):
        item["roleRef"]["apiGroup"] = _RBAC
    for subject in item.get("subjects") or ():
        if subject["kind"] in ("User", "Group"):
            subject.setdefault("apiGroup", _RBAC)


def _default_policy(item: Obj) -> None:
    if "policyTypes" not in item["spec"]:
        sends = bool(item["spec"].get("egress"))
        item["spec"]["policyTypes"] = ["Ingress", *(["Egress"] if sends else [])]


def _default_admission(item: Obj) -> None:
    item["spec"].setdefault("failurePolicy", "Fail")


def _allow(item: Obj) -> None:
    """Whoever may call at all may do everything here."""
    item["status"] = {"allowed": True}


def inert() -> list[ServedResource]:
    """The resources."""
    policies = "admissionregistration.k8s.io"
    binding = KindRules(default=_default_binding)
    role: dict[str, Any] = {"group": _RBAC, "version": "v1", "check_name": meta.path_segment}
    admission: dict[str, Any] = {
        "group": policies, "version": "v1", "namespaced": False, "categories": ("api-extensions",),
    }  # fmt: skip
    return [
        ServedResource(
            group="", version="v1", plural="services", kind="Service", struct="core/v1.Service",
            namespaced=True, short_names=("svc",), categories=("all",), subresources=("status",),
            returns_object=True, rules=KindRules(default=_default_service, update=keep_status),
        ),
        ServedResource(
            group="", version="v1", plural="resourcequotas", kind="ResourceQuota",
            struct="core/v1.ResourceQuota", namespaced=True, short_names=("quota",),
            subresources=("status",), returns_object=True, rules=KindRules(update=keep_status),
        ),
        ServedResource(
            group="scheduling.k8s.io", version="v1beta1", plural="podgroups", kind="PodGroup",
            struct="scheduling/v1beta1.PodGroup", namespaced=True, subresources=("status",),
            rules=KindRules(update=keep_status, status=keep_spec, generation=("spec",)),
        ),
        ServedResource(
            group="authorization.k8s.io", version="v1", plural="selfsubjectaccessreviews",
            kind="SelfSubjectAccessReview", struct="authorization/v1.SelfSubjectAccessReview",
            namespaced=False, is_stored=False, rules=KindRules(create=_allow),
        ),
        ServedResource(
            group="networking.k8s.io", version="v1", plural="networkpolicies",
            kind="NetworkPolicy", struct="networking/v1.NetworkPolicy", namespaced=True,
            short_names=("netpol",),
            rules=KindRules(default=_default_policy, generation=("spec",)),
        ),
        ServedResource(
            **role, plural="roles", kind="Role", struct="rbac/v1.Role", namespaced=True,
        ),
        ServedResource(
            **role, plural="clusterroles", kind="ClusterRole", struct="rbac/v1.ClusterRole",
            namespaced=False,
        ),
        ServedResource(
            **role, plural="rolebindings", kind="RoleBinding", struct="rbac/v1.RoleBinding",
            namespaced=True, rules=binding,
        ),
        ServedResource(
            **role, plural="clusterrolebindings", kind="ClusterRoleBinding",
            struct="rbac/v1.ClusterRoleBinding", namespaced=False, rules=binding,
        ),
        ServedResource(
            **admission, plural="validatingadmissionpolicies", kind="ValidatingAdmissionPolicy",
            struct="admissionregistration/v1.ValidatingAdmissionPolicy",
            subresources=("status",),
            rules=KindRules(default=_default_admission, update=keep_status, generation=("spec",)),
        ),
        ServedResource(
            **admission, plural="validatingadmissionpolicybindings",
            kind="ValidatingAdmissionPolicyBinding",
            struct="admissionregistration/v1.ValidatingAdmissionPolicyBinding",
            rules=KindRules(generation=("spec",)),
        ),
    ]  # fmt: skip
