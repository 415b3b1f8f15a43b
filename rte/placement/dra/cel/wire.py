"""Protobuf's wire format, as far as rewriting an expression needs it."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Iterator

#: A message: field number, wire type, and an integer or bytes, in order.
Fields: TypeAlias = "list[tuple[int, int, int | bytes]]"

#: A negative number is written as its complement of two in 64 bits.
MASK = 2**64 - 1


def read(data: bytes) -> Fields:
    """The fields of a message."""
    fields: Fields = []
    place = 0
    while place < len(data):
        tag, place = _varint(data, place)
        number, form = tag >> 3, tag & 7
        if form == 0:
            value, place = _varint(data, place)
            fields.append((number, form, value))
            continue
        size = {1: 8, 5: 4}.get(form)
        if size is None:
            size, place = _varint(data, place)
        fields.append((number, form, data[place : place + size]))
        place += size
    return fields


def _varint(data: bytes, place: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = data[place]
        place += 1
        value |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            return value, place


def write(fields: Fields) -> bytes:
    """The message of the fields."""
    out = bytearray()
    for number, form, value in fields:
        _put(out, number << 3 | form)
        if isinstance(value, int):
            _put(out, value)
            continue
        if form == 2:
            _put(out, len(value))
        out += value
    return bytes(out)


def _put(out: bytearray, value: int) -> None:
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)


def each(fields: Fields, number: int) -> Iterator[tuple[int, int, int | bytes]]:
    """The fields of a number."""
    return (one for one in fields if one[0] == number)


def first(fields: Fields, number: int) -> bytes:
    """The content of the first field of a number, empty where there is none."""
    return next((content(value) for _, _, value in each(fields, number)), b"")


def integer(fields: Fields, number: int) -> int:
    """The first field of a number as an integer, 0 where there is none."""
    return next((v for _, _, v in each(fields, number) if isinstance(v, int)), 0)


def integers(fields: Fields, number: int) -> list[int]:
    """All integers of a repeated field, packed or not."""
    found = []
    for _, _, value in each(fields, number):
        if isinstance(value, int):
            found.append(value)
            continue
        place = 0
        while place < len(value):
            one, place = _varint(value, place)
            found.append(one)
    return found


def content(value: int | bytes) -> bytes:
    """The value of a field that holds a message or text."""
    if isinstance(value, int):
        raise TypeError("an integer where a message is expected")
    return value
