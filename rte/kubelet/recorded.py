"""Answers of podresources as a file: written by ``rte snapshot``, read back where one is replayed.

Sets of CPUs and zones are lists as the kernel writes them (``0-3,8``), all else is as it came.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Self

import msgspec

from rte import errors
from rte.model import bits
from rte.model.kubelet import Allocatable, DeviceHolding, ListedContainer, ListedPod
from rte.model.node import ClaimedDevice, MemoryBlock
from rte.reader import jsontext

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from rte.reader.json import Json, JsonObject, JsonValue

_SETS = ("cpus", "zones")


@dataclass(frozen=True)
class Recording:
    """Recorded answers, in the place of a podresources client."""

    pods: tuple[ListedPod, ...]
    told: Allocatable | None

    @classmethod
    def parse(cls, text: str) -> Self:
        """Read what :func:`format_answers` wrote.

        Raises:
            errors.ParseError: it is something else.
        """
        try:
            document = jsontext.load(text, "recorded podresources", jsontext.FILE)
            told = document["allocatable"]
            return cls(
                tuple(_pod(item) for item in document["list"]),
                None if told is None else Allocatable(**_fields(told)),
            )
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            raise errors.ParseError("recorded podresources", text, str(error)) from None

    async def list(self) -> tuple[ListedPod, ...]:
        """All pods."""
        return self.pods

    async def allocatable(self) -> Allocatable | None:
        """What could be handed out."""
        return self.told


def format_answers(pods: Iterable[ListedPod], allocatable: Allocatable | None) -> str:
    """The answers as a text that people read too."""
    answers = {"list": list(pods), "allocatable": allocatable}
    return json.dumps(_plain(answers), indent=1) + "\n"


def _plain(value: JsonValue, key: str = "") -> JsonValue:
    if dataclasses.is_dataclass(value):
        value = {item.name: getattr(value, item.name) for item in dataclasses.fields(value)}
    elif isinstance(value, msgspec.Struct):
        value = msgspec.structs.asdict(value)
    if isinstance(value, Mapping):
        # Device ids are keys with a zone set each; fields of ours have names of ours.
        return {
            name: _plain(item, "zones" if key == "devices" else name)
            for name, item in value.items()
        }
    if isinstance(value, (list, tuple)):
        return [_plain(item) for item in value]
    if isinstance(value, int) and key in _SETS:
        return bits.format_list(value)
    return value


def _pod(item: Json) -> ListedPod:
    containers = tuple(ListedContainer(**_fields(each)) for each in item["containers"])
    return ListedPod(**{**_fields(item), "containers": containers})


def _fields(item: Json) -> JsonObject:
    """The fields that pods, containers and allocatable have in common, as values again."""
    known: dict[str, Callable[[JsonValue], JsonValue]] = {
        "cpus": bits.parse_list,
        "memory": lambda blocks: tuple(
            MemoryBlock(each["resource"], bits.parse_list(each["zones"]), each["size"])
            for each in blocks
        ),
        "devices": lambda holdings: tuple(map(_holding, holdings)),
        "claimed": lambda claims: tuple(
            ClaimedDevice(**{**each, "cdi": tuple(each.get("cdi", ()))}) for each in claims
        ),
    }
    return {name: known[name](value) if name in known else value for name, value in item.items()}


def _holding(item: Json) -> DeviceHolding:
    zones = {
        name: None if text is None else bits.parse_list(text)
        for name, text in item["devices"].items()
    }
    return DeviceHolding(item["resource"], zones)
