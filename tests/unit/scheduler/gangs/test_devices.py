"""Gangs whose pods have devices of DRA."""

from __future__ import annotations

import pytest

from tests.unit.scheduler import gpus
from tests.unit.scheduler.gangs.build import Square


def square(nodes: int, *zones: int) -> Square:
    """Nodes with a GPU in each of these zones."""
    desk = Square(nodes)
    desk.put("device-classes", "gpu", gpus.gpu_class())
    for number in range(nodes):
        desk.put("slices", f"n{number}-gpus", gpus.slice_of(f"n{number}", zones or (0, 0, 1, 1)))
    return desk


def gang(desk: Square, wish: str, count: int = 2, cpu: str = "4") -> list[str]:
    """Pods with a claim of one GPU each."""
    desk.group("g", count)
    uids = []
    for number in range(count):
        made = gpus.claim(f"c{number}", uid=f"claim-{number}")
        desk.put("device-claims", f"default/c{number}", made)
        used = gpus.uses(f"c{number}", wish=wish)
        uids += desk.members("g", [cpu], count=count, **used)
    return uids


@pytest.mark.parametrize("wish", ["none", "preferred"])
def test_pods_with_devices_start_together_on_one_node(wish: str) -> None:
    desk = square(1)
    uids = gang(desk, wish, count=3)
    assert desk.places(uids) == ["n0"] * 3
    claims = [desk.objects["device-claims", f"default/c{number}"] for number in range(3)]
    assert len({device for claim in claims for device in gpus.held(claim)}) == 3


def test_what_is_preferred_holds_no_gang_up() -> None:
    """All GPUs are in zone 1; the kubelet gives CPUs of zone 0 as well."""
    desk = square(1, 1, 1, 1)
    assert desk.places(gang(desk, "preferred", count=3)) == ["n0"] * 3


def test_devices_that_have_to_be_aligned_take_a_node_for_each_pod() -> None:
    """In which order a kubelet meets two pods, and which zones they get, nobody knows."""
    desk = square(2)
    uids = gang(desk, "required")
    assert sorted(desk.places(uids)) == ["n0", "n1"]


def test_a_gang_has_no_place_where_there_are_too_few_devices() -> None:
    desk = square(1, 0, 1)
    assert desk.placed(gang(desk, "preferred", count=3)) == 0
