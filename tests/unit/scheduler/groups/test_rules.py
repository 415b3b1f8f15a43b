"""Pods with processing groups in the scheduler: where they go, what is written, why they wait."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from rte.nrt import group_inventory
from rte.placement.groups.check import violations
from rte.placement.groups.delivery import networks
from rte.placement.groups.inventory import NOTHING_USED, Policy
from rte.placement.groups.nhd import adopt, libconfig, triad
from rte.placement.groups.nhd import labels as nhd_labels
from rte.placement.groups.parsing import parse_request
from rte.placement.groups.policies import read_policies
from rte.scheduler.front import usage
from rte.scheduler.front.groups import books_of
from rte.scheduler.loop import messages
from rte.scheduler.plugins.registry import RuleOptions
from rte.telemetry.effects import Measured
from tests.unit.placement.groups.nodes import two_sockets
from tests.unit.placement.groups.test_nhd import FILE as NHD_FILE
from tests.unit.scheduler.build import recorded
from tests.unit.scheduler.groups.rack import Rack, asking

#: Of NHD's nodes.
NHDS = {f"{nhd_labels.PREFIX}nfd-extras-cpu.numSockets": "2"}
RADIO = asking({"queues": [{"rx": 20, "tx": 20}], "workers": 1})
WITH_GPU = asking({"gpus": [{"feeders": 1}], "queues": [{"rx": 10, "tx": 10}]})


def a_rack(*names: str, policy: dict[str, object] | None = None) -> Rack:
    rack = Rack(options=RuleOptions(policies=read_policies(policy)))
    for name in names:
        rack.server(name)
    return rack


def test_the_bind_writes_what_the_pod_gets() -> None:
    rack = a_rack("a")
    uid = rack.asks(WITH_GPU)

    record = rack.record(uid)

    assert record.holds_for(uid, "a")
    assert rack.where(uid) == "a"
    assert record.inventory
    request = parse_request(WITH_GPU)
    assert not violations(request, record.allocation, two_sockets(), NOTHING_USED, Policy())
    assert set(record.devices) == {"0000:17:10.0", "0000:17:20.0"}
    (bind,) = (effect for effect in rack.effects if isinstance(effect, messages.Bind))
    assert json.loads(bind.annotations["topology.rte.dev/allocation"])["pod"] == uid


def test_site_values_come_from_the_node() -> None:
    rack = a_rack()
    rack.server("a", labels={"DATA_PLANE_VLAN": "7", "values.topology.rte.dev/rail": "2"})

    assert rack.record(rack.asks(RADIO)).values == {"vlan": "7", "rail": "2"}


def test_nothing_is_given_twice_and_what_ends_comes_back() -> None:
    rack = a_rack("a", policy={"settleSeconds": 0})
    first, second, third = (rack.asks(RADIO) for _ in range(3))

    nics = [
        group.nics[0].address
        for uid in (first, second)
        for group in rack.record(uid).allocation.groups
    ]
    assert len(set(nics)) == 2
    assert not rack.where(third)
    assert "1 processing groups: nic" in rack.why(third)
    rack.change(first, phase="Succeeded")
    assert rack.record(third).allocation == rack.record(first).allocation


def test_a_pod_that_is_being_bound_holds_what_it_gets() -> None:
    rack = a_rack("a")
    rack.answers = False
    first, second = rack.asks(RADIO), rack.asks(RADIO)
    rack.change(first, conditions=[])  # the API shows it once more, still without its node
    third = rack.asks(RADIO)

    assert [bind.pod.uid for bind in rack.binds] == [first, second]
    assert "nic" in rack.why(third)


def test_a_bind_that_fails_gives_everything_back() -> None:
    rack = a_rack("a")
    rack.answers = False
    uid = rack.asks(WITH_GPU)
    (bind,) = rack.binds
    rack.binds.clear()

    rack.handle(messages.Bound(uid, messages.Outcome.REFUSED, message="no"))
    rack.pass_time(1.0)

    assert rack.binds[0].annotations == bind.annotations


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("{", "is not JSON"),
        ('{"version": 2}', "version: must be 1"),
        (
            asking({"nics": [{"kind": "x"}]}),
            "groups[0].nics[0].kind: must be one of any, pf, vf",
        ),
        (
            asking({"workers": 1}, hugepages={"1Gi": 1}),
            "hugepages.1Gi: 1 pages, but the containers ask for 0",
        ),
    ],
)
def test_an_invalid_request_is_told_and_nobody_waits_for_it(text: str, said: str) -> None:
    rack = a_rack("a")
    uid = rack.asks(text)
    other = rack.asks(RADIO)
    rack.pass_time(1.0)

    (told,) = (told for told in rack.told(messages.Unschedulable) if told.pod.uid == uid)
    assert told.reason == "InvalidGroups"
    assert told.message == said
    assert rack.where(other) == "a"
    obj = rack.objects["pods", uid]
    annotations = {**obj["metadata"]["annotations"], "topology.rte.dev/groups": RADIO}
    rack.put("pods", uid, {**obj, "metadata": {**obj["metadata"], "annotations": annotations}})
    assert rack.where(uid) == "a"


def test_huge_pages_are_those_that_the_containers_ask_for() -> None:
    rack = a_rack("a")
    text = asking({"workers": 1}, hugepages={"1Gi": 2})

    uid = rack.asks(text, extra={"hugepages-1Gi": "2Gi"}, guaranteed=True, cpu="1500m")

    assert rack.record(uid).allocation.hugepages == {"1Gi": {0: 2}}


def test_every_reason_of_a_node_is_told() -> None:
    rack = a_rack()
    rack.server("a", labels={"NHD_GROUP": "radio", "topology.rte.dev/maintenance": "true"})
    rack.server("b", two_sockets(nics=0))
    rack.node("c")
    uid = rack.asks(asking({"nics": [{}]}, cpuArch=["icelake"]))

    why = rack.why(uid)

    assert "1 processing groups: node-maintenance, node-group, cpu-arch" in why
    assert "1 processing groups: no-inventory" in why
    assert "1 processing groups: cpu-arch" in why


def test_a_change_of_labels_wakes_a_pod() -> None:
    rack = a_rack()
    rack.server("a", labels={"topology.rte.dev/node-groups": "x.y"})
    uid = rack.asks(asking({"workers": 1}, nodeGroups=["z"]))
    assert not rack.where(uid)

    rack.label("a", **{"topology.rte.dev/node-groups": "y.z"})

    assert rack.where(uid) == "a"


def test_a_device_that_comes_back_wakes_a_pod() -> None:
    rack = a_rack()
    rack.server("a", replace(two_sockets(), gpus=()))
    uid = rack.asks(WITH_GPU)
    assert not rack.where(uid)

    rack.inventories["a"] = two_sockets()
    rack.report("a")

    assert rack.where(uid) == "a"


@pytest.mark.parametrize("size", ["0", "x", "-1Gi"])
def test_pages_of_no_size_stop_nobody(size: str) -> None:
    rack = a_rack("a")
    uid = rack.asks(RADIO, extra={f"hugepages-{size}": "1Gi"}, guaranteed=True, cpu="1500m")
    other = rack.asks(RADIO)

    assert "is no size of pages" in rack.why(uid)
    assert rack.where(other) == "a"


@pytest.mark.parametrize("text", ["{", '{"version": 2}', '{"version": 1, "cores": {"0": "x"}}'])
def test_an_inventory_that_cannot_be_read_stops_groups_only(text: str) -> None:
    rack = a_rack("a")
    report = rack.objects["reports", "a"]
    annotations = {**report["metadata"]["annotations"], group_inventory.ANNOTATION: text}
    rack.put(
        "reports", "a", {**report, "metadata": {**report["metadata"], "annotations": annotations}}
    )

    assert "no-inventory" in rack.why(rack.asks(RADIO))
    assert rack.where(rack.pod(cpu="2")) == "a"


def test_a_pod_without_gpus_goes_to_a_node_without() -> None:
    rack = a_rack("a", "b")
    for number in range(4):
        rack.server(f"c{number}", replace(two_sockets(), gpus=()))

    assert rack.where(rack.asks(asking({"workers": 1}))) == "c0"
    assert rack.where(rack.asks(WITH_GPU)) == "a"


def test_a_node_rests_after_a_start_and_after_a_stop() -> None:
    rack = a_rack("a", policy={"settleSeconds": 30})
    first = rack.asks(WITH_GPU)
    second = rack.asks(WITH_GPU)

    assert "cooldown" in rack.why(second)
    rack.pass_time(29.0)
    assert not rack.where(second)
    rack.pass_time(2.0)
    assert rack.where(second) == "a"
    rack.pass_time(60.0)
    third = rack.asks(WITH_GPU)
    rack.delete("pods", first)
    assert not rack.where(third)
    rack.pass_time(31.0)
    assert rack.where(third) == "a"


def test_a_start_that_failed_lets_the_node_be() -> None:
    rack = a_rack("a")
    rack.answers = False
    uid = rack.asks(WITH_GPU)
    rack.binds.clear()
    rack.handle(messages.Bound(uid, messages.Outcome.GONE))
    other = rack.asks(WITH_GPU)

    assert [bind.pod.uid for bind in rack.binds] == [other]


def test_a_copied_record_holds_nothing() -> None:
    rack = a_rack("a")
    uid = rack.asks(RADIO)
    copied = {"topology.rte.dev/allocation": rack.annotation(uid)}
    for number in range(3):
        rack.pod(f"copy{number}", "1", annotations=copied, node_name="a", guaranteed=False)

    assert rack.where(rack.asks(RADIO)) == "a"


def test_two_holders_of_one_thing_are_told_and_it_is_offered_to_nobody() -> None:
    rack = a_rack("a")
    text = rack.annotation(rack.asks(WITH_GPU, name="p"))
    rack.pod("q", "1", node_name="a", guaranteed=False)
    rack.change("uid-q", conditions=recorded(text.replace("uid-p", "uid-q")))

    rack.pass_time(2.0)

    told = rack.events("AllocationConflict")
    assert "GPU 0000:17:10.0 is held by pods uid-p, uid-q" in told
    assert len(told) == len(set(told))
    gauge = [m.value for m in rack.told(messages.Measured) if m.metric == "group_conflicts"]
    assert gauge[-1] == len(told)
    rack.delete("pods", "uid-q")
    rack.pass_time(2.0)
    gauge = [m.value for m in rack.told(messages.Measured) if m.metric == "group_conflicts"]
    assert gauge[-1] == 0


EVERYTHING = {"version": 1, "pod": "uid-q", "node": "a", "misc": {"cpus": [*range(32)]}}


@pytest.mark.parametrize("text", ["x", '{"version": 2}', json.dumps(EVERYTHING)])
@pytest.mark.parametrize("groups", [{}, {"topology.rte.dev/groups": RADIO}])
@pytest.mark.parametrize("scheduler", ["default-scheduler", "rte-scheduler"])
def test_what_others_write_into_the_annotation_blocks_nothing(
    text: str, groups: dict[str, str], scheduler: str
) -> None:
    rack = a_rack("a", policy={"settleFor": ["all"]})
    forged = {"topology.rte.dev/allocation": text, **groups}
    rack.pod("q", "1", annotations=forged, node_name="a", guaranteed=False, schedulerName=scheduler)

    assert rack.where(rack.asks(RADIO)) == "a"
    rack.pass_time(2.0)
    (told,) = rack.events("AllocationIgnored")
    assert "topology.rte.dev/allocation is not what a scheduler has recorded" in told
    rack.restart()
    rack.change("uid-q", phase="Succeeded")
    rack.pass_time(40.0)
    assert rack.where(rack.asks(WITH_GPU)) == "a"
    assert not rack.events("AllocationConflict")


def test_what_a_pod_holds_is_what_its_bind_has_recorded_whatever_its_author_writes() -> None:
    rack = a_rack("a")
    uid = rack.asks(WITH_GPU)
    given = rack.record(uid).allocation
    obj = rack.objects["pods", uid]
    for written in ({}, {"topology.rte.dev/allocation": json.dumps(EVERYTHING)}):
        rack.put("pods", uid, {**obj, "metadata": {**obj["metadata"], "annotations": written}})

        on = books_of(rack.machine.cycle).on(rack.machine.cluster.entry("a"))
        assert on.held.allocations == {uid: given}


def test_a_file_of_nhd_counts_on_its_nodes_alone() -> None:
    rack = a_rack("a")
    rack.pod(
        "q", "1", annotations={adopt.ANNOTATION: "x"}, node_name="a", guaranteed=False,
        schedulerName="nhd-scheduler",
    )  # fmt: skip

    assert rack.where(rack.asks(RADIO)) == "a"


def test_where_a_record_cannot_be_read_nothing_is_given() -> None:
    rack = a_rack("a")
    rack.pod("p", "1", node_name="a", guaranteed=False)
    newer = '{"version": 2, "pod": "uid-p", "node": "a"}'
    rack.change("uid-p", conditions=recorded(newer))
    uid = rack.asks(RADIO)

    assert "unreadable-allocation" in rack.why(uid)
    rack.pass_time(2.0)
    assert rack.events("AllocationConflict")[0].startswith("the allocation is of version 2")
    rack.delete("pods", "uid-p")
    assert rack.where(uid) == "a"


def test_pods_that_nhd_has_placed_hold_what_its_file_says() -> None:
    node = two_sockets()
    nics = tuple(replace(nic, mac=f"02:00:00:00:00:0{i}") for i, nic in enumerate(node.nics))
    rack = a_rack()
    rack.server("a", replace(node, nics=nics), labels=NHDS)
    placed = """
    Hugepages_GB = 4;
    Ctl : { c0 = 10; c1 = 26; vlan = 100; };
    Mod = ( { module = "m0"; vlan = 100; dp = ( { rx_cores=[18]; tx_cores=[3]; rx_speeds=[10.0];
              tx_speeds=[5.0]; cpu_workers=[19]; gpu_map=((2,0)); } ); } );
    TopologyCfg : { cpu_arch="ANY"; map_type="NUMA"; ext_cores=("Ctl.c0","Ctl.c1");
      ext_cores_smt=true; kni_vlan="Ctl.vlan"; mod_defs=( { module="Mod"; data_vlan="vlan";
        dp_group={ name="dp"; proc_cores_smt=true; }; } ); };
    Network_Config = ( { mac = "02:00:00:00:00:00"; rxCores = [18]; txCores = [3]; } );
    """
    for scheduler, name in (("nhd-scheduler", "old"), ("rte-scheduler", "copy")):
        rack.pod(
            name, "1", annotations={adopt.ANNOTATION: placed}, node_name="a", guaranteed=False,
            schedulerName=scheduler,
        )  # fmt: skip
    uid = rack.asks(WITH_GPU)

    (group,) = rack.record(uid).allocation.groups
    assert group.zone == 1
    assert group.gpus == ("0000:ae:10.0",)
    rack.pass_time(2.0)
    assert not rack.events("AllocationConflict")


def test_a_higher_priority_gets_its_groups_by_eviction() -> None:
    rack = a_rack("a", policy={"settleSeconds": 0})
    low = [rack.asks(RADIO, priority=0) for _ in range(2)]
    high = rack.asks(RADIO, priority=10)
    rack.pass_time(1.0)

    (evicted,) = rack.told(messages.Evict)
    (victim,) = evicted.victims
    assert victim.uid in low
    rack.asks(RADIO, priority=5)  # may not take what the other one waits for
    rack.end(victim.uid)
    assert rack.where(high) == "a"


def test_nics_are_attached_beside_what_the_pod_names_itself() -> None:
    rack = a_rack("a", policy={"networks": "${name}@${name}"})
    plain = rack.asks(RADIO)
    own = rack.asks(RADIO, annotations={networks.ANNOTATION: '[{"name": "mgmt"}]'})

    assert rack.annotation(plain, networks.ANNOTATION) == "e0p0@e0p0"
    assert json.loads(rack.annotation(own, networks.ANNOTATION)) == [
        {"name": "mgmt"}, {"name": "e1p0", "interface": "e1p0"},
    ]  # fmt: skip


def test_a_pod_whose_networks_cannot_be_read_waits() -> None:
    rack = a_rack("a", policy={"networks": "${name}@${name}"})

    uid = rack.asks(RADIO, annotations={networks.ANNOTATION: "[{"})

    assert "k8s.v1.cni.cncf.io/networks is no JSON" in rack.why(uid)


def test_a_function_without_a_name_is_not_attached_by_name() -> None:
    node = two_sockets()
    rack = a_rack(policy={"networks": "${name}@${name}"})
    rack.server("a", replace(node, nics=tuple(replace(nic, name="") for nic in node.nics)))

    assert "processing groups: networks" in rack.why(rack.asks(RADIO))


def test_whole_cpus_of_a_static_cpu_manager_and_groups_exclude_each_other() -> None:
    rack = a_rack()
    rack.inventories["a"] = two_sockets()
    rack.node("a")
    shares = rack.asks(asking({"workers": 1}))
    pins = rack.asks(asking({"workers": 1}), guaranteed=True, cpu="2")

    assert rack.where(shares) == "a"
    assert "static-cpu-manager" in rack.why(pins)


def test_the_order_of_nodes_is_that_of_the_library() -> None:
    """Nodes without GPUs, then the fullest, then the name; soft taints and terms do not count."""
    rack = a_rack("d", "c", policy={"nicSharing": "bandwidth"})
    soft = {"key": "k", "effect": "PreferNoSchedule"}
    for name in ("b", "a"):
        rack.server(name, replace(two_sockets(), gpus=()), taints=[soft])

    went = [rack.where(rack.asks(asking({"workers": 12}))) for _ in range(6)]

    assert went == ["a", "a", "b", "b", "c", "c"]


@pytest.mark.parametrize(("number", "placed"), [(3, 0), (2, 2)])
def test_pods_of_a_gang_get_groups_beside_each_other_or_none(number: int, placed: int) -> None:
    rack = a_rack("a")
    group = {"spec": {"schedulingPolicy": {"gang": {"minCount": number}}}}
    metadata = {"name": "g", "namespace": "default"}
    rack.put("podgroups", "default/g", {"metadata": metadata, **group})
    member = {"schedulingGroup": {"podGroupName": "g"}}

    uids = [rack.asks(WITH_GPU, **member) for _ in range(number)]

    assert [bool(rack.where(uid)) for uid in uids].count(True) == placed
    given = [rack.record(uid).allocation.groups[0] for uid in uids if rack.where(uid)]
    assert len({it.nics[0].address for it in given}) == placed
    assert len({it.gpus[0] for it in given}) == placed


#: All six cores of a zone, and one of them.
LARGE, SMALL = asking({"workers": 12}), asking({"workers": 2})


def beside_small_ones(reserve_after: float) -> tuple[Rack, list[str], str]:
    """Two nodes full of small pods, and a large one that has waited long."""
    rack = Rack(reserve_after=reserve_after, preempts=False)
    for name in ("a", "b"):
        rack.server(name)
    small = [rack.asks(SMALL, name=f"small-{i}") for i in range(24)]
    assert all(rack.where(uid) for uid in small)
    large = rack.asks(LARGE, name="large")
    rack.pass_time(62.0)
    return rack, small, large


@pytest.mark.parametrize("reserve_after", [60.0, 0.0])
def test_a_large_pod_beside_small_ones_that_come_and_go_gets_its_turn(reserve_after: float) -> None:
    """Whatever ends, the next small one is there before: no zone is ever empty by chance."""
    rack, small, large = beside_small_ones(reserve_after)
    others: list[str] = []
    for number, uid in enumerate(small):
        others.append(rack.asks(SMALL, name=f"next-{number}"))
        rack.end(uid)
        rack.pass_time(5.0)
        if rack.where(large):
            break
    # The promise is kept, and over: what comes free now is for those who wait.
    for uid in [uid for uid in small if ("pods", uid) in rack.objects][:1]:
        rack.end(uid)
    rack.pass_time(10.0)

    assert bool(rack.where(large)) is bool(reserve_after)
    assert any(rack.where(uid) for uid in others)
    assert rack.machine.cluster.nominations == {}


def test_a_kept_node_says_for_whom_and_lets_pods_without_groups_in() -> None:
    rack, small, large = beside_small_ones(60.0)
    kept = rack.machine.cluster.nominations[large]
    free = next(uid for uid in small if rack.where(uid) == kept)
    rack.end(free)
    late = rack.asks(SMALL, name="late", nodeSelector={"kubernetes.io/hostname": kept})
    ordinary = rack.pod("ordinary", "100m", guaranteed=False)

    assert rack.where(late) == ""
    assert rack.where(ordinary)
    assert rack.events("NodeReserved")


def test_more_important_groups_need_not_wait_for_a_reservation() -> None:
    rack, small, large = beside_small_ones(60.0)
    kept = rack.machine.cluster.nominations[large]
    rack.end(next(uid for uid in small if rack.where(uid) == kept))
    selector = {"kubernetes.io/hostname": kept}
    urgent = rack.asks(SMALL, name="urgent", priority=10, nodeSelector=selector)

    assert rack.where(urgent) == kept


def amounts_of(rack: Rack) -> dict[tuple[str, ...], float]:
    """The metric as it stands."""
    told = rack.told(Measured)
    return {one.labels: one.value for one in told if one.metric == "group_amounts"}


def test_what_nodes_have_is_measured() -> None:
    rack = a_rack("a", "b")
    uid = rack.asks(asking({"gpus": [{"feeders": 1}]}, hugepages={"1Gi": 2}), mem="1Gi",
                    extra={"hugepages-1Gi": "2Gi"})  # fmt: skip
    rack.pass_time(2.0)

    assert rack.where(uid)
    assert amounts_of(rack) == {
        ("cpus", "free"): 46, ("cpus", "held"): 1, ("cpus", "stranded"): 1,
        ("cpus", "reserved"): 16,
        ("gpus", "free"): 7, ("gpus", "held"): 1, ("nics", "free"): 4, ("nics", "held"): 0,
        ("hugepages-1Gi", "free"): 62, ("hugepages-1Gi", "held"): 2,
        ("hugepages-1Gi", "reserved"): 0,
    }  # fmt: skip
    rack.delete("pods", uid)
    rack.delete("nodes", "b")
    rack.pass_time(2.0)
    now = amounts_of(rack)
    assert (now["cpus", "free"], now["cpus", "held"], now["gpus", "free"]) == (24, 0, 4)


def test_how_full_nodes_are_is_served_by_node() -> None:
    rack = a_rack("a", "b")
    uid = rack.asks(RADIO, name="radio")
    rack.node("plain")
    books = books_of(rack.machine.cycle)

    first, second = usage.documents(rack.machine.cluster, books)

    assert (first["node"], second["node"]) == ("a", "b")
    held, free = (first, second) if rack.where(uid) == "a" else (second, first)
    assert list(held["pods"]) == ["default/radio"]
    assert held["amounts"]["cpus"]["held"] == 3
    (used,) = (nic for nic in held["nics"] if nic["rx"])
    assert (used["rx"], used["tx"], used["mbps"]) == (20_000, 20_000, 100_000)
    assert held["free"][0]["cores"] + held["free"][1]["cores"] == 10
    assert (free["pods"], free["conflicts"], free["unreadable"]) == ({}, [], {})
    json.dumps([held, free])


def nhds_request(**render: object) -> str:
    """NHD's file as a request that carries it along."""
    document = dict(triad.read(NHD_FILE).document)
    return json.dumps({**document, "hugepages": {}, "render": {"triad": NHD_FILE, **render}})


