"""What may have happened before an admission, and everything that may come of it."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import permutations
from typing import TYPE_CHECKING, TypeAlias

from rte.placement.drift.outcome import AdmissionOutcome, expected_of
from rte.placement.drift.parts import parts_of
from rte.placement.kubelet.admission import admit, possible_states, remove, start
from rte.placement.kubelet.outcome import Verdict

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence

    from rte.model.node import NodeState
    from rte.model.pod import Pod

#: Things that may have happened in any order, up to which all orders are tried.
MOST_EVENTS = 3
#: Outcomes that are told apart; with more of them nothing is certain.
MOST_OUTCOMES = 64

#: What no admission and no ending changes; where it has changed, predictions are void.
_UNCHANGING = ("epoch", "kubelet_version", "config", "reserved", "topology", "devices")


@dataclass(frozen=True, kw_only=True)
class Meanwhile:
    """What may have happened between ``before`` and the pod's admission, in any order.

    Attributes:
        admitted: pods that came to the managers.
        ended: UIDs of pods in ``before`` that have ended.
        started: pods in ``before`` whose init containers gave their memory back.
        unknown: something else, not known in detail; then nothing is certain.
    """

    admitted: tuple[Pod, ...] = ()
    ended: tuple[str, ...] = ()
    started: tuple[Pod, ...] = ()
    unknown: bool = False


def meanwhile(
    before: NodeState,
    after: NodeState,
    uid: str,
    pods: Mapping[str, Pod],
    ended: Collection[str] = (),
) -> Meanwhile:
    """What may have happened before the pod came to the managers, told from the states around it.

    Args:
        before: the last state without the pod.
        after: the first state with it, or after its refusal.
        uid: of the pod.
        pods: what is known of other pods, by the kubelet's UID.
        ended: UIDs of pods that have ended between the two, besides those that the states tell.
    """
    if any(getattr(before, name) != getattr(after, name) for name in _UNCHANGING):
        return Meanwhile(unknown=True)
    held, holding = _holders(before), _holders(after)
    came = sorted(holding - held - {uid})
    gone = sorted((held - holding) | held.intersection(ended))
    changed = [
        other
        for other in sorted((held & holding).difference(gone))
        if parts_of(before, other) != parts_of(after, other)
    ]
    started = [
        other
        for other in changed
        if other in pods and parts_of(start(before, pods[other]), other) == parts_of(after, other)
    ]
    return Meanwhile(
        admitted=tuple(pods[other] for other in came if other in pods),
        ended=tuple(gone),
        started=tuple(pods[other] for other in started),
        unknown=started != changed or not pods.keys() >= set(came) or not held.issuperset(ended),
    )


def possible_outcomes(
    before: NodeState, pod: Pod, between: Meanwhile
) -> tuple[AdmissionOutcome, ...] | None:
    """Everything that may come of the pod's admission; None where that cannot be told.

    Plays every order of what happened meanwhile, also with some of it only after the pod.
    """
    if between.unknown:
        return None
    events: list[_Event] = [
        *(_ending(uid) for uid in between.ended),
        *(_starting(other) for other in between.started),
        *(_admission(other) for other in between.admitted),
    ]
    if len(events) > MOST_EVENTS:
        return None
    found: list[AdmissionOutcome] = []
    for count in range(len(events) + 1):
        for order in permutations(events, count):
            for state in _play(before, order):
                outcomes = None if state is None else _outcomes(state, pod)
                if outcomes is None:
                    return None
                found += [outcome for outcome in outcomes if outcome not in found]
                if len(found) > MOST_OUTCOMES:
                    return None
    return tuple(found)


# What may happen: from one state to those that may follow, None where that is not known.

_Event: TypeAlias = "Callable[[NodeState], Sequence[NodeState] | None]"


def _ending(uid: str) -> _Event:
    return lambda state: (remove(state, uid),)


def _starting(pod: Pod) -> _Event:
    return lambda state: (start(state, pod),)


def _admission(pod: Pod) -> _Event:
    def happen(state: NodeState) -> Sequence[NodeState] | None:
        admission = admit(state, pod)
        if admission.verdict is Verdict.UNCERTAIN:
            return None
        if admission.verdict is Verdict.REFUSED:
            return (state,)  # what it holds is gone at the next admission
        return possible_states(state, pod)

    return happen


def _play(before: NodeState, order: Iterable[_Event]) -> Iterator[NodeState | None]:
    """The states after the events; None among them for one that is not known."""
    states: list[NodeState] = [before]
    for event in order:
        after: list[NodeState] = []
        for state in states:
            following = event(state)
            if following is None or len(after) + len(following) > MOST_OUTCOMES:
                yield None
                return
            after += following
        states = after
    yield from states


def _outcomes(state: NodeState, pod: Pod) -> list[AdmissionOutcome] | None:
    admission = admit(state, pod)
    expected = expected_of(admission, pod.uid)
    if expected is None or not admission.admitted or admission.exact:
        return None if expected is None else [expected]
    states = possible_states(state, pod)
    if states is None:
        return None
    return [AdmissionOutcome(parts=parts_of(after, pod.uid)) for after in states]


def _holders(state: NodeState) -> set[str]:
    return {uid for uid in (*state.holdings, *state.pod_holdings) if parts_of(state, uid)}
