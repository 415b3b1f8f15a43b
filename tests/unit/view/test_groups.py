"""A node of processing groups tells one truth: cells, devices, drawing and what-if."""

from __future__ import annotations

from rte.cli import inputs, machines, topology
from rte.model import bits, words
from rte.scheduler.front import answers
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


def test_explain_says_what_a_running_pods_groups_hold() -> None:
    rack, uid = rack_with_a_pod()
    cluster = rack.machine.cluster
    (group,) = rack.record(uid).allocation.groups
    shown = model.node(cluster.nodes["n"], None, rack.machine.cycle)
    assert shown is not None
    where = words.zones(bits.of(shown["pods"][0]["zones"]))
    told = answers.explain_pod(cluster, rack.machine.cycle, cluster.pods[uid]).held
    cpus = bits.format_list(bits.of(group.cpus.all()))
    assert told["group g0"] == f"{where}: CPUs {cpus}, 1 GPU"


def test_rte_topology_of_a_node_says_what_groups_hold() -> None:
    rack, uid = rack_with_a_pod()
    items = [{**obj, "kind": inputs.KINDS[name]} for (name, _), obj in rack.objects.items()]
    (report,) = (item for item in items if item["kind"] == "NodeResourceTopology")
    told = list(topology.describe(machines.read_objects(report, items)))
    (group,) = rack.record(uid).allocation.groups
    cpus = bits.format_list(bits.of(group.cpus.all()))
    assert any(line.endswith(f"group g0: {cpus}, 1 GPU") for line in told)
    (shared,) = (line for line in told if line.startswith("  shared pool "))
    pool = bits.parse_list(shared.removeprefix("  shared pool "))
    assert pool
    assert not pool & bits.of(group.cpus.all())


def test_a_pod_of_a_gang_names_it() -> None:
    world = World()
    add_node(world, "n", idle())
    gang(world, "a", 2, "ring")
    (pod,) = world.cluster.pods.values()
    assert model.waiting(pod)["gang"] == "default/ring"
