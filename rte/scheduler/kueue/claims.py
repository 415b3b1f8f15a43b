"""The claims that pods of a Workload will have: kube-controller-manager makes them from templates
when the pods are there (pkg/controller/resourceclaim).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import structs

from rte.placement.dra import decode
from rte.scheduler.framework.claims.devices import KnownClaim

if TYPE_CHECKING:
    from collections.abc import Mapping

    from rte.placement.dra.objects import ResourceClaim
    from rte.reader.json import Json
    from rte.scheduler.framework.objects import PodView


def read_template(obj: Json) -> ResourceClaim:
    """A claim as it is made from a ResourceClaimTemplate.

    Raises:
        errors.ParseError: it is malformed.
    """
    metadata, spec = obj.get("metadata") or {}, obj.get("spec") or {}
    named = {key: metadata[key] for key in ("namespace", "name") if metadata.get(key)}
    return decode.resource_claim({"metadata": named, "spec": spec.get("spec")})


def missing_template(pod: PodView, templates: Mapping[str, ResourceClaim]) -> str:
    """A template that the pod names and that is not known, as ``namespace/name``; empty: none."""
    named = (each.resource_claim_template_name for each in pod.shape.device_claims)
    keys = (f"{pod.namespace}/{name}" for name in named if name is not None)
    return next((key for key in keys if key not in templates), "")


def claims_of(pod: PodView, templates: Mapping[str, ResourceClaim]) -> dict[str, KnownClaim]:
    """The claims of a pod that are made from templates, by the names that it gives them."""
    made = {}
    for each in pod.shape.device_claims:
        if each.resource_claim_template_name is None:
            continue
        template = templates[f"{pod.namespace}/{each.resource_claim_template_name}"]
        # No claim of the cluster has such a name.
        name = f"{pod.name}/{each.name}"
        uid = f"{pod.uid}/{each.name}"
        metadata = structs.replace(template.metadata, namespace=pod.namespace, name=name, uid=uid)
        made[each.name or ""] = KnownClaim(
            key=f"{pod.namespace}/{name}",
            claim=structs.replace(template, metadata=metadata),
            found={"metadata": {}},
            owner=pod.uid,
            version=0,
        )
    return made
