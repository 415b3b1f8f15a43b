"""How much a program keeps: entries of all containers that can be reached from it."""

from __future__ import annotations

from collections import deque
from typing import Any

_CONTAINERS = (dict, list, set, frozenset, tuple, deque)
_PLAIN = (str, bytes, int, float, bool, type(None), type)


def entries(root: object) -> dict[str, int]:
    """Entries by the attribute (``Class.name``) of the program's object that has the container."""
    seen: set[int] = set()
    found: dict[str, int] = {}
    todo: list[tuple[Any, str]] = [(root, "root")]
    while todo:
        obj, owner = todo.pop()
        if id(obj) in seen or isinstance(obj, _PLAIN):
            continue
        seen.add(id(obj))
        if isinstance(obj, _CONTAINERS):
            found[owner] = found.get(owner, 0) + len(obj)
            items = [*obj.keys(), *obj.values()] if isinstance(obj, dict) else list(obj)
            todo += [(item, owner) for item in items]
        elif type(obj).__module__.startswith("rte."):
            todo += [(value, f"{type(obj).__name__}.{name}") for name, value in _attributes(obj)]
    return found


def _attributes(obj: Any) -> list[tuple[str, Any]]:
    found = list(getattr(obj, "__dict__", {}).items())
    for kind in type(obj).__mro__:
        for name in getattr(kind, "__slots__", ()) or ():
            value = getattr(obj, name, None)
            if value is not None:
                found.append((name, value))
    return found
