"""What kubelets make of our decisions: confirmed, refused, or otherwise than predicted."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rte.scheduler.loop.messages import NoteDrift
from rte.scheduler.loop.rejections import Rejections
from rte.scheduler.loop.timers import Due
from rte.telemetry.effects import Measured, Said

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from rte.scheduler.cache.cluster import Cluster
    from rte.scheduler.framework.objects import PodView
    from rte.scheduler.loop.messages import Effect
    from rte.scheduler.loop.timers import Timers
    from rte.scheduler.report.predictions import Judged, Predictions


class KubeletWitness:
    """Holds what they say against what was expected.

    Args:
        cluster: what is known.
        predictions: what is expected.
        timers: deadlines.
        names: ``spec.schedulerName`` of our pods.
    """

    def __init__(
        self,
        cluster: Cluster,
        predictions: Predictions,
        timers: Timers,
        names: Collection[str],
    ) -> None:
        self._cluster, self._predictions = cluster, predictions
        self._timers, self._names = timers, names
        self.rejections = Rejections(cluster)

    def reported(self, name: str, now: float) -> list[Effect]:
        """The node has a new report."""
        entry = self._cluster.nodes.get(name)
        if entry is None:
            return []
        effects = _compare(name, self._predictions.reported(entry))
        reported = entry.report.state if entry.report else None
        if reported is None:
            return effects
        for uid in entry.awaited.keys() & reported.admitted:
            seconds = now - entry.awaited.pop(uid)
            effects.append(Measured("confirm_seconds", seconds, how="observe"))
        return effects

    def refused(self, pod: PodView, now: float) -> list[Effect]:
        """A kubelet refused a pod: count it, and draw conclusions."""
        ours = self._predictions.refused(pod) or pod.scheduler in self._names
        effects: list[Effect] = [
            Measured("rejections", labels=(pod.reason, "ours" if ours else "foreign"))
        ]
        if ours:
            text = f"the kubelet of {pod.node} refused {pod.key}: {pod.reason}: {pod.message}"
            effects.append(Said("warning", text))
            until, readable = self.rejections.refused(pod, now)
            self._timers.at(until, Due.REREAD if readable else Due.EVIDENCE, pod.node)
        return effects

    def reread(self, name: str, now: float) -> list[Effect]:
        """A node that has refused a pod was read afresh."""
        effects = _compare(name, self._predictions.judge_refusals(self._cluster.entry(name)))
        self.rejections.due(name, now)
        return effects


def _compare(node: str, judged: Sequence[Judged]) -> list[Effect]:
    return [NoteDrift(node, tuple(judged))] if judged else []
