"""API JSON of ``resource.k8s.io/v1`` to values and back.

A field that this release does not know may forbid what we would otherwise do, so it is never
dropped in silence: it is named in ``unknown`` of the device, slice, class or claim that has it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar, get_args, get_origin

import msgspec
from msgspec import structs

from rte import errors
from rte.placement.dra import objects

if TYPE_CHECKING:
    from rte.reader.json import Json, JsonObject

T = TypeVar("T", bound=msgspec.Struct)

#: Where unknown fields are noted; the nearest one around a field takes it.
_NOTING = frozenset({objects.Device, objects.SliceSpec, objects.ClassSpec, objects.DeviceClaim})


def resource_slice(data: Json) -> objects.ResourceSlice:
    """A ResourceSlice.

    Raises:
        errors.ParseError: not a ResourceSlice.
    """
    return _decode(data, objects.ResourceSlice)


def device(data: Json) -> objects.Device:
    """One device of a slice.

    Raises:
        errors.ParseError: not a device.
    """
    return _decode(data, objects.Device)


def device_class(data: Json) -> objects.DeviceClass:
    """A DeviceClass.

    Raises:
        errors.ParseError: not a DeviceClass.
    """
    return _decode(data, objects.DeviceClass)


def resource_claim(data: Json) -> objects.ResourceClaim:
    """A ResourceClaim.

    Raises:
        errors.ParseError: not a ResourceClaim.
    """
    return _decode(data, objects.ResourceClaim)


def device_taint_rule(data: Json) -> objects.DeviceTaintRule:
    """A DeviceTaintRule.

    Raises:
        errors.ParseError: not a DeviceTaintRule.
    """
    return _decode(data, objects.DeviceTaintRule)


def encode(value: msgspec.Struct) -> Any:
    """A value as API JSON: absent where it has its default, quantities as text."""
    return msgspec.to_builtins(value, enc_hook=str, builtin_types=())


def key_of(value: Any) -> bytes:
    """Of a value, or lists and tuples of values: equal for equal ones."""
    return msgspec.json.encode(value, enc_hook=str)


def _decode(data: Json, kind: type[T]) -> T:
    try:
        return msgspec.convert(data, kind, dec_hook=_quantity)
    except (msgspec.ValidationError, TypeError):
        try:
            return msgspec.convert(_known(data, kind, "", []), kind, dec_hook=_quantity)
        except (msgspec.ValidationError, TypeError) as error:
            raise errors.ParseError(kind.__name__, _name(data), str(error)) from error


def _quantity(kind: type, data: object) -> object:
    if kind is objects.Nano and isinstance(data, str | int | float):
        return objects.Nano.parse(data if isinstance(data, int) else str(data))
    raise TypeError(f"expected a quantity, got {data!r:.40}")


def _name(data: object) -> object:
    metadata = data.get("metadata") if isinstance(data, dict) else None
    return metadata.get("name", data) if isinstance(metadata, dict) else data


def _known(data: Any, kind: type, path: str, unknown: list[str]) -> Any:
    """The data without what the kind has no place for; that is noted in the nearest noting part."""
    if not isinstance(data, dict):
        return data
    noting = kind in _NOTING
    if noting:
        path, unknown = "", []
    fields = {field.encode_name: field.type for field in structs.fields(kind)}
    closed = bool(kind.__struct_config__.forbid_unknown_fields)  # type: ignore[attr-defined]
    kept: JsonObject = {}
    for key, value in data.items():
        if key in fields:
            kept[key] = _known_within(value, fields[key], f"{path}{key}", unknown)
        elif closed:
            unknown.append(f"{path}{key}")
    if noting and unknown:
        kept["unknown"] = sorted(unknown)
    return kept


def _known_within(value: Any, hint: Any, path: str, unknown: list[str]) -> Any:
    kind = _struct_in(hint)
    if kind is None or value is None:
        return value
    if isinstance(value, list):
        return [_known(v, kind, f"{path}[{n}].", unknown) for n, v in enumerate(value)]
    if dict in (get_origin(hint), hint) and isinstance(value, dict):
        return {key: _known(v, kind, f"{path}[{key}].", unknown) for key, v in value.items()}
    return _known(value, kind, f"{path}.", unknown)


def _struct_in(hint: Any) -> type | None:
    """The kind of struct that a field holds: itself, optional, in a tuple, or as a map's value."""
    if isinstance(hint, type) and issubclass(hint, msgspec.Struct):
        return hint
    return next((found for arg in get_args(hint) if (found := _struct_in(arg))), None)
