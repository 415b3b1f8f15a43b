"""Something else in the place of a name, for a while: ``package.module:Class.method``."""

from __future__ import annotations

import importlib
import inspect
import pkgutil
import textwrap
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import ModuleType


class NoSuchNameError(Exception):
    """The name is gone: say its new one where it is written."""


def find(path: str) -> tuple[Any, str, Any]:
    """Who has the name, its last part, and what it stands for.

    A class of another name is taken where it is the only one of the module that defines the last
    part (``*`` says so at once), and a module that has moved is looked for in its package.

    Raises:
        NoSuchNameError: nothing has that name, or several do.
    """
    place, _, inner = path.partition(":")
    anywhere = f"*.{inner.partition('.')[2]}" if "." in inner else inner
    why = ""
    for wanted in dict.fromkeys((inner, anywhere)):
        try:
            return _find_in(importlib.import_module(place), wanted)
        except (ImportError, AttributeError) as error:
            why = why or str(error)
    for wanted in dict.fromkeys((inner, anywhere)):
        found = [one for one in map(_try(wanted), _package_of(place)) if one is not None]
        owners = {id(one[0]): one for one in found}
        if len(owners) == 1:
            return next(iter(owners.values()))
        why += f"; {len(owners)} of its package have {wanted}"
    raise NoSuchNameError(f"{path}: there is nothing of that name ({why})")


def _find_in(module: ModuleType, inner: str) -> tuple[Any, str, Any]:
    *parts, last = inner.split(".")
    owner: Any = module
    for part in parts:
        owner = _only_class(module, last) if part == "*" else getattr(owner, part)
    if not parts and getattr(inspect.getattr_static(owner, last), "__module__", None) not in (
        None,
        module.__name__,
    ):
        raise AttributeError(f"{last} is only imported by {module.__name__}")
    return owner, last, inspect.getattr_static(owner, last)


def _only_class(module: ModuleType, name: str) -> type:
    having = [
        one
        for one in vars(module).values()
        if isinstance(one, type) and one.__module__ == module.__name__ and name in vars(one)
    ]
    if len(having) != 1:
        raise AttributeError(f"{len(having)} classes of {module.__name__} define {name}")
    return having[0]


def _try(inner: str) -> Callable[[ModuleType], tuple[Any, str, Any] | None]:
    def find_there(module: ModuleType) -> tuple[Any, str, Any] | None:
        try:
            owner, last, value = _find_in(module, inner)
        except AttributeError:
            return None
        here = owner is module or owner.__module__ == module.__name__
        return (owner, last, value) if here else None

    return find_there


def _package_of(place: str) -> list[ModuleType]:
    """All modules of the package one below the root."""
    package = importlib.import_module(".".join(place.split(".")[:2]))
    names = pkgutil.walk_packages(package.__path__, f"{package.__name__}.")
    return [importlib.import_module(one.name) for one in names if "_pb" not in one.name]


def edited(old: str, new: str) -> Callable[[Any], Any]:
    """A function with one piece of its text replaced by another.

    Raises:
        NoSuchNameError: its text has no such piece, or several.
    """

    def edit(function: Any) -> Any:
        plain = inspect.unwrap(getattr(function, "__func__", function))
        text = textwrap.dedent(inspect.getsource(plain))
        if text.count(old) != 1:
            raise NoSuchNameError(f"{plain.__qualname__}: {old!r} is there {text.count(old)} times")
        space: dict[str, Any] = {}
        code = compile(
            f"from __future__ import annotations\n{text.replace(old, new)}", "<planted>", "exec"
        )
        exec(code, plain.__globals__, space)
        made = space[plain.__name__]
        return type(function)(made) if isinstance(function, staticmethod | classmethod) else made

    return edit


class Substitutions:
    """What was put in place of what; :meth:`undo` puts all of it back."""

    def __init__(self) -> None:
        self._before: list[tuple[Any, str, Any, bool]] = []

    def put(self, owner: Any, name: str, value: Any) -> None:
        """``owner.name`` is ``value`` from now on."""
        own = name in vars(owner)
        before = vars(owner)[name] if own else None
        self._before.append((owner, name, before, own))
        setattr(owner, name, value)

    def put_at(self, path: str, make: Callable[[Any], Any]) -> None:
        """In the place of a path stands what is made of what stood there."""
        owner, name, value = find(path)
        self.put(owner, name, make(value))

    def undo(self) -> None:
        """As before."""
        while self._before:
            owner, name, value, own = self._before.pop()
            if own:
                setattr(owner, name, value)
            else:
                delattr(owner, name)
