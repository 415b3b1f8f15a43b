"""Whether devices of an allocated claim are still there."""

from __future__ import annotations

from dataclasses import replace

import pytest

from rte.placement.dra import binding, decode
from tests.unit.placement.dra.build import GPU, allocation, gpu, slice_of, supply_of

GIVEN = decode.resource_claim(
    {"metadata": {"name": "c"}, "status": allocation("gpu-0", "gpu-1")}
).status.allocation

BROKEN = {"key": "broken", "value": "yes", "effect": "NoExecute"}


def lost(*devices: dict[str, object], taints: bool = True, **spec: object) -> str:
    assert GIVEN is not None
    return binding.lost(GIVEN, supply_of(slice_of([*devices], **spec)).pools, taints=taints)


def test_what_is_there_is_not_lost() -> None:
    assert not lost(gpu("gpu-0"), gpu("gpu-1"))


def test_a_device_that_its_driver_publishes_no_more_is_gone() -> None:
    assert lost(gpu("gpu-1")) == f"device {GPU}/n0/gpu-0 is gone"


def test_a_tainted_device_is_lost_unless_taints_are_off() -> None:
    devices = gpu("gpu-0"), gpu("gpu-1", taints=[BROKEN])
    assert lost(*devices) == f"device {GPU}/n0/gpu-1 is tainted"
    assert not lost(*devices, taints=False)


@pytest.mark.parametrize(
    "toleration",
    [
        {"operator": "Exists"},
        {"key": "broken", "operator": "Exists"},
        {"key": "broken", "operator": "Equal", "value": "yes", "effect": "NoExecute"},
    ],
)
def test_what_the_request_tolerates_does_not_count(toleration: dict[str, str]) -> None:
    given = allocation("gpu-0")
    given["allocation"]["devices"]["results"][0]["tolerations"] = [toleration]
    claim = decode.resource_claim({"metadata": {"name": "c"}, "status": given})
    assert claim.status.allocation is not None
    pools = supply_of(slice_of([gpu("gpu-0", taints=[BROKEN])])).pools
    assert not binding.lost(claim.status.allocation, pools)


def test_a_taint_that_only_tells_is_none() -> None:
    assert not lost(gpu("gpu-0", taints=[{**BROKEN, "effect": "None"}]), gpu("gpu-1"))


def test_of_a_pool_that_its_driver_is_still_writing_nothing_is_said() -> None:
    assert GIVEN is not None
    (pool,) = supply_of(slice_of([gpu("gpu-1")])).pools
    assert not binding.lost(GIVEN, [replace(pool, problem="incomplete", devices=())])
