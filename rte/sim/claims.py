"""Stands in for kube-controller-manager's resourceclaim controller.

Makes the claims that pods ask for by templates, and takes them back: a pod that has ended (or is
gone) no longer reserves a claim, a claim that nobody reserves gives its devices back, and claims
made for a pod that has ended are deleted.
"""

from __future__ import annotations

import asyncio
import contextlib
import secrets
from typing import TYPE_CHECKING, Any

from rte.sim.apiserver import StatusError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from rte.sim.apiserver import API

Obj = dict[str, Any]

_FINALIZER = "resource.kubernetes.io/delete-protection"
_WATCHED = ("pods", "resourceclaims", "resourceclaimtemplates")


class ClaimController:
    """Brings claims into line with pods whenever either changes.

    Args:
        api: the objects.
    """

    def __init__(self, api: API) -> None:
        self._api = api

    async def run(self) -> None:
        """Work until cancelled."""
        changed = asyncio.Event()
        async with asyncio.TaskGroup() as group:
            for name in _WATCHED:
                group.create_task(self._follow(name, changed), name=f"claims: {name}")
            while True:
                await changed.wait()
                changed.clear()
                self.sync()

    async def _follow(self, name: str, changed: asyncio.Event) -> None:
        while True:
            watch = self._api.watch(name)
            changed.set()
            while await watch.batch():
                changed.set()

    def sync(self) -> None:
        """One look at everything."""
        pods = {obj["metadata"]["uid"]: obj for obj in self._api.list("pods").items}
        claims = self._api.list("resourceclaims").items
        for pod in pods.values():
            if not _has_ended(pod):
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
                self._api.patch(
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
        spec = self._api.get("resourceclaimtemplates", template, metadata["namespace"])["spec"]
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
            self._api.create("resourceclaims", made, metadata["namespace"])["metadata"]["name"]
        )

    def _tidy(self, claim: Obj, pods: Mapping[str, Obj]) -> None:
        metadata, status = claim["metadata"], claim.get("status") or {}
        namespace, name = metadata["namespace"], metadata["name"]
        reserved = status.get("reservedFor") or []
        left = [one for one in reserved if not _has_ended(pods.get(one["uid"]))]
        guard = {"resourceVersion": metadata["resourceVersion"]}
        if len(left) < len(reserved):
            changed: Obj = {"reservedFor": left or None}
            if not left:
                changed["allocation"] = None
            body = {"metadata": guard, "status": changed}
            self._api.patch("resourceclaims", name, body, namespace, subresource="status")
            return
        owners = _owners(claim)
        if owners and all(_has_ended(pods.get(uid)) for uid in owners):
            if not metadata.get("deletionTimestamp"):
                self._api.delete("resourceclaims", name, namespace)
                return
        elif not metadata.get("deletionTimestamp"):
            return
        finalizers = metadata.get("finalizers") or []
        if not reserved and _FINALIZER in finalizers:
            if status.get("allocation"):
                body = {"metadata": guard, "status": {"allocation": None}}
                self._api.patch("resourceclaims", name, body, namespace, subresource="status")
                return
            rest = [one for one in finalizers if one != _FINALIZER]
            body = {"metadata": {**guard, "finalizers": rest or None}}
            self._api.patch("resourceclaims", name, body, namespace)


def _owners(claim: Obj) -> list[str]:
    owners = claim["metadata"].get("ownerReferences") or ()
    return [one["uid"] for one in owners if one["kind"] == "Pod" and one.get("controller")]


def _has_ended(pod: Obj | None) -> bool:
    return pod is None or pod["status"].get("phase") in ("Succeeded", "Failed")