def test_a_pod_goes_on_reading_its_file_where_nhd_wrote_it() -> None:
    rack = a_rack()
    labels = {"DATA_PLANE_VLAN": "100", "DATA_DEFAULT_GW": "10.1.0.1"}
    rack.server("a", labels=labels)
    rack.server("b")
    uid = rack.asks(nhds_request())

    # The file names the VLAN, of which b knows nothing.
    assert rack.where(uid) == "a"
    filled = rack.annotation(uid, adopt.ANNOTATION)
    settings: Any = libconfig.parse(filled)
    (group,) = rack.record(uid).allocation.groups
    assert settings["Mod"][0]["dp"][0]["cpu_workers"] == [*group.cpus.workers]
    assert settings["Ctl"]["vlan"] == 100
    late = rack.asks(nhds_request(), nodeSelector={"kubernetes.io/hostname": "b"})
    assert "nhd-config" in rack.why(late)


@pytest.mark.parametrize(
    ("file", "said"),
    [
        (7, "render.triad: must be a string"),
        ("a =", "render.triad: "),
        ("a = 1;", "render.triad: Hugepages_GB: "),
    ],
)
def test_a_damaged_file_of_nhd_is_told_with_its_place(file: object, said: str) -> None:
    rack = a_rack("a")
    uid = rack.asks(nhds_request(triad=file))
    rack.pass_time(1.0)

    (told,) = (told for told in rack.told(messages.Unschedulable) if told.pod.uid == uid)
    assert told.reason == "InvalidGroups"
    assert told.message.startswith(said)
