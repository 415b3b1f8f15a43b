"""What Koordinator says of a pod (apis/extension in koordinator-sh/koordinator)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from rte import errors
from rte.model import bits
from rte.model.node import KoordletPod
from rte.reader import jsontext

if TYPE_CHECKING:
    from collections.abc import Mapping

_QOS = "koordinator.sh/qosClass"
_STATUS = "scheduling.koordinator.sh/resource-status"


class _ResourceStatus(msgspec.Struct):
    cpuset: str = ""


def koordlet_pod(metadata: Mapping[str, Mapping[str, str] | None]) -> KoordletPod | None:
    """What label and annotation say; None: nothing. Of a malformed annotation nothing counts."""
    qos = (metadata.get("labels") or {}).get(_QOS, "")
    text = (metadata.get("annotations") or {}).get(_STATUS)
    cpus = 0
    if text is not None:
        try:
            cpus = bits.parse_list(jsontext.decode(text, _ResourceStatus, _STATUS).cpuset)
        except errors.ParseError:
            cpus = 0
    return KoordletPod(qos, cpus) if qos or cpus else None
