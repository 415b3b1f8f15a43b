"""What VolumeBinding has written before a bind, and what it waits for.

Neither write is undone, as in kube-scheduler: the volume controller completes a volume that names
its claim, and a provisioner takes the chosen node back itself when it cannot make a volume there.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from rte.scheduler.framework.claims.storage import (
    BIND_COMPLETED,
    BOUND_BY_CONTROLLER,
    SELECTED_NODE,
)
from rte.scheduler.framework.writes import Impossible, Step, Wait, WriteTarget

if TYPE_CHECKING:
    from collections.abc import Mapping

    from rte.scheduler.framework.claims.storage import Claim, PersistentVolume
    from rte.scheduler.framework.writes import Found


@dataclass(frozen=True, kw_only=True)
class TakenVolume:
    """The volume names the claim that it is for."""

    claim: Claim
    volume: PersistentVolume

    @property
    def target(self) -> WriteTarget:
        """The volume."""
        return WriteTarget("volumes", self.volume.name)

    @property
    def known(self) -> Found:
        """It was free, or named the claim without its UID."""
        reference = {"namespace": self.claim.namespace, "name": self.claim.name}
        return {
            "metadata": {"resourceVersion": self.volume.version},
            "spec": {"claimRef": reference} if self.volume.claim else {},
        }

    def next(self, found: Found) -> Step | Impossible | None:
        """Name the claim, unless another one is named."""
        if found is None:
            return Impossible(f'persistentvolume "{self.volume.name}" is gone')
        named = (found.get("spec") or {}).get("claimRef") or {}
        ours = (named.get("namespace"), named.get("name")) == (
            self.claim.namespace,
            self.claim.name,
        )
        uid = named.get("uid") or ""
        if named and not (ours and uid in ("", self.claim.uid)):
            return Impossible(f'persistentvolume "{self.volume.name}" is taken')
        if uid:
            return None
        reference = {
            "apiVersion": "v1",
            "kind": "PersistentVolumeClaim",
            "namespace": self.claim.namespace,
            "name": self.claim.name,
            "uid": self.claim.uid,
        }
        patch: dict[str, Any] = {"spec": {"claimRef": reference}}
        if not named:
            # Whoever named the claim before keeps the volume to it, for its next claim as well.
            patch["metadata"] = {"annotations": {BOUND_BY_CONTROLLER: "yes"}}
        return Step("patch", patch)

    def undo(self, found: Found) -> None:  # noqa: ARG002
        """Stays as it is."""
        return


@dataclass(frozen=True, kw_only=True)
class BoundClaim:
    """The claim is bound by the volume controller; ``node``: a volume is to be made for it."""

    claim: Claim
    node: str = ""

    @property
    def target(self) -> WriteTarget:
        """The claim."""
        return WriteTarget("claims", self.claim.name, self.claim.namespace)

    @property
    def known(self) -> Found:
        """It was not bound."""
        annotations = {SELECTED_NODE: self.claim.selected_node} if self.claim.selected_node else {}
        return {
            "metadata": {
                "uid": self.claim.uid,
                "resourceVersion": self.claim.version,
                "annotations": annotations,
            }
        }

    def next(self, found: Found) -> Step | Wait | Impossible | None:
        """Name the node, then wait; a provisioner that gives the node up removes its name."""
        metadata: Mapping[str, Any] = (found or {}).get("metadata") or {}
        name = self.claim.name
        if metadata.get("uid") != self.claim.uid or metadata.get("deletionTimestamp"):
            return Impossible(f'persistentvolumeclaim "{name}" is gone')
        annotations = metadata.get("annotations") or {}
        if ((found or {}).get("spec") or {}).get("volumeName") and BIND_COMPLETED in annotations:
            return None
        chosen = annotations.get(SELECTED_NODE)
        if self.node and chosen != self.node:
            if metadata.get("resourceVersion") != self.claim.version:
                return Impossible(f'no volume for persistentvolumeclaim "{name}" on {self.node}')
            return Step("patch", {"metadata": {"annotations": {SELECTED_NODE: self.node}}})
        return Wait(f'persistentvolumeclaim "{name}" was not bound in time')

    def undo(self, found: Found) -> None:  # noqa: ARG002
        """Stays as it is."""
        return
