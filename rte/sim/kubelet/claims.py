"""Devices of DRA in a simulated kubelet: what the claims of a pod give to its containers.

A real kubelet prepares devices after admission, and tries again until each claim is allocated and
reserved for the pod. There is no driver here: what the API says of a claim is what a pod gets.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rte.model.node import ClaimedDevice
from rte.sim.apiserver import StatusError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from rte.sim.apiserver import API

Obj = dict[str, Any]
#: Container -> its devices.
Claimed = dict[str, tuple[ClaimedDevice, ...]]


def names(pod: Obj) -> dict[str, str | None]:
    """Entry of ``spec.resourceClaims`` -> claim; None while it is not known."""
    told = {
        one["name"]: one.get("resourceClaimName")
        for one in pod["status"].get("resourceClaimStatuses") or ()
    }
    return {
        entry["name"]: entry.get("resourceClaimName") or told.get(entry["name"])
        for entry in pod["spec"].get("resourceClaims") or ()
    }


def prepare(api: API, pod: Obj) -> Claimed | None:
    """What each container gets; None while a claim is not allocated and reserved for the pod."""
    metadata = pod["metadata"]
    devices: dict[str, list[tuple[str, ClaimedDevice]]] = {}
    for entry, name in names(pod).items():
        status = _status(api, name, metadata["namespace"])
        allocation = status.get("allocation")
        users = {one["uid"] for one in status.get("reservedFor") or ()}
        if name is None or allocation is None or metadata["uid"] not in users:
            return None
        devices[entry] = [
            (
                one["request"].partition("/")[0],
                ClaimedDevice(
                    namespace=metadata["namespace"],
                    claim=name,
                    driver=one["driver"],
                    pool=one["pool"],
                    device=one["device"],
                    share=one.get("shareID") or "",
                    cdi=(),
                ),
            )
            for one in allocation["devices"]["results"]
        ]
    boxes = (*(pod["spec"].get("initContainers") or ()), *pod["spec"]["containers"])
    return {box["name"]: tuple(_used(box, devices)) for box in boxes}


def _used(box: Obj, devices: Mapping[str, list[tuple[str, ClaimedDevice]]]) -> list[ClaimedDevice]:
    return [
        device
        for use in (box.get("resources") or {}).get("claims") or ()
        for request, device in devices.get(use["name"], ())
        if not use.get("request") or use["request"] == request
    ]


def _status(api: API, name: str | None, namespace: str) -> Obj:
    try:
        return api.get("resourceclaims", name or "", namespace).get("status") or {}
    except StatusError:
        return {}
