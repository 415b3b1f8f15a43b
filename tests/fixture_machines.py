"""The committed machines of fixtures/sysfs; ``python -m tests.fixture_machines`` writes them."""

from __future__ import annotations

import shutil
import sys
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rte.sysfs import document
from tests import machines
from tests.machines import GIB, MIB, Device, Shape

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

ROOT = Path(__file__).parent.parent / "fixtures" / "sysfs"


@dataclass(frozen=True, kw_only=True)
class Fixture:
    """A committed machine.

    Attributes:
        shape: the machine.
        remove: glob patterns below the fixture of files that its dump lacks.
        rewrite: path -> content that its dump has instead.
        adjust: changes the expected document where the dump cannot tell the whole truth.
        warned: the files that the reader must complain about.
    """

    shape: Shape
    remove: tuple[str, ...] = ()
    rewrite: Mapping[str, str] = field(default_factory=dict)
    adjust: Callable[[dict[str, Any]], None] | None = None
    warned: tuple[str, ...] = ()


def write(fixture: Fixture, out_dir: Path) -> None:
    """Write ``out_dir/{sys,proc,expected.json}``, replacing what is there."""
    shutil.rmtree(out_dir, ignore_errors=True)
    machines.generate(fixture.shape, out_dir)
    for pattern in fixture.remove:
        found = list(out_dir.glob(pattern))
        if not found:
            raise ValueError(f"{out_dir.name}: nothing to remove at {pattern}")
        for path in found:
            if path.is_dir() and not path.is_symlink():
                shutil.rmtree(path)
            else:
                path.unlink()
    for path, content in fixture.rewrite.items():
        (out_dir / path).write_text(content)
    truth = machines.expected(fixture.shape)
    if fixture.adjust:
        fixture.adjust(truth)
    truth["warnings"] = sorted(fixture.warned)
    (out_dir / "expected.json").write_text(document.format_document(truth))


def _nic(
    address: str,
    zone: int,
    interface: str,
    *,
    path: tuple[str, ...] = (),
    mac: str = "",
    speed: int = 100000,
    link: str = "up",
    files: Mapping[str, str] | None = None,
    links: Mapping[str, str] | None = None,
    details: Mapping[str, str] | None = None,
) -> Device:
    net = f"net/{interface}"
    speeds = {"speed_mbps": str(speed)} if speed > 0 else {}
    return Device(
        address=address,
        kind="nic",
        pci_class="0x020000",
        vendor="0x15b3",
        device="0x101d",
        zone=zone,
        path=path,
        files={
            f"{net}/address": mac,
            f"{net}/speed": str(speed),
            f"{net}/operstate": link,
            **(files or {}),
        },
        links={"driver": "../../../../bus/pci/drivers/mlx5_core", **(links or {})},
        details={
            "driver": "mlx5_core",
            "interface": interface,
            "mac": mac,
            "link": link,
            **speeds,
            **(details or {}),
        },
    )


def _gpu(address: str, zone: int, path: tuple[str, ...], device: str = "0x2330") -> Device:
    return Device(
        address=address,
        kind="gpu",
        pci_class="0x030200",
        vendor="0x10de",
        device=device,
        zone=zone,
        path=path,
        links={"driver": "../../../../bus/pci/drivers/nvidia"},
        details={"driver": "nvidia"},
    )


def _nvme(address: str, zone: int, path: tuple[str, ...], number: int) -> Device:
    return Device(
        address=address,
        kind="nvme",
        pci_class="0x010802",
        vendor="0x144d",
        device="0xa80a",
        zone=zone,
        path=path,
        files={f"nvme/nvme{number}/model": "SIMULATED SSD 3.84TB"},
        links={"driver": "../../../../bus/pci/drivers/nvme"},
        details={
            "driver": "nvme",
            "controller": f"nvme{number}",
            "model": "SIMULATED SSD 3.84TB",
        },
    )


