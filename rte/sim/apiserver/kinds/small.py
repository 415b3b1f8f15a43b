"""Rules of kinds that have few."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rte.sim.apiserver import status
from rte.sim.apiserver.kinds.resource import KindRules

if TYPE_CHECKING:
    from rte.sim.apiserver.status import Cause
    from rte.sim.apiserver.storage.store import Obj

_EVERYTHING = {"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"]}
_EVERY_PATH = {"verbs": ["*"], "nonResourceURLs": ["*"]}


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
    if name in ("system-cluster-critical", "system-node-critical"):
        return []
    if name.startswith("system-"):
        text = "priority class names with 'system-' prefix are reserved for system use only"
        return [status.forbidden("metadata.name", text)]
    if value > 1_000_000_000:
        text = "maximum allowed value of a user defined priority is 1000000000"
        return [status.forbidden("value", text)]
    return []


def _create_budget(item: Obj) -> None:
    """A new budget allows nothing until its controller has counted."""
    names = ("disruptionsAllowed", "currentHealthy", "desiredHealthy", "expectedPods")
    item["status"] = dict.fromkeys(names, 0)


def _default_binding(item: Obj) -> None:
    for subject in item.get("subjects") or ():
        if subject["kind"] in ("User", "Group"):
            subject.setdefault("apiGroup", item["roleRef"]["apiGroup"])


def _default_policy(item: Obj) -> None:
    if "policyTypes" not in item["spec"]:
        sends = bool(item["spec"].get("egress"))
        item["spec"]["policyTypes"] = ["Ingress", *(["Egress"] if sends else [])]


def _allow(item: Obj) -> None:
    """Whoever may call at all may do everything here."""
    item["status"] = {"allowed": True}


def _allow_all(item: Obj) -> None:
    item["status"] = {
        "resourceRules": [_EVERYTHING], "nonResourceRules": [_EVERY_PATH], "incomplete": False,
    }  # fmt: skip


def _name_nobody(item: Obj) -> None:
    """Callers are not told apart here."""
    user = {"username": "system:anonymous", "groups": ["system:unauthenticated"]}
    item["status"] = {"userInfo": user}


RULES = {
    "coordination/v1.Lease": KindRules(validate=_validate_lease),
    "scheduling/v1.PriorityClass": KindRules(
        validate=_validate_priority_class, generation=("value",)
    ),
    "policy/v1.PodDisruptionBudget": KindRules(create=_create_budget, generation=("spec",)),
    "rbac/v1.RoleBinding": KindRules(default=_default_binding),
    "rbac/v1.ClusterRoleBinding": KindRules(default=_default_binding),
    "networking/v1.NetworkPolicy": KindRules(default=_default_policy, generation=("spec",)),
    "authorization/v1.SelfSubjectAccessReview": KindRules(create=_allow),
    "authorization/v1.SubjectAccessReview": KindRules(create=_allow),
    "authorization/v1.LocalSubjectAccessReview": KindRules(create=_allow),
    "authorization/v1.SelfSubjectRulesReview": KindRules(create=_allow_all),
    "authentication/v1.SelfSubjectReview": KindRules(create=_name_nobody),
}
