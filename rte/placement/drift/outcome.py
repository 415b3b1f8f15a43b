"""What comes of an admission, expected or real."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from rte.placement.drift.parts import parts_of
from rte.placement.kubelet.outcome import Verdict

if TYPE_CHECKING:
    from rte.placement.drift.parts import Parts
    from rte.placement.kubelet.outcome import Admission


@dataclass(frozen=True, kw_only=True)
class AdmissionOutcome:
    """What comes of an admission, expected or real: ``parts``, or a refusal for ``reason``."""

    parts: Parts = field(default_factory=dict)
    reason: str = ""


def expected_of(admission: Admission, uid: str) -> AdmissionOutcome | None:
    """What an admission predicts for its pod; None where its verdict is uncertain."""
    if admission.verdict is Verdict.UNCERTAIN:
        return None
    if admission.verdict is Verdict.REFUSED:
        return AdmissionOutcome(reason=admission.reason)
    return AdmissionOutcome(parts=parts_of(admission.state, uid))
