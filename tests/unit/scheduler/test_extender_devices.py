"""Behind kube-scheduler, which allocates devices itself: only where they have to be is our say."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tests.unit.scheduler.gpus import claim, gpu_class, held, slice_of, uses
from tests.unit.scheduler.town import until

if TYPE_CHECKING:
    from tests.unit.scheduler.conftest import Caller


async def prepare(call: Caller, wish: str) -> dict[str, Any]:
    """Node a has its GPU in the zone that the pod will not get, node b in the one it gets."""
    api = call.town.api
    api.create("deviceclasses", gpu_class())
    for node, zone in (("a", 1), ("b", 0)):
        api.create("resourceslices", slice_of(node, (zone,)))
    api.create("resourceclaims", claim("c"), "default")
    pod = call.pod("p", "4", **uses("c", wish=wish))
    devices = call.scheduler.cluster.devices
    await until(lambda: devices.claims and devices.fleet.version("b"))
    return pod


async def test_nodes_without_an_aligned_allocation_are_refused_where_it_is_required(
    call: Caller,
) -> None:
    pod = await prepare(call, "required")
    answer = await call("filter", Pod=pod, NodeNames=["a", "b"])
    assert answer["NodeNames"] == ["b"]
    assert "no free devices in the zones" in answer["FailedNodes"]["a"]


async def test_where_it_is_preferred_kube_scheduler_decides(call: Caller) -> None:
    pod = await prepare(call, "preferred")
    answer = await call("filter", Pod=pod, NodeNames=["a", "b"])
    assert answer["NodeNames"] == ["a", "b"]


async def test_a_bind_for_kube_scheduler_writes_no_claim(call: Caller) -> None:
    pod = await prepare(call, "preferred")
    assert await call.bind(pod, "b") == ""
    assert held(call.town.api.get("resourceclaims", "c", "default")) == []
