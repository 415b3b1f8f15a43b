"""JSON as it is read and written, before or after somebody has said what it means.

What comes from outside becomes typed values at the edge of a room (:mod:`rte.k8s.wire`); what is on
its way there, or on its way out, has these types.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeAlias

from rte import errors

#: Any value.
JsonValue: TypeAlias = Any
#: An object that is only read: its values are whatever its author has written.
Json: TypeAlias = Mapping[str, Any]
#: An object that is put together, or changed.
JsonObject: TypeAlias = dict[str, Any]


def as_object(value: object) -> JsonObject:
    """The object, or an empty one for whatever else stands in its place."""
    return value if isinstance(value, dict) else {}


def as_table(value: object, what: str) -> Json:
    """The object, an empty one for None.

    Raises:
        errors.ParseError: anything else stands in its place.
    """
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise errors.ParseError(what, value, "expected an object")
    return value
