"""numaplacement v1 (``npv0v001``): on which zone each pinned container runs, in a few bytes.

NodeResourceTopologyMatch reads it for its preemption dry-run, under policy single-numa-node alone.
A container is the hash of its names; containers are numbered in the order of their hashes; every
zone lists its numbers (first one, then differences) in LEB89 text, except for the busiest zone,
which has all numbers not listed elsewhere (k8stopologyawareschedwg/numaplacement).
"""

from __future__ import annotations

import re
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

_PREFIX = "npv0v001"
_SEPARATOR = "::"
_LEB89 = "leb89"
_INTEGER = re.compile(r"[+-]?\d{1,19}", re.ASCII)
#: Printable ASCII without what JSON or HTML would escape: 64 final digits, then 25 continuing ones.
_ALPHABET = "".join(chr(code) for code in range(0x21, 0x7F) if chr(code) not in '"&<>\\')
_DIGIT = {character: value for value, character in enumerate(_ALPHABET)}
_FINAL = 64
_CONTINUING = len(_ALPHABET) - _FINAL


class RefusedData(StrEnum):
    """Why data was refused."""

    MALFORMED_METADATA = "malformed-metadata"
    MALFORMED_PAIR = "malformed-pair"
    MISSING_KEY = "missing-key"
    MISSING_VALUE = "missing-value"
    UNKNOWN_FIELD = "unknown-field"
    INTEGER = "integer"
    VECTOR_ENCODING = "vector-encoding"
    NUMA_NODES = "numa-nodes"
    BUSIEST_NODE = "busiest-node"
    VECTORS = "vectors"
    CORRUPTED_VECTOR = "corrupted-vector"
    DUPLICATED_VECTOR = "duplicated-vector"
    CONTAINER_SET = "container-set"
    UNKNOWN_AFFINITY = "unknown-affinity"
    WRONG_AFFINITY = "wrong-affinity"


class PlacementError(errors.ParseError):
    """Placement data that cannot be used; ``problem`` says why."""

    def __init__(self, problem: RefusedData, text: object) -> None:
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
        return _SEPARATOR.join((_PREFIX, *fields))


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
        zone_of[_hash(container)] = zone
    offsets: dict[int, list[int]] = {}
    for offset, key in enumerate(sorted(zone_of)):
        offsets.setdefault(zone_of[key], []).append(offset)
    busiest = min(offsets, key=lambda zone: (-len(offsets[zone]), zone), default=0)
    return Payload(
        containers=len(zone_of),
        zones=zones,
        busiest=busiest,
        encoding=_LEB89,
        vectors={
            zone: _encode_vector(offsets[zone]) for zone in sorted(offsets) if zone != busiest
        },
    )


def parse_metadata(text: str, vectors: Mapping[int, str] | None = None) -> Payload:
    """Read the metadata attribute; fields in any order, the last of repeated ones counts.

    Raises:
        PlacementError: text outside the format.
    """
    head, separator, rest = text.partition(_SEPARATOR)
    if head != _PREFIX or not separator:
        raise PlacementError(RefusedData.MALFORMED_METADATA, text)
    encoding = ""
    numbers = {"cc": -1, "nn": -1, "bn": -1}
    for pair in rest.split(_SEPARATOR):
        key, equals, value = pair.partition("=")
        if not equals:
            raise PlacementError(RefusedData.MALFORMED_PAIR, pair)
        if not key:
            raise PlacementError(RefusedData.MISSING_KEY, pair)
        if not value:
            raise PlacementError(RefusedData.MISSING_VALUE, pair)
        if key == "ve":
            encoding = value
            continue
        if not _INTEGER.fullmatch(value):
            raise PlacementError(RefusedData.INTEGER, pair)
        if key not in numbers:
            raise PlacementError(RefusedData.UNKNOWN_FIELD, pair)
        numbers[key] = int(value)
    return Payload(
        containers=numbers["cc"],
        zones=numbers["nn"],
        busiest=numbers["bn"],
        encoding=encoding,
        vectors=dict(vectors or {}),
    )


def validate(payload: Payload) -> None:
    """Check that the fields agree with each other; the vectors' text is left to :func:`decode`.

    Raises:
        PlacementError: they do not.
    """
    rules = (
        (payload.encoding == _LEB89, RefusedData.VECTOR_ENCODING),
        (len(payload.vectors) < payload.zones, RefusedData.VECTORS),
        (payload.busiest not in payload.vectors, RefusedData.CORRUPTED_VECTOR),
        (payload.containers >= 0, RefusedData.CONTAINER_SET),
        (payload.zones > 0, RefusedData.NUMA_NODES),
        (0 <= payload.busiest < payload.zones, RefusedData.BUSIEST_NODE),
        (payload.containers > 0 or not payload.vectors, RefusedData.VECTORS),
        (all(0 <= zone < payload.zones for zone in payload.vectors), RefusedData.CORRUPTED_VECTOR),
    )
    for holds, problem in rules:
        if not holds:
            raise PlacementError(problem, payload.metadata())


def decode(payload: Payload, containers: Iterable[ContainerId]) -> dict[ContainerId, int]:
    """The zone of each container. ``containers`` must be the very set that was encoded.

    Raises:
        PlacementError: the number of containers differs, or a vector is damaged.
    """
    key_of = {container: _hash(container) for container in containers}
    keys = sorted(set(key_of.values()))
    if len(keys) != payload.containers:
        raise PlacementError(RefusedData.CONTAINER_SET, payload.metadata())
    zone_of: dict[int, int] = {}
    for zone, vector in sorted(payload.vectors.items()):
        for offset in _decode_vector(vector):
            if offset >= len(keys):
                raise PlacementError(RefusedData.CORRUPTED_VECTOR, vector)
            if keys[offset] in zone_of:
                raise PlacementError(RefusedData.DUPLICATED_VECTOR, vector)
            zone_of[keys[offset]] = zone
    return {container: zone_of.get(key, payload.busiest) for container, key in key_of.items()}


def _hash(container: ContainerId) -> int:
    return xxhash.xxh64_intdigest("\0".join(container).encode())


def _encode_vector(offsets: list[int]) -> str:
    steps = [offsets[0], *(after - before for before, after in pairwise(offsets))]
    return "".join(_encode_number(step) for step in steps)


def _encode_number(value: int) -> str:
    if value < _FINAL:
        return _ALPHABET[value]
    high, low = divmod(value - _FINAL, _FINAL)
    text = _ALPHABET[low]
    while True:
        high, digit = divmod(high, _CONTINUING)
        text = _ALPHABET[_FINAL + digit] + text
        if not high:
            return text


def _decode_vector(text: str) -> list[int]:
    offsets: list[int] = []
    position = high = 0
    continued = False
    for character in text:
        digit = _DIGIT.get(character)
        if digit is None:
            raise PlacementError(RefusedData.CORRUPTED_VECTOR, text)
        if digit >= _FINAL:
            high = high * _CONTINUING + digit - _FINAL
            continued = True
            continue
        position += _FINAL + high * _FINAL + digit if continued else digit
        offsets.append(position)
        high, continued = 0, False
    if continued:
        raise PlacementError(RefusedData.CORRUPTED_VECTOR, text)
    return offsets
