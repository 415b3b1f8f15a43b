"""What a server fills in whatever else an object says: ``defaults.json``, by Go struct.

Source: the functions ``SetDefaults_*`` of kubernetes ``pkg/apis``. (The published OpenAPI documents
have some twenty of them.) Those that depend on other fields are in :mod:`rte.sim.apiserver.kinds`.
"""

from __future__ import annotations

import copy
from functools import lru_cache
from importlib import resources
from typing import TYPE_CHECKING, NamedTuple

import orjson

from rte.sim.apiserver.schema import typed

if TYPE_CHECKING:
    from rte.sim.apiserver.storage.store import Obj


class _Plan(NamedTuple):
    """What a struct gets itself, and its fields below which there is more: (name, struct)."""

    own: Obj
    below: tuple[tuple[str, str], ...]


@lru_cache(maxsize=1)
def _table() -> dict[str, Obj]:
    text = resources.files(__package__).joinpath("defaults.json").read_bytes()
    loaded: dict[str, Obj] = orjson.loads(text)
    return loaded


@lru_cache(maxsize=1024)
def _plan(struct: str) -> _Plan:
    below = []
    for field in typed.structs()[struct]:
        inner = field.kind.lstrip("*[]")
        if inner in typed.structs() and _table().keys() & _within(inner):
            below.append((field.name, inner))
    return _Plan(_table().get(struct, {}), tuple(below))


@lru_cache(maxsize=1024)
def _within(struct: str) -> frozenset[str]:
    """A struct and all that its fields hold."""
    found, left = {struct}, [struct]
    while left:
        for field in typed.structs()[left.pop()]:
            inner = field.kind.lstrip("*[]{}")
            if inner in typed.structs() and inner not in found:
                found.add(inner)
                left.append(inner)
    return frozenset(found)


def fill(struct: str, obj: Obj) -> None:
    """Fill in, in place, what a decoded object of a type does not say."""
    plan = _plan(struct)
    for name, value in plan.own.items():
        if obj.get(name) in (None, ""):
            obj[name] = copy.copy(value)
    for name, inner in plan.below:
        held = obj.get(name)
        if isinstance(held, list):
            for item in held:
                fill(inner, item)
        elif isinstance(held, dict):
            fill(inner, held)
