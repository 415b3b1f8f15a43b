"""What is known of pods' requests and of nodes, for the rules of processing groups (pure).

What is made of a node is kept on its entry until the entry changes, so it always follows from what
the API shows and from our own decisions.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING

from rte import errors
from rte.model import quantity
from rte.placement.groups import allocation, facts, holdings, request
from rte.placement.groups.answers import KnownPlaces
from rte.placement.groups.document import RequestError
from rte.placement.groups.holdings import GroupHolder, GroupHoldings, held_by
from rte.placement.groups.parsing import check_pages, parse_request

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from rte.placement.groups.allocation import Record
    from rte.placement.groups.answers import GroupGround, KnownRequest
    from rte.placement.groups.holdings import Dialect
    from rte.placement.groups.inventory import GroupNodeFacts
    from rte.placement.groups.policies import Policies
    from rte.placement.groups.request import GroupsRequest
    from rte.scheduler.framework.node import NodeEntry
    from rte.scheduler.framework.objects import PodView
    from rte.scheduler.framework.shape import Shape

_DERIVED = "ProcessingGroups"
_HUGEPAGES = "hugepages-"
_MOST_SHAPES = 4096


@dataclass(frozen=True, slots=True)
class OnNode:
    """A node as processing groups see it.

    Attributes:
        kept: a pod that it makes room for does not fit yet: nobody else gets what comes free.
    """

    ground: GroupGround
    facts: GroupNodeFacts
    held: GroupHoldings
    kept: bool = False


class Books:
    """Requests by shape, nodes by entry, and the answers that were given before."""

    def __init__(self, policies: Policies, dialects: Sequence[Dialect] = ()) -> None:
        self._dialects = dialects
        self.policies = policies
        self.answers = KnownPlaces()
        self._wishes: dict[bytes, KnownRequest | RequestError] = {}
        self._fillers: dict[bytes, dict[str, Callable[[Record], str]]] = {}

    def wish(self, shape: Shape) -> KnownRequest | RequestError | None:
        """What pods of the shape ask for, or what is wrong with it; None: they ask for nothing."""
        text = shape.annotations.get(request.ANNOTATION)
        if text is None:
            return None
        known = self._wishes.get(shape.key)
        if known is None:
            if len(self._wishes) >= _MOST_SHAPES:
                self._wishes.clear()
                self._fillers.clear()
            try:
                known = self.answers.wish(_request(text, shape))
                self._fillers[shape.key] = {
                    dialect.ANNOTATION: filler
                    for dialect in self._dialects
                    if (filler := dialect.filler(text)) is not None
                }
            except RequestError as error:
                known = error
            self._wishes[shape.key] = known
        return known

    def valid(self, shape: Shape) -> KnownRequest | None:
        """What pods of the shape ask for; None also where that is invalid."""
        wish = self.wish(shape)
        return None if isinstance(wish, RequestError) else wish

    def fillers(self, shape: Shape) -> Mapping[str, Callable[[Record], str]]:
        """What makes annotations of other schedulers that pods of the shape go on reading."""
        return self._fillers.get(shape.key, {}) if self.valid(shape) is not None else {}

    def on(self, entry: NodeEntry) -> OnNode | None:
        """The node; None where its agent publishes no inventory."""
        if _DERIVED not in entry.derived:
            entry.derived[_DERIVED] = self._read(entry)
        known: OnNode | None = entry.derived[_DERIVED]
        return known

    def _read(self, entry: NodeEntry) -> OnNode | None:
        published = entry.report.inventory if entry.report else None
        if published is None or entry.info is None:
            return None
        labels = entry.info.labels
        held = held_by(
            (self.holder(pod, labels) for pod in entry.pods.values() if pod.node),
            published.inventory,
        )
        known = OnNode(
            ground=self.answers.ground(
                published.inventory, self.policies.of(labels), holdings.used_by(held.allocations)
            ),
            facts=facts.node_facts(
                labels, unschedulable=entry.info.unschedulable, cpu_arch=published.cpu_arch
            ),
            held=held,
        )
        for pod in entry.pods.values():
            # Pods that the node makes room for have no allocation yet: they get theirs first.
            if not pod.node:
                known = self._beside(known, pod)
        return known

    def _beside(self, known: OnNode, pod: PodView) -> OnNode:
        """The node with what a pod would get there held as well."""
        wish = self.valid(pod.shape)
        if wish is None:
            return known
        given = self.answers.place(wish, known.ground).allocation
        if given is None:
            return replace(known, kept=True)
        allocations = {**known.held.allocations, pod.uid: given}
        ground = known.ground
        used = holdings.used_by(allocations)
        return replace(
            known,
            ground=self.answers.ground(ground.inventory, ground.policy, used),
            held=replace(known.held, allocations=allocations),
        )

    def holds(self, pod: PodView, entry: NodeEntry) -> bool:
        """Whether a pod holds, or held, anything of a node."""
        known = self.on(entry)
        if known is None or entry.info is None:
            return False
        holder = self.holder(pod, entry.info.labels)
        return bool(held_by((holder,), known.ground.inventory).allocations)

    def holder(self, pod: PodView, labels: Mapping[str, str]) -> GroupHolder:
        """What tells what a pod holds on a node with these labels."""
        annotation = pod.annotations.get(allocation.ANNOTATION, "")
        wish = self.valid(pod.shape) if annotation and not pod.recorded else None
        placed = (it for it in self._dialects if it.is_placed(pod.scheduler, labels))
        told = ((it, pod.annotations.get(it.ANNOTATION, "")) for it in placed)
        return GroupHolder(
            uid=pod.uid,
            node=pod.node,
            recorded=pod.recorded,
            annotation=annotation,
            request=wish.request if wish else None,
            adopts=next((partial(it.held, text) for it, text in told if text), None),
        )


def _request(text: str, shape: Shape) -> GroupsRequest:
    """The request, checked against the huge pages that the containers ask for.

    Raises:
        RequestError: it is invalid.
    """
    found = parse_request(text)
    sizes = [name.removeprefix(_HUGEPAGES) for name in shape.totals if name.startswith(_HUGEPAGES)]
    check_pages(
        found, {size: shape.totals[_HUGEPAGES + size] // _page_bytes(size) for size in sizes}
    )
    return found


def _page_bytes(size: str) -> int:
    try:
        page = quantity.parse(size)
    except errors.ParseError:
        page = 0
    if page <= 0:
        raise RequestError("mismatch", f"hugepages.{size}", "is no size of pages")
    return page
