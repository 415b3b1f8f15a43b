"""Other schedulers that place pods with groups, as this one sees them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from rte.placement.groups.allocation import GroupsAllocation
    from rte.placement.groups.inventory import GroupInventory
    from rte.placement.groups.record import Record


class Dialect(Protocol):
    """How another scheduler says what groups pods ask for and hold.

    Attributes:
        ANNOTATION: of a pod, in which the other scheduler writes what the pod holds.
    """

    ANNOTATION: str

    def is_placed(self, scheduler: str, labels: Mapping[str, str]) -> bool:
        """Whether the other one places pods of a scheduler's name on a node with these labels."""

    def held(self, text: str, inventory: GroupInventory) -> GroupsAllocation:
        """What the annotation of such a pod says that it holds.

        Raises:
            errors.RteError: it cannot be read, or names what the node does not have.
        """

    def filler(self, request: str) -> Callable[[Record], str] | None:
        """Makes that annotation for pods of ours that go on reading it; None: these do not.

        Raises:
            RequestError: the request carries something else than the other scheduler's file.
        """
