"""Which CPUs the containers of a pod with groups run on, from the pod's annotations alone."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from rte.model import bits
from rte.placement.groups import allocation, holdings, request
from rte.placement.groups.record import RecordError, parse_record

if TYPE_CHECKING:
    from collections.abc import Mapping

#: A field of the request: the application pins its threads itself.
SELF_PINNED = "x-self-pinned"


def cpus_for(annotations: Mapping[str, str], uid: str, node: str) -> str:
    """All CPUs of the pod, as a list such as ``2-3,18``; empty where it is not to be pinned.

    Args:
        annotations: of the pod. A record of another pod or node counts for nothing, and one that
            cannot be read pins nothing.
        uid: of the pod.
        node: where it runs.
    """
    text = annotations.get(allocation.ANNOTATION)
    if not text or _pins_itself(annotations.get(request.ANNOTATION, "")):
        return ""
    try:
        record = parse_record(text)
    except RecordError:
        return ""
    if not record.holds_for(uid, node):
        return ""
    return bits.format_list(holdings.cpus(record.allocation))


def _pins_itself(text: str) -> bool:
    try:
        document = json.loads(text)
    except (ValueError, RecursionError):
        return False
    return isinstance(document, dict) and document.get(SELF_PINNED) is True
