"""A machine as one document."""

from __future__ import annotations

from dataclasses import replace

from rte import accounting
from rte.model.node import PodRef
from rte.view import still
from tests.unit.nrt.states import busy_reading


def test_a_node_of_which_only_the_names_of_its_pods_are_known() -> None:
    reading = busy_reading(8, 1, 1)
    assert reading.state is not None
    uid = next(iter(reading.state.holdings))
    machine = accounting.machine_of(reading.state.topology)
    named = replace(reading, machine=machine, pods=(PodRef(uid, "default", "job"),))

    assert "job" in str(still.picture_of(named))
