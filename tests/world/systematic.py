"""Faults in turn, not by chance: at each write, at each relist, on each link."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.world.acts import Act, Story

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

#: Seconds after which everything is over, and of the fault.
_END_S, _AT_S = 90.0, 20.0

#: What users do meanwhile: pods of all sorts, before and after.
_USERS: tuple[tuple[float, str, Mapping[str, object]], ...] = (
    (5.0, "pods", {"count": 3, "cpu": "2", "memory": "1Gi", "seconds": 30.0}),
    (8.0, "claiming", {"seconds": 30.0}),
    (10.0, "deployment", {"which": 0, "replicas": 2, "cpu": "1"}),
    (21.0, "pods", {"count": 4, "cpu": "3", "memory": "1Gi", "seconds": 20.0}),
    (22.0, "gang", {"count": 2, "cpu": "2", "seconds": 20.0}),
    (23.0, "claiming", {"seconds": 20.0}),
    (24.0, "delete", {"place": 0.1, "force": False}),
    (30.0, "deployment", {"which": 0, "replicas": 4, "cpu": "1"}),
    (60.0, "pods", {"count": 2, "cpu": "4", "memory": "1Gi", "seconds": 20.0}),
)

#: Places (of :func:`tests.world.faults._client`) of a scheduler and of an agent.
_CLIENTS = {"scheduler-0": 0.0, "scheduler-1": 0.3, "agent of node-0": 0.51, "of node-3": 0.99}

#: Which of the next writes is the last, of each process.
_WRITES = range(12)


def stories(*, nodes: int = 4) -> Iterator[tuple[str, Story]]:
    """Each with its name."""
    for name, place in _CLIENTS.items():
        for after in (False, True):
            for writes in _WRITES:
                when = "after" if after else "before"
                given = {"place": place, "writes": writes, "after": after}
                yield f"{name} dies {when} write {writes}", _story("crash", given, nodes)
    everybody = 2 + 2 * nodes
    for number in range(everybody):
        for seconds in (1, 10, 100):
            for refuses in (False, True):
                how = "refuses" if refuses else "is silent"
                given = {"place": (number + 0.5) / everybody, "seconds": seconds}
                yield (
                    f"link {number} {how} for {seconds} s",
                    _story("cut", {**given, "refuses": refuses}, nodes),
                )
    yield "old revisions at each relist", _story("old-lists", {"seconds": 60}, nodes)
    yield "history is forgotten", _story("compact", {"old": False}, nodes)
    for bumped in (False, True):
        yield f"a restored etcd, bumped: {bumped}", _story("restore", {"bumped": bumped}, nodes)


def _story(what: str, given: Mapping[str, object], nodes: int) -> Story:
    acts = [(at, name, one) for at, name, one in _USERS] + [(_AT_S, what, given)]
    acts.sort(key=lambda one: one[0])
    return Story(
        1, tuple(Act(at, name, n, one) for n, (at, name, one) in enumerate(acts)), (_END_S,), nodes
    )
