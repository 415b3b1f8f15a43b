"""What the parts of a machine are called, in pictures and in text."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rte.model import bits
from rte.model.quantity import format_bytes
from rte.model.words import counted

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from rte.model.machine import Machine, PCIDevice

#: ``(vendor, device)`` -> a name, see :mod:`rte.sysfs.pci_names`.
Names = dict[tuple[str, str], str]


def summarize(machine: Machine) -> str:
    """One line: CPUs, cores, threads, sockets, zones, memory."""
    online = [cpu for cpu in machine.cpus if cpu.online]
    cores = {cpu.siblings for cpu in online}
    sockets = {cpu.socket for cpu in online}
    words = [count(len(online), "CPU"), count(len(cores), "core")]
    words += [count(len(sockets), "socket"), count(len(machine.zones), "NUMA zone")]
    words.append(format_bytes(machine.memory_bytes))
    if len(online) < len(machine.cpus):
        words.append(counted(len(machine.cpus) - len(online), "CPU") + " off-line")
    return " · ".join(words)


def describe_sets(machine: Machine) -> str:
    """The architecture and the CPUs that the kernel treats apart, ``""`` if there is nothing."""
    told = {"isolated": machine.isolated, "without tick": machine.nohz_full}
    words = [machine.cpu_arch] if machine.cpu_arch else []
    words += [f"{what} {bits.format_list(cpus)}" for what, cpus in told.items() if cpus]
    return " · ".join(words)


def describe_caches(machine: Machine) -> str:
    """The caches of a core, ``""`` where they are not told."""
    return "; ".join(
        f"caches of each {kind + ' ' if kind else ''}core: "
        + ", ".join(f"{name} {format_bytes(size)}" for name, size in sizes.items())
        for kind, sizes in machine.core_caches.items()
    )


def name_l3(machine: Machine, group: int) -> str:
    """An L3 cache with its size, where that is told."""
    size = machine.l3_bytes.get(group)
    return f"L3 {group}" + (f" · {format_bytes(size)}" if size else "")


def switch_of(device: PCIDevice) -> str:
    """The upstream port of the switch above a device, ``""`` if there is none.

    A path of two bridges or more runs through a switch: root port, upstream port, downstream port.
    """
    return device.path[1] if len(device.path) >= 2 else ""


def describe_device(device: PCIDevice, names: Mapping[tuple[str, str], str]) -> str:
    """What a device is, in few words."""
    details = device.details
    words = [kind_of(device), short_name(device)]
    words.append(":".join(filter(None, (device.vendor[2:], device.device[2:]))))
    words += [device_speed(device), details.get("link", ""), model_of(device, names)]
    words += (f"bond {it.bond}" for it in device.interfaces[:1] if it.bond)
    if device.kind == "gpu" and details.get("health") == "excluded":
        words.append("excluded by its driver")
    if "pf" in details:
        words.append(f"VF of {details['pf']}")
    elif details.get("vfs"):
        words.append(count(details["vfs"].count(",") + 1, "VF"))
    return " ".join(word for word in words if word)


def kind_of(device: PCIDevice) -> str:
    """``GPU``, ``NIC`` or ``NVMe``."""
    return device.kind.upper() if device.kind != "nvme" else "NVMe"


def short_name(device: PCIDevice) -> str:
    """What the running system calls it: an interface, a controller."""
    return device.details.get("interface") or device.details.get("controller") or ""


def model_of(device: PCIDevice, names: Mapping[tuple[str, str], str]) -> str:
    """What its maker calls it: by its driver, else by the list of PCI ids; ``""`` if unknown."""
    known = names.get((device.vendor, device.device), "")
    return device.details.get("model", "").strip() or known


def device_speed(device: PCIDevice) -> str:
    """Of a NIC whose link is up."""
    speed = device.details.get("speed_mbps")
    return f"{int(speed) / 1000:g} Gb/s" if speed else ""


def format_ids(members: Iterable[int]) -> str:
    """A list as the kernel writes it, without ids that are not known."""
    return bits.format_list(bits.of(member for member in members if member >= 0)) or "unknown"


def count(number: int, noun: str) -> str:
    """``1 CPU``, ``2 CPUs``."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"
