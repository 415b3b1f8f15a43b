"""What processing groups get on a node, or what is free there, as people read it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rte.model import bits
from rte.model.words import counted

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from rte.placement.groups.explain import FreeInZone
    from rte.reader.json import Json
    from rte.scheduler.front.groups import GroupsAnswer

#: Functions that are listed by name; of more only the number is told.
MAX_NICS = 8


def lines(answer: GroupsAnswer) -> list[str]:
    """A line for each group, or for each zone of a node that has no place."""
    if answer.gets:
        return list(given(answer.gets))
    out = list(left(answer.free))
    if answer.would_help:
        out.append(f"would fit without: {', '.join(answer.would_help)}")
    return out


def left(free: Iterable[FreeInZone]) -> Iterator[str]:
    """What is free, a line for each zone."""
    return (f"free in {_zone(zone.zone)}: {_free(zone)}" for zone in free)


def given(gets: Json) -> Iterator[str]:
    """A line for each group.

    Args:
        gets: ``groups``, ``misc``, ``hugepages`` and ``devices`` as in the allocation annotation.
    """
    devices = gets["devices"]
    for group in gets["groups"]:
        parts = [f"{kind} {_cpus(cpus)}" for kind, cpus in _by_kind(group["cpus"]) if cpus]
        parts += [_gpu(address, devices.get(address, {})) for address in group["gpus"]]
        parts += [_nic(nic, devices.get(nic["address"], {})) for nic in group["nics"]]
        parts += _pages(group["hugepages"])
        where = f" in {_zone(group['zone'])}" if group["zone"] is not None else ""
        yield f"{group['name']}{where}: {'; '.join(parts)}"
    misc = gets["misc"]
    if misc["cpus"]:
        where = f" in {_zone(misc['zone'])}" if misc["zone"] is not None else ""
        yield f"misc{where}: CPUs {_cpus(misc['cpus'])}"
    if pages := _pages(gets["hugepages"]):
        yield "; ".join(pages)


def _by_kind(cpus: Json) -> Iterator[tuple[str, list[int]]]:
    yield "feeders", [cpu for fed in cpus["feeders"] for cpu in fed]
    yield "rx", [queue["rx"] for queue in cpus["queues"]]
    yield "tx", [queue["tx"] for queue in cpus["queues"]]
    yield "workers", cpus["workers"]
    yield "helpers", cpus["helpers"]


def _cpus(cpus: list[int]) -> str:
    return bits.format_list(bits.of(cpus))


def _gpu(address: str, device: Json) -> str:
    return f"GPU {device.get('model') or 'of unknown model'} ({address})"


def _nic(nic: Json, device: Json) -> str:
    backup = f", back-up {nic['backup']}" if nic.get("backup") else ""
    name = device.get("name") or "without a name"
    return f"NIC {name} ({nic['address']}{backup}) rx {_gbps(nic['rx'])} tx {_gbps(nic['tx'])} Gb/s"


def _pages(by_size: Mapping[str, Mapping[str, int]]) -> list[str]:
    return [
        f"pages of {size} in {_zone(zone)}: {count}"
        for size, by_zone in by_size.items()
        for zone, count in by_zone.items()
    ]


def _free(zone: FreeInZone) -> str:
    parts = (
        [f"{counted(zone.cores, 'core')} ({counted(zone.cpus, 'CPU')})"]
        if zone.zone is not None
        else []
    )
    parts += [f"GPU {model or 'of unknown model'} ({count})" for model, count in zone.gpus.items()]
    if len(zone.nics) > MAX_NICS:
        best = max(min(nic.rx, nic.tx) for nic in zone.nics)
        parts.append(f"{len(zone.nics)} NICs, up to {_gbps(best)} Gb/s")
    else:
        parts += [
            f"NIC {nic.name or nic.address} rx {_gbps(nic.rx)} tx {_gbps(nic.tx)} Gb/s"
            for nic in zone.nics
        ]
    parts += [f"pages of {size}: {count}" for size, count in zone.pages.items() if count]
    return "; ".join(parts)


def _zone(zone: int | str | None) -> str:
    return "no known zone" if zone is None else f"zone {zone}"


def _gbps(mbps: int) -> str:
    return f"{mbps / 1000:g}"
