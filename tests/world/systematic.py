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
    yield from wake_ups()
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
    yield from of_the_server(nodes=nodes)


def of_the_server(*, nodes: int = 4) -> Iterator[tuple[str, Story]]:
    """What an API server may show that is older than what was known."""
    yield "old revisions at each relist", _story("old-lists", {"seconds": 60}, nodes)
    yield "history is forgotten", _story("compact", {"old": False}, nodes)
    for bumped in (False, True):
        yield f"a restored etcd, bumped: {bumped}", _story("restore", {"bumped": bumped}, nodes)


#: Where nothing else happens, one event alone has to wake who waits: (what comes before, and it).
_ALONE: Mapping[str, tuple[tuple[float, str, Mapping[str, object]], ...]] = {
    "a node is uncordoned": (
        (2.0, "cordon", {"place": 0.9, "on": True}),
        (40.0, "cordon", {"place": 0.9, "on": False}),
    ),
    "a pod is deleted": ((40.0, "delete", {"place": 0.5, "force": False}),),
    "pods are deleted by force": tuple(
        (40.0 + number, "delete", {"place": number / 10, "force": True}) for number in range(1, 9)
    ),
    "a pod ends while the agent is dead": (
        (20.0, "kill-agent", {"place": 0.1, "seconds": 70}),
        (62.0, "delete", {"place": 0.2, "force": False}),
        (63.0, "delete", {"place": 0.3, "force": False}),
        (64.0, "delete", {"place": 0.5, "force": False}),
        (65.0, "delete", {"place": 0.7, "force": False}),
    ),
    "an agent begins late": (
        (1.0, "kill-agent", {"place": 0.1, "seconds": 70}),
        (50.0, "delete-lease", {"place": 0.1, "scheduler": False}),
    ),
    "a kubelet comes back": ((1.0, "kill-kubelet", {"place": 0.1, "seconds": 70}),),
    "a kubelet is restarted": (
        (30.0, "kill-kubelet", {"place": 0.1, "seconds": 1}),
        (33.0, "delete", {"place": 0.5, "force": False}),
    ),
    "a node is made again": ((2.0, "new-node", {"place": 0.1}),),
    "another scheduler's pod ends": (
        (2.0, "foreign", {"place": 0.1, "cpu": "1"}),
        (2.5, "foreign", {"place": 0.9, "cpu": "1"}),
    ),
    "the active replica dies": (
        (38.0, "kill-scheduler", {"place": 0.1, "seconds": 5}),
        (38.5, "kill-scheduler", {"place": 0.9, "seconds": 20}),
        (39.0, "delete", {"place": 0.5, "force": False}),
    ),
    "a pod goes while no scheduler hears": (
        (38.0, "cut", {"place": 0.02, "seconds": 10, "refuses": False}),
        (38.0, "cut", {"place": 0.2, "seconds": 10, "refuses": False}),
        (39.0, "delete", {"place": 0.5, "force": False}),
        (40.0, "compact", {"old": False}),
    ),
    "a device is well again": (
        (1.0, "device-ill", {"place": 0.1, "seconds": 60}),
        (2.0, "pods", {"count": 6, "cpu": "1", "memory": "1Gi", "seconds": 0, "gpu": 1}),
    ),
    "binds are answered with errors": (
        (2.0, "errors", {
            "place": 0.1, "code": 500, "seconds": 40, "part": "binding", "chance": 1.0}),
        (2.0, "errors", {
            "place": 0.3, "code": 500, "seconds": 40, "part": "binding", "chance": 1.0}),
    ),
    "answers of binds are lost": (
        (2.0, "lose", {"place": 0.1, "count": 3}),
        (2.0, "lose", {"place": 0.3, "count": 3}),
    ),
    "somebody urgent comes": (
        (40.0, "pods", {
            "count": 2, "cpu": "4", "memory": "1Gi", "seconds": 0, "priority": 1000}),
    ),
    "many come who are younger": (
        *((40.0 + number, "pods", {"count": 1, "cpu": "4", "memory": "1Gi", "seconds": 0})
          for number in range(8)),
        *((55.0 + number, "delete", {"place": 0.0, "force": False}) for number in range(8)),
    ),
    "devices are wanted by several at once": (
        (1.0, "claiming", {"count": 4, "seconds": 20.0}),
        (1.2, "claiming", {"count": 4, "seconds": 20.0}),
    ),
}  # fmt: skip


_SMALL = {"count": 1, "cpu": "1", "memory": "1Gi", "seconds": 20.0}
_LARGE = {"count": 6, "cpu": "4", "memory": "1Gi", "seconds": 30.0}

#: Where pods come all the time, and it is not full.
_AT_WORK: dict[str, tuple[tuple[float, str, Mapping[str, object]], ...]] = {
    "each replica in turn is cut off for a while": (
        (20.0, "cut", {"place": 0.2, "seconds": 10, "refuses": False}),
        *((25.0 + number / 4, "pods", _SMALL) for number in range(44)),
        (50.0, "cut", {"place": 0.05, "seconds": 10, "refuses": True}),
        *((55.0 + number / 4, "pods", _SMALL) for number in range(44)),
    ),
    "who takes over hears nothing of pods": (
        (20.0, "errors", {
            "place": 0.1, "code": 500, "seconds": 40, "part": "v1/pods", "chance": 1.0}),
        (20.1, "drop-watches", {}),
        (22.0, "pods", {**_LARGE, "count": 9, "seconds": 60.0}),
        (30.0, "stop-scheduler", {"place": 0.9, "seconds": 30}),
        (32.0, "pods", _LARGE),
        (35.0, "pods", _LARGE),
    ),
    "an agent is dead for long": (
        (10.0, "kill-agent", {"place": 0.1, "seconds": 88}),
        *((62.0 + 4 * number, "pods", _LARGE) for number in range(8)),
    ),
    "an agent reaches nobody for long": (
        (5.0, "cut", {"place": 0.3, "seconds": 100, "refuses": False}),
        *((62.0 + 4 * number, "pods", _LARGE) for number in range(8)),
    ),
    "nodes are full again and again": (
        *((10.0 + 5 * number, "pods", _LARGE) for number in range(14)),
    ),
}  # fmt: skip


def wake_ups(*, nodes: int = 3) -> Iterator[tuple[str, Story]]:
    """A full cluster, somebody waits, and one thing happens that helps."""
    for name, before in _ALONE.items():
        full = {"count": 18, "cpu": "4", "memory": "1Gi", "seconds": 0}
        gang = {"count": 2, "cpu": "2", "seconds": 600.0}
        full_acts = sorted(
            [(5.0, "pods", full), (6.0, "gang", gang), *before], key=lambda one: one[0]
        )
        made = tuple(Act(at, what, n, one) for n, (at, what, one) in enumerate(full_acts))
        yield f"alone: {name}", Story(1, made, (100.0,), nodes)
    for name, work in _AT_WORK.items():
        made = tuple(Act(at, what, n, one) for n, (at, what, one) in enumerate(work))
        yield f"at work: {name}", Story(1, made, (100.0,), nodes)


def _story(what: str, given: Mapping[str, object], nodes: int) -> Story:
    acts = [(at, name, one) for at, name, one in _USERS] + [(_AT_S, what, given)]
    acts.sort(key=lambda one: one[0])
    return Story(
        1, tuple(Act(at, name, n, one) for n, (at, name, one) in enumerate(acts)), (_END_S,), nodes
    )
