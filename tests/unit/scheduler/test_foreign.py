"""Reports of other exporters: zones only, judged by zone arithmetic."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from rte.scheduler.framework.node import read_report
from tests.unit.scheduler.build import World


def nrt(policy: str = "single-numa-node", **zones: int) -> dict[str, Any]:
    def amounts(cpus: int) -> list[dict[str, str]]:
        rows = {"cpu": str(cpus), "memory": "16Gi"}
        return [
            {"name": name, "capacity": text, "allocatable": text, "available": text}
            for name, text in rows.items()
        ]

    return {
        "metadata": {"name": "n"},
        "attributes": [{"name": "topologyManagerPolicy", "value": policy}],
        "zones": [
            {"name": name.replace("_", "-"), "type": "Node", "resources": amounts(cpus)}
            for name, cpus in zones.items()
        ],
    }


def test_a_pod_goes_where_a_zone_has_room_by_the_numbers() -> None:
    world = World()
    world.node("n", bare=True)
    world.cluster.set_report("n", read_report(nrt(node_0=4, node_1=8)), 0.0)
    wide = world.pod(cpu="9")
    assert world.place(wide) is None
    assert world.why(wide) == {"cannot align container": 1}
    assert world.place(world.pod(cpu="8")) == "n"


def test_what_we_bound_is_taken_off_every_zone_until_it_runs_and_a_report_comes() -> None:
    world = World()
    world.node("n", bare=True)
    world.cluster.set_report("n", read_report(nrt(node_0=8, node_1=8)), 0.0)
    first, second = world.pod(cpu="6"), world.pod(cpu="6")
    assert world.place(first) == "n"
    assert world.place(second) is None
    running = replace(first, node="n", started="2026-01-01T00:00:00Z", version=10**6)
    world.cluster.set_pod(running, 0.0)
    world.cluster.set_report("n", read_report(nrt(node_0=2, node_1=8)), 0.0)
    assert world.place(second) == "n"


def test_the_exporter_of_a_node_may_change() -> None:
    world = World()
    world.node("n")
    assert world.cluster.nodes["n"].knowledge() == "exact"
    world.cluster.set_report("n", read_report(nrt(node_0=1, node_1=1)), 0.0)
    assert world.cluster.nodes["n"].knowledge() == "zones"
    pod = world.pod(cpu="4")
    assert world.place(pod) is None
    world.report("n")
    assert world.place(pod) == "n"


def test_malformed_objects_are_reports_that_say_so() -> None:
    for broken in (
        {},
        {"metadata": None},
        {"metadata": {"name": "n"}, "zones": 5},
        {"metadata": {"name": "n"}, "zones": [{"type": "Node", "name": "node-x"}]},
        {"metadata": {"name": "n", "annotations": {"topology.rte.dev/node-state": "[]"}}},
        {"metadata": {"name": "n", "annotations": 7}},
    ):
        report = read_report(broken)
        assert report.broken or (report.table is not None and not report.table.zones), broken
        assert "\n" not in report.broken
