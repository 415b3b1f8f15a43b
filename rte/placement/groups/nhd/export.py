"""NHD's configuration file with the ids of an allocation written into it.

Source: NHD ``TriadCfgParser.py`` ``TopologyToCfg`` and ``SetNetworkConfig``.
"""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

import msgspec

from rte import errors
from rte.placement.groups.document import follow
from rte.placement.groups.nhd import libconfig

if TYPE_CHECKING:
    from collections.abc import Mapping

    from rte.placement.groups.allocation import Record
    from rte.placement.groups.nhd.libconfig import Scalar, Value
    from rte.placement.groups.nhd.triad import Triad

#: Where the application finds its NICs.
NETWORK_CONFIG = "Network_Config"
#: What NHD writes where the file tells no other size of a receive ring.
RING_SIZE = 4096


class ExportError(errors.RteError):
    """A record does not have what the file wants written."""


def write_back(triad: Triad, record: Record) -> str:
    """The file with every named field filled in, and the NICs in ``Network_Config``.

    Raises:
        ExportError: the record is of another request, or lacks something that the file names.
    """
    values = _values(triad, record)
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


def _values(triad: Triad, record: Record) -> dict[str, int]:
    """Path in the file -> what is written there."""
    told = {
        "groups": [
            {
                **msgspec.to_builtins(group.cpus),
                "gpus": [record.devices.get(gpu, {}).get("index") for gpu in group.gpus],
            }
            for group in record.allocation.groups
        ],
        "misc": record.allocation.misc.cpus,
        "values": record.values,
    }
    values = {}
    for path, what in triad.fields.items():
        try:
            values[path] = int(follow(told, what))
        except (LookupError, TypeError, ValueError) as error:
            why = f"the allocation has no {what}; is it of this file's pod?"
            raise ExportError(why) from error
    return values


def _network_config(triad: Triad, record: Record) -> tuple[Value, ...]:
    """An entry for each NIC function: its MAC, its cores, and placeholders for the addresses."""
    request = triad.request
    if len(request.groups) != len(record.allocation.groups):
        raise ExportError("the allocation has other groups than the file")
    cores: dict[str, tuple[list[int], list[int]]] = {}
    for wish, given in zip(request.groups, record.allocation.groups, strict=True):
        for queue, cpus in zip(wish.queues, given.cpus.queues, strict=False):
            if queue.nic is not None and queue.nic < len(given.nics):
                pair = cores.setdefault(given.nics[queue.nic].address, ([], []))
                pair[0].append(cpus.rx)
                pair[1].append(cpus.tx)
    entries: list[Value] = []
    numbers = itertools.count(1)
    for number, (address, (rx_cores, tx_cores)) in enumerate(cores.items()):
        ips: list[Scalar] = [f"10.0.0.{next(numbers)}" for _ in rx_cores]
        gateway: list[Scalar] = [record.values.get("gateway", "0.0.0.0")] * len(rx_cores)  # noqa: S104 - a placeholder in the file, not an address to listen on
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
