"""Finds places for a pod among thousands of nodes: screen, predict in order, score what fits.

Answers are remembered by pod shape and node state, so a shape that comes again costs only the nodes
that changed in between.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple, Protocol

from rte.placement.fleet.screen import Screening
from rte.placement.kubelet.admission import admit, shape_key

if TYPE_CHECKING:
    from collections.abc import Hashable

    from rte.model.node import NodeState
    from rte.model.pod import Pod
    from rte.placement.fleet.screen import NodeTable, Order
    from rte.placement.kubelet.outcome import Admission

#: Shapes whose answers are kept.
MAX_SHAPES = 512


class PlaceScore(Protocol):
    """How good a place is: 0 (worst) to 100, from the node before and after the pod.

    A score must depend on its arguments alone, because it is remembered with the place.
    """

    def __call__(self, pod: Pod, before: NodeState, after: NodeState, /) -> float:
        """The score of one place."""


class AdmittingPlace(NamedTuple):
    """A node that surely admits the pod; ``admission`` is for the pod that was asked about, or for
    an earlier one of the same shape (other UID, same answer).
    """

    node: str
    admission: Admission
    score: float


@dataclass
class _ShapeAnswers:
    """What is known of one shape."""

    screening: Screening
    by_node: dict[str, tuple[NodeState, AdmittingPlace | None]] = field(default_factory=dict)


class Finder:
    """Finds places in a table of nodes.

    Args:
        table: the nodes; the caller keeps it up to date.
        score: of a place.
        order: which nodes are predicted first: the fullest (pack) or the emptiest (spread). Only
            the places found first are compared by score.
    """

    def __init__(self, table: NodeTable, score: PlaceScore, *, order: Order = "fullest") -> None:
        self.table = table
        self.score = score
        self.order = order
        self._shapes: OrderedDict[Hashable, _ShapeAnswers] = OrderedDict()

    def find(self, pod: Pod, count: int = 8) -> list[AdmittingPlace]:
        """Up to ``count`` places, the best score first; equal scores by node name."""
        answers = self._answers(pod)
        places: list[AdmittingPlace] = []
        for name in answers.screening.candidates(self.order):
            place = self._place(answers, name, pod)
            if place is not None:
                places.append(place)
                if len(places) == count:
                    break
        return sorted(places, key=lambda place: (-place.score, place.node))

    def _answers(self, pod: Pod) -> _ShapeAnswers:
        key = shape_key(pod)
        answers = self._shapes.pop(key, None) or _ShapeAnswers(Screening(self.table, pod))
        self._shapes[key] = answers
        if len(self._shapes) > MAX_SHAPES:
            self._shapes.popitem(last=False)
        if len(answers.by_node) > 2 * len(self.table):
            answers.by_node = {
                name: known for name, known in answers.by_node.items() if name in self.table.states
            }
        return answers

    def _place(self, answers: _ShapeAnswers, name: str, pod: Pod) -> AdmittingPlace | None:
        state = self.table.states[name]
        known = answers.by_node.get(name)
        if known is not None and known[0] is state:
            return known[1]
        admission = admit(state, pod)
        place = None
        if admission.admitted:
            place = AdmittingPlace(name, admission, self.score(pod, state, admission.state))
        answers.by_node[name] = state, place
        return place


def find_places(
    table: NodeTable, pod: Pod, score: PlaceScore, count: int = 8
) -> list[AdmittingPlace]:
    """Up to ``count`` places, the best first, remembering nothing (see :class:`Finder`)."""
    return Finder(table, score).find(pod, count)