def _switched(bus: int, port: int) -> tuple[str, ...]:
    """Root port, upstream and downstream port of a switch."""
    return (
        f"0000:{bus:02x}:01.0",
        f"0000:{bus + 1:02x}:00.0",
        f"0000:{bus + 2:02x}:{port:02x}.0",
    )


def _gpu_server() -> tuple[Device, ...]:
    devices: list[Device] = []
    for zone, bus in ((0, 0x10), (0, 0x20), (1, 0x90), (1, 0xA0)):
        index = {0x10: 0, 0x20: 1, 0x90: 2, 0xA0: 3}[bus]
        devices.append(_gpu(f"0000:{bus + 3:02x}:00.0", zone, _switched(bus, 0)))
        devices.append(
            _nic(
                f"0000:{bus + 4:02x}:00.0",
                zone,
                f"ens{index}np0",
                path=_switched(bus, 1),
                mac=f"02:00:00:00:0{index}:00",
                speed=400000 if index != 3 else -1,
                link="up" if index != 3 else "down",
            )
        )
        devices.append(_nvme(f"0000:{bus + 5:02x}:00.0", zone, _switched(bus, 2), index))
    bridge = ("0000:00:1c.0",)
    functions = ("0000:02:00.1", "0000:02:00.2")
    devices.append(
        _nic(
            "0000:02:00.0",
            0,
            "eno1",
            path=bridge,
            mac="02:00:00:00:0a:00",
            speed=25000,
            files={"sriov_totalvfs": "8", "sriov_numvfs": "2"},
            links={f"virtfn{i}": f"../{function}" for i, function in enumerate(functions)},
            details={"vfs": ",".join(functions)},
        )
    )
    for i, function in enumerate(functions):
        devices.append(
            _nic(
                function,
                0,
                f"eno1v{i}",
                path=bridge,
                mac=f"02:00:00:00:0b:0{i}",
                speed=25000,
                links={"physfn": "../0000:02:00.0"},
                details={"pf": "0000:02:00.0", "vf": str(i)},
            )
        )
    # The board's own VGA is no GPU.
    devices.append(
        Device(
            address="0000:00:02.0",
            kind="",
            pci_class="0x030000",
            vendor="0x1a03",
            device="0x2000",
            zone=-1,
        )
    )
    # Neither of them matters to placement.
    for address, pci_class in (("0000:00:1f.0", "0x060100"), ("0000:00:17.0", "0x010601")):
        devices.append(
            Device(
                address=address,
                kind="",
                pci_class=pci_class,
                vendor="0x8086",
                device="0xa1c1",
                zone=0,
            )
        )
    return tuple(devices)


def _interface(name: str, port: int, **more: Any) -> dict[str, Any]:
    empty = {"mac": "", "mbps": None, "link": "", "port_name": "", "bond": ""}
    return {"name": name, **empty, "port": port, **more}


