"""Custom resource definitions: their own rules, and the resources that they serve."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rte.sim.apiserver import status
from rte.sim.apiserver.kinds.resource import KindRules, ServedResource, Subresource
from rte.sim.apiserver.schema.structural import Definition

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rte.sim.apiserver.status import Cause
    from rte.sim.apiserver.storage.store import Obj


def _validate_definition(crd: Obj) -> list[Cause]:
    """Rules for a CustomResourceDefinition as far as a manifest of ours could break them."""
    spec = crd["spec"]
    name = f"{spec['names']['plural']}.{spec['group']}"
    out: list[Cause] = []
    if crd["metadata"].get("name") != name:
        out.append(
            status.invalid(
                "metadata.name",
                crd["metadata"].get("name", ""),
                'must be spec.names.plural+"."+spec.group',
            )
        )
    out += [
        status.required(f"spec.{path}")
        for path, value in (
            ("group", spec["group"]),
            ("names.plural", spec["names"]["plural"]),
            ("names.kind", spec["names"]["kind"]),
            ("scope", spec["scope"]),
            ("versions", spec["versions"]),
        )
        if not value
    ]
    if sum(bool(version["storage"]) for version in spec["versions"] or ()) != 1:
        out.append(
            status.invalid(
                "spec.versions", "", "must have exactly one version marked as storage version"
            )
        )
    for index, version in enumerate(spec["versions"] or ()):
        if not (version.get("schema") or {}).get("openAPIV3Schema"):
            path = f"spec.versions[{index}].schema.openAPIV3Schema"
            out.append(status.required(path, "schemas are required"))
    group = spec["group"]
    approved = (crd["metadata"].get("annotations") or {}).get("api-approved.kubernetes.io")
    if (group.endswith((".k8s.io", ".kubernetes.io"))) and not approved:
        out.append(
            status.required(
                'metadata.annotations["api-approved.kubernetes.io"]',
                "protected groups must have approval annotation "
                '"api-approved.kubernetes.io", see https://github.com/kubernetes/enhancements/pull/1111',
            )
        )
    return out


def _default_definition(crd: Obj) -> None:
    """Names that follow from others."""
    names = crd["spec"]["names"]
    names.setdefault("singular", names["kind"].lower())
    names.setdefault("listKind", f"{names['kind']}List")


def _create_definition(crd: Obj) -> None:
    """Status as soon as the names are accepted (the real server takes a moment)."""
    spec = crd["spec"]
    crd["metadata"]["generation"] = 1
    crd["status"] = {
        "conditions": [
            {
                "type": kind,
                "status": "True",
                "lastTransitionTime": crd["metadata"]["creationTimestamp"],
                "reason": reason,
                "message": message,
            }
            for kind, reason, message in (
                ("NamesAccepted", "NoConflicts", "no conflicts found"),
                ("Established", "InitialNamesAccepted", "the initial names have been accepted"),
            )
        ],
        "acceptedNames": dict(spec["names"]),
        "storedVersions": [v["name"] for v in spec["versions"] if v["storage"]],
    }


_STATUS_VERBS = ("get", "patch", "update")
TABLE = "customresourcedefinitions.apiextensions.k8s.io"
RULES = {
    "apiextensions/v1.CustomResourceDefinition": KindRules(
        default=_default_definition,
        create=_create_definition,
        validate=_validate_definition,
        generation=("spec",),
    )
}


def served(crd: Obj) -> Iterator[ServedResource]:
    """The resources that a definition serves, one for each served version."""
    spec = crd["spec"]
    names = spec["names"]
    for version in spec["versions"]:
        if not version["served"]:
            continue
        has_status = "status" in (version.get("subresources") or {})
        status_of_kind = Subresource("", "", names["kind"], _STATUS_VERBS)
        definition = Definition(
            schema=(version.get("schema") or {}).get("openAPIV3Schema") or {},
            columns=tuple(version.get("additionalPrinterColumns") or ()),
            has_status=has_status,
        )
        yield ServedResource(
            group=spec["group"],
            version=version["name"],
            plural=names["plural"],
            kind=names["kind"],
            singular=names.get("singular", ""),
            namespaced=spec["scope"] == "Namespaced",
            short_names=tuple(names.get("shortNames") or ()),
            categories=tuple(names.get("categories") or ()),
            subresources={"status": status_of_kind} if has_status else {},
            unconditional=False,
            definition=definition,
            rules=KindRules(
                validate=definition.validate,
                status=_only_status,
            ),
        )


def _only_status(new: Obj, old: Obj) -> None:
    for key in [key for key in new if key not in ("status", "metadata")]:
        del new[key]
    new.update({key: value for key, value in old.items() if key not in ("status", "metadata")})
    version = new["metadata"].get("resourceVersion")
    new["metadata"] = {**old["metadata"]}
    if version:
        new["metadata"]["resourceVersion"] = version
