"""What a pod is told of where its containers are, once its kubelet has confirmed it."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from rte.model import bits
from rte.model.node import DevicePool, Holding, MemoryBlock
from rte.scheduler.framework.objects import KAI_PLACEMENT, PLACEMENT, TELL_PLACEMENT
from rte.scheduler.report import placements
from rte.scheduler.report.placements import Placements, describe_for_kai
from tests.unit.scheduler.build import GIB, machine, state
from tests.unit.scheduler.desk import Desk
from tests.unit.scheduler.gpus import DRIVER, claim, slice_of

if TYPE_CHECKING:
    from rte.scheduler.framework.objects import PodView


class Site(Desk):
    """A node of two zones; what pods are told is written down."""

    def __init__(self) -> None:
        super().__init__()
        self.told_to: list[tuple[str, dict[str, Any]]] = []
        self.ticking = 0.0
        self.placements = Placements(self.machine.cluster, self._note, lambda: self.ticking)
        self.node("n", state(machine(zones=2, cpus=8)))

    def _note(self, pod: PodView, annotation: str, text: str) -> None:
        assert annotation == (PLACEMENT if text[0] == "{" else KAI_PLACEMENT)
        self.told_to.append((pod.name, json.loads(text)))

    def asks(self, name: str, cpu: str = "2", says: str = "true") -> str:
        """A pod that runs on the node and wants to be told."""
        uid = self.pod(name, cpu, node_name="n")
        obj = self.objects["pods", uid]
        obj["metadata"].setdefault("annotations", {})[TELL_PLACEMENT] = says
        self.put("pods", uid, obj)
        return uid

    def look(self, *, active: bool = True) -> list[tuple[str, dict[str, Any]]]:
        """What was told since the last look."""
        self.told_to.clear()
        self.placements.look(active=active)
        return list(self.told_to)


def test_nothing_is_told_before_the_kubelet_has_confirmed_it() -> None:
    site = Site()
    uid = site.asks("a")
    assert site.look() == []
    site.admit(uid)
    ((name, told),) = site.look()
    held = site.kubelets["n"].holdings[uid]["c0"]
    assert name == "a"
    assert told["containers"]["c0"]["cpus"] == bits.format_list(held.cpus)
    assert told["containers"]["c0"]["zones"] == [0]
    assert told["containers"]["c0"]["memory"] == {"memory": {"0": GIB}}


def test_each_pod_is_told_once_and_again_when_it_changes() -> None:
    site = Site()
    uid = site.asks("a")
    site.admit(uid)
    ((_, told),) = site.look()
    site.asks("b")
    assert site.look() == []
    obj = site.objects["pods", uid]
    obj["metadata"]["annotations"][PLACEMENT] = json.dumps(told, separators=(",", ":"))
    site.put("pods", uid, obj)
    assert site.look() == []
    obj["metadata"]["annotations"][PLACEMENT] = "a copy of another pod's"
    site.put("pods", uid, obj)
    site.placements = Placements(site.machine.cluster, site._note, lambda: 0.0)
    assert site.look() == [("a", told)]


@pytest.mark.parametrize("says", ["", "false", "yes"])
def test_only_pods_that_ask_are_told(says: str) -> None:
    site = Site()
    site.admit(site.asks("a", says=says))
    assert site.look() == []


def test_a_replica_that_stands_by_tells_nothing_and_the_next_one_tells_all() -> None:
    site = Site()
    site.admit(site.asks("a"))
    assert site.look(active=False) == []
    assert [name for name, _ in site.look()] == ["a"]


def test_a_look_ends_when_its_time_is_up_and_the_next_goes_on() -> None:
    site = Site()
    site.admit(site.asks("a"))

    def clock() -> float:
        site.ticking += 1.0
        return site.ticking

    site.placements = Placements(site.machine.cluster, site._note, clock)
    assert site.look() == []
    site.placements = Placements(site.machine.cluster, site._note, lambda: 0.0)
    assert len(site.look()) == 1


def test_devices_of_claims_are_told_with_their_zones() -> None:
    site = Site()
    site.put("slices", "n-gpus", slice_of("n", (0, 1, None)))
    uid = site.asks("a")
    status = {
        "allocation": {
            "devices": {
                "results": [{"request": "g", "driver": DRIVER, "pool": "n", "device": "gpu-0"}]
            }
        },
        "reservedFor": [{"resource": "pods", "name": "a", "uid": uid}],
    }
    site.put("device-claims", "default/a", {**claim("a", uid="u-a"), "status": status})
    site.admit(uid)
    ((_, told),) = site.look()
    assert told["claims"] == {f"{DRIVER}/n/gpu-0": 0}


def test_kai_is_told_in_its_own_words() -> None:
    site = Site()
    site.admit(site.asks("a", cpu="4", says="kai"))
    amount = {"cpu": "4", "memory": str(GIB)}
    assert site.look() == [("a", [{"zone": "node-0", "amount": amount}])]


def test_kai_is_told_of_nothing_that_has_not_one_zone() -> None:
    """``Compute`` of KAI's pkg/npe/placement."""
    pool = DevicePool(ids=("a", "b", "c"), zones=(0b10, 0b11, None), healthy=0b111)
    known = state(machine(zones=2, cpus=8), devices={"example.com/gpu": pool})
    held = Holding(
        cpus=0b1 << 7 | 0b11 << 8,
        memory=(
            MemoryBlock(zones=0b11, resource="memory", size=GIB),
            MemoryBlock(zones=0b10, resource="hugepages-2Mi", size=2 << 20),
        ),
        devices={"example.com/gpu": 0b111},
    )
    known = replace(known, holdings={"u": {"main": held, "side": Holding(cpus=0b1)}})
    assert json.loads(describe_for_kai(known, "u")) == [
        {"zone": "node-0", "amount": {"cpu": "2"}},
        {
            "zone": "node-1",
            "amount": {"cpu": "2", "example.com/gpu": "1", "hugepages-2Mi": str(2 << 20)},
        },
    ]
    assert describe_for_kai(known, "unknown") == "[]"


def test_devices_are_counted_by_zone_and_shared_holdings_are_the_pods() -> None:
    pool = DevicePool(ids=("a", "b", "c"), zones=(0b1, 0b11, None), healthy=0b111)
    known = state(machine(zones=2, cpus=8), devices={"example.com/gpu": pool})
    held = Holding(
        cpus=0b110,
        memory=(MemoryBlock(zones=0b11, resource="memory", size=GIB),),
        devices={"example.com/gpu": 0b111},
    )
    known = replace(
        known,
        holdings={"u": {"main": held, "side": Holding()}},
        pod_holdings={"u": Holding(cpus=0b1110)},
    )
    assert json.loads(placements.describe(known, "u")) == {
        "containers": {
            "main": {
                "cpus": "1-2",
                "zones": [0, 1],
                "memory": {"memory": {"0+1": GIB}},
                "devices": {"example.com/gpu": {"0": 1, "0+1": 1, "any": 1}},
            },
            "side": {},
        },
        "pod": {"cpus": "1-3", "zones": [0]},
    }
