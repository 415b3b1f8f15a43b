"""Network interfaces of a PCI function."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rte.model import machine
from rte.sysfs.tree import parse, parse_int, text_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rte.sysfs.tree import Tree

#: While the link is down the kernel answers an error or -1, once as a number of 16 or 32 bits.
_SPEEDS_UNKNOWN = {0xFFFF, 0xFFFFFFFF}


def read_interfaces(sys: Tree, place: str) -> Iterator[machine.Interface]:
    """All interfaces, by name; virtio puts a device of its own between function and interface."""
    between = [name for name in sys.names(place) if name.startswith("virtio")]
    parents = [place, *(f"{place}/{name}" for name in between)]
    found = [
        (name, f"{parent}/net/{name}") for parent in parents for name in sys.names(f"{parent}/net")
    ]
    for name, path in sorted(found):
        port = parse(sys.read(f"{path}/dev_port"), parse_int)
        yield machine.Interface(
            name=name,
            mac=text_of(sys, f"{path}/address"),
            mbps=_speed(sys, path),
            link=text_of(sys, f"{path}/operstate"),
            port=port if port is not None and port >= 0 else None,
            port_name=text_of(sys, f"{path}/phys_port_name"),
            bond=(sys.link(f"{path}/master") or "").rpartition("/")[2],
        )


def _speed(sys: Tree, path: str) -> int | None:
    speed = parse(sys.read(f"{path}/speed"), parse_int) or 0
    return speed if speed > 0 and speed not in _SPEEDS_UNKNOWN else None
