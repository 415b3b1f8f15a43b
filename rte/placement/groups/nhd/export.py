"""NHD's configuration file with the ids of an allocation written into it.

Source: NHD ``TriadCfgParser.py`` ``TopologyToCfg`` and ``SetNetworkConfig``.
"""

from __future__ import annotations

import itertools
import json
import re
from typing import TYPE_CHECKING, Any

from rte import errors
from rte.placement.groups.nhd import libconfig
from rte.placement.groups.parsing import parse_request

if TYPE_CHECKING:
    from collections.abc import Mapping

    from rte.placement.groups.nhd.libconfig import Value
    from rte.placement.groups.nhd.triad import Triad
    from rte.placement.groups.record import Record

#: Where the application finds its NICs.
NETWORK_CONFIG = "Network_Config"
#: What NHD writes where the file tells no other size of a receive ring.
RING_SIZE = 4096

_GROUP_FIELD = re.compile(r"groups\[(\d+)\]\.(\w+)\[(\d+)\](?:\[(\d+)\]|\.(\w+))?")
_MISC_FIELD = re.compile(r"misc\[(\d+)\]")


class ExportError(errors.RteError):
    """A record does not have what the file wants written."""


def write_back(triad: Triad, record: Record) -> str:
    """The file with every named field filled in, and the NICs in ``Network_Config``.

    Raises:
        ExportError: the record is of another request, or lacks something that the file names.
    """
    values = {path: _value(what, record) for path, what in triad.fields.items()}
    settings = {name: _fill(name, value, values) for name, value in triad.settings.items()}
    settings[NETWORK_CONFIG] = _network_config(triad, record)
    return libconfig.write(settings)


def _fill(path: str, value: Value, values: Mapping[str, int]) -> Value:
    if path in values:
        return values[path]
    if isinstance(value, dict):
        return {name: _fill(f"{path}.{name}", inner, values) for name, inner in value.items()}
    if isinstance(value, tuple):
        return tuple(_fill(f"{path}[{i}]", inner, values) for i, inner in enumerate(value))
    if isinstance(value, list):
        return [values.get(f"{path}[{i}]", inner) for i, inner in enumerate(value)]
    return value


def _value(what: str, record: Record) -> int:
    """What is written for ``groups[0].queues[0].rx``, ``misc[1]`` or ``values.vlan``."""
    try:
        if match := _GROUP_FIELD.fullmatch(what):
            group, kind, index, inner, direction = match.groups()
            return _of_group(record, int(group), kind, int(index), inner or direction)
        if match := _MISC_FIELD.fullmatch(what):
            return record.allocation.misc[int(match[1])]
        return int(record.values[what.removeprefix("values.")])
    except (IndexError, KeyError, ValueError) as error:
        raise ExportError(f"the allocation has no {what}; is it of this file's pod?") from error


def _of_group(record: Record, group: int, kind: str, index: int, part: str | None) -> int:
    given = record.allocation.groups[group]
    if kind == "queues":
        return given.queues[index][0 if part == "rx" else 1]
    if kind == "feeders":
        return given.feeders[index][int(part or 0)]
    if kind == "gpus":
        number = record.devices[given.gpus[index]].get("index")
        if not isinstance(number, int):
            raise KeyError(given.gpus[index])
        return number
    return (given.workers if kind == "workers" else given.helpers)[index]


def _network_config(triad: Triad, record: Record) -> tuple[Value, ...]:
    """An entry for each NIC function: its MAC, its cores, and placeholders for the addresses."""
    request = parse_request(json.dumps(dict(triad.document)))
    if len(request.groups) != len(record.allocation.groups):
        raise ExportError("the allocation has other groups than the file")
    cores: dict[str, tuple[list[int], list[int]]] = {}
    for wish, given in zip(request.groups, record.allocation.groups, strict=True):
        for queue, (rx, tx) in zip(wish.queues, given.queues, strict=False):
            if queue.nic is not None and queue.nic < len(given.nics):
                pair = cores.setdefault(given.nics[queue.nic].address, ([], []))
                pair[0].append(rx)
                pair[1].append(tx)
    entries: list[Value] = []
    numbers = itertools.count(1)
    for number, (address, (rx_cores, tx_cores)) in enumerate(cores.items()):
        ips: list[Any] = [f"10.0.0.{next(numbers)}" for _ in rx_cores]
        gateway: list[Any] = [record.values.get("gateway", "0.0.0.0")] * len(rx_cores)  # noqa: S104 - a placeholder in the file, not an address to listen on
        entries.append(
            {
                "module": f"fake_{number}",
                "ifname": f"fake_if_{number}",
                "mac": str(record.devices.get(address, {}).get("mac") or "").upper(),
                "rxCores": [*rx_cores],
                "txCores": [*tx_cores],
                "rx_mbufs": [RING_SIZE] * len(rx_cores),
                "gwIps": gateway,
                "txIps": ips,
                "rxIps": ips,
                "ts_group": True,
            }
        )
    return tuple(entries)
