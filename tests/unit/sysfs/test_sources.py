"""The order of sources: what stands in for each file that is missing, and what is then known."""

from __future__ import annotations

import logging
import shutil
from typing import TYPE_CHECKING

import pytest

from rte import errors
from rte.model import bits
from rte.model.machine import CPUBasics
from rte.sysfs import document, read_machine
from tests import machines
from tests.machines import GIB, MIB, Shape

if TYPE_CHECKING:
    from pathlib import Path

    from rte.model.machine import Machine

CPU = "sys/devices/system/cpu"
NODE = "sys/devices/system/node"
SHAPE = Shape(
    sockets=2,
    zones=2,
    cores=2,
    threads=2,
    memory=(4 * GIB, 5 * GIB, 6 * GIB, 7 * GIB),
    pools={2 * MIB: (64, 0, 32), GIB: (0, 1)},
    l3_cores=1,
    die_zones=1,
)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    machines.generate(SHAPE, tmp_path)
    return tmp_path


def read(root: Path) -> Machine:
    return read_machine(root / "sys", root / "proc")


def remove(root: Path, *patterns: str) -> None:
    for pattern in patterns:
        found = sorted(root.glob(pattern))
        assert found, pattern
        for path in found:
            if path.is_dir() and not path.is_symlink():
                shutil.rmtree(path)
            else:
                path.unlink()


def zones_of(machine: Machine) -> dict[int, int]:
    return {cpu.id: cpu.zone for cpu in machine.cpus}


TRUE_ZONES = {row["id"]: row["zone"] for row in machines.build_rows(SHAPE)}

#: What is missing -> the files that the warnings must name. The reading stays the same.
NOTHING_LOST = {
    "cpu lists of zones": ([f"{NODE}/node*/cpulist"], []),
    "cpu lists and maps": ([f"{NODE}/node*/cpulist", f"{NODE}/node*/cpumap"], []),
    "all but the CPUs' links": (
        [f"{NODE}/node*/cpulist", f"{NODE}/node*/cpumap", f"{NODE}/node*/cpu[0-9]*"],
        ["node/node0/cpulist"],
    ),
    "one zone's CPUs, by elimination": (
        [f"{NODE}/node2/cpu*", f"{CPU}/cpu*/node2"],
        ["node/node2/cpulist", "node/node*/cpulist"],
    ),
    "one core's links, by its sibling": (
        [f"{NODE}/node[12]/cpu*", f"{CPU}/cpu4/node2"],
        ["node/node1/cpulist", "node/node2/cpulist", "node/node*/cpulist"],
    ),
    "list of zones": ([f"{NODE}/online"], ["node/online"]),
    "one zone's memory": ([f"{NODE}/node1/meminfo"], ["node/node1/meminfo"]),
    "node memory": (["proc/meminfo"], ["/proc/meminfo"]),
    "one pool": (
        [f"{NODE}/node1/hugepages/hugepages-1048576kB"],
        ["node/node*/hugepages/hugepages-1048576kB"],
    ),
    "default pools, by the zones' meminfo": (
        [f"{NODE}/node*/hugepages/hugepages-2048kB"],
        ["node/node*/hugepages/hugepages-2048kB"],
    ),
    "node pools": (["sys/kernel/mm"], []),
    "distances of one zone, by symmetry": (
        [f"{NODE}/node3/distance"],
        ["node/node*/distance"],
    ),
    "list of on-line CPUs": ([f"{CPU}/online"], ["cpu/online"]),
    "lists of CPUs": (
        [f"{CPU}/online", f"{CPU}/present", f"{CPU}/possible"],
        ["cpu/online"],
    ),
    "on-line CPUs and cpuinfo": ([f"{CPU}/online", "proc/cpuinfo"], ["cpu/online"]),
    "siblings, by core id": (
        [f"{CPU}/cpu*/topology/core_cpus_list"],
        ["cpu*/topology/core_cpus_list"],
    ),
    "sibling lists of some, by the others": ([f"{CPU}/cpu[0-3]/topology/core_cpus_list"], []),
    "socket lists": ([f"{CPU}/cpu*/topology/package_cpus_list"], []),
    "die lists": ([f"{CPU}/cpu*/topology/die_cpus_list"], []),
    "socket ids, by cpuinfo": ([f"{CPU}/cpu*/topology/physical_package_id"], []),
    "core ids, by cpuinfo": ([f"{CPU}/cpu*/topology/core_id"], []),
    "cache ids of lowest CPUs": ([f"{CPU}/cpu[4-7]/cache/index3/shared_cpu_list"], []),
}


