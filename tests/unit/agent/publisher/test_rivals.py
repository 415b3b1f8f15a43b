"""An hour beside other exporters, on a virtual clock: what of the object is whose, and when."""

from __future__ import annotations

import copy
import heapq
import random
from typing import TYPE_CHECKING, Any

import pytest

from rte import errors
from rte.agent.observer.messages import Observation
from rte.agent.publisher import messages
from rte.agent.publisher.machine import Publisher

if TYPE_CHECKING:
    from collections.abc import Callable

NODE = {"apiVersion": "v1", "kind": "Node", "name": "n0", "uid": "node-uid"}
NAMESPACE = {"apiVersion": "v1", "kind": "Namespace", "name": "nfd", "uid": "ns-uid"}
THEIRS = {"node.koordinator.sh/cpu-topology": "koordlet's", "node.koordinator.sh/x": "koordlet's"}
#: From a write to the word of it at the other writer, and to an answer.
LATENCY = 0.01


def report(free: int) -> dict[str, Any]:
    amounts = {"capacity": "8", "allocatable": "8", "available": str(free)}
    return {
        "apiVersion": "topology.node.k8s.io/v1alpha2",
        "kind": "NodeResourceTopology",
        "metadata": {
            "name": "n0",
            "annotations": {
                "topology.rte.dev/node-state": str(free),
                "node.koordinator.sh/cpu-topology": "ours",
            },
            "ownerReferences": [NODE],
        },
        "topologyPolicies": ["None"],
        "attributes": [{"name": "topologyManagerPolicy", "value": "restricted"}],
        "zones": [{"name": "node-0", "type": "Node", "resources": [{"name": "cpu", **amounts}]}],
    }


def koordlet(obj: dict[str, Any]) -> None:
    """Zones rebuilt from what is allocatable, no attributes; its annotations laid over."""
    obj["metadata"]["annotations"] |= THEIRS
    obj.pop("attributes", None)
    for zone in obj["zones"]:
        for amounts in zone["resources"]:
            amounts |= {"allocatable": "7", "available": "7", "capacity": "7"}


def nfd(obj: dict[str, Any]) -> None:
    """Zones and attributes of its own, and its Namespace for an owner."""
    obj["metadata"]["ownerReferences"] = [NAMESPACE]
    obj["attributes"] = [{"name": "nodeTopologyPodsFingerprint", "value": "pfp0v001nfd"}]
    obj["zones"] = [{"name": "node-0", "type": "Node", "resources": []}]


def rte(obj: dict[str, Any]) -> None:
    """Zones and attributes of its own, and nothing else."""
    obj["attributes"] = [{"name": "nodeTopologyPodsFingerprint", "value": "pfp0v001rte"}]
    obj["zones"] = [{"name": "node-0", "type": "Node", "resources": []}]


class Hour:
    """One object, its writers, and the time."""

    def __init__(self) -> None:
        self.now = 0.0
        self.stored: dict[str, Any] | None = None
        self.version = 0
        self.publisher = Publisher()
        self.writes = 0
        self.truth = report(8)
        self.wrong_s = 0.0
        self.log: list[str] = []
        self._due: list[tuple[float, int, Callable[[], None]]] = []

    def at(self, moment: float, work: Callable[[], None]) -> None:
        heapq.heappush(self._due, (moment, len(self._due) + self.version * 1000, work))

    def every(self, seconds: float, work: Callable[[], None]) -> None:
        def again() -> None:
            work()
            self.at(self.now + seconds, again)

        self.at(self.now + seconds, again)

    def change(self) -> None:
        """A pod comes or goes."""
        free = int(self.truth["metadata"]["annotations"]["topology.rte.dev/node-state"])
        self.truth = report((free + 3) % 9)
        self.feed(messages.Offered(Observation(self.truth, self.now)))

    def store(self, obj: dict[str, Any]) -> None:
        self.version += 1
        self.stored = copy.deepcopy(obj)
        self.stored["metadata"]["resourceVersion"] = str(self.version)
        told = copy.deepcopy(self.stored)
        version = str(self.version)
        self.at(self.now + LATENCY, lambda: self.feed(messages.Watched(told, version)))

    def feed(self, event: Any) -> None:
        for effect in self.publisher.handle(event, self.now):
            if isinstance(effect, messages.Get | messages.AskOwner | messages.WriteReport):
                self.at(self.now + LATENCY, lambda effect=effect: self.feed(self.answer(effect)))
            elif hasattr(effect, "text"):
                self.log.append(effect.text)

    def answer(self, request: Any) -> Any:
        if isinstance(request, messages.AskOwner):
            return messages.OwnerKnown("node-uid")
        if isinstance(request, messages.Get):
            if self.stored is None:
                return messages.WriteRefused(errors.KubeError("none", status=404))
            return messages.Stored(copy.deepcopy(self.stored))
        known = self.stored and self.stored["metadata"]["resourceVersion"]
        if request.body["metadata"].get("resourceVersion") != known:
            return messages.WriteRefused(errors.KubeError("conflict", status=409))
        self.writes += 1
        self.store(request.body)
        return messages.Stored(copy.deepcopy(self.stored))

    def is_ours(self) -> bool:
        return self.stored is not None and all(
            self.stored.get(name) == self.truth[name] for name in ("zones", "attributes")
        )

    def run(self, seconds: float) -> None:
        until = self.now + seconds
        while self.now < until:
            moment = min(self._due[0][0] if self._due else until, self.publisher.deadline(), until)
            moment = max(moment, self.now)
            if not self.is_ours():
                self.wrong_s += moment - self.now
            self.now = moment
            if self._due and self._due[0][0] <= self.now:
                heapq.heappop(self._due)[2]()
            elif self.publisher.deadline() <= self.now:
                self.feed(messages.Tick())


