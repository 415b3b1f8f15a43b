"""NodeResourceTopology of any exporter (v1alpha1, v1alpha2) to plain values.

Each part has its schema and is read by itself: what a foreign exporter does wrong in one of them
leaves the others as they are.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeVar

import msgspec

from rte import errors
from rte.model import bits, quantity
from rte.model.node import Amounts
from rte.nrt import device_zones, node_state
from rte.nrt.attributes import ATTRIBUTE, resolve
from rte.reader.json import JsonValue

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from rte.model.node import NodeState
    from rte.nrt.device_zones import DeviceZones
    from rte.reader.json import Json

_T = TypeVar("_T")

_ZONE_NAME = re.compile(r"node-\+?(\d{1,9})", re.ASCII)


class _Attribute(msgspec.Struct):
    name: str
    value: str


class _Zone(msgspec.Struct):
    name: str
    type: str
    resources: JsonValue = None
    costs: JsonValue = None


class _Resource(msgspec.Struct):
    name: str
    capacity: str | int
    allocatable: str | int
    available: str | int


class _Cost(msgspec.Struct):
    name: str
    value: int


@dataclass(frozen=True, kw_only=True, slots=True)
class ReportedZone:
    """A NUMA zone of an NRT. ``resources`` in millicores for ``cpu``, base units for others."""

    id: int
    resources: Mapping[str, Amounts] = field(default_factory=dict)
    costs: Mapping[int, int] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True, slots=True)
class NRT:
    """What an NRT says.

    Attributes:
        name: of the object and of its node.
        zones: zones of type ``Node`` in the object's order; ids may repeat in foreign objects.
        attributes: name and value in the object's order.
        policy: of the Topology Manager.
        scope: of the Topology Manager.
        state: the kubelet's state, None where the object has none that can be read.
        device_zones: zones of PCI functions and holders of DRA devices, None where the object has
            none that can be read.
        problems: one line for each part that was left out because it is malformed, the reason why
            ``state`` is None among them (unless the exporter is a foreign one).
    """

    name: str
    zones: tuple[ReportedZone, ...] = ()
    attributes: tuple[tuple[str, str], ...] = ()
    policy: str = "none"
    scope: str = "container"
    state: NodeState | None = None
    device_zones: DeviceZones | None = None
    problems: tuple[str, ...] = ()

    def attribute(self, name: str) -> str | None:
        """The value of the first attribute of that name."""
        return next((value for key, value in self.attributes if key == name), None)

    @property
    def fingerprint(self) -> str | None:
        """The pods' fingerprint, None when there is none."""
        return self.attribute(ATTRIBUTE)


def decode(obj: Json) -> NRT:
    """Read an NRT as JSON. Malformed parts are left out and named in ``problems``.

    Raises:
        errors.ParseError: not an object with a name.
    """
    metadata = obj.get("metadata") if isinstance(obj, dict) else None
    name = metadata.get("name") if isinstance(metadata, dict) else None
    if not isinstance(metadata, dict) or not isinstance(name, str) or not name:
        raise errors.ParseError("NodeResourceTopology", obj, "no metadata.name")
    problems: list[str] = []
    attributes = tuple(
        (item.name, item.value)
        for item in _parts(obj.get("attributes"), _Attribute, "attribute", problems)
    )
    legacy = obj.get("topologyPolicies")
    policy, scope = resolve(
        attributes,
        [str(item) for item in legacy] if isinstance(legacy, list) else (),
    )
    return NRT(
        name=name,
        zones=tuple(
            zone
            for item in _parts(obj.get("zones"), _Zone, "zone", problems)
            if (zone := _zone(item, problems)) is not None
        ),
        attributes=attributes,
        policy=policy,
        scope=scope,
        state=_read(metadata, node_state.ANNOTATION, node_state.decode, problems),
        device_zones=_read(metadata, device_zones.ANNOTATION, device_zones.decode, problems),
        problems=tuple(problems),
    )


def decode_state(
    obj: Json,
) -> tuple[NodeState, DeviceZones | None, tuple[str, ...]] | None:
    """What prediction needs of an NRT of ours, and what of it is malformed, as :func:`decode` has
    it; None: it has to tell.

    A scheduler reads hundreds of reports a second; the zones say again what the state says.
    """
    metadata = obj.get("metadata") if isinstance(obj, dict) else None
    if not isinstance(metadata, dict):
        return None
    problems: list[str] = []
    state = _read(metadata, node_state.ANNOTATION, node_state.decode, problems)
    if state is None:
        return None
    zones = _read(metadata, device_zones.ANNOTATION, device_zones.decode, problems)
    return state, zones, tuple(problems)


def zone_id(name: str) -> int | None:
    """The id in a zone's name, None for another kind of name."""
    match = _ZONE_NAME.fullmatch(name)
    return int(match[1]) if match and int(match[1]) <= bits.MAX_ID else None


def _zone(item: _Zone, problems: list[str]) -> ReportedZone | None:
    if item.type != "Node":
        return None
    number = zone_id(item.name)
    if number is None:
        problems.append(str(errors.ParseError("zone name", item.name, "not node-<id>")))
        return None
    resources: dict[str, Amounts] = {}
    for entry in _parts(item.resources, _Resource, f"resource of node-{number}", problems):
        try:
            resources[entry.name] = Amounts(
                quantity.parse_resource(entry.name, entry.capacity),
                quantity.parse_resource(entry.name, entry.allocatable),
                quantity.parse_resource(entry.name, entry.available),
            )
        except errors.ParseError as error:
            problems.append(f"node-{number}, {entry.name}: {error}")
    return ReportedZone(
        id=number,
        resources=resources,
        costs={
            other: entry.value
            for entry in _parts(item.costs, _Cost, f"cost of node-{number}", problems)
            if (other := zone_id(entry.name)) is not None
        },
    )


def _read(metadata: Json, key: str, decode: Callable[[str], _T], problems: list[str]) -> _T | None:
    """What an annotation holds, None where there is none or it is malformed."""
    annotations = metadata.get("annotations")
    text = annotations.get(key) if isinstance(annotations, dict) else None
    if text is None:
        return None
    try:
        return decode(text)
    except errors.ParseError as error:
        problems.append(str(error))
        return None


def _parts(items: object, kind: type[_T], what: str, problems: list[str]) -> Iterator[_T]:
    """Those items of a list that are of this kind."""
    if items is None:
        return
    if not isinstance(items, list):
        problems.append(str(errors.ParseError(f"list of {what}s", items, "expected a list")))
        return
    for item in items:
        try:
            yield msgspec.convert(item, kind)
        except (msgspec.ValidationError, UnicodeEncodeError) as error:
            problems.append(str(errors.ParseError(what, item, str(error))))
