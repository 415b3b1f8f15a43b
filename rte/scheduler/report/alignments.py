"""Where running pods and their DRA devices are, whoever scheduled them: metric and events."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rte.placement.dra import truth
from rte.placement.dra.alignment import Alignment

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from rte.placement.dra.truth import PodTruth
    from rte.scheduler.cache.cluster import Cluster
    from rte.scheduler.framework.node import NodeEntry
    from rte.scheduler.framework.objects import PodView
    from rte.scheduler.report.metrics import SchedulerMetrics


class Alignments:
    """Looks at all pods with devices, once a second; a node only when something there has changed.

    Args:
        metrics: get the counts.
        cluster: what is known.
        tell: posts an event about a pod that lies across zones.
    """

    def __init__(
        self, metrics: SchedulerMetrics, cluster: Cluster, tell: Callable[[PodView, str], None]
    ) -> None:
        self._metrics = metrics
        self._cluster = cluster
        self._tell = tell
        self._seen: dict[str, tuple[object, list[PodTruth]]] = {}
        self._told: set[str] = set()

    def look(self, *, active: bool) -> None:
        """Count the pods anew; the active replica tells of those across zones, once each."""
        users = self._users()
        self._seen = {name: self._look_at(name, pods) for name, pods in users.items()}
        truths = [one for _, found in self._seen.values() for one in found]
        for state, number in truth.count(truths).items():
            self._metrics.pods_alignment.labels(state.value).set(number)
        across = {one.uid: one.reason for one in truths if one.alignment is Alignment.ACROSS}
        self._told &= across.keys()
        for uid in across.keys() - self._told if active else ():
            self._told.add(uid)
            self._tell(self._cluster.pods[uid], across[uid])

    def _users(self) -> dict[str, list[PodView]]:
        """Node -> its pods that may use an allocated claim."""
        found: dict[str, list[PodView]] = {}
        for uid in self._cluster.devices.users():
            pod = self._cluster.pods.get(uid)
            if pod is not None and pod.node:
                found.setdefault(pod.node, []).append(pod)
        return found

    def _look_at(self, name: str, pods: Iterable[PodView]) -> tuple[object, list[PodTruth]]:
        devices, entry = self._cluster.devices, self._cluster.nodes[name]
        uids = sorted(pod.uid for pod in pods)
        stamp = (entry.changed, devices.fleet.version(name), uids)
        known = self._seen.get(name)
        if known is not None and known[0] == stamp:
            return known
        return stamp, self._observe(entry, uids)

    def _observe(self, entry: NodeEntry, uids: Iterable[str]) -> list[PodTruth]:
        devices, report = self._cluster.devices, entry.report
        if report is None or report.state is None or entry.info is None:
            reason = f"node {entry.name} has no report of rte"
            return [
                truth.PodTruth(
                    uid=uid, zones=0, devices={}, alignment=Alignment.UNKNOWN, reason=reason
                )
                for uid in uids
            ]
        claims = {claim.uid: claim for uid in uids for claim in devices.used_by(uid)}
        supply = devices.fleet.supply(devices.node(entry.info))
        found = truth.observe(report.state, report.pci, claims.values(), supply)
        here = set(uids)
        return [one for one in found if one.uid in here]
