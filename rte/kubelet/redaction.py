"""Takes out of a kubelet's files what is private, so that they still read back as sound files.

Names of namespaces, pods and containers become numbers, and hardware ids (MAC addresses, UUIDs of
GPUs) too, each the same one wherever it stands. UIDs are random and stay: they tie files together.
"""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING

import msgspec

from rte import errors
from rte.kubelet import checkpoints, statefiles
from rte.reader import jsontext

if TYPE_CHECKING:
    from collections.abc import Callable

    from rte.reader.json import JsonObject

#: Ethernet and InfiniBand addresses; UUIDs as NVIDIA writes them.
_ADDRESS = re.compile(r"\b(?:[0-9a-fA-F]{2}:){5,}[0-9a-fA-F]{2}\b")
_DEVICE = re.compile(
    r"\b(GPU|MIG)-[0-9a-fA-F]{8}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{12}\b"
)


def without_responses(text: str) -> str:
    """The device checkpoint without what plugins told the runtime, which may hold anything.

    Raises:
        errors.ParseError: it is no device checkpoint.
    """

    def drop(document: JsonObject) -> None:
        for entry in document["Data"]["PodDeviceEntries"] or ():
            entry["AllocResp"] = ""

    return _changed(text, statefiles.DEVICE_CHECKPOINT, drop)


class Redaction:
    """Numbers for names; one for all files of a node."""

    def __init__(self) -> None:
        self._numbers: dict[str, dict[str, str]] = {}

    def text(self, text: str) -> str:
        """Any text, without hardware ids."""
        text = _ADDRESS.sub(lambda found: self._address(found[0].lower()), text)
        return _DEVICE.sub(lambda found: self._name(found[1], found[0].lower()), text)

    def file(self, name: str, text: str) -> str:
        """A file of the kubelet's directory, or the recorded answers, by name.

        Raises:
            errors.ParseError: a state file is not what its name says.
        """
        change = {
            statefiles.CPU_STATE: self._state,
            statefiles.MEMORY_STATE: self._state,
            statefiles.ALLOCATED_PODS: self._allocated,
            statefiles.DEVICE_CHECKPOINT: self._devices,
            "podresources.json": self._answers,
        }.get(name)
        text = self.text(text)
        return _changed(text, name, change) if change else text

    def _name(self, kind: str, name: str) -> str:
        numbers = self._numbers.setdefault(kind, {})
        return numbers.setdefault(name, f"{kind}-{len(numbers) + 1}")

    def _address(self, address: str) -> str:
        numbers = self._numbers.setdefault("address", {})
        fresh = f"02:00:00:00:{len(numbers) // 256 % 256:02x}:{len(numbers) % 256:02x}"
        return numbers.setdefault(address, fresh)

    def _containers(self, table: JsonObject | None) -> JsonObject | None:
        return table and {self._name("container", name): value for name, value in table.items()}

    def _state(self, document: JsonObject) -> None:
        if document.get("entries"):
            document["entries"] = {
                uid: self._containers(held) for uid, held in document["entries"].items()
            }
        if document.get("data"):
            inner = jsontext.load(document["data"], "data", jsontext.FILE)
            self._state(inner)
            document["data"] = json.dumps(inner)

    def _allocated(self, document: JsonObject) -> None:
        inner = jsontext.load(document["data"], "data", jsontext.FILE)
        for entry in (inner.get("entries") or {}).values():
            if entry and entry.get("ContainerResources"):
                entry["ContainerResources"] = self._containers(entry["ContainerResources"])
        document["data"] = json.dumps(inner)

    def _devices(self, document: JsonObject) -> None:
        for entry in document["Data"]["PodDeviceEntries"] or ():
            entry["ContainerName"] = self._name("container", entry["ContainerName"])

    def _answers(self, document: JsonObject) -> None:
        for pod in document["list"]:
            pod["name"] = self._name("pod", f"{pod['namespace']}/{pod['name']}")
            pod["namespace"] = self._name("namespace", pod["namespace"])
            for container in pod["containers"]:
                container["name"] = self._name("container", container["name"])
                for claimed in container.get("claimed") or ():
                    claimed["namespace"] = pod["namespace"]
                    claimed["claim"] = self._name("claim", claimed["claim"])
                    claimed["cdi"] = []


def _changed(text: str, what: str, change: Callable[[JsonObject], None]) -> str:
    try:
        document = jsontext.load(text, what, jsontext.FILE)
        change(document)
        return json.dumps(_sealed(document))
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise errors.ParseError(what, text, str(error)) from None


def _sealed(document: JsonObject) -> JsonObject:
    """The document with the checksums that a kubelet gives it."""
    if "list" in document:  # recorded answers have none
        return document
    if "Data" in document:
        data = msgspec.convert(document["Data"], checkpoints.DeviceData)
        return document | {"Checksum": data.content_checksum()}
    if "policyName" not in document:
        return document | {"checksum": checkpoints.text_checksum(document["data"])}
    content: checkpoints.MemoryDocument | checkpoints.CPUDocument
    if "machineState" in document:
        content = msgspec.convert(document, checkpoints.MemoryDocument)
    else:
        content = msgspec.convert(document, checkpoints.CPUDocument)
    checksum = content.content_checksum(with_pods="podEntries" in document)
    sealed = document | {"checksum": checksum}
    if document.get("data"):
        sealed["dataChecksum"] = checkpoints.text_checksum(document["data"])
    return sealed
