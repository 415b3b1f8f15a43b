"""What a pod with processing groups would get on a node, and why it gets nothing there."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from rte.placement.groups import explain, holdings
from rte.placement.groups.allocation import devices_of
from rte.placement.groups.explain import FreeInZone, FreeNIC
from rte.scheduler.plugins.groups.rules import ProcessingGroups

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rte.placement.groups.answers import KnownRequest
    from rte.reader.json import Json
    from rte.scheduler.framework.node import NodeEntry
    from rte.scheduler.framework.objects import PodView
    from rte.scheduler.framework.status import Status
    from rte.scheduler.loop.cycle import Cycle
    from rte.scheduler.plugins.groups.books import Books, OnNode

#: So many questions "would it fit without that pod" are asked for one explanation.
MAX_QUESTIONS = 500


@dataclass(frozen=True, kw_only=True)
class GroupsAnswer:
    """One node's answer.

    Attributes:
        gets: what the pod would get, as its allocation annotation says it (``groups``, ``misc``,
            ``hugepages``, ``devices``); empty where it gets nothing.
        free: what the node has left, zone by zone; only where the pod gets nothing.
        would_help: namespace/name of pods with groups, any one of whose end would make a place.
    """

    gets: Json = field(default_factory=dict)
    free: tuple[FreeInZone, ...] = ()
    would_help: tuple[str, ...] = ()


def books_of(cycle: Cycle) -> Books:
    """What the scheduler's rules for processing groups know."""
    return next(p.books for p in cycle.profile.plugins if isinstance(p, ProcessingGroups))


class GroupsExplainer:
    """Explains one pod on one node after the other."""

    def __init__(self, cycle: Cycle, pod: PodView) -> None:
        self._books = books_of(cycle)
        self._wish = self._books.valid(pod.shape)
        self._uid = pod.uid
        self._questions = MAX_QUESTIONS

    def answer(self, entry: NodeEntry, status: Status) -> GroupsAnswer | None:
        """The node's answer; None where groups have no say: no valid request, or other reasons.

        Args:
            entry: the node.
            status: what the scheduler's rules say of the pod there.
        """
        known = self._books.on(entry) if self._wish is not None else None
        if self._wish is None or known is None:
            return None
        if status.groups is not None and not status.reason:
            devices = devices_of(status.groups, known.ground.inventory)
            return GroupsAnswer(gets={**status.groups.document(), "devices": devices})
        if status.plugin != ProcessingGroups.name:
            return None
        return GroupsAnswer(
            free=explain.free(self._books.answers.supply(known.ground)),
            would_help=tuple(self._would_help(self._wish, entry, known)),
        )

    def _would_help(self, wish: KnownRequest, entry: NodeEntry, known: OnNode) -> Iterator[str]:
        allocations = known.held.allocations
        for uid in sorted(allocations.keys() - {self._uid}):
            if uid not in entry.pods or not self._questions:
                continue
            self._questions -= 1
            rest = {each: held for each, held in allocations.items() if each != uid}
            ground = known.ground
            without = self._books.answers.ground(
                ground.inventory, ground.policy, holdings.used_by(rest)
            )
            if self._books.answers.place(wish, without).allocation is not None:
                yield entry.pods[uid].key


def parse_groups(document: Json | None) -> GroupsAnswer | None:
    """Read the JSON of an answer back."""
    if document is None:
        return None
    return GroupsAnswer(
        gets=document["gets"],
        free=tuple(
            FreeInZone(**{**zone, "nics": tuple(FreeNIC(**nic) for nic in zone["nics"])})
            for zone in document["free"]
        ),
        would_help=tuple(document["would_help"]),
    )
