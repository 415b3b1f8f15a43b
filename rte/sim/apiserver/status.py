"""Failures as the API server words them: one exception that carries a ``Status`` object.

Codes, reasons and messages: apimachinery ``pkg/api/errors`` and ``util/validation/field``.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import orjson

from rte import errors

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rte.reader.json import JsonObject

_REASON = {
    400: "BadRequest",
    401: "Unauthorized",
    403: "Forbidden",
    404: "NotFound",
    405: "MethodNotAllowed",
    406: "NotAcceptable",
    409: "Conflict",
    410: "Expired",
    415: "UnsupportedMediaType",
    422: "Invalid",
    429: "TooManyRequests",
    500: "InternalError",
    503: "ServiceUnavailable",
    504: "Timeout",
}


class StatusError(errors.KubeError):
    """A refused request; ``body`` is the ``Status`` object of the answer."""

    def __init__(
        self,
        code: int,
        message: str,
        *,
        reason: str | None = None,
        details: JsonObject | None = None,
    ) -> None:
        reason = _REASON.get(code, "") if reason is None else reason
        super().__init__(message, status=code, reason=reason)
        self.body: JsonObject = {
            "kind": "Status",
            "apiVersion": "v1",
            "metadata": {},
            "status": "Failure",
            "message": message,
            **({"reason": reason} if reason else {}),
            **({"details": details} if details is not None else {}),
            "code": code,
        }


class DecodeError(Exception):
    """A body does not have the shape of its type; the text is the Go decoder's."""


@dataclass(frozen=True, slots=True)
class Cause:
    """One complaint about one field.

    ``kind`` is Required, Invalid, Duplicate, Forbidden, NotFound or NotSupported.
    """

    field: str
    kind: str
    text: str


def required(path: str, text: str = "") -> Cause:
    """The field must be set."""
    return Cause(path, "Required", f"Required value: {text}" if text else "Required value")


def invalid(path: str, value: object, text: str) -> Cause:
    """The field's value is wrong."""
    return Cause(path, "Invalid", f"Invalid value: {_shown(value)}: {text}")


def duplicate(path: str, value: object) -> Cause:
    """The value may appear only once."""
    return Cause(path, "Duplicate", f"Duplicate value: {_shown(value)}")


def forbidden(path: str, text: str) -> Cause:
    """The field may not be set or changed."""
    return Cause(path, "Forbidden", f"Forbidden: {text}")


def unsupported(path: str, value: object, supported: Sequence[str]) -> Cause:
    """The value is none of the supported ones."""
    names = ", ".join(f'"{name}"' for name in supported)
    return Cause(
        path, "NotSupported", f"Unsupported value: {_shown(value)}: supported values: {names}"
    )


def _shown(value: object) -> str:
    if isinstance(value, str):
        return f'"{value}"'
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, dict | list):
        return orjson.dumps(value, option=orjson.OPT_SORT_KEYS).decode()
    return "null" if value is None else str(value)


def bad_request(message: str) -> StatusError:
    """400."""
    return StatusError(400, message)


def not_found(resource: str, name: str, group: str = "") -> StatusError:
    """404 for a named object."""
    return StatusError(
        404,
        f'{_qualified(resource, group)} "{name}" not found',
        details=_who(name, group, resource),
    )


def denied(resource: str, name: str, why: str, group: str = "") -> StatusError:
    """403 by an admission plugin."""
    text = f'{_qualified(resource, group)} "{name}" is forbidden: {why}'
    return StatusError(403, text, details=_who(name, group, resource))


def unknown_resource() -> StatusError:
    """404 for a path that no resource serves."""
    return StatusError(404, "the server could not find the requested resource", details={})


def method_not_allowed() -> StatusError:
    """405."""
    return StatusError(
        405, "the server does not allow this method on the requested resource", details={}
    )


def already_exists(
    resource: str, name: str, group: str = "", *, ending: bool = False
) -> StatusError:
    """409 on create; ``ending``: the object that is in the way is being deleted."""
    return StatusError(
        409,
        "object is being deleted: " * ending
        + f'{_qualified(resource, group)} "{name}" already exists',
        reason="AlreadyExists",
        details=_who(name, group, resource),
    )


MODIFIED = (
    "the object has been modified; please apply your changes to the latest version and try again"
)


def conflict(resource: str, name: str, why: str = MODIFIED, group: str = "") -> StatusError:
    """409 on a precondition or a stale version."""
    return StatusError(
        409,
        f'Operation cannot be fulfilled on {_qualified(resource, group)} "{name}": {why}',
        details=_who(name, group, resource),
    )


def expired(message: str) -> StatusError:
    """410: the version asked for has been compacted."""
    return StatusError(410, message)


def rejected(kind: str, name: str, causes: Sequence[Cause], group: str = "") -> StatusError:
    """422: validation found ``causes``."""
    texts = list(dict.fromkeys(f"{cause.field}: {cause.text}" for cause in causes))
    text = texts[0] if len(texts) == 1 else f"[{', '.join(texts)}]"
    return StatusError(
        422,
        f'{_qualified(kind, group)} "{name}" is invalid: {text}',
        details={
            **_who(name, group, kind),
            "causes": [
                {"reason": f"FieldValue{c.kind}", "message": c.text, "field": c.field}
                for c in causes
            ],
        },
    )


def _qualified(resource: str, group: str) -> str:
    return f"{resource}.{group}" if group else resource


def _who(name: str, group: str, kind: str) -> JsonObject:
    return {
        **({"name": name} if name else {}),
        **({"group": group} if group else {}),
        **({"kind": kind} if kind else {}),
    }
