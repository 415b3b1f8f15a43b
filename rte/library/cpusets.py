"""Sets of CPUs as values of their own."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from collections.abc import Set as AbstractSet
from typing import TYPE_CHECKING

from rte.model import bits

if TYPE_CHECKING:
    from rte.model.bits import Mask


class CPUSet(AbstractSet[int]):
    """A set of CPU ids: ``CPUSet("0-3,8")``, ``CPUSet([0, 1])``.

    It prints as the kernel writes it, iterates in ascending order, and has Python's operations of
    sets (``in``, ``len``, ``&``, ``|``, ``-``, ``^``, ``<=``); it never changes.

    Args:
        cpus: text in the kernel's list format, ids, or another CPUSet.

    Raises:
        errors.ParseError: text outside the format, or an id that no CPU has.
    """

    __slots__ = ("mask",)

    #: The set as an integer, as :mod:`rte.model.bits` has it.
    mask: Mask

    def __init__(self, cpus: str | Iterable[int] = ()) -> None:
        if isinstance(cpus, CPUSet):
            self.mask = cpus.mask
        elif isinstance(cpus, str):
            self.mask = bits.parse_list(cpus)
        else:
            self.mask = bits.parse_list(",".join(map(str, cpus)))

    @classmethod
    def of_mask(cls, mask: Mask) -> CPUSet:
        """The set with these bits."""
        made = cls()
        made.mask = mask
        return made

    def __contains__(self, cpu: object) -> bool:
        return isinstance(cpu, int) and cpu >= 0 and bool(self.mask >> cpu & 1)

    def __iter__(self) -> Iterator[int]:
        return bits.members(self.mask)

    def __len__(self) -> int:
        return self.mask.bit_count()

    def __hash__(self) -> int:
        return hash(frozenset(self))

    def __str__(self) -> str:
        return bits.format_list(self.mask)

    def __repr__(self) -> str:
        return f"CPUSet({str(self)!r})"
