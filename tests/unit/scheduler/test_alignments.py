"""The metric and the events for pods whose devices are elsewhere than their CPUs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rte.scheduler.report.alignments import Alignments
from rte.scheduler.report.metrics import SchedulerMetrics
from tests.unit.scheduler.build import machine, state
from tests.unit.scheduler.desk import Desk
from tests.unit.scheduler.gpus import DRIVER, claim, slice_of

if TYPE_CHECKING:
    from rte.scheduler.framework.objects import PodView


class Watched(Desk):
    """A node with a GPU in each zone and one of unknown place, pods of another scheduler."""

    def __init__(self) -> None:
        super().__init__()
        self.metrics = SchedulerMetrics()
        self.across: list[tuple[str, str]] = []
        self.alignments = Alignments(self.metrics, self.machine.cluster, self._note)
        self.node("n", state(machine(zones=2, cpus=8)))
        self.put("slices", "n-gpus", slice_of("n", (0, 1, None)))

    def _note(self, pod: PodView, why: str) -> None:
        self.across.append((pod.name, why))

    def run(self, name: str, device: str, **options: Any) -> str:
        """A pod that runs in zone 0 with a device."""
        uid = self.pod(name, "2", node_name="n", schedulerName="other", **options)
        result = {"request": "gpus", "driver": DRIVER, "pool": "n", "device": device}
        status = {
            "allocation": {"devices": {"results": [result]}},
            "reservedFor": [{"resource": "pods", "name": name, "uid": uid}],
        }
        self.put(
            "device-claims", f"default/{name}", {**claim(name, uid=f"u-{name}"), "status": status}
        )
        if "n" in self.kubelets:
            self.admit(uid)
        return uid

    def look(self, *, active: bool = True) -> dict[str, float | None]:
        self.alignments.look(active=active)
        value = self.metrics.registry.get_sample_value
        states = ("aligned", "across", "unknown")
        return {one: value("rte_pods_alignment", {"state": one}) for one in states}


def test_pods_of_any_scheduler_are_counted() -> None:
    site = Watched()
    assert site.look() == {"aligned": 0, "across": 0, "unknown": 0}
    site.run("a", "gpu-0")
    site.run("b", "gpu-1")
    site.run("c", "gpu-2")
    assert site.look() == {"aligned": 1, "across": 1, "unknown": 1}


def test_a_pod_across_zones_is_told_once_by_the_active_replica() -> None:
    site = Watched()
    site.run("b", "gpu-1")
    site.look(active=False)
    assert site.across == []
    site.look()
    site.look()
    why = f"{DRIVER}/n/gpu-1 is in zone 1, CPUs and memory in zone 0"
    assert site.across == [("b", why)]


def test_a_pod_that_has_ended_is_not_counted() -> None:
    site = Watched()
    uid = site.run("b", "gpu-1")
    assert site.look()["across"] == 1
    site.end(uid)
    assert site.look()["across"] == 0


def test_without_a_report_nothing_is_known() -> None:
    site = Watched()
    site.delete("reports", "n")
    site.kubelets.clear()
    site.run("a", "gpu-0")
    assert site.look() == {"aligned": 0, "across": 0, "unknown": 1}


def test_a_driver_that_tells_the_place_later_changes_the_count() -> None:
    site = Watched()
    site.run("c", "gpu-2")
    assert site.look()["unknown"] == 1
    site.put("slices", "n-gpus", slice_of("n", (0, 1, 0)))
    assert site.look()["aligned"] == 1
