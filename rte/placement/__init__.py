"""Predicts the kubelet's admission and scores places (pure).

The public names are here; docs/placement.md shows them at work.
"""

from rte.placement.inflight.futures import (
    certain_under_endings,
    fit_together,
    fits_under_every_outcome,
    is_monotone,
    outcomes,
)
from rte.placement.kubelet.admission import (
    admit,
    execute,
    possible_states,
    remove,
    settle,
    start,
    start_containers,
)
from rte.placement.kubelet.outcome import Admission, Hint, Merge, Start, Verdict
from rte.placement.kubelet.restart import PredictedRestart, in_its_way, restart
from rte.placement.kubelet.startup import initial_state

__all__ = [
    "Admission",
    "Hint",
    "Merge",
    "PredictedRestart",
    "Start",
    "Verdict",
    "admit",
    "certain_under_endings",
    "execute",
    "fit_together",
    "fits_under_every_outcome",
    "in_its_way",
    "initial_state",
    "is_monotone",
    "outcomes",
    "possible_states",
    "remove",
    "restart",
    "settle",
    "start",
    "start_containers",
]
