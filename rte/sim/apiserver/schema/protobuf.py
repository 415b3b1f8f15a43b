r"""Bodies in the protobuf encoding of Kubernetes: ``kubectl create`` sends them for built-in kinds.

A body is the bytes ``k8s\0`` and a ``runtime.Unknown`` message (apimachinery
``pkg/runtime/serializer/protobuf``). Field numbers come from ``numbers.json``
(:mod:`rte.sim.apiserver.schema.generate_types`); the result is the same object as in JSON, before
it is decoded and completed like any other.
"""

from __future__ import annotations

import base64
import struct
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from importlib import resources
from typing import TYPE_CHECKING

import orjson
from google.protobuf.empty_pb2 import Empty
from google.protobuf.message import DecodeError as WireError
from google.protobuf.unknown_fields import UnknownFieldSet

from rte import errors
from rte.reader import jsontext
from rte.sim.apiserver.status import DecodeError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from rte.reader.json import JsonObject, JsonValue

MEDIA_TYPE = "application/vnd.kubernetes.protobuf"
_MAGIC = b"k8s\0"
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_Fields = dict[int, tuple[str, str]]


@lru_cache(maxsize=1)
def _structs() -> dict[str, _Fields]:
    text = resources.files(__package__).joinpath("numbers.json").read_bytes()
    return {
        name: {number: (field, kind) for number, field, kind in rows}
        for name, rows in orjson.loads(text).items()
    }


def decode(struct_name: str, body: bytes) -> JsonObject:
    """An object of a built-in type as JSON has it; unknown fields are left out, as Go does.

    Raises:
        DecodeError: not this encoding, or a field has another type.
    """
    if not body.startswith(_MAGIC):
        raise DecodeError("provided data does not appear to be a protobuf message, expected prefix")
    apiversion = kind = ""
    raw = b""
    for number, value in _fields(body[len(_MAGIC) :]):
        if number == 1:
            told = {field: _text(item) for field, item in _fields(_bytes(value))}
            apiversion, kind = told.get(1, ""), told.get(2, "")
        elif number == 2:
            raw = _bytes(value)
    found = {"apiVersion": apiversion, "kind": kind}
    return {key: text for key, text in found.items() if text} | _struct(struct_name, raw)


def _fields(data: bytes) -> Iterator[tuple[int, JsonValue]]:
    message = Empty()
    try:
        message.ParseFromString(data)
    except WireError as error:
        raise DecodeError(f"the message cannot be read: {error}") from error
    found = UnknownFieldSet(message)
    for index in range(len(found)):
        yield found[index].field_number, found[index].data


def _struct(name: str, data: bytes) -> JsonObject:
    known = _structs()[name]
    out: JsonObject = {}
    for number, value in _fields(data):
        if number not in known:
            continue
        field, kind = known[number]
        kind = kind.removeprefix("*")
        if not field:
            out |= _struct(kind, _bytes(value))
        elif kind.startswith("[]"):
            out.setdefault(field, []).append(_value(kind[2:], value))
        elif kind.startswith("{}"):
            entry = dict(_fields(_bytes(value)))
            key = _text(entry.get(1, b""))
            out.setdefault(field, {})[key] = _value(kind[2:], entry[2]) if 2 in entry else None
        else:
            out[field] = _value(kind, value)
    return out


def _value(kind: str, value: JsonValue) -> JsonValue:
    kind = kind.removeprefix("*")
    scalar = _SCALARS.get(kind)
    return scalar(value) if scalar else _struct(kind, _bytes(value))


def _time(data: bytes, precision: str) -> str | None:
    told = dict(_fields(data))
    if not any(told.values()):
        return None  # Go's zero time
    try:
        moment = _EPOCH + timedelta(
            seconds=_signed(told.get(1, 0)), microseconds=_int(told.get(2, 0)) // 1000
        )
    except OverflowError as error:
        raise DecodeError(f"a time is out of range: {error}") from error
    return moment.isoformat(timespec=precision).replace("+00:00", "Z")


def _raw(data: bytes) -> JsonValue:
    """A ``RawExtension`` or ``FieldsV1``: JSON in its first field."""
    text = dict(_fields(data)).get(1, b"")
    try:
        return jsontext.load(_bytes(text), "object", jsontext.BODY) if text else None
    except errors.MalformedError as error:
        raise DecodeError(f"an embedded object cannot be read: {error}") from error


def _bytes(value: JsonValue) -> bytes:
    if not isinstance(value, bytes):
        raise DecodeError(f"a field is a number, not a message or text: {value!r:.40}")
    return value


def _text(value: JsonValue) -> str:
    try:
        return _bytes(value).decode()
    except UnicodeDecodeError as error:
        raise DecodeError(f"a text is not UTF-8: {error}") from error


def _int(value: JsonValue) -> int:
    if not isinstance(value, int):
        raise DecodeError(f"a field is no number: {value!r:.40}")
    return value


def _signed(value: JsonValue) -> int:
    number = _int(value)
    return number - (1 << 64) if number >> 63 else number


def _quantity(value: JsonValue) -> str:
    return _text(dict(_fields(_bytes(value))).get(1, b"0"))


def _intstr(value: JsonValue) -> int | str:
    told = dict(_fields(_bytes(value)))
    return _text(told.get(3, b"")) if told.get(1) else _signed(told.get(2, 0))


_SCALARS: dict[str, Callable[[JsonValue], JsonValue]] = {
    "string": _text,
    "bytes": lambda value: base64.b64encode(_bytes(value)).decode(),
    "bool": lambda value: bool(_int(value)),
    "int32": _signed,
    "int64": _signed,
    "float64": lambda value: struct.unpack("<d", struct.pack("<Q", _int(value)))[0],
    "time": lambda value: _time(_bytes(value), "auto"),
    "microtime": lambda value: _time(_bytes(value), "microseconds"),
    "quantity": _quantity,
    "intstr": _intstr,
    "any": lambda value: _raw(_bytes(value)),
}
