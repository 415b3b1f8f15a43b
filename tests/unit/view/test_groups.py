"""A node of processing groups tells one truth: cells, devices, drawing and what-if."""

from __future__ import annotations

from rte.model import bits
from rte.view import hardware, model
from tests.unit.scheduler.groups.rack import Rack, asking
from tests.unit.view.clusters import World, add_node, gang, idle


def rack_with_a_pod() -> tuple[Rack, str]:
    rack = Rack()
    rack.server("n")
    uid = rack.asks(asking({"gpus": [{"feeders": 1}], "workers": 3}))
    rack.run_all()
    return rack, uid


def test_what_groups_hold_is_in_the_cells_and_among_the_devices() -> None:
    rack, uid = rack_with_a_pod()
    entry = rack.machine.cluster.nodes["n"]
    held = rack.record(uid).allocation
    shown = model.node(entry, None, rack.machine.cycle)
    assert shown is not None
    (pod,) = shown["pods"]
    assert pod["cpus"] == bits.format_list(held.cpu_mask())
    assert pod["containers"][0]["name"] == "group g0"
    total = sum(zone["cpus"] for zone in shown["zones"])
    assert sum(zone["free"] for zone in shown["zones"]) == total - held.cpu_mask().bit_count()
    free, all_ = map(sum, zip(*(zone["devices"]["GPU"] for zone in shown["zones"]), strict=True))
    assert free == all_ - 1

    reading = hardware.reading_of(entry, rack.machine.cycle)
    assert reading is not None
    drawn = hardware.describe(reading)
    (gpu,) = held.groups[0].gpus
    (row,) = [each for each in drawn["devices"] if each["id"] == gpu]
    assert row["holder"].endswith(" group g0")
    assert gpu in drawn["svg"]


def test_a_pod_of_a_gang_names_it() -> None:
    world = World()
    add_node(world, "n", idle())
    gang(world, "a", 2, "ring")
    (pod,) = world.cluster.pods.values()
    assert model.waiting(pod)["gang"] == "default/ring"
