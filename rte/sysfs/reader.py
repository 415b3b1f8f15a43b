"""Puts one reading together: CPUs, zones, devices, and what had to be guessed."""

from __future__ import annotations

import logging
from dataclasses import replace
from pathlib import Path

from rte import errors
from rte.model import machine
from rte.sysfs import architecture, caches, cpus, pci, procfs, zones
from rte.sysfs.tree import Notes, Tree, text_of

logger = logging.getLogger(__name__)

_REAL_PROC = Path("/proc")


def read_machine(sysfs_root: Path, procfs_root: Path) -> machine.Machine:
    """The machine below two roots that stand for ``/sys`` and ``/proc``.

    The cpuset and cgroup of the reading process play no part. Each source that was missing or
    damaged leaves a line in ``Machine.warnings`` and in the log. What no source tells stays
    unknown: zone, core, die or socket -1 (an on-line CPU of unknown zone is in no zone's ``cpus``).

    Raises:
        errors.SysfsError: no CPU is named anywhere below the two roots; or ``sysfs_root`` is not
            there and ``procfs_root`` is the running system's, which would be another machine.
    """
    if not sysfs_root.is_dir() and procfs_root == _REAL_PROC:
        raise errors.SysfsError(f"{sysfs_root}: no such directory; see --sysfs-root")
    sys_tree, proc_tree = Tree(sysfs_root, "/sys"), Tree(procfs_root, "/proc")
    notes = Notes()
    sources = cpus.CPUTrees(sys_tree, proc_tree, notes)
    node_files = zones.NodeFiles(sys_tree, sources.root)
    presence = cpus.read_presence(sources, node_files.listed_cpus)
    if not presence.present:
        raise errors.SysfsError(
            f"no CPU found below {sysfs_root} and {procfs_root}: give the directories that stand "
            "for /sys and /proc (--sysfs-root, --procfs-root)"
        )
    topology = cpus.read_topology(sources, presence.online)
    placed = zones.place(node_files, presence, topology, notes)
    all_zones, memory_bytes = zones.read_zones(node_files, placed, proc_tree, notes)
    identity = procfs.read_identity(proc_tree)
    all_cpus = cpus.build_cpus(sources, presence, topology, placed.zone_of)
    l3_bytes, core_caches = caches.read_caches(sys_tree, sources.root, all_cpus)
    result = machine.Machine(
        cpus=all_cpus,
        zones=all_zones,
        memory_bytes=memory_bytes,
        pci=pci.read_devices(sys_tree, proc_tree, all_zones, notes),
        pci_zones=pci.read_pci_zones(sys_tree, all_zones, notes),
        sockets=identity.sockets,
        l3_ids_told=topology.l3_ids_told,
        l3_bytes=l3_bytes,
        core_caches=core_caches,
        vendor=identity.vendor,
        model=identity.model,
        cpu_arch=architecture.name_of(identity),
        basics=replace(
            identity.basics,
            turbo=text_of(sys_tree, f"{sources.root}/intel_pstate/no_turbo") == "0",
            l3_ways=text_of(sys_tree, "fs/resctrl/info/L3/cbm_mask"),
        ),
        isolated=cpus.read_mask(sys_tree, "isolated"),
        nohz_full=cpus.read_mask(sys_tree, "nohz_full"),
        warnings=notes.lines(),
    )
    for line in result.warnings:
        logger.warning("%s", line)
    return result