def _group_server() -> tuple[Device, ...]:
    """What processing groups need: models of GPUs, ports, VFs, a bond, several RDMA devices."""
    nvidia = Device(
        address="0000:13:00.0",
        kind="gpu",
        pci_class="0x030000",
        vendor="0x10de",
        device="0x20b2",
        zone=0,
        path=_switched(0x10, 0),
        links={"driver": "../../../../bus/pci/drivers/nvidia"},
        details={
            "driver": "nvidia",
            "model": "NVIDIA A100-SXM4-80GB",
            "uuid": "GPU-5ea1ed00-0000-4000-8000-000000000000",
            "memory_bytes": str(80 * GIB),
            "index": "0",
            "health": "ok",
        },
    )
    amd = Device(
        address="0000:93:00.0",
        kind="gpu",
        pci_class="0x038000",
        vendor="0x1002",
        device="0x740f",
        zone=1,
        path=_switched(0x90, 0),
        files={
            "mem_info_vram_total": str(64 * GIB),
            "product_name": "AMD Instinct MI210",
            "unique_id": "5ea1ed0000000001",
            "drm/card1/dev": "226:1",
            "drm/renderD129/dev": "226:129",
        },
        links={"driver": "../../../../bus/pci/drivers/amdgpu"},
        details={
            "driver": "amdgpu",
            "model": "AMD Instinct MI210",
            "uuid": "5ea1ed0000000001",
            "memory_bytes": str(64 * GIB),
            "index": "1",
        },
    )
    vga = Device(
        address="0000:10:02.0", kind="", pci_class="0x030000", vendor="0x1a03", device="0x2000",
        zone=-1, links={"driver": "../../../bus/pci/drivers/ast"},
    )  # fmt: skip
    functions = tuple(f"0000:14:01.{i}" for i in range(2))
    ports = [
        _nic(
            f"0000:14:00.{port}",
            0,
            f"ens1f{port}np{port}",
            path=_switched(0x10, 1),
            mac=f"02:00:00:00:14:0{port}",
            speed=100_000,
            files={f"net/ens1f{port}np{port}/phys_port_name": f"p{port}"},
            links={
                f"net/ens1f{port}np{port}/master": "../../../../../../../virtual/net/bond0",
                **({f"virtfn{i}": f"../{vf}" for i, vf in enumerate(functions)} if port else {}),
            },
            details={"vfs": ",".join(functions)} if port else {},
        )
        for port in range(2)
    ]
    ports = [
        replace(
            nic,
            more={
                "interfaces": [
                    {
                        "name": f"ens1f{port}np{port}",
                        "mac": f"02:00:00:00:14:0{port}",
                        "mbps": 100_000,
                        "link": "up",
                        "port": None,
                        "port_name": f"p{port}",
                        "bond": "bond0",
                    }
                ]
            },
        )
        for port, nic in enumerate(ports)
    ]
    vfs = [
        _nic(
            function,
            0,
            f"ens1f1v{i}",
            path=_switched(0x10, 1),
            mac=f"02:00:00:00:14:1{i}",
            speed=-1,
            link="down",
            links={"physfn": "../0000:14:00.1"},
            details={"pf": "0000:14:00.1", "vf": str(i)},
        )
        for i, function in enumerate(functions)
    ]
    two_ports = Device(
        address="0000:94:00.0",
        kind="nic",
        pci_class="0x020700",
        vendor="0x15b3",
        device="0x1003",
        zone=1,
        path=_switched(0x90, 1),
        files={
            **{f"net/ib{port}/dev_port": str(port) for port in range(2)},
            "net/ib0/speed": "56000",
            "infiniband/mlx4_0/node_type": "1: CA",
            "infiniband/mlx4_1/node_type": "1: CA",
        },
        details={"interface": "ib0", "rdma": "mlx4_0", "speed_mbps": "56000"},
        more={
            "interfaces": [_interface("ib0", 0, mbps=56_000), _interface("ib1", 1)],
            "rdma": ["mlx4_0", "mlx4_1"],
        },
    )
    return (nvidia, amd, vga, *ports, *vfs, two_ports)


def _pages_in_use(truth: dict[str, Any]) -> None:
    truth["zones"][0]["free_hugepages"] = {str(GIB): 5}


