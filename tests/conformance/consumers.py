"""What reads an NRT of ours elsewhere: NodeResourceTopologyMatch and its libraries, in our words.

k8stopologyawareschedwg/numaplacement and podfingerprint; held against recordings of them.
"""

from __future__ import annotations

import re
from enum import StrEnum
from typing import TYPE_CHECKING

from rte.model.pod import QOS, ContainerKind
from rte.nrt import attributes, numaplacement
from rte.nrt.numaplacement import Payload, PlacementError
from rte.placement.foreign.zones import is_native
from rte.placement.kubelet.demand import is_memory

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from collections.abc import Set as AbstractSet

    from rte.model.pod import Container, Pod
    from rte.nrt.numaplacement import ContainerId

_INTEGER = re.compile(r"[+-]?\d{1,19}", re.ASCII)
_DIGIT = {character: value for value, character in enumerate(numaplacement.ALPHABET)}


class Unread(StrEnum):
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


def parse_metadata(text: str, vectors: Mapping[int, str] | None = None) -> Payload:
    """Read the metadata attribute; fields in any order, the last of repeated ones counts.

    Raises:
        PlacementError: text outside the format.
    """
    head, separator, rest = text.partition(numaplacement.SEPARATOR)
    if head != numaplacement.PREFIX or not separator:
        raise PlacementError(Unread.MALFORMED_METADATA, text)
    encoding = ""
    numbers = {"cc": -1, "nn": -1, "bn": -1}
    for pair in rest.split(numaplacement.SEPARATOR):
        key, equals, value = pair.partition("=")
        if not equals:
            raise PlacementError(Unread.MALFORMED_PAIR, pair)
        if not key:
            raise PlacementError(Unread.MISSING_KEY, pair)
        if not value:
            raise PlacementError(Unread.MISSING_VALUE, pair)
        if key == "ve":
            encoding = value
            continue
        if not _INTEGER.fullmatch(value):
            raise PlacementError(Unread.INTEGER, pair)
        if key not in numbers:
            raise PlacementError(Unread.UNKNOWN_FIELD, pair)
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
        (payload.encoding == numaplacement.LEB89, Unread.VECTOR_ENCODING),
        (len(payload.vectors) < payload.zones, Unread.VECTORS),
        (payload.busiest not in payload.vectors, Unread.CORRUPTED_VECTOR),
        (payload.containers >= 0, Unread.CONTAINER_SET),
        (payload.zones > 0, Unread.NUMA_NODES),
        (0 <= payload.busiest < payload.zones, Unread.BUSIEST_NODE),
        (payload.containers > 0 or not payload.vectors, Unread.VECTORS),
        (all(0 <= zone < payload.zones for zone in payload.vectors), Unread.CORRUPTED_VECTOR),
    )
    for holds, problem in rules:
        if not holds:
            raise PlacementError(problem, payload.metadata())


def decode(payload: Payload, containers: Iterable[ContainerId]) -> dict[ContainerId, int]:
    """The zone of each container. ``containers`` must be the very set that was encoded.

    Raises:
        PlacementError: the number of containers differs, or a vector is damaged.
    """
    key_of = {container: numaplacement.hash_of(container) for container in containers}
    keys = sorted(set(key_of.values()))
    if len(keys) != payload.containers:
        raise PlacementError(Unread.CONTAINER_SET, payload.metadata())
    zone_of: dict[int, int] = {}
    for zone, vector in sorted(payload.vectors.items()):
        for offset in decode_vector(vector):
            if offset >= len(keys):
                raise PlacementError(Unread.CORRUPTED_VECTOR, vector)
            if keys[offset] in zone_of:
                raise PlacementError(Unread.DUPLICATED_VECTOR, vector)
            zone_of[keys[offset]] = zone
    return {container: zone_of.get(key, payload.busiest) for container, key in key_of.items()}


def decode_vector(text: str) -> list[int]:
    offsets: list[int] = []
    position = high = 0
    continued = False
    for character in text:
        digit = _DIGIT.get(character)
        if digit is None:
            raise PlacementError(Unread.CORRUPTED_VECTOR, text)
        if digit >= numaplacement.FINAL:
            high = high * numaplacement.CONTINUING + digit - numaplacement.FINAL
            continued = True
            continue
        position += numaplacement.FINAL + high * numaplacement.FINAL + digit if continued else digit
        offsets.append(position)
        high, continued = 0, False
    if continued:
        raise PlacementError(Unread.CORRUPTED_VECTOR, text)
    return offsets


class SignatureVerdict(StrEnum):
    """What a comparison of two signatures says."""

    OK = "ok"
    MISMATCH = "mismatch"
    MALFORMED = "malformed"
    VERSION = "version"


def check(candidate: str, expected: str) -> SignatureVerdict:
    """Compare a signature read from an object with the one computed here."""
    if len(candidate.encode(errors="replace")) < 16 or candidate[:4] != attributes.PREFIX:
        return SignatureVerdict.MALFORMED
    if candidate[4:8] != attributes.VERSION:
        return SignatureVerdict.VERSION
    return SignatureVerdict.OK if candidate == expected else SignatureVerdict.MISMATCH


def exclusive_containers(pod: Pod, nrt_resources: AbstractSet[str]) -> list[str]:
    """Containers that NodeResourceTopologyMatch takes for holders of exclusive resources.

    Sidecars come before app containers; ordinary init containers never count, because podresources
    does not report them. ``nrt_resources``: every resource that any zone of the node's NRT lists.
    """
    kinds = (ContainerKind.SIDECAR, ContainerKind.APP)
    return [
        container.name
        for kind in kinds
        for container in pod.containers
        if container.kind is kind and _is_exclusive(pod.qos, container, nrt_resources)
    ]


def _is_exclusive(qos: QOS, container: Container, nrt_resources: AbstractSet[str]) -> bool:
    return any(
        _is_exclusive_request(qos, name, amount, nrt_resources)
        for name, amount in container.requests.items()
    )


def _is_exclusive_request(
    qos: QOS, name: str, amount: int, nrt_resources: AbstractSet[str]
) -> bool:
    """A device counts by its name alone, even when none is requested (as upstream)."""
    if not is_native(name):
        return name in nrt_resources
    if qos is not QOS.GUARANTEED or amount <= 0:
        return False
    if name == "cpu":
        return amount % 1000 == 0
    return is_memory(name)
