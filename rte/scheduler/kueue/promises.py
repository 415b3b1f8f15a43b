"""Room that was promised to Workloads and that their pods have not taken yet."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from rte.scheduler.framework.claims.devices import KnownClaim
    from rte.scheduler.framework.objects import PodView


@dataclass(frozen=True, kw_only=True)
class Promised:
    """Room for one pod.

    Attributes:
        pod: as it would be.
        pod_set: its set.
        domain: labels of the node that it goes to, as far as Kueue chose it.
        claims: that will be made for it from templates.
    """

    pod: PodView
    pod_set: str
    domain: Mapping[str, str]
    claims: tuple[KnownClaim, ...] = ()


class Promises:
    """By Workload (``namespace/name``); pods may be seen before and after a promise is made."""

    def __init__(self) -> None:
        self._left: dict[str, list[Promised]] = {}
        self._taken: dict[str, dict[str, Promised]] = {}
        #: Pods that have a node: Workload -> UID -> pod set, and the labels of the node.
        self._placed: dict[str, dict[str, tuple[str, Mapping[str, str]]]] = {}

    def __len__(self) -> int:
        """Pods that are still to come."""
        return sum(map(len, self._left.values()))

    def keys(self) -> set[str]:
        """Workloads to which something was promised, taken or not."""
        return set(self._left)

    def __contains__(self, key: str) -> bool:
        """Whether something was promised to the Workload, taken or not."""
        return key in self._left

    def make(self, key: str, room: Iterable[Promised]) -> None:
        """Promise room; pods of the Workload that have a node already have taken theirs."""
        self._left[key] = list(room)
        self._taken[key] = {}
        for uid, (pod_set, labels) in self._placed.get(key, {}).items():
            self._take(key, uid, pod_set, labels)

    def end(self, key: str) -> bool:
        """The Workload needs no room any more; whether some is free again."""
        self._taken.pop(key, None)
        return bool(self._left.pop(key, None))

    def lapse(self, key: str) -> bool:
        """What is left of the promise is given up; whether there was something."""
        had = bool(self._left.get(key))
        self._left[key] = []
        return had

    def placed(self, key: str, uid: str, pod_set: str, labels: Mapping[str, str]) -> None:
        """A pod of the Workload has a node."""
        known = self._placed.setdefault(key, {})
        if uid not in known:
            known[uid] = pod_set, labels
            self._take(key, uid, pod_set, labels)

    def lifted(self, key: str, uid: str) -> None:
        """The pod has no node after all: it wants its room again."""
        self._forget(key, uid)
        promised = self._taken.get(key, {}).pop(uid, None)
        if promised is not None and key in self._left:
            self._left[key].insert(0, promised)

    def ended(self, key: str, uid: str) -> None:
        """The pod has run."""
        self._forget(key, uid)

    def left(self) -> list[Promised]:
        """Pods that are still to come, of all Workloads, in the order of the promises."""
        return [each for room in self._left.values() for each in room]

    def _take(self, key: str, uid: str, pod_set: str, labels: Mapping[str, str]) -> None:
        if key not in self._left:
            return
        alike = [each for each in self._left[key] if each.pod_set == pod_set]
        found = next((each for each in alike if each.domain.items() <= labels.items()), None)
        if found is None and alike:
            # It is where Kueue did not send it; it has its room all the same.
            found = alike[0]
        if found is not None:
            self._left[key].remove(found)
            self._taken[key][uid] = found

    def _forget(self, key: str, uid: str) -> None:
        known = self._placed.get(key, {})
        known.pop(uid, None)
        if not known:
            self._placed.pop(key, None)
