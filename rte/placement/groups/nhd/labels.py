"""NHD's node labels (published by NFD and a hook of its own) as inventory, facts and site values.

Keys carry the data, their parts separated by dots. Source: NHD ``Node.py`` ``ParseLabels``.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from rte import errors
from rte.model import bits, quantity
from rte.model.words import counted
from rte.placement.groups.facts import NHD_GROUPS, NHD_MAINTENANCE, NHD_VALUES, is_maintenance
from rte.placement.groups.inventory import GPU, NIC, Core, GroupInventory, GroupNodeFacts

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

PREFIX = "feature.node.kubernetes.io/"
RESERVED_PAGES = "RES_HUGEPAGES_GB"

_SOCKETS = f"{PREFIX}nfd-extras-cpu.numSockets"
_CORES = f"{PREFIX}nfd-extras-cpu.num_cores"
_SMT = f"{PREFIX}cpu-hardware_multithreading"
_ISOLATED = f"{PREFIX}nfd-extras-cpu.isolcpus"
_NIC, _PF, _GPU = (f"{PREFIX}nfd-extras-{kind}." for kind in ("nic", "sriov", "gpu"))
_SPEED = re.compile(r"(\d{1,9})Mbs", re.ASCII)
_MAC = re.compile(r"[0-9A-Fa-f]{12}", re.ASCII)


@dataclass(frozen=True, kw_only=True, slots=True)
class LabelledNode:
    """What the labels of a node say.

    Attributes:
        values: ``vlan`` and ``gateway``, as far as they are told.
    """

    inventory: GroupInventory
    facts: GroupNodeFacts
    values: Mapping[str, str] = field(default_factory=dict)


def is_nhds(labels: Mapping[str, str]) -> bool:
    """Whether NHD places pods on the node, or has: its hook publishes the labels it cannot lack."""
    return _SOCKETS in labels


def read(labels: Mapping[str, str], allocatable: Mapping[str, str]) -> LabelledNode:
    """Read the labels; the zone of a socket is its number, as NHD has it.

    PCI addresses are not told, so NICs go by the name of their interface, GPUs by their number
    (``gpu0``); a PCIe switch is a path of two bridges of its own.

    Raises:
        errors.ParseError: a label that must be there is not, or one has the wrong form.
    """
    sockets, cores = _number(labels, _SOCKETS), _number(labels, _CORES)
    if sockets < 1 or cores < sockets or cores % sockets:
        raise errors.ParseError(_CORES, labels[_CORES], f"for {counted(sockets, 'socket')}")
    # NFD publishes the label with the value "false" too.
    threads = 2 if labels.get(_SMT, "false") == "true" else 1
    everyone = (1 << cores * threads) - 1
    isolated = everyone
    if _ISOLATED in labels:
        listed = labels[_ISOLATED].replace("_", ",")
        isolated = bits.parse_list(listed, _ISOLATED)
    pages = quantity.parse(allocatable.get("hugepages-1Gi", "0")) >> 30
    withheld = int(_digits(RESERVED_PAGES, labels.get(RESERVED_PAGES, "0")))
    share, rest = divmod(pages, sockets)
    return LabelledNode(
        inventory=GroupInventory(
            # Which zone the pages are in is not told: the kernel spreads them evenly at boot.
            pages={zone: {"1Gi": share + (zone < rest)} for zone in range(sockets)},
            cores=tuple(
                Core(
                    tuple(core + cores * thread for thread in range(threads)),
                    core * sockets // cores,
                )
                for core in range(cores)
            ),
            gpus=tuple(sorted(_gpus(labels), key=lambda gpu: gpu.address)),
            nics=tuple(sorted(_nics(labels), key=lambda nic: nic.address)),
            reserved_cpus=everyone & ~isolated,
            reserved_pages={"1Gi": withheld} if withheld else {},
        ),
        facts=GroupNodeFacts(
            groups=tuple(sorted(set(filter(None, labels.get(NHD_GROUPS, "default").split("."))))),
            maintenance=is_maintenance(labels.get(NHD_MAINTENANCE, "")),
        ),
        values={name: labels[key] for name, key in NHD_VALUES.items() if key in labels},
    )


def _number(labels: Mapping[str, str], key: str) -> int:
    if key not in labels:
        raise errors.ParseError("labels of NHD", key, "is missing")
    return int(_digits(key, labels[key]))


def _digits(key: str, text: str) -> str:
    if not (text.isascii() and text.isdigit() and len(text) <= 5):
        raise errors.ParseError(key, text)
    return text


def _parts(labels: Mapping[str, str], prefix: str, count: int) -> Iterator[list[str]]:
    for key in sorted(labels):
        if key.startswith(prefix):
            parts = key.removeprefix(prefix).split(".")
            if len(parts) < count:
                raise errors.ParseError("label", key, f"expected {count} parts after {prefix}")
            yield parts


def _switch(key: str, text: str) -> tuple[str, str]:
    """A path that stands for a switch, which the labels number in hexadecimal."""
    try:
        number = int(text, 16)
    except ValueError as error:
        raise errors.ParseError(key, text, "no hexadecimal number") from error
    return f"{number:04x}:00:00.0", f"{number:04x}:01:00.0"


def _gpus(labels: Mapping[str, str]) -> Iterator[GPU]:
    for number, model, zone, switch, *_ in _parts(labels, _GPU, 4):
        yield GPU(
            address=f"gpu{_digits(_GPU, number)}",
            zone=int(_digits(_GPU, zone)),
            path=_switch(_GPU, switch),
            model=model,
            index=int(number),
        )


def _nics(labels: Mapping[str, str]) -> Iterator[NIC]:
    parents = {parts[1] for parts in _parts(labels, _PF, 2)}
    for name, _, mac, speed, zone, switch, *_ in _parts(labels, _NIC, 8):
        told = _SPEED.fullmatch(speed)
        if name in parents:
            continue
        if not _MAC.fullmatch(mac):
            raise errors.ParseError(_NIC, mac, "no MAC address")
        yield NIC(
            address=name,
            zone=int(_digits(_NIC, zone)),
            path=_switch(_NIC, switch),
            name=name,
            mac=":".join(mac[i : i + 2] for i in range(0, 12, 2)).lower(),
            mbps=int(told[1]) if told else None,
            link="up" if told else "down",
        )
