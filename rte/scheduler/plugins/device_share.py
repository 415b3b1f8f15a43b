"""DeviceShare: Koordinator's GPUs, RDMA NICs and FPGAs, by its Device objects (pure).

The request is that of Koordinator's users (resources, ``device-joint-allocate``,
``device-allocate-hint``, ``gpu-partition-spec``), the answer its annotation ``device-allocated``,
which its node agent carries out. Off unless asked for.
"""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import orjson

from rte import errors
from rte.placement.koordinator.devices.allocate import allocate_devices
from rte.placement.koordinator.devices.node import read_node_devices
from rte.placement.koordinator.devices.outcome import DeviceRefusal
from rte.placement.koordinator.devices.request import (
    ALLOCATED,
    DeviceRequestError,
    DeviceShareRequest,
    read_device_request,
)
from rte.reader import jsontext
from rte.scheduler.framework.events import Kind
from rte.scheduler.framework.plugin import Annotate, NodeFilter

if TYPE_CHECKING:
    from collections.abc import Mapping

    from rte.placement.koordinator.devices.node import SharedDevices
    from rte.scheduler.framework.node import NodeEntry
    from rte.scheduler.framework.objects import PodView
    from rte.scheduler.framework.shape import Shape
    from rte.scheduler.framework.status import Status

_MOST_SHAPES = 4096
#: Longer annotations are read each time: what is remembered is bounded in bytes as well.
_LONG = 4096


class DeviceShare(NodeFilter, Annotate):
    """``--device-share``: devices chosen together by PCIe switch."""

    name = "DeviceShare"
    about_room = True
    helped_by = Kind.NODE_ADDED | Kind.REPORT | Kind.POD_GONE | Kind.POD_CHANGED

    def __init__(self) -> None:
        self._requests: dict[bytes, DeviceShareRequest | DeviceRequestError | None] = {}

    @staticmethod
    def check(device: Mapping[str, Any]) -> None:
        """Read a Device object as it comes; any error of Python's says that it is malformed."""
        read_node_devices(device)

    def filter_node(self, shape: Shape, node: NodeEntry, status: Status) -> Status:
        """Choose the devices, or refuse a node that has none for the pod."""
        request = self._request(shape)
        if request is None:
            return status
        if isinstance(request, DeviceRequestError):
            return replace(status, reason=str(request))
        devices = self._on(node)
        if devices is None:
            return replace(status, reason="node(s) without a Device object")
        try:
            outcome = allocate_devices(request, devices)
        except DeviceRefusal as refusal:
            return replace(status, reason=refusal.reason, resources=refusal.resolvable)
        return replace(status, devices=orjson.dumps(outcome.document()).decode())

    def annotations(self, pod: PodView, node: NodeEntry, status: Status) -> Mapping[str, str]:  # noqa: ARG002
        """What was chosen."""
        return {ALLOCATED: status.devices} if status.devices else {}

    def _request(self, shape: Shape) -> DeviceShareRequest | DeviceRequestError | None:
        if shape.key not in self._requests:
            if len(self._requests) >= _MOST_SHAPES:
                self._requests.clear()
            self._requests[shape.key] = _read(shape)
        return self._requests[shape.key]

    def _on(self, node: NodeEntry) -> SharedDevices | None:
        if node.koordinator_devices is None:
            return None
        if self.name not in node.derived:
            texts = (pod.annotations.get(ALLOCATED) for pod in node.pods.values() if pod.node)
            held = [_held(text) for text in texts if text]
            labels = node.info.labels if node.info else {}
            node.derived[self.name] = read_node_devices(node.koordinator_devices, held, labels)
        known: SharedDevices = node.derived[self.name]
        return known


def _read(shape: Shape) -> DeviceShareRequest | DeviceRequestError | None:
    amounts = {name: amount for name, amount in shape.totals.items() if "/" in name}
    try:
        return read_device_request(amounts, shape.annotations)
    except DeviceRequestError as error:
        return error


def _held(text: str) -> Mapping[str, Any]:
    """What an annotation says; a malformed one says nothing, as with Koordinator."""
    return _remembered(text) if len(text) <= _LONG else _read_held(text)


def _read_held(text: str) -> Mapping[str, Any]:
    try:
        document: Mapping[str, Any] = jsontext.load(text, ALLOCATED)
        used = read_node_devices({}, [document]).used
    except (errors.RteError, AttributeError, KeyError, TypeError, ValueError):
        return {}
    amounts = (it for minors in used.values() for held in minors.values() for it in held.values())
    return {} if any(amount < 0 for amount in amounts) else document


_remembered = lru_cache(maxsize=16_384)(_read_held)
