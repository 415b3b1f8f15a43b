"""Writes that stand before a bind: what an object must be, step by step, and how that is undone.

A plugin that has to change objects of the API before its pod may be bound returns such values from
``reserve``. A write is a rule over the object as it is *now*: what to do next, or that nothing is
left to do. So the same value is right after a conflict, a lost answer and a restart. The shell
carries all writes of a decision out side by side (:mod:`rte.scheduler.shell.writer`); when one of
them, or the bind, fails, it asks each of them how to undo what the object has of it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal, NamedTuple, Protocol, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    #: An object as the API shows it; None: it is not there.
    Found: TypeAlias = Mapping[str, Any] | None


class WriteTarget(NamedTuple):
    """Which object: its collection by the name that feeds use; no namespace where it has none."""

    collection: str
    name: str
    namespace: str = ""

    @property
    def key(self) -> str:
        """What identifies it in its collection."""
        return f"{self.namespace}/{self.name}" if self.namespace else self.name


class Step(NamedTuple):
    """One request. ``body`` is the object to create or a merge patch.

    Patches and deletions are for the object that they were made from: the shell adds its UID and
    resourceVersion, and asks for the next step afresh when the API says that it has changed.
    """

    verb: Literal["create", "patch", "delete"]
    body: Mapping[str, Any] = {}
    subresource: str = ""


class Wait(NamedTuple):
    """Somebody else has to change the object first; ``why`` is told when that takes too long."""

    why: str


class Impossible(NamedTuple):
    """The object cannot become what the decision needs: it is undone and the pod decided anew."""

    why: str


class RequiredWrite(Protocol):
    """One object that has to be in a certain state before the pod may be bound."""

    @property
    def target(self) -> WriteTarget:
        """The object."""

    @property
    def known(self) -> Found:
        """As much of the object as :meth:`next` reads, as a watch has shown it."""

    def next(self, found: Found) -> Step | Wait | Impossible | None:
        """What to do about the object as it is; None: it is as it should be."""

    def undo(self, found: Found) -> Step | None:
        """How to take back what the object has of this write; None: nothing of it (any more)."""


class Reserved(NamedTuple):
    """What a decision takes beside the node's room.

    Attributes:
        writes: have to stand before the bind; undone when anything after them fails.
        promise: the plugin's own note, for ``unreserve``.
    """

    writes: Sequence[RequiredWrite] = ()
    promise: Any = None


#: For a pod of which a plugin has nothing to hold.
NOTHING = Reserved()