@pytest.mark.parametrize("case", NOTHING_LOST)
def test_the_next_best_source_tells_the_same(root: Path, case: str) -> None:
    whole = document.build_document(read(root))
    assert whole["warnings"] == []
    patterns, warned = NOTHING_LOST[case]
    remove(root, *patterns)
    found = document.build_document(read(root))
    lines = found.pop("warnings")
    del whole["warnings"]
    if case == "on-line CPUs and cpuinfo":
        assert (found.pop("model"), found.pop("vendor"), found.pop("sockets")) == ("", "", 0)
        found |= {key: whole[key] for key in ("model", "vendor", "sockets")}
    if case == "distances of one zone, by symmetry":
        assert found["zones"][3]["distances"] == whole["zones"][3]["distances"]
    assert found == whole
    assert {line.split(": ")[0].split(" (")[0] for line in lines} >= set(warned)
    assert bool(lines) == bool(warned)


def test_each_missing_source_leaves_a_log_line(
    root: Path, caplog: pytest.LogCaptureFixture
) -> None:
    remove(root, f"{NODE}/node1/meminfo", f"{NODE}/online")
    with caplog.at_level(logging.WARNING, "rte.sysfs"):
        machine = read(root)
    assert [record.getMessage() for record in caplog.records] == list(machine.warnings)
    assert len(machine.warnings) == 2


def test_cpus_of_two_lost_zones_stay_unknown_rather_than_wrong(root: Path) -> None:
    remove(root, f"{NODE}/node[12]/cpu*", f"{CPU}/cpu*/node[12]")
    machine = read(root)
    wanted = {cpu: zone if zone in {0, 3} else -1 for cpu, zone in TRUE_ZONES.items()}
    assert zones_of(machine) == wanted
    assert [zone.id for zone in machine.zones] == [0, 1, 2, 3]


def test_without_node_online_another_zone_may_be_missing_whole(root: Path) -> None:
    """Its CPUs and memory are not those of the zone whose own files are damaged."""
    remove(root, f"{CPU}/cpu*/node*", f"{NODE}/online", f"{NODE}/node2", f"{NODE}/node3/cpu*")
    remove(root, f"{NODE}/node3/meminfo", f"{NODE}/node3/hugepages")
    machine = read(root)
    assert zones_of(machine) == {c: z if z < 2 else -1 for c, z in TRUE_ZONES.items()}
    assert [zone.memory_bytes for zone in machine.zones] == [4 * GIB, 5 * GIB, 0]
    assert [zone.hugepages.get(2 * MIB) for zone in machine.zones] == [64, 0, None]


def test_a_cpu_that_two_zones_claim_is_where_its_link_says(root: Path) -> None:
    (root / NODE / "node3/cpulist").write_text("0,6-7,14-15\n")
    assert zones_of(read(root)) == TRUE_ZONES


def test_a_cpu_list_that_was_cut_off_places_nobody_wrongly(root: Path) -> None:
    (root / NODE / "node3/cpulist").write_text("6-7,1")
    remove(root, f"{CPU}/cpu*/node*")
    assert zones_of(read(root)) == TRUE_ZONES


def test_zones_listed_without_a_directory_are_kept(root: Path) -> None:
    (root / NODE / "online").write_text("0-3,8\n")
    machine = read(root)
    assert [zone.id for zone in machine.zones] == [0, 1, 2, 3, 8]
    assert machine.zones[-1].cpus == 0


