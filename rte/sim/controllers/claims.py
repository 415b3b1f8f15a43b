"""Stands in for kube-controller-manager's resourceclaim controller.

Makes the claims that pods ask for by templates, and takes them back: a pod that has ended (or is
gone) no longer reserves a claim, a claim that nobody reserves gives its devices back, and claims
made for a pod that has ended are deleted.
"""

from __future__ import annotations

import contextlib
import secrets
from typing import TYPE_CHECKING

from rte.sim.apiserver import StatusError
from rte.sim.controllers.controller import Controller, Obj, has_ended

if TYPE_CHECKING:
    from collections.abc import Mapping


_FINALIZER = "resource.kubernetes.io/delete-protection"


class ClaimController(Controller):
    """Brings claims into line with pods whenever either changes."""

    watched = ("pods", "resourceclaims", "resourceclaimtemplates")

    def sync(self) -> None:
        """One look at everything."""
        pods = {obj["metadata"]["uid"]: obj for obj in self.api.list("pods").items}
        claims = self.api.list("resourceclaims").items
        for pod in pods.values():
            if not _is_over(pod):
                self._make(pod, claims)
        for claim in claims:
            # Another writer is faster: its write wakes us again.
            with contextlib.suppress(StatusError):
                self._tidy(claim, pods)

    def _make(self, pod: Obj, claims: list[Obj]) -> None:
        metadata, told = pod["metadata"], pod["status"].get("resourceClaimStatuses") or []
        known = {one["name"] for one in told}
        for entry in pod["spec"].get("resourceClaims") or ():
            template = entry.get("resourceClaimTemplateName")
            if not template or entry["name"] in known:
                continue
            with contextlib.suppress(StatusError):  # no template yet, or the pod is gone
                name = self._claim_of(pod, entry["name"], template, claims)
                told = [*told, {"name": entry["name"], "resourceClaimName": name}]
                self.api.patch(
                    "pods",
                    metadata["name"],
                    {"status": {"resourceClaimStatuses": told}},
                    metadata["namespace"],
                    subresource="status",
                )

    def _claim_of(self, pod: Obj, entry: str, template: str, claims: list[Obj]) -> str:
        """The claim made for an entry of a pod; a new one where there is none."""
        metadata = pod["metadata"]
        annotation = "resource.kubernetes.io/pod-claim-name"
        for claim in claims:
            annotations = claim["metadata"].get("annotations") or {}
            if metadata["uid"] in _owners(claim) and annotations.get(annotation) == entry:
                return str(claim["metadata"]["name"])
        spec = self.api.get("resourceclaimtemplates", template, metadata["namespace"])["spec"]
        owner = {
            "apiVersion": "v1",
            "kind": "Pod",
            "name": metadata["name"],
            "uid": metadata["uid"],
            "controller": True,
            "blockOwnerDeletion": True,
        }
        made = {
            "metadata": {
                "name": f"{metadata['name']}-{entry}-{secrets.token_hex(3)}",
                "annotations": {annotation: entry},
                "ownerReferences": [owner],
            },
            "spec": spec["spec"],
        }
        return str(
            self.api.create("resourceclaims", made, metadata["namespace"])["metadata"]["name"]
        )

    def _tidy(self, claim: Obj, pods: Mapping[str, Obj]) -> None:
        metadata, status = claim["metadata"], claim.get("status") or {}
        namespace, name = metadata["namespace"], metadata["name"]
        reserved = status.get("reservedFor") or []
        left = [one for one in reserved if not _is_over(pods.get(one["uid"]))]
        guard = {"resourceVersion": metadata["resourceVersion"]}
        if len(left) < len(reserved):
            changed: Obj = {"reservedFor": left or None}
            if not left:
                changed["allocation"] = None
            body = {"metadata": guard, "status": changed}
            self.api.patch("resourceclaims", name, body, namespace, subresource="status")
            return
        owners = _owners(claim)
        if owners and all(_is_over(pods.get(uid)) for uid in owners):
            if not metadata.get("deletionTimestamp"):
                self.api.delete("resourceclaims", name, namespace)
                return
        elif not metadata.get("deletionTimestamp"):
            return
        finalizers = metadata.get("finalizers") or []
        if not reserved and _FINALIZER in finalizers:
            if status.get("allocation"):
                body = {"metadata": guard, "status": {"allocation": None}}
                self.api.patch("resourceclaims", name, body, namespace, subresource="status")
                return
            rest = [one for one in finalizers if one != _FINALIZER]
            body = {"metadata": {**guard, "finalizers": rest or None}}
            self.api.patch("resourceclaims", name, body, namespace)


def _owners(claim: Obj) -> list[str]:
    owners = claim["metadata"].get("ownerReferences") or ()
    return [one["uid"] for one in owners if one["kind"] == "Pod" and one.get("controller")]


def _is_over(pod: Obj | None) -> bool:
    return pod is None or has_ended(pod)
