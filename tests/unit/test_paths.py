"""How much of the house one ordinary event goes through: files touched, and changes of file.

What is decided in few hands can be followed by a reader. Every call of a Python function of rte is
counted by the file that it lies in, so the figures are the same on every machine.
"""

from __future__ import annotations

import sys
from collections import Counter
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import rte
from rte.scheduler.loop import messages
from tests.unit.scheduler.build import pod_object
from tests.unit.scheduler.desk import Desk

if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import FrameType

_HOUSE = f"{Path(rte.__file__).parent}/"


@contextmanager
def followed() -> Iterator[list[str]]:
    """Files of rte in which functions are called meanwhile, call by call."""
    calls: list[str] = []

    def note(frame: FrameType, event: str, _: Any) -> None:
        if event == "call" and frame.f_code.co_filename.startswith(_HOUSE):
            calls.append(frame.f_code.co_filename.removeprefix(_HOUSE))

    before = sys.getprofile()
    sys.setprofile(note)
    try:
        yield calls
    finally:
        sys.setprofile(before)


def judge(what: str, calls: list[str], *, files: int, changes: int) -> None:
    """Print the figures; fail beyond them, and say which files were visited most."""
    visits = Counter(calls)
    changed = sum(1 for one, other in pairwise(calls) if one != other)
    print(f"{what}: {len(calls)} calls, {len(visits)} files, {changed} changes of file")
    if len(visits) > files or changed > changes:
        most = "\n".join(f"{number:5} {name}" for name, number in visits.most_common())
        pytest.fail(f"{len(visits)} files ({files}), {changed} changes ({changes}):\n{most}")


def test_a_guaranteed_pod_from_its_first_sight_to_its_bind() -> None:
    """The third pod of its kind on six nodes, with everything warm."""
    desk = Desk()
    for number in range(6):
        desk.node(f"n{number}")
    for _ in range(2):
        desk.pod(cpu="2")
        desk.run_all()
    obj = pod_object("third", "2")
    obj["metadata"]["resourceVersion"] = str(desk.version + 1)
    machine, bound = desk.machine, False
    with followed() as calls:
        effects = machine.handle(messages.Seen("pods", obj), desk.now)
        while machine.has_work():
            effects += machine.handle(messages.Turn(), desk.now)
        for effect in effects:
            if isinstance(effect, messages.Bind):
                answer = messages.Bound(effect.pod.uid, messages.Outcome.BOUND)
                machine.handle(answer, desk.now)
                bound = True
    assert bound
    judge("a pod, from event to bind", calls, files=57, changes=325)
