"""ReplicaSets and DaemonSets."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rte.sim.apiserver.kinds import pods

if TYPE_CHECKING:
    from rte.sim.apiserver.storage.store import Obj


def default_template(item: Obj) -> None:
    """Defaults of the pod template and of the number of replicas."""
    pods.set_spec_defaults(item["spec"]["template"]["spec"])
    if "replicas" not in item["spec"] and item.get("kind") == "ReplicaSet":
        item["spec"]["replicas"] = 1
