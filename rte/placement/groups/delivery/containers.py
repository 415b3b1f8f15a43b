"""What the containers of a pod with groups are given, from the pod's annotations alone."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from rte import errors
from rte.model import bits
from rte.placement.groups import allocation, request
from rte.placement.groups.allocation import RecordError, parse_record
from rte.placement.groups.delivery.template import TemplateError, render
from rte.reader import jsontext

if TYPE_CHECKING:
    from collections.abc import Mapping

    from rte.placement.groups.allocation import Record

#: A field of the request: the application pins its threads itself.
SELF_PINNED = "x-self-pinned"

#: ``vendor/class=name`` (Container Device Interface, SPEC.md, "CDI JSON Specification").
_CDI_NAME = re.compile(r"[A-Za-z]([\w.-]*[A-Za-z0-9])?/[A-Za-z][\w-]*=[A-Za-z0-9][\w.:-]*")


class DeviceError(errors.RteError):
    """A GPU that was given has no name by which a container can get it."""


def cpus_for(annotations: Mapping[str, str], uid: str, node: str) -> str:
    """All CPUs of the pod, as a list such as ``2-3,18``; empty where it is not to be pinned.

    Args:
        annotations: of the pod. A record of another pod or node counts for nothing, and one that
            cannot be read pins nothing.
        uid: of the pod.
        node: where it runs.
    """
    record = _own(annotations, uid, node)
    if record is None or _pins_itself(annotations.get(request.ANNOTATION, "")):
        return ""
    return bits.format_list(record.allocation.cpu_mask())


def gpus_for(annotations: Mapping[str, str], uid: str, node: str, template: str) -> tuple[str, ...]:
    """The GPUs of the pod as names of the Container Device Interface, group by group.

    Args:
        annotations: of the pod, as in :func:`cpus_for`.
        uid: of the pod.
        node: where it runs.
        template: a name with ``${uuid}``, ``${index}``, ``${address}`` or ``${model}``; empty: the
            containers get their GPUs by other means.

    Raises:
        DeviceError: what the template makes of a GPU is no such name.
    """
    record = _own(annotations, uid, node) if template else None
    if record is None:
        return ()
    addresses = [address for group in record.allocation.groups for address in group.gpus]
    return tuple(
        device_name(template, {"address": address, **record.devices.get(address, {})})
        for address in addresses
    )


def device_name(template: str, device: Mapping[str, str | int | None]) -> str:
    """The name of a GPU.

    Raises:
        DeviceError: it is no name of the Container Device Interface.
    """
    try:
        name = render(template, dict(device))
    except TemplateError as error:
        raise DeviceError(f"GPU device {template!r}: {error}") from error
    if not _CDI_NAME.fullmatch(name):
        raise DeviceError(
            f"GPU device {template!r}: {name!r} is no name such as nvidia.com/gpu=GPU-5ea1"
        )
    return name


def _own(annotations: Mapping[str, str], uid: str, node: str) -> Record | None:
    """The pod's own record, None where it has none."""
    text = annotations.get(allocation.ANNOTATION)
    if not text:
        return None
    try:
        record = parse_record(text)
    except RecordError:
        return None
    return record if record.holds_for(uid, node) else None


def _pins_itself(text: str) -> bool:
    try:
        document = jsontext.load(text, request.ANNOTATION)
    except errors.MalformedError:
        return False
    return isinstance(document, dict) and document.get(SELF_PINNED) is True