@pytest.mark.parametrize("rival", [koordlet, nfd])
def test_zones_and_attributes_stay_ours_and_koordinators_annotations_go_to_koordlet(
    rival: Callable[[dict[str, Any]], None],
) -> None:
    hour = Hour()
    hour.feed(messages.Offered(Observation(hour.truth, 0.0)))
    hour.run(1)
    assert hour.is_ours()
    rivals = 0

    def interfere() -> None:
        nonlocal rivals
        obj = copy.deepcopy(hour.stored)
        assert obj is not None
        rival(obj)
        before = copy.deepcopy(hour.stored)
        if obj != before:
            rivals += 1
            hour.store(obj)

    hour.every(3.0, interfere)  # koordlet's --node-topology-sync-interval
    hour.every(17.3, hour.change)
    hour.run(3600)
    hour.run(0.1)
    assert hour.is_ours()
    assert hour.wrong_s < 0.05 * rivals + 0.05 * 210
    assert hour.writes <= rivals + 220, "no more writes than there are reasons"
    assert hour.stored is not None
    assert hour.stored["metadata"]["ownerReferences"] == [NODE]
    if rival is koordlet:
        annotations = hour.stored["metadata"]["annotations"]
        assert annotations.items() >= THEIRS.items()
        assert annotations["topology.rte.dev/node-state"]
    assert len([line for line in hour.log if "stop one of the two writers" in line]) == 1


def test_three_rivals_at_once_that_answer_nobody_are_each_repaired_at_once() -> None:
    """By chance one of them writes soon after a repair, all the time."""
    hour, rng, overwrites = Hour(), random.Random(1), 0
    hour.feed(messages.Offered(Observation(hour.truth, 0.0)))
    hour.run(1)

    def by(rival: Callable[[dict[str, Any]], None]) -> Callable[[], None]:
        def write() -> None:
            nonlocal overwrites
            obj = copy.deepcopy(hour.stored)
            assert obj is not None
            rival(obj)
            overwrites += obj != hour.stored
            hour.store(obj)

        return write

    def change() -> None:
        """A pod comes or goes, which NFD notices as we do, by the kubelet's file."""
        hour.change()
        hour.at(hour.now + rng.uniform(0.05, 0.15), by(nfd))
        hour.at(hour.now + rng.uniform(1.5, 3.5), change)

    for seconds, rival in ((3.0, koordlet), (20.0, nfd), (10.0, rte)):
        hour.every(seconds, by(rival))
    change()
    hour.run(3600)
    assert overwrites > 2000
    assert hour.wrong_s < 0.05 * overwrites


def test_who_answers_each_of_our_writes_at_once_costs_two_writes_a_minute() -> None:
    hour = Hour()
    hour.feed(messages.Offered(Observation(hour.truth, 0.0)))
    hour.run(1)
    mine = 0

    def react() -> None:
        nonlocal mine
        if hour.is_ours():
            obj = copy.deepcopy(hour.stored)
            assert obj is not None
            nfd(obj)
            mine += 1
            hour.store(obj)

    hour.every(0.05, react)
    hour.run(3600)
    assert 100 < hour.writes < 140
    assert mine < 140
