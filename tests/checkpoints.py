"""Checkpoint files made up for a test, with the checksums that a kubelet would give them."""

from __future__ import annotations

from typing import Any

import msgspec

from rte.kubelet import checkpoints


def sealed(document: dict[str, Any]) -> dict[str, Any]:
    """The document with its checksum; as it is where no kubelet could have written it."""
    try:
        if "Data" in document:
            data = msgspec.convert(document["Data"], checkpoints.DeviceData)
            return document | {"Checksum": data.content_checksum()}
        if "policyName" not in document:
            return document | {"checksum": checkpoints.text_checksum(document["data"])}
        kind = checkpoints.MemoryDocument if "machineState" in document else checkpoints.CPUDocument
        content = msgspec.convert(document, kind)
        with_pods = "podEntries" in document
        return document | {"checksum": content.content_checksum(with_pods=with_pods)}
    except (KeyError, TypeError, ValueError):
        return document


def embedded(document: dict[str, Any]) -> dict[str, Any]:
    """The same content as a kubelet of 1.37 writes it: beside what older ones read."""
    content = {key: value for key, value in document.items() if key != "checksum"}
    data = msgspec.json.encode(content).decode()
    outer = {key: value for key, value in content.items() if key != "podEntries"}
    return sealed(outer) | {"data": data, "dataChecksum": checkpoints.text_checksum(data)}
