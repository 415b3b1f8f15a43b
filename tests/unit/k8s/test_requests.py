"""What a pod counts for on its node (component-helpers PodRequests)."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rte.k8s import podspec, requests


def box(name: str, cpu: str, **more: Any) -> dict[str, Any]:
    return {"name": name, "resources": {"requests": {"cpu": cpu}}, **more}


def told(name: str, allocated: str = "", actual: str = "") -> dict[str, Any]:
    status: dict[str, Any] = {"name": name}
    if allocated:
        status["allocatedResources"] = {"cpu": allocated}
    if actual:
        status["resources"] = {"requests": {"cpu": actual}}
    return status


def cpu_of(spec: dict[str, Any], status: dict[str, Any] | None = None) -> int:
    part = requests.running_part(status or {}, spec)
    running = None if part is None else requests.Running(**part)
    pod = podspec.parse_pod({"metadata": {"name": "p"}, "spec": spec})
    return requests.totals(pod, running).get("cpu", 0)


INFEASIBLE = [{"type": "PodResizePending", "status": "True", "reason": "Infeasible"}]
DEFERRED = [{"type": "PodResizePending", "status": "True", "reason": "Deferred"}]


@pytest.mark.parametrize(
    ("asked", "statuses", "conditions", "cpu"),
    [
        (["4"], [told("c0", "4", "4")], [], 4000),
        (["4"], [told("c0", "1", "1")], [], 4000),
        (["4"], [told("c0", "1", "1")], DEFERRED, 4000),
        (["100"], [told("c0", "1", "1")], INFEASIBLE, 1000),
        (["1"], [told("c0", "3", "2")], [], 3000),
        (["1"], [told("c0", "2", "3")], [], 3000),
        (["1"], [told("c0", "2", "3")], INFEASIBLE, 3000),
        # The largest of the sums, not the sum of the largest.
        (["1", "3"], [told("c0", "3", "3"), told("c1", "1", "1")], [], 4000),
        (["2"], [told("c0")], [], 2000),
    ],
)
def test_a_pod_that_is_being_resized(
    asked: list[str], statuses: list[Any], conditions: list[Any], cpu: int
) -> None:
    spec = {"containers": [box(f"c{n}", amount) for n, amount in enumerate(asked)]}
    assert cpu_of(spec, {"containerStatuses": statuses, "conditions": conditions}) == cpu


def test_a_sidecar_that_was_resized_counts_as_it_is() -> None:
    sidecar = box("s", "1", restartPolicy="Always")
    spec = {"containers": [box("c", "1")], "initContainers": [sidecar]}
    status = {"initContainerStatuses": [told("s", "3", "3")], "containerStatuses": [told("c", "1")]}
    assert cpu_of(spec) == 2000
    assert cpu_of(spec, status) == 4000


def test_a_pod_level_stanza_takes_the_place_of_the_sum() -> None:
    boxes = {"containers": [box("c", "3"), box("d", "3")]}
    assert cpu_of({**boxes, "resources": {"requests": {"cpu": "8"}}}) == 8000
    # Names that it does not have are the sum of the containers.
    assert cpu_of({**boxes, "resources": {"requests": {"memory": "1Gi"}}}) == 6000
    status = {"allocatedResources": {"cpu": "9"}, "resources": {"requests": {"cpu": "7"}}}
    assert cpu_of({**boxes, "resources": {"requests": {"cpu": "8"}}}, status) == 9000


_AMOUNTS = st.integers(0, 5)
_INIT = st.lists(st.tuples(st.booleans(), _AMOUNTS), max_size=4)


@given(init=_INIT, app=st.lists(_AMOUNTS, min_size=1, max_size=3))
def test_the_peak_over_the_life_of_a_pod(init: list[tuple[bool, int]], app: list[int]) -> None:
    """What a walk through the pod's life finds as its largest demand (KEP-753)."""
    spec = {
        "initContainers": [
            box(f"i{n}", str(cpu), **({"restartPolicy": "Always"} if side else {}))
            for n, (side, cpu) in enumerate(init)
        ],
        "containers": [box(f"c{n}", str(cpu)) for n, cpu in enumerate(app)],
    }
    beside = peak = 0
    for side, cpu in init:
        peak = max(peak, beside + cpu)
        beside += cpu if side else 0
    assert cpu_of(spec) == 1000 * max(peak, beside + sum(app))
