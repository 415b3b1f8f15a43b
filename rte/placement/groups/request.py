"""What a pod asks for, with every default filled in.

``parsing.py`` makes these values from the annotation; rates are whole Mb/s, page sizes are in
Kubernetes' text (``1Gi``).
"""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass, field
from functools import lru_cache
from typing import TYPE_CHECKING, Literal, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

ANNOTATION = "topology.rte.dev/groups"
VERSION = 1

Mapping_: TypeAlias = Literal["numa", "pcie", "none"]
Scope: TypeAlias = Literal["switch", "root"]
SMT: TypeAlias = Literal["share", "isolate"]


@dataclass(frozen=True, kw_only=True, slots=True)
class SMTByKind:
    """An SMT rule for each kind of CPU: then each kind is a class of its own."""

    feeders: SMT = "share"
    queues: SMT = "share"
    workers: SMT = "share"


@dataclass(frozen=True, kw_only=True, slots=True)
class GPUWish:
    """One whole GPU.

    Attributes:
        feeders: CPUs that feed it.
        models: names, one of which the device's model must contain; empty = any device.
        memory_gib: the least memory; 0 = any.
    """

    feeders: int = 0
    models: tuple[str, ...] = ()
    memory_gib: int = 0


@dataclass(frozen=True, kw_only=True, slots=True)
class NICWish:
    """One network function.

    Attributes:
        rx: demand in Mb/s, the group's queues on this entry included; ``tx`` likewise.
        exclusive: no other pod may hold the function.
        redundant: a second function on another port of the card holds the same bandwidth.
        min_mbps: the least speed of the function.
        kind: ``pf`` (also an ordinary function), ``vf`` or ``any``.
        rdma: it must have an RDMA device.
    """

    rx: int = 0
    tx: int = 0
    exclusive: bool = False
    redundant: bool = False
    min_mbps: int = 0
    kind: Literal["any", "pf", "vf"] = "any"
    rdma: bool = False


@dataclass(frozen=True, kw_only=True, slots=True)
class QueueWish:
    """A queue pair: its rates in Mb/s, its CPUs (2 = one for each direction, 1 = one for both).

    Attributes:
        nic: index of the group's ``nics``; None where the group has no NIC.
    """

    rx: int = 0
    tx: int = 0
    cpus: Literal[1, 2] = 2
    nic: int | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class CPUClass:
    """CPUs that share cores with each other only."""

    count: int = 0
    smt: SMT = "share"


@dataclass(frozen=True, kw_only=True, slots=True)
class Misc(CPUClass):
    """The pod's own CPUs; ``mapping`` ``numa`` keeps them in one zone."""

    mapping: Literal["numa", "none"] = "numa"


@dataclass(frozen=True, kw_only=True, slots=True)
class GroupWish:
    """One group, ``count`` written out."""

    name: str
    mapping: Mapping_ = "numa"
    scope: Scope = "switch"
    smt: SMT | SMTByKind = "share"
    gpus: tuple[GPUWish, ...] = ()
    nics: tuple[NICWish, ...] = ()
    queues: tuple[QueueWish, ...] = ()
    workers: int = 0
    helpers: CPUClass = CPUClass()
    hugepages: Mapping[str, int] = field(default_factory=dict, hash=False)

    def all_classes(self) -> list[CPUClass]:
        """Its CPU classes in the order of hand-out, the helpers last, those without CPUs too."""
        feeders = sum(gpu.feeders for gpu in self.gpus)
        queues = sum(queue.cpus for queue in self.queues)
        if isinstance(self.smt, SMTByKind):
            smt = self.smt
            return [
                CPUClass(count=feeders, smt=smt.feeders),
                CPUClass(count=queues, smt=smt.queues),
                CPUClass(count=self.workers, smt=smt.workers),
                self.helpers,
            ]
        return [CPUClass(count=feeders + queues + self.workers, smt=self.smt), self.helpers]

    def classes(self) -> Iterator[CPUClass]:
        """Its CPU classes that have any CPUs."""
        return (wish for wish in self.all_classes() if wish.count)

    def cpu_count(self) -> int:
        """All of its logical CPUs."""
        return sum(wish.count for wish in self.classes())


@dataclass(frozen=True, kw_only=True, slots=True)
class GroupsRequest:
    """The whole annotation.

    Attributes:
        node_groups, cpu_arch: names in ascending order; an architecture ``any`` admits all.
        hugepages: the pod's own pages by size, beside those of the groups.
        strict_pages: they must come from the zones of groups and misc CPUs.
    """

    groups: tuple[GroupWish, ...] = ()
    node_groups: tuple[str, ...] = ("default",)
    cpu_arch: tuple[str, ...] = ("any",)
    hugepages: Mapping[str, int] = field(default_factory=dict, hash=False)
    strict_pages: bool = False
    misc: Misc = Misc()

    def all_pages(self) -> Counter[str]:
        """The pages of the pod and of its groups by size."""
        pages: Counter[str] = Counter(self.hugepages)
        for group in self.groups:
            pages.update(group.hugepages)
        return pages

    @property
    def wants_gpus(self) -> bool:
        """Some group has a GPU."""
        return any(group.gpus for group in self.groups)


_WORD = re.compile(r"[a-z0-9]+", re.ASCII)
#: Words that name another model together with the word before them.
_SUFFIXES = frozenset({"ti", "super", "xt", "xtx"})


@lru_cache(maxsize=1024)
def words(name: str) -> tuple[str, ...]:
    """The words of a model's name, in lower case, suffixes joined to the word before."""
    found: list[str] = []
    for word in _WORD.findall(name.lower()):
        if word in _SUFFIXES and found:
            found[-1] += word
        else:
            found.append(word)
    return tuple(found)


def matches(names: tuple[str, ...], model: str) -> bool:
    """Whether a device of this model is one of the named; no names = every device is."""
    if not names:
        return True
    have = words(model)
    return any(_contains(have, words(name)) for name in names)


def _contains(have: tuple[str, ...], want: tuple[str, ...]) -> bool:
    return any(have[i : i + len(want)] == want for i in range(len(have) - len(want) + 1))
