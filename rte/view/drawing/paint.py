"""Who holds what: the colour and the tooltip of every CPU and device."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from rte.model import bits
from rte.model.node import Holding
from rte.model.words import describe_holding
from rte.view.drawing import style

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from rte.model.bits import CPUSet, ZoneSet
    from rte.model.machine import CPU, Machine
    from rte.model.node import ClaimedDevice, NodeReading, NodeState


@dataclass(frozen=True, slots=True)
class PaintedHolder:
    """A container (or a pod as a whole) that holds something for itself.

    Attributes:
        name: ``namespace/pod container``.
        style: class of its colour.
        holds: in words, for the legend.
    """

    name: str
    style: str
    holds: str


@dataclass(frozen=True, slots=True)
class PluginDevice:
    """A device as a device plugin told the kubelet about it."""

    resource: str
    id: str
    zones: ZoneSet | None
    healthy: bool
    holder: PaintedHolder | None

    @property
    def tip(self) -> str:
        """All of it in one line."""
        words = [f"{self.resource} {self.id}"]
        words += [] if self.healthy else ["not healthy"]
        words.append(f"held by {self.holder.name}" if self.holder else "free")
        return " · ".join(words)


@dataclass(frozen=True, kw_only=True)
class Paint:
    """Classes and tooltips by CPU; devices by id (as plugins name them); all holders."""

    styles: Mapping[int, str]
    tips: Mapping[int, str]
    state: NodeState | None = None
    holders: tuple[PaintedHolder, ...] = ()
    devices: Mapping[str, PluginDevice] = field(default_factory=dict)
    claimed: tuple[tuple[PaintedHolder, ClaimedDevice], ...] = ()


def mix(machine: Machine, reading: NodeReading | None) -> Paint:
    """The colours of a machine; without a reading that has a state nobody holds anything."""
    styles = {cpu.id: "free" if cpu.online else "off" for cpu in machine.cpus}
    tips = {cpu.id: _tip(machine, cpu) for cpu in machine.cpus}
    state = reading.state if reading else None
    if reading is None or state is None:
        return Paint(styles=styles, tips=tips)

    def paint(cpus: CPUSet, kind: str, words: str) -> None:
        for cpu in bits.members(cpus):
            styles[cpu] = kind
            tips[cpu] = f"{tips.get(cpu, '')} · {words}"

    paint(state.shared, "shared", "shared pool")
    paint(state.reserved, "reserved", "reserved")
    holders: list[PaintedHolder] = []
    owners: dict[tuple[str, int], PaintedHolder] = {}
    claimed: list[tuple[PaintedHolder, ClaimedDevice]] = []
    for name, holding, claims in holdings_of(reading):
        kind = f"p{len(holders) % len(style.HOLDERS)}"
        holder = PaintedHolder(name, kind, describe_holding(holding, claims))
        holders.append(holder)
        paint(holding.cpus, holder.style, name)
        owners |= {
            (r, i): holder for r, mask in holding.devices.items() for i in bits.members(mask)
        }
        claimed += ((holder, device) for device in claims)
    devices = {
        identity: PluginDevice(
            resource, identity, zones, bool(pool.healthy >> i & 1), owners.get((resource, i))
        )
        for resource, pool in sorted(state.devices.items())
        for i, (identity, zones) in enumerate(zip(pool.ids, pool.zones, strict=True))
    }
    return Paint(
        styles=styles, tips=tips, state=state, holders=tuple(holders), devices=devices,
        claimed=tuple(claimed),
    )  # fmt: skip


def holdings_of(
    reading: NodeReading,
) -> Iterator[tuple[str, Holding, tuple[ClaimedDevice, ...]]]:
    """Whoever holds something, by name; a whole pod before containers, which have parts of it."""
    if reading.state is None:
        return
    names = {pod.uid: f"{pod.namespace}/{pod.name}" for pod in reading.pods}
    by_pod, wholes = reading.state.holdings, reading.state.pod_holdings
    for uid in sorted({*by_pod, *wholes, *reading.claimed}, key=lambda uid: names.get(uid, uid)):
        name = names.get(uid, uid)
        if uid in wholes:
            yield f"{name} (whole pod)", wholes[uid], ()
        containers, claims = by_pod.get(uid, {}), reading.claimed.get(uid, {})
        for container in sorted({*containers, *claims}):
            holding, devices = containers.get(container, Holding()), claims.get(container, ())
            if holding.cpus or holding.memory or holding.devices or devices:
                yield f"{name} {container}", holding, devices


def _tip(machine: Machine, cpu: CPU) -> str:
    if not cpu.online:
        return f"CPU {cpu.id}, off-line"
    words = [f"CPU {cpu.id}", f"core {cpu.core}, socket {cpu.socket}"]
    words += [f"L3 {cpu.l3}"] if cpu.l3 is not None else []
    words += [f"{cpu.kind} core"] if cpu.kind else []
    words += ["isolated"] if machine.isolated >> cpu.id & 1 else []
    return " · ".join(words)
