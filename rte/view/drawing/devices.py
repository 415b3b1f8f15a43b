"""Devices of a zone: below the switch that they share, in the colour of who holds them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rte.view.drawing import blocks, words
from rte.view.drawing.blocks import PictureBlock, escape, number

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from rte.model.machine import Machine, PCIDevice
    from rte.model.node import ClaimedDevice
    from rte.view.drawing.paint import Paint, PaintedHolder, PluginDevice

#: Room between the address of a device and what it is.
_ADDRESS = 78.0


def of_zone(machine: Machine, zone: int, paint: Paint, names: words.Names) -> list[PictureBlock]:
    """What lies in one zone: PCI devices, then what only device plugins know."""
    here = [device for device in machine.pci if device.zone == zone]
    drawn = [_pci(here, paint, names)] if here else []
    known = _named_by_pci(machine, paint)
    return drawn + _plugin(d for d in known if d.zones == 1 << zone)


def elsewhere(machine: Machine, paint: Paint, names: words.Names) -> list[PictureBlock]:
    """Devices of several zones or of none, and what claims of DRA gave."""
    lost = [device for device in machine.pci if device.zone is None]
    known = _named_by_pci(machine, paint)
    zones = {zone.id for zone in machine.zones}
    one = {1 << zone for zone in zones}
    frames = []
    parts = [_pci(lost, paint, names)] if lost else []
    parts += _plugin(d for d in known if not d.zones or (d.zones not in one and not _many(d)))
    if parts:
        frames.append(blocks.frame("socket", "Devices without a known zone", "", parts))
    if several := _plugin(d for d in known if _many(d)):
        frames.append(blocks.frame("socket", "Devices of several zones", "", several))
    if paint.claimed:
        grid = blocks.flow([_claimed(holder, device) for holder, device in paint.claimed], 3.0)
        frames.append(blocks.frame("socket", "Devices of resource claims", "", [grid]))
    return frames


def _many(device: PluginDevice) -> bool:
    return device.zones is not None and device.zones.bit_count() > 1


def _named_by_pci(machine: Machine, paint: Paint) -> list[PluginDevice]:
    """Plugin devices that are not one of the PCI devices under another name."""
    drawn = {name for device in machine.pci for name in _names(device)}
    return [device for identity, device in paint.devices.items() if identity not in drawn]


def _names(device: PCIDevice) -> tuple[str, ...]:
    """What a plugin may call it: SR-IOV plugins its address, GPU plugins its UUID."""
    uuid = device.details.get("uuid")
    return (device.address, uuid) if uuid else (device.address,)


def _pci(devices: Sequence[PCIDevice], paint: Paint, names: words.Names) -> PictureBlock:
    """PCI devices in the frame of the switch that they share, VFs in the chip of their PF."""
    here = {device.address for device in devices}
    functions: dict[str, list[PCIDevice]] = {}
    for device in devices:
        if (pf := device.details.get("pf", "")) in here:
            functions.setdefault(pf, []).append(device)
    inside = {vf.address for vfs in functions.values() for vf in vfs}
    switches: dict[str, list[PCIDevice]] = {}
    for device in devices:
        if device.address not in inside:
            switches.setdefault(words.switch_of(device), []).append(device)
    parts = []
    for switch, members in switches.items():
        chips = [_chip(d, functions.get(d.address, ()), paint, names) for d in members]
        if switch:
            parts.append(
                blocks.frame("switch", "", f"PCIe switch {switch}", [blocks.stack(chips, gap=3)])
            )
        else:
            parts.append(blocks.stack(chips, gap=3))
    return blocks.flow(parts, 2.2)


def _chip(
    device: PCIDevice, functions: Sequence[PCIDevice], paint: Paint, names: words.Names
) -> PictureBlock:
    label = _label(device, names)
    known = next((paint.devices[n] for n in _names(device) if n in paint.devices), None)
    tip = f"{device.address} {words.describe_device(device, names)}"
    if known:
        tip += f" · {known.tip}"
    cells = [_function(vf, paint, names) for vf in functions]
    inner = blocks.wrap(cells, 330, 2, 2) if cells else None
    width = _ADDRESS + blocks.text_width(label, 10, blocks.BOLD) + 8
    height = 16.0
    if inner:
        width = max(width, inner.width + 30)
        height += inner.height + 4

    ink = _ink(known)

    def draw(room: float) -> str:
        svg = _box(room, height, known, tip)
        svg += blocks.text(f"u{ink}", 5, 11.5, device.address)
        svg += blocks.text(f"b{ink}", _ADDRESS, 11.5, label)
        if inner:
            svg += blocks.text(f"u{ink}", 5, 27, "VFs")
            svg += blocks.at(28, 17, inner.draw(inner.width, inner.height))
        return svg

    return blocks.stretched(width, height, draw)


def _label(device: PCIDevice, names: words.Names) -> str:
    """What matters most of a device, in a few words; its tooltip has the rest."""
    details = device.details
    model = words.model_of(device, names) or f"{device.vendor[2:]}:{device.device[2:]}"
    link = details.get("link", "")
    shown = [words.kind_of(device), words.short_name(device), blocks.shorten(model, 44)]
    shown += [words.device_speed(device), link if link != "up" else ""]
    shown += (f"bond {it.bond}" for it in device.interfaces[:1] if it.bond)
    shown += ["excluded"] if details.get("health") == "excluded" else []
    return " ".join(word for word in shown if word)


def _function(vf: PCIDevice, paint: Paint, names: words.Names) -> PictureBlock:
    known = paint.devices.get(vf.address)
    tip = f"{vf.address} {words.describe_device(vf, names)}"
    return _cell(vf.details.get("vf", "?"), known, f"{tip} · {known.tip}" if known else tip)


def _plugin(devices: Iterable[PluginDevice]) -> list[PictureBlock]:
    """Devices that only a plugin knows, one line for each resource."""
    resources: dict[str, list[PluginDevice]] = {}
    for device in devices:
        resources.setdefault(device.resource, []).append(device)
    rows = []
    for resource, members in resources.items():
        width = max(blocks.text_width(_short(device.id), 9) for device in members) + 8
        cells = [_cell(_short(device.id), device, device.tip, width) for device in members]
        free = sum(device.holder is None and device.healthy for device in members)
        rows.append(
            blocks.frame(
                "switch",
                "",
                f"{resource}: {free} of {len(members)} free",
                [blocks.wrap(cells, 330, 3, 3)],
            )
        )
    return rows


def _short(identity: str) -> str:
    return identity if len(identity) <= 10 else f"…{identity[-8:]}"


def _cell(label: str, device: PluginDevice | None, tip: str, width: float = 20.0) -> PictureBlock:
    width = max(width, blocks.text_width(label, 9) + 8)
    svg = _box(width, 14, device, tip) + (
        f'<text class="n{_ink(device)}" x="{number(width / 2)}" y="10.2">{escape(label)}</text>'
    )
    return blocks.solid(width, 14, svg)


def _box(width: float, height: float, device: PluginDevice | None, tip: str) -> str:
    kind = "dev"
    if device:
        kind += f" {device.holder.style}" if device.holder else ""
        kind += "" if device.healthy else " sick"
    return (
        f'<rect class="{kind}" width="{number(width)}" height="{number(height)}" rx="3">'
        f"<title>{escape(tip)}</title></rect>"
    )


def _ink(device: PluginDevice | None) -> str:
    """Text on the colour of a holder is dark in both modes."""
    return " ink" if device and device.holder else ""


def _claimed(holder: PaintedHolder, device: ClaimedDevice) -> PictureBlock:
    label = f"{device.driver} {device.pool}/{device.device}"
    tip = escape(f"{label} · claim {device.namespace}/{device.claim} · held by {holder.name}")

    def draw(room: float) -> str:
        return (
            f'<rect class="dev {holder.style}" width="{number(room)}" height="16" rx="3">'
            f"<title>{tip}</title></rect>{blocks.text('c ink', 5, 11.5, label)}"
        )

    return blocks.stretched(blocks.text_width(label, 10) + 10, 16, draw)
