"""Object metadata: the rules every resource shares (apimachinery ``pkg/api/validation``)."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from rte.sim.apiserver import status
from rte.sim.apiserver.status import Cause

if TYPE_CHECKING:
    from collections.abc import Callable

    from rte.reader.json import JsonObject

_LABEL = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?", re.ASCII)
_SUBDOMAIN = re.compile(
    r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*", re.ASCII
)
_QUALIFIED = re.compile(r"([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]", re.ASCII)
_VALUE = re.compile(r"(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?", re.ASCII)

_SUBDOMAIN_TEXT = (
    "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or "
    "'.', and must start and end with an alphanumeric character (e.g. 'example.com', regex used "
    "for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')"
)
_LABEL_TEXT = (
    "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and "
    "must start and end with an alphanumeric character (e.g. 'my-name',  or '123-abc', regex used "
    "for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?')"
)
_QUALIFIED_TEXT = (
    "name part must consist of alphanumeric characters, '-', '_' or '.', and must start and end "
    "with an alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for "
    "validation is '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')"
)
_PREFIXED_TEXT = (
    "a qualified name must consist of alphanumeric characters, '-', '_' or '.', and must start and "
    "end with an alphanumeric character with an optional DNS subdomain prefix and '/' (e.g. "
    "'example.com/MyName')"
)
_VALUE_TEXT = (
    "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or "
    "'.', and must start and end with an alphanumeric character (e.g. 'MyValue',  or 'my_value',  "
    "or '12345', regex used for validation is '(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')"
)
_TOTAL_ANNOTATIONS = 256 * 1024


def subdomain(text: str) -> list[str]:
    """Complaints about a DNS subdomain name."""
    out = [] if len(text) <= 253 else ["must be no more than 253 bytes"]
    return out if _SUBDOMAIN.fullmatch(text) else [*out, _SUBDOMAIN_TEXT]


def dns_label(text: str) -> list[str]:
    """Complaints about a DNS label."""
    out = [] if len(text) <= 63 else ["must be no more than 63 bytes"]
    return out if _LABEL.fullmatch(text) else [*out, _LABEL_TEXT]


def path_segment(text: str) -> list[str]:
    """Complaints about a name that only has to survive in a URL."""
    if text in (".", ".."):
        return [f"may not be '{text}'"]
    return [f"may not contain '{part}'" for part in ("/", "%") if part in text]


def qualified_name(text: str) -> list[str]:
    """Complaints about ``[prefix/]name`` as labels, annotations and resources use it."""
    prefix, slash, name = text.rpartition("/")
    if text.count("/") > 1:
        return [_PREFIXED_TEXT]
    out: list[str] = []
    if slash:
        out += (
            [f"prefix part {why}" for why in subdomain(prefix)]
            if prefix
            else ["prefix part must be non-empty"]
        )
    if not name:
        out.append("name part must be non-empty")
    elif len(name) > 63:
        out.append("name part must be no more than 63 bytes")
    if not _QUALIFIED.fullmatch(name):
        out.append(_QUALIFIED_TEXT)
    return out


def label_value(text: str) -> list[str]:
    """Complaints about a label's value."""
    out = [] if len(text) <= 63 else ["must be no more than 63 bytes"]
    return out if _VALUE.fullmatch(text) else [*out, _VALUE_TEXT]


def validate(
    metadata: JsonObject, *, namespaced: bool, check_name: Callable[[str], list[str]]
) -> list[Cause]:
    """Rules for create and update alike."""
    out: list[Cause] = []
    generate = metadata.get("generateName", "")
    if generate:
        stem = generate.rstrip("-") or generate
        out += [status.invalid("metadata.generateName", generate, why) for why in check_name(stem)]
    name = metadata.get("name", "")
    if not name:
        out.append(status.required("metadata.name", "name or generateName is required"))
    else:
        out += [status.invalid("metadata.name", name, why) for why in check_name(name)]
    if namespaced and not metadata.get("namespace"):
        out.append(status.required("metadata.namespace"))
    for key, value in (metadata.get("labels") or {}).items():
        out += [status.invalid("metadata.labels", key, why) for why in qualified_name(key)]
        out += [status.invalid("metadata.labels", value, why) for why in label_value(value)]
    annotations = metadata.get("annotations") or {}
    for key in annotations:
        out += [
            status.invalid("metadata.annotations", key, why) for why in qualified_name(key.lower())
        ]
    total = sum(len(key.encode()) + len(value.encode()) for key, value in annotations.items())
    if total > _TOTAL_ANNOTATIONS:
        out.append(
            Cause(
                "metadata.annotations",
                "TooLong",
                f"Too long: may not be more than {_TOTAL_ANNOTATIONS} bytes",
            )
        )
    for index, owner in enumerate(metadata.get("ownerReferences") or ()):
        out += [
            status.invalid(f"metadata.ownerReferences[{index}].{field}", "", "must not be empty")
            for field in ("apiVersion", "kind", "name", "uid")
            if not owner.get(field)
        ]
    for finalizer in metadata.get("finalizers") or ():
        out += [
            status.invalid("metadata.finalizers", finalizer, why)
            for why in qualified_name(finalizer)
        ]
    return out


def validate_update(new: JsonObject, old: JsonObject) -> list[Cause]:
    """What an update may not change."""
    out: list[Cause] = []
    if old.get("deletionTimestamp"):
        added = [f for f in new.get("finalizers") or () if f not in (old.get("finalizers") or ())]
        if added:
            names = ", ".join(f'"{name}"' for name in added)
            out.append(
                status.forbidden(
                    "metadata.finalizers",
                    "no new finalizers can be added if the object is being deleted, "
                    f"found new finalizers []string{{{names}}}",
                )
            )
    out += [
        status.invalid(f"metadata.{field}", new.get(field), "field is immutable")
        for field in (
            "name",
            "namespace",
            "uid",
            "creationTimestamp",
            "deletionTimestamp",
            "deletionGracePeriodSeconds",
        )
        if new.get(field) != old.get(field)
    ]
    return out
