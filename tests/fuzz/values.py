"""What stands where something else was meant: texts, numbers and documents that nobody expects."""

# ruff: noqa: E501 - documents read best in one line

from __future__ import annotations

import ast
import copy
import json
import re
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import rte

if TYPE_CHECKING:
    import random

_KEY = re.compile(r"[a-z0-9]([-a-z0-9]*\.)+[a-z]{2,}/[A-Za-z0-9][-A-Za-z0-9_.]{0,62}")

#: In documents of annotations.
ODD: tuple[Any, ...] = (
    None, True, 0, 1, -1, 2**31, 2**63 - 1, 2**63, -(2**63), 10**30, 1.5, "", "x", "0-65535", "65535",
    "0-3,1-2", "-1", "9" * 50, "1e400", "\x00", "node-999999999", [], {}, [[]], [None], {"a": {}},
    {"0": {"1Gi": 10**30}}, ["0"] * 50, "0x65536", "8Ei", "1e-400",
)  # fmt: skip

#: As whole annotations, deeper than a parser can follow, and deeper than anybody means.
DEEP = ("[" * 2000 + "]" * 2000, '{"a":' * 1500 + "1" + "}" * 1500, "[" * 100 + "]" * 100)

#: As whole annotations.
TEXTS: tuple[str, ...] = (
    "", "x", "9" * 5000, "1e999999999999999999999",
    '{"version":1,"groups":[{"name":"m","workers":1e9999999999999999999999}]}',
    '{"version":1,"groups":[{"name":"m","queues":[{"rx":1e-999999999,"tx":1}]}]}',
    '{"a":"\\ud800"}', "null", "true", "[]", "{}", '"x"', "NaN", "-0", "[" + "1," * 20000 + "1]", "{" * 500,
)  # fmt: skip

#: Of resources: all are valid for the API server.
QUANTITIES = (
    "0",
    "1",
    "1m",
    "1500m",
    "8Ei",
    "9223372036854775807",
    "1e18",
    "1Gi",
    "7",
    "1n",
    "500Mi",
)

#: Of integers.
NUMBERS = (0, 1, 2, 7, 100, 65535, 2**31 - 1)


@cache
def keys() -> tuple[str, ...]:
    """Every annotation and label that rte's code names."""
    found: set[str] = set()
    for path in Path(rte.__file__).parent.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Constant) and isinstance(node.value, str):
                found |= {node.value} if _KEY.fullmatch(node.value) else set()
    return tuple(sorted(found))


def places(value: Any) -> list[tuple[Any, Any]]:
    """Every (container, key) in a JSON value."""
    found: list[tuple[Any, Any]] = []
    if not isinstance(value, dict | list):
        return found
    items = value.items() if isinstance(value, dict) else enumerate(value)
    for key, inner in items:
        found.append((value, key))
        if isinstance(inner, dict | list):
            found += places(inner)
    return found


def damaged(rng: random.Random, good: Any) -> Any:
    """A JSON value of which some parts are others, lacking, or there several times."""
    out = copy.deepcopy(good)
    for _ in range(rng.choice((1, 1, 1, 2, 4))):
        found = places(out)
        if not found:
            break
        where, key = rng.choice(found)
        mood = rng.random()
        if mood < 0.6:
            where[key] = copy.deepcopy(rng.choice(ODD))
        elif mood < 0.8:
            del where[key]
        elif isinstance(where, list):
            where.extend(copy.deepcopy([where[key]] * rng.choice((1, 3, 300))))
        else:
            name = rng.choice(["0", "1", "x", "65535", "cpu", "memory", "-1"])
            where[name] = copy.deepcopy(where[key])
    return out


def varied(rng: random.Random, good: Any) -> Any:
    """As :func:`damaged`, of the same types: what an API server's schema lets through."""
    out = copy.deepcopy(good)
    for _ in range(rng.choice((1, 1, 2, 3))):
        found = places(out)
        if not found:
            break
        where, key = rng.choice(found)
        value = where[key]
        if isinstance(value, bool):
            where[key] = not value
        elif isinstance(value, int):
            where[key] = rng.choice(NUMBERS)
        elif isinstance(value, str):
            where[key] = (
                rng.choice(QUANTITIES)
                if value[:1].isdigit()
                else rng.choice(("x", "a.b/c", "y" * 63))
            )
        elif isinstance(where, list):
            where.extend(copy.deepcopy([value] * rng.choice((1, 20))))
        elif isinstance(value, list) and rng.random() < 0.5:
            where[key] = []
    return out


def text(good: Any) -> str:
    """What stands in an annotation."""
    return good if isinstance(good, str) else json.dumps(good)


def document(rng: random.Random, good: Any) -> str:
    """The text of an annotation: a document that is damaged, cut off, or none at all."""
    mood = rng.random()
    if mood < 0.05:
        return rng.choice(DEEP)
    if mood < 0.25:
        return rng.choice(TEXTS)
    told = text(good if isinstance(good, str) else damaged(rng, good))
    if rng.random() < 0.15 and told:
        at = rng.randrange(len(told))
        told = rng.choice((told[:at], told[:at] + told[at + 1 :], told[:at] + "}" + told[at:]))
    return told
