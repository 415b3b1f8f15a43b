"""Objects of built-in types: decoded, pruned and normalised as the API server's Go structs do.

``types.json`` holds the structs (see :mod:`rte.sim.apiserver.schema.generate_types`). Decoding
drops unknown fields (and lists them), applies ``omitempty``, and brings quantities and times into
their canonical text, so that what is stored equals what the real server would hand out.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import lru_cache
from importlib import resources
from typing import TYPE_CHECKING, NamedTuple

import orjson

from rte.sim.apiserver.schema import quantities
from rte.sim.apiserver.status import DecodeError

if TYPE_CHECKING:
    from collections.abc import Callable

    from rte.reader.json import JsonObject, JsonValue


class SchemaField(NamedTuple):
    """One field of a struct, in the notation of :mod:`rte.sim.apiserver.schema.generate_types`."""

    name: str
    kind: str
    flags: str
    merge_key: str = ""


@lru_cache(maxsize=1)
def structs() -> dict[str, tuple[SchemaField, ...]]:
    """All structs by name (``core/v1.Pod``)."""
    text = resources.files(__package__).joinpath("types.json").read_bytes()
    return {
        name: tuple(SchemaField(*row) for row in rows) for name, rows in orjson.loads(text).items()
    }


@lru_cache(maxsize=4096)
def struct_fields(name: str) -> dict[str, SchemaField]:
    """Fields of a struct by JSON name."""
    return {item.name: item for item in structs()[name]}


@dataclass
class _Decoding:
    unknown: list[str] = field(default_factory=list)
    #: Go's error text names the path without list indices and map keys.
    trail: list[str] = field(default_factory=list)
    struct: str = ""


def decode(struct: str, value: object) -> tuple[JsonObject, list[str]]:
    """Decode ``value`` as ``struct``; returns the normal form and the paths of unknown fields.

    Raises:
        DecodeError: a field has another JSON type, or a quantity or time is malformed.
    """
    work = _Decoding()
    return _struct(struct, value, "", work), work.unknown


def _struct(name: str, value: object, path: str, work: _Decoding) -> JsonObject:
    if value is None:
        value = {}
    if not isinstance(value, dict):
        raise _mismatch(value, name.rpartition("/")[2], work)
    fields = struct_fields(name)
    unknown = [key for key in value if key not in fields]
    work.unknown += [f"{path}.{key}" if path else key for key in unknown]
    outer, work.struct = work.struct, name
    out: JsonObject = {}
    for item in structs()[name]:
        raw = value.get(item.name)
        if raw is None:
            empty = _zero(item)
            if empty is not _OMIT:
                out[item.name] = empty
            continue
        work.trail.append(item.name)
        decoded = _value(item.kind, raw, f"{path}.{item.name}" if path else item.name, work)
        work.trail.pop()
        if not _omitted(item, decoded):
            out[item.name] = decoded
    work.struct = outer
    return out


def _value(kind: str, value: object, path: str, work: _Decoding) -> JsonValue:
    kind = kind.removeprefix("*")
    if kind.startswith("[]"):
        if not isinstance(value, list):
            raise _mismatch(value, kind, work)
        inner = kind[2:]
        return [_element(inner, item, f"{path}[{index}]", work) for index, item in enumerate(value)]
    if kind.startswith("{}"):
        if not isinstance(value, dict):
            raise _mismatch(value, f"map[string]{kind[2:]}", work)
        inner = kind[2:]
        return {key: _element(inner, item, f"{path}.{key}", work) for key, item in value.items()}
    scalar = _SCALARS.get(kind)
    if scalar is not None:
        return scalar(value, kind, work)
    return _struct(kind, value, path, work)


def _element(kind: str, value: object, path: str, work: _Decoding) -> JsonValue:
    if value is None:
        return _zero_value(kind)
    return _value(kind, value, path, work)


_OMIT = object()


def _zero(item: SchemaField) -> JsonValue:
    if item.kind[0] == "*":
        return _OMIT if "o" in item.flags else None
    if "z" in item.flags:
        return _OMIT
    if item.kind in _PLAIN_ZERO or item.kind[0] in "[{" or item.kind in ("bytes", "any"):
        return _OMIT if "o" in item.flags else _zero_value(item.kind)
    return _zero_value(item.kind)


_PLAIN_ZERO: JsonObject = {
    "string": "",
    "bool": False,
    "int32": 0,
    "int64": 0,
    "float64": 0,
}


def _zero_value(kind: str) -> JsonValue:
    if kind in _PLAIN_ZERO:
        return _PLAIN_ZERO[kind]
    if kind[0] in "*[{" or kind in ("time", "microtime", "bytes", "any"):
        return None
    if kind == "quantity":
        return "0"
    if kind == "intstr":
        return 0
    return dict(_empty_struct(kind))


@lru_cache(maxsize=1024)
def _empty_struct(kind: str) -> JsonObject:
    return _struct(kind, {}, "", _Decoding())


def _omitted(item: SchemaField, value: object) -> bool:
    if "o" not in item.flags or item.kind[0] == "*":
        return False
    if item.kind[0] in "[{" or item.kind in _PLAIN_ZERO or item.kind == "bytes":
        return not value
    return False


def _mismatch(value: object, wanted: str, work: _Decoding) -> DecodeError:
    what = {bool: "bool", str: "string", int: "number", float: "number", list: "array"}.get(
        type(value), "object"
    )
    where = f"{work.struct.rpartition('.')[2]}.{'.'.join(work.trail)}"
    into = f"Go struct field {where} of type" if work.trail else "Go value of type"
    return DecodeError(f"json: cannot unmarshal {what} into {into} {_go_type(wanted)}")


def _go_type(kind: str) -> str:
    prefix = ""
    while kind.startswith("[]"):
        prefix, kind = f"{prefix}[]", kind[2:]
    return prefix + kind.rpartition("/")[2]


def _string(value: object, kind: str, work: _Decoding) -> str:
    if not isinstance(value, str):
        raise _mismatch(value, kind, work)
    return value


def _bool(value: object, kind: str, work: _Decoding) -> bool:
    if not isinstance(value, bool):
        raise _mismatch(value, kind, work)
    return value


def _int(value: object, kind: str, work: _Decoding) -> int:
    if isinstance(value, bool) or not isinstance(value, int):
        raise _mismatch(value, kind, work)
    bits = 31 if kind == "int32" else 63
    if not -(1 << bits) <= value < 1 << bits:
        raise DecodeError(
            f"json: cannot unmarshal number {value} into Go struct field "
            f"{work.struct.rpartition('.')[2]}.{'.'.join(work.trail)} of type {kind}"
        )
    return value


def _float(value: object, kind: str, work: _Decoding) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise _mismatch(value, kind, work)
    return value


def _any(value: object, _kind: str, _work: _Decoding) -> object:
    return value


def _intstr(value: object, kind: str, work: _Decoding) -> int | str:
    if isinstance(value, bool) or not isinstance(value, int | str):
        raise _mismatch(value, kind, work)
    return value


def _quantity(value: object, _kind: str, _work: _Decoding) -> str:
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        raise DecodeError(quantities.MALFORMED)
    return quantities.canonical(str(value).strip())


def _time(value: object, kind: str, work: _Decoding) -> str:
    text = _string(value, kind, work)
    moment = _RFC3339.fullmatch(text) and _moment(text)
    if not moment:
        raise DecodeError(
            f'parsing time "{text}" as "2006-01-02T15:04:05Z07:00": cannot parse "{text}" as "2006"'
        )
    return moment.strftime("%Y-%m-%dT%H:%M:%SZ")


def _microtime(value: object, kind: str, work: _Decoding) -> str:
    text = _string(value, kind, work)
    moment = _RFC3339_MICRO.fullmatch(text) and _moment(text)
    if not moment:
        rest = text[19:] or text
        raise DecodeError(
            f'parsing time "{text}" as "2006-01-02T15:04:05.000000Z07:00": '
            f'cannot parse "{rest}" as ".000000"'
        )
    return moment.strftime("%Y-%m-%dT%H:%M:%S.%fZ")


_RFC3339 = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d+)?(?:Z|[+-]\d\d:\d\d)", re.ASCII)
_RFC3339_MICRO = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}(?:Z|[+-]\d\d:\d\d)", re.ASCII)


def _moment(text: str) -> datetime | None:
    try:
        return datetime.fromisoformat(text).astimezone(UTC)
    except ValueError:
        return None


_SCALARS: dict[str, Callable[[object, str, _Decoding], JsonValue]] = {
    "string": _string,
    "bool": _bool,
    "int32": _int,
    "int64": _int,
    "float64": _float,
    "bytes": _string,
    "any": _any,
    "intstr": _intstr,
    "quantity": _quantity,
    "time": _time,
    "microtime": _microtime,
}
