"""Whether a kubelet did with a pod what was predicted: CPU by CPU, block by block.

The rules of prediction are those of kubelets whose source was read. One that behaves otherwise (a
back-port, a patched build, a fault of ours) shows itself by an admission that differs from its
prediction. Pods in flight may be admitted in another order than they were bound, pods may have
ended in between, and which device of a class the kubelet picks is its own affair: every order of
what is known to have happened between the last state without the pod and its admission is played
(:func:`possible_outcomes`), and what the pod got has to be one of these outcomes. Where something
unknown happened, or more than is played, the result is ``uncertain``.
"""

from rte.placement.drift.case import (
    MANAGERS_REASONS,
    Case,
    Prediction,
    Result,
    is_explained,
    judge,
    predict,
    replay,
)
from rte.placement.drift.outcome import AdmissionOutcome, expected_of
from rte.placement.drift.parts import Held, Part, Parts, parts_of
from rte.placement.drift.possible import Meanwhile, meanwhile, possible_outcomes

__all__ = [
    "MANAGERS_REASONS",
    "AdmissionOutcome",
    "Case",
    "Held",
    "Meanwhile",
    "Part",
    "Parts",
    "Prediction",
    "Result",
    "expected_of",
    "is_explained",
    "judge",
    "meanwhile",
    "parts_of",
    "possible_outcomes",
    "predict",
    "replay",
]
