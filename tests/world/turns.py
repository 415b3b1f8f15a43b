"""Who came before whom: gangs as a whole, the urgent first, nobody overtaken without end.

The model is the history of what the API server stored: who was made when, who was bound, who was
taken away. Nothing is judged for a while after a fault: somebody else decided meanwhile, or a
decision was lost and is made again after a back-off.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from rte.model.quantity import parse_resource

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.world.cluster import World

#: So long after a fault nothing is judged, and so much older is who counts as overtaken.
_SETTLES_S, _OLDER_S = 30.0, 30.0
#: Whom the urgent evict takes so long to leave.
_URGENT_S = 15.0
#: So often others may go first: who is woken by what frees room may have a turn after them.
_MOST_OVERTAKEN = 2
#: A gang is bound within this time, from its first pod on.
_GANG_S = 20.0

Asked = tuple[tuple[str, int], ...]


@dataclass
class _Waits:
    """A pod without a node: since when, with what priority, what it asks for, of which gang."""

    name: str
    since: float
    priority: int
    asked: Asked
    gang: str
    overtaken: int = 0


@dataclass
class _Gang:
    """A gang of which a pod was bound: when, the least number, and who of it was bound."""

    since: float
    least: int
    bound: set[str]
    broken_up: bool = False


class Turns:
    """See the module."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._waiting: dict[str, _Waits] = {}
        self._gangs: dict[str, _Gang] = {}
        self._urgent = 0.0

    def written(self, change: Any, *, by_us: bool) -> Iterator[tuple[str, str]]:
        """A pod was stored; what is wrong with that, as (rule, what)."""
        pod, before = change.object, change.previous
        uid = pod["metadata"]["uid"]
        is_over = change.kind == "DELETED" or pod["metadata"].get("deletionTimestamp")
        if by_us and is_over and before and not before["metadata"].get("deletionTimestamp"):
            yield from self._evicted(before)
        if is_over or pod["spec"].get("nodeName"):
            gone = self._waiting.pop(uid, None)
            if gone is not None and gone.gang in self._gangs and is_over:
                self._gangs[gone.gang].broken_up = True
            if gone is not None and by_us and not is_over:
                yield from self._bound(uid, gone)
        elif uid not in self._waiting and pod["spec"]["schedulerName"] == "rte-scheduler":
            self._waiting[uid] = _Waits(
                pod["metadata"]["name"], self._world.now(), pod["spec"].get("priority") or 0,
                _asked(pod), (pod["spec"].get("schedulingGroup") or {}).get("podGroupName", ""),
            )  # fmt: skip
        if any(one.priority > 0 for one in self._waiting.values()):
            self._urgent = self._world.now()

    def restored(self) -> None:
        """Nobody knows what was, any more."""
        self._waiting.clear()
        self._gangs.clear()

    def _is_settled(self) -> bool:
        return self._world.now() - self._world.unrest > _SETTLES_S

    def _evicted(self, pod: Any) -> Iterator[tuple[str, str]]:
        wanting = [one for one in self._waiting.values() if _priority(pod) < one.priority]
        if not wanting and self._world.now() - self._urgent > _OLDER_S:
            name = pod["metadata"]["name"]
            yield "nobody is evicted for nothing", f"{name}, and nobody waits who is more urgent"

    def _bound(self, uid: str, pod: _Waits) -> Iterator[tuple[str, str]]:
        now = self._world.now()
        if pod.gang:
            self._of_gang(uid, pod)
            return
        if not self._is_settled():
            return
        for other in self._waiting.values():
            if other.gang:
                continue
            is_like = (
                other.asked == pod.asked
                and other.priority == pod.priority
                and pod.since - other.since > _OLDER_S
            )
            is_urgent = (
                other.priority > pod.priority
                and now - other.since > _URGENT_S
                and _is_less(other.asked, pod.asked)
            )
            if is_like or is_urgent:
                other.overtaken += 1
                if other.overtaken > _MOST_OVERTAKEN:
                    what = (
                        f"{other.name} (priority {other.priority}) waits for "
                        f"{now - other.since:.0f} s, and {pod.name} (priority {pod.priority}), "
                        f"made {pod.since - other.since:.0f} s later, is bound, as "
                        f"{other.overtaken - 1} others were"
                    )
                    yield "nobody is overtaken without end", what

    def _of_gang(self, uid: str, pod: _Waits) -> None:
        gang = self._gangs.get(pod.gang)
        if gang is None:
            group = self._world.api.store.get("podgroups.scheduling.k8s.io", ("default", pod.gang))
            policy = ((group or {}).get("spec") or {}).get("schedulingPolicy") or {}
            least = int((policy.get("gang") or {}).get("minCount", 0))
            gang = self._gangs[pod.gang] = _Gang(self._world.now(), least, set())
        gang.bound.add(uid)

    def second(self) -> Iterator[tuple[str, str]]:
        """To be asked each second."""
        now = self._world.now()
        for name, gang in list(self._gangs.items()):
            if now - gang.since < _GANG_S:
                continue
            del self._gangs[name]
            calm = self._world.unrest < gang.since - _SETTLES_S
            if calm and not gang.broken_up and len(gang.bound) < gang.least:
                what = (
                    f"{len(gang.bound)} of {name} were bound within {_GANG_S:g} s, of which "
                    f"{gang.least} have to be"
                )
                yield "a gang is bound as a whole", what


def _priority(pod: Any) -> int:
    return int(pod["spec"].get("priority") or 0)


def _asked(pod: Any) -> Asked:
    """What its container asks for; whether for CPUs of its own, and how many claims, too."""
    resources = pod["spec"]["containers"][0].get("resources") or {}
    found = {
        name: parse_resource(name, text) for name, text in (resources.get("requests") or {}).items()
    }
    found["limited"] = int(bool(resources.get("limits")))
    found["claims"] = len(pod["spec"].get("resourceClaims") or ())
    return tuple(sorted(found.items()))


def _is_less(one: Asked, other: Asked) -> bool:
    """Whether one asks for the same kinds of things, and for no more of any."""
    return [name for name, _ in one] == [name for name, _ in other] and all(
        a <= b for (_, a), (_, b) in zip(one, other, strict=True)
    )
