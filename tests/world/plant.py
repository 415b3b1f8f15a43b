"""What a planted fault is, and how wrong functions are made of right ones."""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tests.world.substitution import Substitutions

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


@dataclass(frozen=True)
class Plant:
    """One planted fault.

    Attributes:
        name: in reports.
        kind: what sort of fault it is.
        path: of what is replaced (:mod:`tests.world.substitution`).
        wrong: makes the wrong one of the right one.
        needs: settings that the world has to have to meet it, beside the usual ones.
        unseen: why the world cannot see it; empty: it is to be found.
    """

    name: str
    kind: str
    path: str
    wrong: Callable[[Any], Any]
    needs: tuple[str, ...] = ()
    unseen: str = ""


@contextmanager
def planted(plant: Plant | None) -> Iterator[None]:
    """While it is there."""
    substitutions = Substitutions()
    if plant is not None:
        substitutions.put_at(plant.path, plant.wrong)
    try:
        yield
    finally:
        substitutions.undo()


def value(new: Any) -> Callable[[Any], Any]:
    """That value instead."""
    return lambda _: new


def nothing(*_args: Any, **_kwargs: Any) -> None:
    """Does nothing."""


def does_nothing(right: Any) -> Any:
    """A function that does nothing."""

    def wrong(*_args: Any, **_kwargs: Any) -> None:
        return None

    return wrong


def answers(answer: Any) -> Callable[[Any], Any]:
    """A function that always gives the same answer."""

    def make(right: Any) -> Any:
        def wrong(*_args: Any, **_kwargs: Any) -> Any:
            return answer

        return wrong

    return make


def unless(is_lost: Callable[..., bool], answer: Any = None) -> Callable[[Any], Any]:
    """A function that does nothing for some arguments."""

    def make(right: Any) -> Any:
        def wrong(*args: Any, **kwargs: Any) -> Any:
            return answer if is_lost(*args, **kwargs) else right(*args, **kwargs)

        return wrong

    return make


def with_result(change: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """A function whose result is changed."""

    def make(right: Any) -> Any:
        def wrong(*args: Any, **kwargs: Any) -> Any:
            return change(right(*args, **kwargs))

        return wrong

    return make


def with_arguments(change: Callable[..., tuple[tuple[Any, ...], dict[str, Any]]]) -> Any:
    """A function whose arguments are changed."""

    def make(right: Any) -> Any:
        def wrong(*args: Any, **kwargs: Any) -> Any:
            args, kwargs = change(*args, **kwargs)
            return right(*args, **kwargs)

        return wrong

    return make


def async_nothing(right: Any) -> Any:
    """A coroutine function that does nothing."""

    async def wrong(*_args: Any, **_kwargs: Any) -> None:
        return None

    return wrong