def test_zones_are_what_node_online_lists_and_nothing_else(root: Path) -> None:
    (root / NODE / "online").write_text("0-2\n")
    (root / NODE / "node9").mkdir()
    (root / NODE / "node9/cpulist").write_text("\n")
    machine = read(root)
    assert [zone.id for zone in machine.zones] == [0, 1, 2]
    assert zones_of(machine) == {cpu: -1 if zone == 3 else zone for cpu, zone in TRUE_ZONES.items()}


def test_cpus_of_an_offline_zone_are_not_put_into_one_whose_cpus_are_lost(root: Path) -> None:
    (root / NODE / "online").write_text("0-2\n")
    remove(root, f"{CPU}/cpu*/node2", f"{NODE}/node[23]")
    assert zones_of(read(root)) == {
        cpu: -1 if zone == 3 else zone for cpu, zone in TRUE_ZONES.items()
    }


def test_negative_package_ids_give_one_socket_per_group(root: Path) -> None:
    for path in root.glob(f"{CPU}/cpu*/topology/physical_package_id"):
        path.write_text("-1\n")
    remove(root, "proc/cpuinfo")
    machine = read(root)
    assert {cpu.id: cpu.socket for cpu in machine.cpus} == {
        row["id"]: row["socket"] for row in machines.build_rows(SHAPE)
    }


def test_parts_of_one_zone_that_list_the_same_cpus_give_them_to_the_first(root: Path) -> None:
    """numa=fake on a kernel without links between CPUs and zones."""
    remove(root, f"{CPU}/cpu*/node*", f"{NODE}/node*/cpu[0-9]*")
    for zone, cpus in ((0, "0-3,8-11"), (1, "0-3,8-11"), (2, "4-7,12-15"), (3, "4-7,12-15")):
        (root / NODE / f"node{zone}/cpulist").write_text(f"{cpus}\n")
    machine = read(root)
    assert [bits.format_list(zone.cpus) for zone in machine.zones] == [
        "0-3,8-11",
        "",
        "4-7,12-15",
        "",
    ]


def test_a_cpu_that_nested_zones_list_belongs_to_the_smallest(root: Path) -> None:
    """Slower memory that is near to more CPUs; a CPU counts once."""
    remove(root, f"{CPU}/cpu*/node*", f"{NODE}/node*/cpu[0-9]*")
    for zone, cpus in ((0, "0-15"), (1, "0-3,8-11"), (2, "0-1"), (3, "4-5")):
        (root / NODE / f"node{zone}/cpulist").write_text(f"{cpus}\n")
    assert [bits.format_list(zone.cpus) for zone in read(root).zones] == [
        "6-7,12-15",
        "2-3,8-11",
        "0-1",
        "4-5",
    ]


def test_package_ids_that_repeat_do_not_merge_sockets(root: Path) -> None:
    """ia64 numbers packages by bus; its lists tell them apart. The kubelet goes by the ids."""
    for cpu in range(16):
        topology = root / CPU / f"cpu{cpu}/topology"
        (topology / "physical_package_id").write_text(f"{cpu % 8 // 2 * 512}\n")
        (topology / "package_cpus_list").write_text(f"{cpu % 8},{cpu % 8 + 8}\n")
    machine = read(root)
    assert [cpu.socket for cpu in machine.cpus] == [*range(8)] * 2
    told = [cpu.socket if cpu.package_id is None else cpu.package_id for cpu in machine.cpus]
    assert told == [0, 0, 512, 512, 1024, 1024, 1536, 1536] * 2


def test_thread_siblings_of_different_core_ids_are_cores(root: Path) -> None:
    for cpu in range(16):
        (root / CPU / f"cpu{cpu}/topology/core_id").write_text(f"{cpu}\n")
    assert {cpu.siblings.bit_count() for cpu in read(root).cpus} == {1}


def test_one_damaged_core_id_splits_no_core(root: Path) -> None:
    (root / CPU / "cpu0/topology/core_id").write_text("7\n")
    assert {cpu.siblings.bit_count() for cpu in read(root).cpus} == {2}


