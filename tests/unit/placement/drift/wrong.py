"""A wrong rule, planted in all that predicts; simulated kubelets follow the right ones on."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from rte import placement
from rte.placement.drift import case, possible

if TYPE_CHECKING:
    import pytest

    from rte.model.node import NodeState
    from rte.model.pod import Pod

right = placement.admit


def without_reservation(state: NodeState, pod: Pod) -> placement.Admission:
    """Admission with one rule switched off: that reserved CPUs are given to nobody."""
    admission = right(replace(state, reserved=0), pod)
    return replace(admission, state=replace(admission.state, reserved=state.reserved))


def plant(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (placement, case, possible):
        monkeypatch.setattr(module, "admit", without_reservation)
