"""Names of PCI devices, from the list of ids that most hosts have (``pci.ids`` of pciutils)."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

#: Where distributions put the list.
PATHS = (
    Path("/usr/share/hwdata/pci.ids"),
    Path("/usr/share/misc/pci.ids"),
    Path("/usr/share/pci.ids"),
    Path("/var/lib/pciutils/pci.ids"),
)


def read_names(
    wanted: Iterable[tuple[str, str]], paths: Sequence[Path] | None = None
) -> dict[tuple[str, str], str]:
    """``(vendor, device)``, as sysfs writes them (``0x10de``), -> a name, for those that are known.

    The list is of the host that shows a machine, which need not be the machine; a host without one
    knows no names.
    """
    missing = set(wanted)
    for path in (PATHS if paths is None else paths) if missing else ():
        try:
            text = path.read_text(encoding="utf-8", errors="replace")
        except OSError:
            continue
        return _find(text, missing)
    return {}


def _find(text: str, wanted: set[tuple[str, str]]) -> dict[tuple[str, str], str]:
    """A vendor's line is ``10de  NAME``, its devices follow with one tab, subsystems with two."""
    vendors = {vendor[2:] for vendor, _ in wanted}
    found: dict[tuple[str, str], str] = {}
    vendor, maker = "", ""
    for line in text.splitlines():
        if not line or line[0] == "#" or line.startswith("\t\t"):
            continue
        if line[0] != "\t":
            vendor, _, maker = line.partition("  ")
        elif vendor in vendors:
            device, _, name = line[1:].partition("  ")
            key = f"0x{vendor}", f"0x{device}"
            if key in wanted:
                found[key] = f"{maker.strip()} {name.strip()}"
    return found