def test_a_kernel_that_knows_no_sockets_has_one(root: Path) -> None:
    remove(root, "proc/cpuinfo")
    for cpu in range(16):
        topology = root / CPU / f"cpu{cpu}/topology"
        (topology / "physical_package_id").write_text("-1\n")
        (topology / "core_id").write_text("0\n")
        for name in ("core_cpus_list", "package_cpus_list"):
            (topology / name).write_text(f"{cpu}\n")
    machine = read(root)
    assert {cpu.socket for cpu in machine.cpus} == {0}
    assert [cpu.core for cpu in machine.cpus] == list(range(16))


def test_cpus_that_only_cpuinfo_names_are_there(root: Path) -> None:
    remove(root, f"{CPU}/online", f"{CPU}/present", f"{CPU}/possible", f"{CPU}/cpu1[0-5]")
    machine = read(root)
    assert machine.online == bits.of(range(16))
    assert zones_of(machine) == TRUE_ZONES


def test_nothing_tells_sockets_gives_one(root: Path) -> None:
    remove(root, f"{CPU}/cpu*/topology", "proc/cpuinfo")
    machine = read(root)
    assert {cpu.socket for cpu in machine.cpus} == {0}
    assert all(cpu.siblings == 1 << cpu.id for cpu in machine.cpus)
    assert zones_of(machine) == TRUE_ZONES


def test_core_ids_that_repeat_are_replaced(root: Path) -> None:
    for path in root.glob(f"{CPU}/cpu*/topology/core_id"):
        path.write_text("0\n")
    machine = read(root)
    assert {cpu.siblings for cpu in machine.cpus} == {0x101 << core for core in range(8)}
    assert len({(cpu.socket, cpu.die, cpu.core) for cpu in machine.cpus}) == 8
    assert {cpu.core_id for cpu in machine.cpus if cpu.core} == {0}


def test_siblings_that_contradict_each_other_are_settled_by_the_rest(root: Path) -> None:
    (root / CPU / "cpu0/topology/core_cpus_list").write_text("0-1\n")
    machine = read(root)
    by_id = {cpu.id: cpu for cpu in machine.cpus}
    assert by_id[1].siblings == by_id[9].siblings == bits.of([1, 9])
    assert by_id[0].siblings == by_id[8].siblings == bits.of([0, 8])


def test_l3_groups_survive_without_lists_by_their_ids(root: Path) -> None:
    whole = {cpu.id: cpu.l3 for cpu in read(root).cpus}
    remove(root, f"{CPU}/cpu*/cache/index3/shared_cpu_list")
    assert {cpu.id: cpu.l3 for cpu in read(root).cpus} == whole


def test_repeated_cache_ids_do_not_merge_groups(root: Path) -> None:
    for path in root.glob(f"{CPU}/cpu*/cache/index3/id"):
        path.write_text("0\n")
    groups = {cpu.l3 for cpu in read(root).cpus}
    assert len(groups) == 8


def test_offline_files_of_single_cpus_count_when_the_list_is_missing(root: Path) -> None:
    remove(root, f"{CPU}/online", f"{CPU}/cpu3/topology")
    (root / CPU / "cpu3/online").write_text("0\n")
    machine = read(root)
    assert machine.online == bits.of(range(16)) & ~(1 << 3)
    assert len(machine.cpus) == 16


def test_links_never_lead_out_of_the_root(root: Path, tmp_path_factory: pytest.TempPathFactory):
    outside = tmp_path_factory.mktemp("outside")
    (outside / "meminfo").write_text("Node 1 MemTotal: 999 kB\n")
    (outside / "online").write_text("0-7\n")
    remove(root, f"{NODE}/node1/meminfo", f"{NODE}/online", f"{CPU}/online")
    (root / NODE / "node1/meminfo").symlink_to(outside / "meminfo")
    (root / NODE / "online").symlink_to(f"../../../../../{outside.name}/online")
    (root / CPU / "online").symlink_to("/sys/devices/system/cpu/present")
    machine = read(root)
    assert machine.zones[1].memory_bytes == 5 * GIB
    assert [zone.id for zone in machine.zones] == [0, 1, 2, 3]
    assert machine.online == bits.of(range(16))
    assert not any(line.startswith("cpu/online") for line in machine.warnings)


