"""Multus' annotation with the network functions that a pod was given, beside what it names itself.

Source: Kubernetes Network Plumbing Working Group, "Network Attachment Definition De-facto
Standard" (version 1.3, §4.1: the short form ``<namespace>/<name>@<interface>``, and JSON).
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from rte import errors
from rte.placement.groups.delivery.template import render
from rte.reader import jsontext

if TYPE_CHECKING:
    from rte.placement.groups.allocation import Record

ANNOTATION = "k8s.v1.cni.cncf.io/networks"


class NetworkError(errors.RteError):
    """The pod's own network annotation cannot be read."""


def selection(template: str, record: Record, existing: str = "") -> str:
    """The annotation for a pod.

    Args:
        template: one element for a function, with ``${address}``, ``${name}``, ``${mac}``,
            ``${pf}`` and ``${rdma}``: the short form, or a JSON object. NHD's is
            ``${name}@${name}``.
        record: what the pod was given; each function and back-up is named once.
        existing: what the pod names itself; it comes first and stays as it is.

    Raises:
        NetworkError: ``existing`` or what the template makes is no network selection.
        TemplateError: a place of the template leads nowhere.
    """
    addresses = [address for group in record.allocation.groups for address in group.functions()]
    own = [
        render(template, {"address": address, **record.devices.get(address, {})})
        for address in dict.fromkeys(addresses)
    ]
    texts = [text for text in (existing.strip(), *own) if text]
    found = [element for text in texts for element in elements(text)]
    if not any(text[0] in "[{" for text in texts):
        return ",".join(texts)
    return json.dumps(found)


def elements(text: str) -> list[dict[str, object]]:
    """The elements of a list in either form, as objects.

    Raises:
        NetworkError: it is no network selection.
    """
    if not text.startswith(("[", "{")):
        return [_long_form(each.strip()) for each in text.split(",") if each.strip()]
    try:
        value = jsontext.load(text, ANNOTATION)
    except errors.MalformedError as error:
        raise NetworkError(f"{ANNOTATION} is no JSON") from error
    found = value if isinstance(value, list) else [value]
    if not all(isinstance(element, dict) and element.get("name") for element in found):
        raise NetworkError(f"{ANNOTATION} must be a list of objects with names")
    return found


def _long_form(text: str) -> dict[str, object]:
    where, _, interface = text.partition("@")
    namespace, _, name = where.rpartition("/")
    if not name or text.endswith(("@", "/")):
        raise NetworkError(f"{ANNOTATION}: {text!r} names no network")
    element: dict[str, object] = {"name": name}
    if namespace:
        element["namespace"] = namespace
    if interface:
        element["interface"] = interface
    return element
