"""Recorded restarts of the real kubelet's packages: admission cases that go on after the end."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from rte import placement
from rte.model.node import Holding
from rte.placement.kubelet import outcome
from tests.conformance.kubelet import STEP_FIELDS, Replay, replay

if TYPE_CHECKING:
    from rte.model.node import NodeState

RESTART_FIELDS = {"start_error", "shared", "mem", "steps"}


def check_kubelet_restart(case: dict) -> list[str]:
    recorded = case["restart"]
    sequence, found = replay({name: case[name] for name in case.keys() - {"restart"}})
    if sequence is None or found:
        return found
    found.known("restart", recorded, RESTART_FIELDS)
    again = placement.restart(files_of(sequence), sequence.active.values())
    found.compare("start_error", again.start_error, recorded.get("start_error", ""))
    if again.start_error:
        return found
    found.compare("shared", sequence.shared(again.started), recorded.get("shared"))
    found.compare("mem", sequence.mem(again.started), recorded.get("mem", []))
    sequence.last_mem = sequence.mem(again.started)
    readmitted = [step["pod"] for step in recorded["steps"]]
    found.compare("restart", list(again.admissions)[: len(readmitted)], readmitted)
    for step in recorded["steps"]:
        where = f"restart ({step['pod']})"
        found.known(where, step, STEP_FIELDS)
        answer = again.admissions[step["pod"]]
        if step.get("hang"):
            found.compare(f"{where} hang", answer.reason, outcome.KUBELET_HANGS)
            break
        sequence.answer(where, answer, sequence.active[step["pod"]], step)
        # Nothing is cleaned up between the admissions.
        sequence.state = answer.state
        sequence.compare_state(where, step)
    return found


def files_of(sequence: Replay) -> NodeState:
    """What the kubelet reads back: also devices of pods that are gone, where its file is old."""
    stale = {
        uid: {name: Holding(devices=holding.devices) for name, holding in held.items()}
        for uid, held in sequence.devices_on_file.items()
        if uid not in sequence.active
    }
    state = sequence.state
    return replace(state, holdings={**stale, **state.holdings})
