"""numaplacement v1 (``npv0v001``): on which zone each pinned container runs, in a few bytes.

NodeResourceTopologyMatch reads it for its preemption dry-run, under policy single-numa-node alone.
A container is the hash of its names; containers are numbered in the order of their hashes; every
zone lists its numbers (first one, then differences) in LEB89 text, except for the busiest zone,
which has all numbers not listed elsewhere (k8stopologyawareschedwg/numaplacement).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from itertools import pairwise
from typing import TYPE_CHECKING, TypeAlias

import xxhash

from rte import errors

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

METADATA_ATTRIBUTE = "topology.node.k8s.io/numaplacement-metadata"
VECTOR_ATTRIBUTE = "topology.node.k8s.io/numaplacement-vector"

#: Namespace, pod name, container name.
ContainerId: TypeAlias = tuple[str, str, str]

PREFIX = "npv0v001"
SEPARATOR = "::"
LEB89 = "leb89"
#: Printable ASCII without what JSON or HTML would escape: 64 final digits, then 25 continuing ones.
ALPHABET = "".join(chr(code) for code in range(0x21, 0x7F) if chr(code) not in '"&<>\\')
FINAL = 64
CONTINUING = len(ALPHABET) - FINAL


class RefusedData(StrEnum):
    """Why data was refused."""

    NUMA_NODES = "numa-nodes"
    UNKNOWN_AFFINITY = "unknown-affinity"
    WRONG_AFFINITY = "wrong-affinity"


class PlacementError(errors.ParseError):
    """Placement data that cannot be used; ``problem`` says why."""

    def __init__(self, problem: StrEnum, text: object) -> None:
        self.problem = problem
        super().__init__("NUMA placement", text, problem)


@dataclass(frozen=True, kw_only=True, slots=True)
class Payload:
    """The wire form: metadata fields (-1 or ``""`` where absent) and a vector per zone id."""

    containers: int = -1
    zones: int = -1
    busiest: int = -1
    encoding: str = ""
    vectors: Mapping[int, str] = field(default_factory=dict)

    def metadata(self) -> str:
        """The value of :data:`METADATA_ATTRIBUTE`."""
        fields = (
            f"ve={self.encoding}",
            f"cc={self.containers}",
            f"nn={self.zones}",
            f"bn={self.busiest}",
        )
        return SEPARATOR.join((PREFIX, *fields))


def encode(zones: int, placements: Iterable[tuple[ContainerId, int]]) -> Payload:
    """Encode the zone of each container; of several for one container the last one counts.

    ``zones`` is the number of zones, so ids are below it.

    Raises:
        PlacementError: a zone of -1 (unknown) or outside ``0..zones-1``.
    """
    if zones <= 0:
        raise PlacementError(RefusedData.NUMA_NODES, zones)
    zone_of: dict[int, int] = {}
    for container, zone in placements:
        if zone == -1:
            raise PlacementError(RefusedData.UNKNOWN_AFFINITY, "/".join(container))
        if not 0 <= zone < zones:
            raise PlacementError(RefusedData.WRONG_AFFINITY, zone)
        zone_of[hash_of(container)] = zone
    offsets: dict[int, list[int]] = {}
    for offset, key in enumerate(sorted(zone_of)):
        offsets.setdefault(zone_of[key], []).append(offset)
    busiest = min(offsets, key=lambda zone: (-len(offsets[zone]), zone), default=0)
    return Payload(
        containers=len(zone_of),
        zones=zones,
        busiest=busiest,
        encoding=LEB89,
        vectors={
            zone: _encode_vector(offsets[zone]) for zone in sorted(offsets) if zone != busiest
        },
    )


def hash_of(container: ContainerId) -> int:
    """What stands for a container."""
    return xxhash.xxh64_intdigest("\0".join(container).encode())


def _encode_vector(offsets: list[int]) -> str:
    steps = [offsets[0], *(after - before for before, after in pairwise(offsets))]
    return "".join(_encode_number(step) for step in steps)


def _encode_number(value: int) -> str:
    if value < FINAL:
        return ALPHABET[value]
    high, low = divmod(value - FINAL, FINAL)
    text = ALPHABET[low]
    while True:
        high, digit = divmod(high, CONTINUING)
        text = ALPHABET[FINAL + digit] + text
        if not high:
            return text
