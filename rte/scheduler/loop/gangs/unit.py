"""What waits together, and how many of it have to be placed now."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from rte.k8s.gang import Gang, GangKey
    from rte.scheduler.cache.cluster import Cluster
    from rte.scheduler.framework.objects import PodView


def is_placed_as_one(cluster: Cluster, pod: PodView) -> bool:
    """Whether the pod is placed with others; pods of a group without a count go one by one."""
    if pod.gang is None:
        return False
    gang = cluster.gangs.gang(pod.gang)
    return isinstance(gang, str) or gang.min_count is not None or bool(gang.topology_key)


def unit_of(cluster: Cluster, key: GangKey) -> tuple[GangKey, ...]:
    """The gangs that are placed together with that one, itself included."""
    gang = cluster.gangs.gang(key)
    if isinstance(gang, str):
        return (key,)
    return tuple(sorted({key, *(cluster.gangs.named(gang, name) for name in gang.with_gangs)}))


@dataclass(frozen=True, kw_only=True)
class GangTally:
    """How a gang stands.

    Attributes:
        gang: its description.
        waiting: its pods that may be placed now, in the order of the queue.
        placed: its pods that have a place and are not terminal.
        ended: how many have run to their end.
        is_due: a pod without a place is known to be missing, and not just to come again.
        need: how many of ``waiting`` have to get a place at once; 0: each may go when it fits.
    """

    gang: Gang
    waiting: tuple[PodView, ...]
    placed: tuple[PodView, ...]
    ended: int
    is_due: bool
    need: int

    @property
    def lacking(self) -> int:
        """Pods that are not there yet, without which none is placed."""
        return max(0, self.need - len(self.waiting))

    @property
    def is_in_part(self) -> bool:
        """Whether some of its pods have places, and the others are due."""
        return bool(self.need and self.placed and self.is_due)


def tally(
    cluster: Cluster, key: GangKey, waits: Callable[[PodView], bool] | None = None
) -> GangTally | str:
    """Count a gang's pods; a text where nothing is known of the gang.

    ``waits``: whether a pod that has no place may be given one now; None: nobody asks.
    """
    book = cluster.gangs
    gang = book.gang(key)
    if isinstance(gang, str):
        return gang
    pods = [cluster.pods[uid] for uid in book.pods.get(key, ()) if uid in cluster.pods]
    placed = tuple(pod for pod in pods if pod.node or pod.uid in cluster.assumed)
    waiting = [pod for pod in pods if waits(pod)] if waits else []
    waiting.sort(key=lambda pod: (-pod.priority, pod.created, pod.name))
    ended = len(book.ended.get(key, ()))
    return GangTally(
        gang=gang,
        waiting=tuple(waiting),
        placed=placed,
        ended=ended,
        is_due=key in book.lost or _was_there_before(pods, placed, cluster),
        need=_need(gang, len(placed), ended, is_whole=key in book.whole),
    )


def _need(gang: Gang, placed: int, ended: int, *, is_whole: bool) -> int:
    count = gang.min_count
    if count is None or (is_whole and gang.stays_whole):
        return 0
    left = max(0, count - placed - ended)
    # Where only waiting pods count, a later batch is as large as the first; a gang that is whole in
    # part is completed, whatever counts.
    if gang.counts_running or (is_whole is False and placed + ended < count):
        return left
    return count


def _was_there_before(pods: Sequence[PodView], placed: Sequence[PodView], cluster: Cluster) -> bool:
    """Whether a pod without a place is older than the gang's beginning.

    A younger one may take the place of one that has run: after a restart nobody remembers that.
    """
    began = min((pod.started for pod in placed if pod.started), default="")
    return any(
        not began or pod.created <= began
        for pod in pods
        if not pod.node and pod.uid not in cluster.assumed
    )


def has_run_whole(cluster: Cluster, key: GangKey) -> bool:
    """Whether kubelets have admitted as many of the gang's pods as it needs."""
    gang = cluster.gangs.gang(key)
    if isinstance(gang, str) or gang.min_count is None:
        return False
    pods = cluster.gangs.pods.get(key, {}).values()
    started = sum(1 for pod in pods if pod.node and pod.started)
    return started + len(cluster.gangs.ended.get(key, ())) >= gang.min_count


@dataclass(frozen=True, kw_only=True)
class WantedPods:
    """Pods of which so many are to be placed at once.

    Attributes:
        pods: in the order of the queue.
        need: how many, one at least.
        topology_key: node label of which all need one value.
        preferred: node labels of which they had better have one value, the narrowest first.
        value: of the key, where pods of the gang have their place already; empty: any.
    """

    pods: tuple[PodView, ...]
    need: int
    topology_key: str = ""
    preferred: tuple[str, ...] = ()
    value: str = ""

    @cached_property
    def milli(self) -> tuple[int, int]:
        """Millicores of the smallest pod, and of as many of the smallest as are needed."""
        millis = sorted(pod.shape.totals.get("cpu", 0) for pod in self.pods)
        return millis[0], sum(millis[: self.need])

    def is_like(self, other: WantedPods) -> bool:
        """Whether an answer about the one is an answer about the other."""
        return self._terms() == other._terms()

    def _terms(self) -> tuple[object, ...]:
        pods = tuple((pod.uid, pod.shape.key) for pod in self.pods)
        return pods, self.need, self.topology_key, self.preferred, self.value


def wanted(cluster: Cluster, tallies: Sequence[GangTally]) -> list[WantedPods]:
    """What may be asked of the solver for these gangs, the most first."""
    if len(tallies) == 1:
        one = tallies[0]
        key = one.gang.topology_key
        values = [_label(cluster, pod, key) for pod in one.placed] if key else []
        return [
            WantedPods(
                pods=one.waiting,
                need=max(1, one.need),
                topology_key=key,
                preferred=() if one.placed else one.gang.preferred_keys,
                value=next(iter(values), ""),
            )
        ]
    everybody = tuple(pod for each in tallies for pod in each.waiting)
    least = tuple(pod for each in tallies for pod in each.waiting[: each.need])
    asked = [WantedPods(pods=everybody, need=len(everybody))]
    if least and len(least) < len(everybody):
        asked.append(WantedPods(pods=least, need=len(least)))
    elif not least:
        asked = [WantedPods(pods=everybody, need=1)]
    return asked


def _label(cluster: Cluster, pod: PodView, key: str) -> str:
    entry = cluster.nodes.get(cluster.assumed.get(pod.uid) or pod.node)
    return (entry.info.labels.get(key) or "") if entry is not None and entry.info else ""
