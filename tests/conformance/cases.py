"""Case files of the drift alarm: what a kubelet did must be what may come of it by our rules."""

from __future__ import annotations

import json

from rte.nrt import case as cases
from rte.placement import drift
from rte.placement.drift import wording


def check_rte_case(case: dict) -> list[str]:
    recorded = cases.decode(json.dumps(case)).case
    if drift.is_explained(recorded):
        return []
    replayed = drift.replay(recorded)
    return [f"{replayed.result}: {wording.headline(replayed)}"]
