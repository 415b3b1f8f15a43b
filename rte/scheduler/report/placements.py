"""Where a pod's containers are, told to the pod itself: once its kubelet has confirmed it.

A pod that carries the annotation ``topology.rte.dev/tell-placement: "true"`` gets the annotation
``topology.rte.dev/placement``, which a volume of the downward API shows to its containers. With
``kai`` in the place of ``true`` it gets ``kai.scheduler/numa-placement-observed``, by which
KAI-Scheduler (with its default ``reconstructAvailable``) knows what is free in each zone.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import orjson

from rte.model import bits
from rte.model.node import Holding
from rte.placement.dra import truth
from rte.scheduler.framework.objects import KAI_PLACEMENT, PLACEMENT, TELL_PLACEMENT

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from rte.model.node import NodeState
    from rte.placement.dra.truth import PodTruth
    from rte.scheduler.cache.cluster import Cluster
    from rte.scheduler.framework.node import NodeEntry
    from rte.scheduler.framework.objects import PodView

#: Time that one look may take: half a per cent of a core.
LOOK_S = 0.005
_NOTHING = Holding()


class Placements:
    """Looks at all nodes, once a second; at one only when something there has changed.

    Args:
        cluster: what is known.
        tell: writes a text into an annotation of a pod; until that is seen it is not asked again.
        clock: seconds of a monotonic clock.
    """

    def __init__(
        self,
        cluster: Cluster,
        tell: Callable[[PodView, str, str], None],
        clock: Callable[[], float],
    ) -> None:
        self._cluster = cluster
        self._tell = tell
        self._clock = clock
        self._seen: dict[str, object] = {}
        #: UID -> what was written last.
        self._told: dict[str, str] = {}

    def look(self, *, active: bool) -> None:
        """Tell what has changed; a replica that stands by tells nothing."""
        if not active:
            self._seen.clear()
            return
        nodes = self._cluster.nodes
        self._seen = {name: stamp for name, stamp in self._seen.items() if name in nodes}
        self._told = {uid: text for uid, text in self._told.items() if uid in self._cluster.pods}
        until = self._clock() + LOOK_S
        for name, entry in nodes.items():
            stamp = (entry.changed, self._cluster.devices.fleet.version(name))
            if self._seen.get(name) == stamp:
                continue
            if self._clock() >= until:
                return
            self._seen[name] = stamp
            self._look_at(entry)

    def _look_at(self, entry: NodeEntry) -> None:
        asking = [
            pod
            for pod in entry.pods.values()
            if pod.annotations.get(TELL_PLACEMENT) in ("true", "kai") and not pod.terminal
        ]
        state = entry.report.state if entry.report else None
        if not asking or state is None or entry.distrust():
            return
        devices = self._devices(entry, state, asking)
        for pod in asking:
            if pod.kubelet_uid not in state.admitted:
                continue
            if pod.annotations[TELL_PLACEMENT] == "kai":
                annotation, text = KAI_PLACEMENT, describe_for_kai(state, pod.kubelet_uid)
            else:
                annotation = PLACEMENT
                text = describe(state, pod.kubelet_uid, devices.get(pod.uid))
            if text not in (pod.annotations.get(annotation), self._told.get(pod.uid)):
                self._told[pod.uid] = text
                self._tell(pod, annotation, text)

    def _devices(
        self, entry: NodeEntry, state: NodeState, pods: Iterable[PodView]
    ) -> dict[str, PodTruth]:
        """UID -> where the devices of its claims are."""
        devices = self._cluster.devices
        claims = {claim.uid: claim for pod in pods for claim in devices.used_by(pod.uid)}
        if not claims or entry.info is None or entry.report is None:
            return {}
        supply = devices.fleet.supply(devices.node(entry.info))
        found = truth.observe(state, entry.report.pci, claims.values(), supply)
        return {one.uid: one for one in found}


def describe(state: NodeState, uid: str, claimed: PodTruth | None = None) -> str:
    """The annotation's value: JSON of what the kubelet says that the pod holds for its own.

    ``containers``: name -> ``cpus`` (a list as in sysfs), ``zones``, ``memory`` (resource -> zones
    -> bytes) and ``devices`` (resource -> zones -> how many); ``pod``: the same of what its
    containers share; ``claims``: DRA device -> its zone. What there is none of is left out, and a
    container that holds nothing for its own runs in the shared pool. Zones of what lies in several
    are joined by a plus sign: ``0+1``; of devices without a place: ``any``.
    """
    said: dict[str, Any] = {
        "containers": {
            name: _held(state, holding) for name, holding in state.holdings.get(uid, {}).items()
        }
    }
    whole = state.pod_holdings.get(uid)
    if whole is not None:
        said["pod"] = _held(state, whole)
    if claimed is not None:
        said["claims"] = {
            "/".join(device): location.zone for device, location in claimed.devices.items()
        }
    return orjson.dumps(said, option=orjson.OPT_SORT_KEYS).decode()


def describe_for_kai(state: NodeState, uid: str) -> str:
    """The value of KAI's annotation: JSON of ``zone`` and ``amount`` (resource -> quantity).

    What lies in several zones, or has none, is left out, as KAI's own exporter does.
    """
    amounts: dict[int, dict[str, int]] = {}

    def add(zones: int, resource: str, amount: int) -> None:
        if zones.bit_count() == 1 and amount:
            of_zone = amounts.setdefault(zones.bit_length() - 1, {})
            of_zone[resource] = of_zone.get(resource, 0) + amount

    for holding in (*state.holdings.get(uid, {}).values(), state.pod_holdings.get(uid, _NOTHING)):
        for zone, cpus in state.topology.zone_cpus.items():
            add(1 << zone, "cpu", (holding.cpus & cpus).bit_count())
        for block in holding.memory:
            add(block.zones, block.resource, block.size)
        for resource, mask in holding.devices.items():
            for zones, group in state.devices[resource].by_zones.items():
                add(zones or 0, resource, (mask & group).bit_count())
    told = [
        {"zone": f"node-{zone}", "amount": {name: str(n) for name, n in sorted(held.items())}}
        for zone, held in sorted(amounts.items(), key=lambda item: f"node-{item[0]}")
    ]
    return orjson.dumps(told).decode()


def _held(state: NodeState, holding: Holding) -> Mapping[str, Any]:
    memory: dict[str, dict[str, int]] = {}
    for block in holding.memory:
        amounts = memory.setdefault(block.resource, {})
        zones = _zones(block.zones)
        amounts[zones] = amounts.get(zones, 0) + block.size
    devices: dict[str, dict[str, int]] = {}
    for resource, mask in holding.devices.items():
        counts = devices.setdefault(resource, {})
        for zones_of, group in state.devices[resource].by_zones.items():
            if mask & group:
                zones = _zones(zones_of or 0)
                counts[zones] = counts.get(zones, 0) + (mask & group).bit_count()
    told = {
        "cpus": bits.format_list(holding.cpus),
        "zones": list(bits.members(state.zones_of(holding))),
        "memory": memory,
        "devices": devices,
    }
    return {name: value for name, value in told.items() if value}


def _zones(mask: int) -> str:
    return "+".join(map(str, bits.members(mask))) or "any"
