"""The answer: what each group of a pod gets, as values and as the annotation that records it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from rte.k8s.wire import Condition

#: The zone of pages of which only the node is known: those of pods that NHD has placed.
NO_ZONE = -1

#: For the application. Whoever may patch the pod may write it as well, unless a policy forbids it.
ANNOTATION = "topology.rte.dev/allocation"
#: The condition of the pod whose message is the same text: ``status`` is out of a pod author's
#: reach, so this is what counts.
CONDITION = "topology.rte.dev/Allocated"
VERSION = 1


def recorded(conditions: Iterable[Condition]) -> str:
    """What the scheduler has recorded in a pod's ``status.conditions``, ``""`` = nothing."""
    texts = (it.message for it in conditions if it.type == CONDITION and it.status == "True")
    return next(texts, None) or ""


@dataclass(frozen=True, slots=True)
class GivenNIC:
    """A function and what is held of it, in Mb/s.

    Attributes:
        backup: a second function, which holds the same.
        exclusive: no other pod may hold them.
    """

    address: str
    rx: int
    tx: int
    backup: str | None = None
    exclusive: bool = False

    def addresses(self) -> tuple[str, ...]:
        """The function, and its back-up if it has one."""
        return (self.address, self.backup) if self.backup else (self.address,)


@dataclass(frozen=True, kw_only=True, slots=True)
class GroupAllocation:
    """What one group gets.

    Attributes:
        zone: id of its zone, None without alignment.
        feeders: the CPUs of each GPU; ``gpus`` and ``nics`` likewise belong to the wish in their
            place.
        queues: CPUs for rx and tx of each queue, the same one twice where one serves both.
        pages: size -> zone -> pages.
    """

    name: str
    zone: int | None
    feeders: tuple[tuple[int, ...], ...] = ()
    queues: tuple[tuple[int, int], ...] = ()
    workers: tuple[int, ...] = ()
    helpers: tuple[int, ...] = ()
    gpus: tuple[str, ...] = ()
    nics: tuple[GivenNIC, ...] = ()
    pages: Mapping[str, Mapping[int, int]] = field(default_factory=dict)

    def cpus(self) -> tuple[int, ...]:
        """All of its CPUs, in the order of hand-out."""
        fed = (cpu for cpus in self.feeders for cpu in cpus)
        queued = (cpu for pair in self.queues for cpu in dict.fromkeys(pair))
        return (*fed, *queued, *self.workers, *self.helpers)


@dataclass(frozen=True, kw_only=True, slots=True)
class Allocation:
    """What a pod gets.

    Attributes:
        misc_zone: zone of the misc CPUs, None where they have none or need none.
        pages: size -> zone -> pages of the pod and of groups without alignment.
    """

    groups: tuple[GroupAllocation, ...] = ()
    misc_zone: int | None = None
    misc: tuple[int, ...] = ()
    pages: Mapping[str, Mapping[int, int]] = field(default_factory=dict)

    def document(self) -> dict[str, Any]:
        """The part of the record that says what is given."""
        return {
            "groups": [_group_document(group) for group in self.groups],
            "misc": {"zone": self.misc_zone, "cpus": list(self.misc)},
            "hugepages": _pages_document(self.pages),
        }


def _group_document(group: GroupAllocation) -> dict[str, Any]:
    return {
        "name": group.name,
        "zone": group.zone,
        "cpus": {
            "feeders": [list(cpus) for cpus in group.feeders],
            "queues": [{"rx": rx, "tx": tx} for rx, tx in group.queues],
            "workers": list(group.workers),
            "helpers": list(group.helpers),
        },
        "gpus": list(group.gpus),
        "nics": [
            {"address": nic.address, "rx": nic.rx, "tx": nic.tx}
            | ({"backup": nic.backup} if nic.backup else {})
            | ({"exclusive": True} if nic.exclusive else {})
            for nic in group.nics
        ],
        "hugepages": _pages_document(group.pages),
    }


def _pages_document(pages: Mapping[str, Mapping[int, int]]) -> dict[str, dict[str, int]]:
    return {
        size: {str(zone): count for zone, count in by_zone.items()}
        for size, by_zone in pages.items()
    }