def _tray(gpu: str, *, rooted: bool) -> tuple[Device, ...]:
    """Two GPUs and two NICs of two functions for each socket, every one in a PCI domain of its own.

    ``rooted``: below a root port each; else the functions are on the root bus itself.
    """
    devices: list[Device] = []
    for number, domain in enumerate((0x08, 0x09, 0x18, 0x19)):
        path = (f"{domain:04x}:00:00.0",) if rooted else ()
        bus = 1 if rooted else 0
        devices.append(_gpu(f"{domain:04x}:{bus:02x}:00.0", number // 2, path, gpu))
    for number, domain in enumerate((0x00, 0x02, 0x10, 0x12)):
        path = (f"{domain:04x}:00:00.0",) if rooted else ()
        bus = 1 if rooted else 0
        devices += [
            _nic(
                f"{domain:04x}:{bus:02x}:00.{function}",
                number // 2,
                f"ibp{number}f{function}",
                path=path,
                mac=f"02:00:00:00:0{number}:0{function}",
                speed=400000,
            )
            for function in range(2)
        ]
    return tuple(devices)


def _tray_distance(a: int, b: int) -> int:
    """Zones 0 and 1 have the CPUs, 2 to 17 are of the GPUs of socket 0, the others of socket 1."""
    if max(a, b) < 2:
        return 40
    homes = {each if each < 2 else (each - 2) // 16 for each in (a, b)}
    return 80 if min(a, b) < 2 and len(homes) == 1 else 120 if min(a, b) < 2 else 255


def _grace(
    about: str, gpu: str, memory_gib: int, *, cores: int = 72, rooted: bool = True
) -> Fixture:
    """A compute tray: each of four GPUs has eight zones, one of them with its memory."""
    with_memory = {2 + 8 * number: memory_gib * GIB for number in range(4)}
    return Fixture(
        shape=Shape(
            about=about,
            sockets=2,
            cores=cores,
            memory=(480 * GIB,),
            memory_only=with_memory,
            empty_zones=tuple(zone for zone in range(2, 34) if zone not in with_memory),
            pools={2 * MIB: (0,), 512 * MIB: (0,), 16 * GIB: (0,)},
            vendor="0x41",
            distance=_tray_distance,
            devices=_tray(gpu, rooted=rooted),
        )
    )


def _nps4_distance(a: int, b: int) -> int:
    return 12 if a // 4 == b // 4 else 32


def _no_siblings(truth: dict[str, Any]) -> None:
    for cpu in truth["cpus"]:
        cpu["siblings"] = str(cpu["id"])


def _cpuinfo_only(truth: dict[str, Any]) -> None:
    truth["zones"][0]["hugepages"] = {str(2 * MIB): 0}
    for cpu in truth["cpus"]:
        cpu["l3"] = None


def _zone_0_offline(truth: dict[str, Any]) -> None:
    truth["zones"] = [{**truth["zones"][1], "distances": {"1": 10}}]
    for cpu in truth["cpus"]:
        cpu["zone"] = 1 if cpu["zone"] == 1 else -1


def _books(truth: dict[str, Any]) -> None:
    assert {cpu["socket"] for cpu in truth["cpus"]} == {0, 1, 2, 3}


FIXTURES: dict[str, Fixture] = {
    "2-laptop-no-node": Fixture(
        shape=Shape(
            about="A kernel without NUMA: no devices/system/node.",
            threads=2,
            memory=(8 * GIB,),
            pools={2 * MIB: (16,)},
            node_dir=False,
        ),
        warned=("devices/system/node",),
    ),
    "4-desktop-no-smt": Fixture(
        shape=Shape(about="One zone, one thread per core.", cores=4, memory=(16 * GIB,))
    ),
    "4-cpuinfo-only": Fixture(
        shape=Shape(
            about="A dump of /proc alone: cpuinfo and meminfo, no sysfs at all.",
            cores=4,
            node_dir=False,
        ),
        remove=("sys",),
        adjust=lambda t: (_cpuinfo_only(t), _no_siblings(t))[0],
        warned=(
            "cpu/online",
            "cpu/present",
            "cpu*/cache",
            "cpu*/topology/core_cpus_list",
            "devices/system/node",
        ),
    ),
    "8-desktop-hybrid": Fixture(
        shape=Shape(
            about="x86 hybrid: two performance cores of two threads, four efficiency cores.",
            cores=6,
            threads=2,
            adjacent=False,
            atoms=4,
            memory=(32 * GIB,),
        )
    ),
    "16-laptop-three-kinds": Fixture(
        shape=Shape(
            about="x86 with performance, efficiency and low-power cores (Core Ultra).",
            cores=16,
            atoms=10,
            low_power=2,
            memory=(32 * GIB,),
            cpuid=(6, 0xAA, 4),
        )
    ),
    "8-arm-big-little": Fixture(
        shape=Shape(
            about="arm64 with cores of three capacities, no L3 told, no SMT.",
            cores=8,
            l3_cores=0,
            capacities=(446, 446, 446, 446, 906, 906, 906, 1024),
            memory=(8 * GIB,),
            vendor="0x41",
        ),
        warned=("cpu*/cache",),
    ),
    "8-server-empty-zones": Fixture(
        shape=Shape(
            about="Zone 1 has CPUs and no memory; zone 2 has neither, yet both are on-line.",
            sockets=2,
            cores=4,
            memory=(16 * GIB, 0),
            empty_zones=(2,),
        )
    ),
    "16-server-memory-only": Fixture(
        shape=Shape(
            about="Zone 1 is memory on a CXL expander: no CPUs.",
            cores=8,
            threads=2,
            memory=(64 * GIB,),
            memory_only={1: 128 * GIB},
            pools={2 * MIB: (0, 512)},
        )
    ),
    "16-server-offline-cpus": Fixture(
        shape=Shape(
            about="CPUs 3 and 11 (one core), and 12 (one thread of a core) are off-line.",
            cores=8,
            threads=2,
            offline=(3, 11, 12),
            memory=(64 * GIB,),
        )
    ),
    "16-2s-zone-holes": Fixture(
        shape=Shape(
            about="Two sockets whose zones are 0 and 4.",
            sockets=2,
            cores=4,
            threads=2,
            zone_ids=(0, 4),
            memory=(16 * GIB, 24 * GIB),
        )
    ),
    "16-2s-cpu-holes": Fixture(
        shape=Shape(
            about="CPU ids are multiples of four, as after SMT was switched off on POWER.",
            sockets=2,
            cores=8,
            cpu_stride=4,
            zone_ids=(0, 8),
            memory=(16 * GIB,),
        )
    ),
    "16-2s-hugepages": Fixture(
        shape=Shape(
            about="Pools of two page sizes, different in each zone.",
            sockets=2,
            cores=4,
            threads=2,
            memory=(32 * GIB,),
            pools={2 * MIB: (1024, 256), GIB: (4, 0)},
        )
    ),
    "16-2s-no-hugepages": Fixture(
        shape=Shape(
            about="A kernel without huge pages.",
            sockets=2,
            cores=4,
            threads=2,
            memory=(16 * GIB,),
            pools={},
        )
    ),
    "16-2s-old-kernel": Fixture(
        shape=Shape(
            about="Linux 2.6: hexadecimal maps, no lists, no online files, no cache ids.",
            sockets=2,
            cores=4,
            threads=2,
            old=True,
            l3_ids=False,
            memory=(8 * GIB,),
        ),
        warned=("cpu/online", "cpu*/cache/index*/id", "node/online"),
    ),
    "16-2s-incomplete": Fixture(
        shape=Shape(
            about="An incomplete dump: node1 missing, and topology files of CPUs 2, 5, 10, 13.",
            sockets=2,
            cores=4,
            threads=2,
            memory=(8 * GIB, 12 * GIB),
            pools={2 * MIB: (64, 32)},
        ),
        remove=(
            "sys/devices/system/node/online",
            "sys/devices/system/node/node1",
            "sys/devices/system/cpu/cpu5/topology",
            "sys/devices/system/cpu/cpu13/topology",
            "sys/devices/system/cpu/cpu2/topology/core_cpus_list",
            "sys/devices/system/cpu/cpu10/topology/core_cpus_list",
        ),
        adjust=lambda t: t["zones"][1].update(distances={"0": 21, "1": 10}),
        warned=(
            "cpu*/topology/core_cpus_list",
            "node/node*/distance",
            "node/node*/hugepages/hugepages-2048kB",
            "node/node1/cpulist",
            "node/node1/meminfo",
            "node/online",
        ),
    ),
    "16-2s-zone-offline": Fixture(
        shape=Shape(
            about="Zone 0 lost its memory and is off-line; its CPUs run on and are in no zone.",
            sockets=2,
            cores=4,
            threads=2,
            memory=(0, 16 * GIB),
        ),
        remove=("sys/devices/system/node/node0",),
        rewrite={
            "sys/devices/system/node/online": "1\n",
            "sys/devices/system/node/has_cpu": "1\n",
            "sys/devices/system/node/node1/distance": "10\n",
        },
        adjust=_zone_0_offline,
        warned=("cpu*/node*",),
    ),
    "16-2s-modules": Fixture(
        shape=Shape(
            about="AMD family 15h on Linux 3: cores of a module are listed as thread siblings.",
            sockets=2,
            zones=2,
            cores=4,
            modules=True,
            l3_ids=False,
            memory=(16 * GIB,),
            vendor="AuthenticAMD",
        ),
        warned=("cpu*/cache/index*/id",),
    ),
    "16-ppc64-no-packages": Fixture(
        shape=Shape(
            about="POWER7: package ids are -1, core_siblings are the threads of a core.",
            sockets=4,
            threads=4,
            adjacent=True,
            old=True,
            l3_ids=False,
            zone_ids=(0, 1, 4, 5),
            package_id=lambda _: -1,
            memory=(16 * GIB,),
            pools={16 * MIB: (0,)},
            vendor="",
            model="POWER7 (architected), altivec supported",
        ),
        warned=(
            "cpu/online",
            "cpu*/cache/index*/id",
            "cpu*/topology/physical_package_id",
            "node/online",
        ),
    ),
    "24-s390-books": Fixture(
        shape=Shape(
            about="s390: sockets are numbered anew in each book; one zone.",
            sockets=4,
            cores=3,
            threads=2,
            adjacent=True,
            books=2,
            zone_ids=(0, 1, 2, 3),
            vendor="IBM/S390",
            pools={MIB: (0,)},
        ),
        adjust=_books,
        warned=("cpu*/topology/physical_package_id",),
    ),
    "24-s390-no-node": Fixture(
        shape=Shape(
            about="s390 without NUMA: packages, numbered anew in each book, stand for zones.",
            sockets=4,
            cores=3,
            threads=2,
            adjacent=True,
            books=2,
            node_dir=False,
            vendor="IBM/S390",
            pools={MIB: (0,)},
        ),
        warned=(
            "cpu*/topology/physical_package_id",
            "devices/system/node",
            "node/node*/distance",
            "node/node*/meminfo",
        ),
    ),
    "32-2s-gpus": Fixture(
        shape=Shape(
            about="Four PCIe switches with a GPU, a NIC and a drive each; a NIC with SR-IOV.",
            sockets=2,
            cores=8,
            threads=2,
            memory=(128 * GIB,),
            pools={2 * MIB: (0,), GIB: (16,)},
            cache_sizes=("48K", "2048K", "61440K"),
            devices=_gpu_server(),
        )
    ),
    "16-gb300": _grace(
        "GB300 tray, eight cores of each socket: no PCIe root port above GPUs and NICs.",
        "0x31c2",
        277,
        cores=8,
        rooted=False,
    ),
    "16-2s-groups": Fixture(
        shape=Shape(
            about="GPUs of two makers, a BMC's VGA, a bond, VFs, isolated CPUs, pages in use.",
            sockets=2,
            cores=4,
            threads=2,
            memory=(64 * GIB,),
            pools={GIB: (8,)},
            devices=_group_server(),
            cpuid=(6, 0x6A, 6),
            files={
                "sys/devices/system/cpu/isolated": "2-3,6-7,10-11,14-15",
                "sys/devices/system/cpu/nohz_full": "(null)",
                "sys/devices/system/node/node0/hugepages/hugepages-1048576kB/free_hugepages": "5",
                "proc/driver/nvidia/gpus/0000:13:00.0/information": (
                    "Model: \t\t NVIDIA A100-SXM4-80GB\n"
                    "IRQ:   \t\t 300\n"
                    "GPU UUID: \t GPU-5ea1ed00-0000-4000-8000-000000000000\n"
                    "Video BIOS: \t 92.00.36.00.01\n"
                    "Bus Type: \t PCIe\n"
                    "Bus Location: \t 0000:13:00.0\n"
                    "Device Minor: \t 0\n"
                    "GPU Excluded:\t No"
                ),
            },
            more={"cpu_arch": "icelake", "isolated": "2-3,6-7,10-11,14-15"},
        ),
        adjust=_pages_in_use,
    ),
    "64-2s": Fixture(
        shape=Shape(
            about="Two sockets of one zone, 16 cores of two threads.",
            sockets=2,
            cores=16,
            threads=2,
            memory=(64 * GIB,),
            pools={2 * MIB: (0,), GIB: (0,)},
        )
    ),
    "64-2s-snc": Fixture(
        shape=Shape(
            about="Sub-NUMA clustering: two zones in each socket share one L3 cache.",
            sockets=2,
            zones=2,
            cores=8,
            threads=2,
            l3_cores=16,
            memory=(32 * GIB,),
        )
    ),
    "64-arm-2s-no-cache": Fixture(
        shape=Shape(
            about="arm64 server without SMT whose firmware tells no caches.",
            sockets=2,
            cores=32,
            l3_cores=0,
            memory=(128 * GIB,),
            pools={64 * 1024: (0,), 2 * MIB: (128,), 32 * MIB: (0,), GIB: (0,)},
            vendor="0x41",
        ),
        warned=("cpu*/cache",),
    ),
    "128-2s-nps4": Fixture(
        shape=Shape(
            about="AMD, four zones per socket (NPS4), two L3 groups of four cores per zone.",
            sockets=2,
            zones=4,
            cores=8,
            threads=2,
            l3_cores=4,
            memory=(32 * GIB,),
            vendor="AuthenticAMD",
            distance=_nps4_distance,
        )
    ),
    "144-gb200": _grace(
        "GB200 tray: 34 zones, two with CPUs, four with GPU memory; NICs of two functions.",
        "0x2941",
        184,
    ),
    "160-ppc64-smt8-gpu-memory": Fixture(
        shape=Shape(
            about="POWER, eight threads per core, zones 0 and 8; zones 252-255 are memory of GPUs.",
            sockets=2,
            cores=10,
            threads=8,
            adjacent=True,
            zone_ids=(0, 8),
            l3_cores=2,
            l3_ids=False,
            memory=(256 * GIB,),
            memory_only={252: 16 * GIB, 253: 16 * GIB, 254: 16 * GIB, 255: 16 * GIB},
            pools={2 * MIB: (0,), GIB: (0,)},
            distance=lambda a, b: 40 if max(a, b) < 2 else 80,
            vendor="",
            model="POWER9, altivec supported",
        ),
        warned=("cpu*/cache/index*/id",),
    ),
    "256-uv-72-zones": Fixture(
        shape=Shape(
            about="64 zones with CPUs and eight with memory alone.",
            sockets=32,
            zones=2,
            cores=2,
            threads=2,
            memory=(16 * GIB,),
            memory_only={64 + i: 32 * GIB for i in range(8)},
        )
    ),
    "384-2s-nps4": Fixture(
        shape=Shape(
            about="384 CPUs in eight zones: two sockets, four zones each, 24 cores of two threads.",
            sockets=2,
            zones=4,
            cores=24,
            threads=2,
            l3_cores=8,
            memory=(96 * GIB,),
            pools={2 * MIB: (1024,), GIB: (8,)},
            vendor="AuthenticAMD",
            model="AMD EPYC 9654 96-Core Processor",
            distance=_nps4_distance,
        )
    ),
    "1024-ia64-no-cache": Fixture(
        shape=Shape(
            about="A large old machine: 256 zones, hexadecimal maps, no lists, no caches.",
            sockets=256,
            cores=2,
            threads=2,
            adjacent=True,
            old=True,
            l3_cores=0,
            zone_ids=tuple(range(256)),
            memory=(4 * GIB,),
            distance=lambda a, b: 22 if a // 4 == b // 4 else 28,
            model="Itanium 2",
        ),
        warned=("cpu/online", "cpu*/cache", "node/online"),
    ),
}


def main() -> None:
    """Write the machines named on the command line, or all."""
    for name in sys.argv[1:] or FIXTURES:
        write(FIXTURES[name], ROOT / name)


if __name__ == "__main__":
    main()
