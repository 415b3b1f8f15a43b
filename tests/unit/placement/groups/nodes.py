"""Nodes and requests for the tests of processing groups."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from rte.placement.groups.inventory import GPU, NIC, Core, GroupInventory
from rte.placement.groups.parsing import parse_request

if TYPE_CHECKING:
    from rte.placement.groups.request import GroupsRequest


def request(*groups: dict[str, Any], **pod: Any) -> GroupsRequest:
    """Groups are named g0, g1 … where they have no name."""
    named = [{"name": f"g{i}", **group} for i, group in enumerate(groups)]
    return parse_request(json.dumps({"version": 1, "groups": named, **pod}))


def two_sockets(
    *,
    nics: int = 1,
    gpus: tuple[str, ...] = ("17", "3a", "ae", "d7"),
    model: str = "Tesla V100-SXM2-16GB",
    mbps: int = 100_000,
) -> GroupInventory:
    """NHD's example: 2 sockets of 8 cores with two threads, of which 2-7 and 10-15 are free; a NIC
    a socket on switches 17 and ae, GPUs on 17, 3a, ae and d7, 16 pages of 1 GiB each."""
    return GroupInventory(
        pages={0: {"1Gi": 16}, 1: {"1Gi": 16}},
        cores=tuple(Core((i, i + 16), i // 8) for i in range(16)),
        gpus=tuple(
            GPU(
                address=f"0000:{switch}:10.0",
                zone=int(switch >= "ae"),
                path=(f"0000:{switch}:00.0", f"0000:{switch}:01.0"),
                model=model,
                memory_gib=16,
                index=number,
            )
            for number, switch in enumerate(gpus)
        ),
        nics=tuple(
            NIC(
                address=f"0000:{switch}:2{port}.0",
                zone=zone,
                path=(f"0000:{switch}:00.0", f"0000:{switch}:01.0"),
                name=f"e{zone}p{port}",
                mbps=mbps,
                link="up",
            )
            for zone, switch in ((0, "17"), (1, "ae"))
            for port in range(nics)
        ),
        reserved_cpus=0b00000011_00000011_00000011_00000011,
    )
