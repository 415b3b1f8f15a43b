"""A prediction, what came of it, and what that says."""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import StrEnum
from typing import TYPE_CHECKING

from rte.model.pod import ContainerKind
from rte.placement.drift.outcome import expected_of
from rte.placement.drift.parts import MEMORY, Part, zones_of
from rte.placement.drift.possible import Meanwhile, possible_outcomes
from rte.placement.kubelet.admission import admit, settle, takes_devices_at_start
from rte.placement.kubelet.outcome import (
    SMT_ALIGNMENT_ERROR,
    TOPOLOGY_AFFINITY_ERROR,
    UNEXPECTED_ADMISSION_ERROR,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from rte.model.node import NodeState
    from rte.model.pod import Pod
    from rte.placement.drift.outcome import AdmissionOutcome

#: Reasons by which the resource managers refuse a pod; a pod refused for another one (node totals,
#: host ports, …) had passed them, or did not get to them.
MANAGERS_REASONS = frozenset(
    {TOPOLOGY_AFFINITY_ERROR, SMT_ALIGNMENT_ERROR, UNEXPECTED_ADMISSION_ERROR}
)


class Result(StrEnum):
    """How a prediction came out."""

    EXACT = "exact"  #: all as predicted for what had happened on the node until then
    OTHER_CPUS = "other_cpus"  #: the zones that were predicted, but other CPUs, blocks or devices
    OTHER_ZONE = "other_zone"  #: another zone
    REFUSED = "refused"  #: refused, or for another reason, against all that was possible
    ADMITTED = "admitted"  #: they admitted a pod that they were certain to refuse
    UNCERTAIN = "uncertain"  #: nothing certain was predicted, or what happened is not known

    @property
    def is_difference(self) -> bool:
        """Whether the kubelet does not follow the rules that we have for it."""
        return self not in (Result.EXACT, Result.UNCERTAIN)


@dataclass(frozen=True, kw_only=True)
class Prediction:
    """What was predicted of one admission.

    Attributes:
        before: the last known state without the pod. Who holds something there and is not active
            (the API shows it gone) may hold it still when the pod comes, or not any more.
        pod: with the UID that the kubelet uses.
        expected: None where nothing was: the verdict was ``uncertain``.
    """

    before: NodeState
    pod: Pod
    expected: AdmissionOutcome | None


@dataclass(frozen=True, kw_only=True)
class Case:
    """A prediction and what came of it; ``differences`` are the parts that had to be otherwise."""

    prediction: Prediction
    between: Meanwhile
    got: AdmissionOutcome
    result: Result
    differences: tuple[Part, ...] = ()


def predict(before: NodeState, pod: Pod) -> Prediction:
    """The prediction for a pod that meets this state next, less what inactive pods hold there."""
    settled = settle(before, before.admitted)
    return Prediction(before=before, pod=pod, expected=expected_of(admit(settled, pod), pod.uid))


def judge(
    prediction: Prediction, got: AdmissionOutcome, meanwhile: Callable[[], Meanwhile]
) -> Case:
    """Compare what a pod got with what was predicted for what had happened until its admission.

    Pods in flight may come in another order than they were bound, and a pod that ends just then
    may end before or after: what follows from each order was predicted, and the pod has to get one
    of these. A case with a difference has the nearest as its expectation. ``meanwhile`` is asked
    only where it matters. What a pod's start changes is no difference: ordinary init containers
    give their memory back, and some pods take their devices only then.
    """
    between = Meanwhile()

    def case(result: Result, differences: Iterable[Part] = ()) -> Case:
        return Case(
            prediction=prediction,
            between=between,
            got=got,
            result=result,
            differences=tuple(sorted(differences)),
        )

    expected = prediction.expected
    if expected is None:
        return case(Result.UNCERTAIN)
    unlike = _Unlike(prediction)
    if expected.reason == got.reason and not unlike(expected, got):
        return case(Result.EXACT)
    between = meanwhile()
    possible = possible_outcomes(prediction.before, prediction.pod, between)
    if possible is None:
        return case(Result.UNCERTAIN)
    reasons = {outcome.reason for outcome in possible}
    if got.reason:
        known = Result.EXACT if reasons == {got.reason} else Result.UNCERTAIN
        return case(known if got.reason in reasons else Result.REFUSED)
    admitted = [outcome for outcome in possible if not outcome.reason]
    if not admitted:
        return case(Result.ADMITTED, got.parts)
    unlikes = [unlike(outcome, got) for outcome in admitted]
    if not all(unlikes):
        return case(Result.EXACT)
    prediction = replace(prediction, expected=min(admitted, key=lambda o: len(unlike(o, got))))
    different = set.intersection(*unlikes) or min(unlikes, key=len)
    topology = prediction.before.topology
    moved = any(
        zones_of(topology, got.parts.get(part))
        not in {zones_of(topology, outcome.parts.get(part)) for outcome in admitted}
        for part in different
    )
    return case(Result.OTHER_ZONE if moved else Result.OTHER_CPUS, different)


def replay(case: Case) -> Case:
    """Predict the case anew, by the rules of this program, and judge that."""
    old = case.prediction
    return judge(predict(old.before, old.pod), case.got, lambda: case.between)


def is_explained(case: Case) -> bool:
    """Whether the kubelet did something that may come of the case by the rules of this program."""
    prediction, got = case.prediction, case.got
    possible = possible_outcomes(prediction.before, prediction.pod, case.between)
    if possible is None:
        return False
    unlike = _Unlike(prediction)
    return any(o.reason == got.reason and not unlike(o, got) for o in possible)


class _Unlike:
    """The parts in which two outcomes of one pod differ, but for what its start changes."""

    def __init__(self, prediction: Prediction) -> None:
        before, pod = prediction.before, prediction.pod
        self._lost = {
            Part(box.name, MEMORY) for box in pod.containers if box.kind is ContainerKind.INIT
        }
        self._taken = set()
        if takes_devices_at_start(before, pod):
            self._taken = {Part(box.name, name) for box in pod.containers for name in box.requests}

    def __call__(self, expected: AdmissionOutcome, got: AdmissionOutcome) -> set[Part]:
        ours, theirs = expected.parts, got.parts
        return {
            part
            for part in ours.keys() | theirs.keys()
            if ours.get(part) != theirs.get(part)
            and not (part in self._lost and part not in theirs)
            and not (part in self._taken and part not in ours)
        }