def test_procfs_stat_alone_names_cpus(tmp_path: Path) -> None:
    (tmp_path / "proc").mkdir()
    (tmp_path / "proc/stat").write_text("cpu  1 2\ncpu0 1 2\ncpu2 1 2\nintr 0\n")
    machine = read(tmp_path)
    assert [cpu.id for cpu in machine.cpus] == [0, 2]
    assert zones_of(machine) == {0: 0, 2: 0}


def test_nothing_at_all_is_an_error_that_names_the_flags(tmp_path: Path) -> None:
    with pytest.raises(errors.SysfsError, match="--sysfs-root") as caught:
        read(tmp_path)
    assert "\n" not in str(caught.value)


CPUINFO = {
    "s390, old": (
        (
            "vendor_id       : IBM/S390\n# processors    : 2\nbogomips per cpu: 3033.00\n"
            "processor 0: version = FF,  identification = 0133E8,  machine = 2964\n"
            "processor 1: version = FF,  identification = 0133E8,  machine = 2964\n"
        ),
        [0, 1],
    ),
    "s390, new": (
        (
            "processor 0: version = 00, identification = 1, machine = 3906\n\n"
            "cpu number      : 0\nphysical id     : 1\ncore id         : 0\n\n"
            "cpu number      : 5\nphysical id     : 1\ncore id         : 1\n"
        ),
        [0, 5],
    ),
    "ppc64": (
        (
            "processor\t: 0\ncpu\t\t: POWER9\n\nprocessor\t: 8\ncpu\t\t: POWER9\n\n"
            "timebase\t: 512000000\nmodel\t\t: 8335-GTH\n"
        ),
        [0, 8],
    ),
    "arm, old": ("Processor\t: ARMv7 rev 1\nprocessor\t: 0\n\nprocessor\t: 1\n", [0, 1]),
    "ia64": (
        (
            "processor  : 0\nvendor     : GenuineIntel\nfamily     : Itanium 2\nphysical id: 0\n"
            "core id    : 0\nthread id  : 0\n\nprocessor  : 3\nphysical id: 1\ncore id    : 0\n"
        ),
        [0, 3],
    ),
    "sparc": ("cpu\t\t: T4\nncpus active\t: 2\nCPU0:\t\tonline\nCPU9:\t\tonline\n", [0, 9]),
}


@pytest.mark.parametrize("architecture", CPUINFO)
def test_cpuinfo_of_every_architecture_names_its_cpus(tmp_path: Path, architecture: str) -> None:
    text, cpus = CPUINFO[architecture]
    (tmp_path / "proc").mkdir()
    (tmp_path / "proc/cpuinfo").write_text(text)
    assert [cpu.id for cpu in read(tmp_path).cpus] == cpus


def test_what_koordinator_compares_cpus_by(tmp_path: Path) -> None:
    sys, proc = tmp_path / "sys", tmp_path / "proc"
    for path, text in {
        sys / "devices/system/cpu/online": "0",
        sys / "devices/system/cpu/intel_pstate/no_turbo": "0\n",
        sys / "fs/resctrl/info/L3/cbm_mask": "7ff\n",
        proc / "cpuinfo": "processor\t: 0\nvendor_id\t: GenuineIntel\nmodel name\t: Xeon\n",
    }.items():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    assert read_machine(sys, proc).basics == CPUBasics(
        name="Xeon", vendor="GenuineIntel", turbo=True, l3_ways="7ff"
    )
    (sys / "devices/system/cpu/intel_pstate/no_turbo").write_text("1\n")
    assert not read_machine(sys, proc).basics.turbo
