"""Something else in the place of a name, for a while: ``package.module:Class.method``."""

from __future__ import annotations

import importlib
import inspect
import textwrap
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable


class NoSuchNameError(Exception):
    """The name is gone: say its new one where it is written."""


def find(path: str) -> tuple[Any, str, Any]:
    """Who has the name, its last part, and what it stands for.

    Raises:
        NoSuchNameError: nothing has that name.
    """
    module, _, inner = path.partition(":")
    try:
        owner: Any = importlib.import_module(module)
        *parts, last = inner.split(".")
        for part in parts:
            owner = getattr(owner, part)
        return owner, last, inspect.getattr_static(owner, last)
    except (ImportError, AttributeError) as error:
        raise NoSuchNameError(f"{path}: there is nothing of that name ({error})") from None


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
