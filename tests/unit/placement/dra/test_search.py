"""The shortcuts of the search change nothing: the same devices, the same answer."""

from __future__ import annotations

from unittest import mock

from hypothesis import given, settings
from hypothesis import strategies as st

from rte.placement.dra.structured import search
from tests.depth import scaled
from tests.unit.placement.dra.build import (
    allocation,
    claim_of,
    class_of,
    gpu,
    place,
    request,
    slice_of,
    supply_of,
)

CLASSES = (
    class_of("gpu", "true"),
    class_of("big", 'has(device.attributes["gpu.example.com"].big)'),
)
COUNTERS = {f"card-{n}": 3 for n in range(2)}


@st.composite
def devices(draw: st.DrawFn, number: int) -> dict:
    more: dict = {"attributes": {}}
    for name in ("zone", "root"):
        if value := draw(st.integers(0, 2)):
            more["attributes"][name] = {"int": value}
    if draw(st.booleans()):
        more["attributes"]["big"] = {"bool": True}
    kind = draw(st.sampled_from(("plain", "plain", "counters", "shared", "tainted")))
    if kind == "counters":
        card = draw(st.sampled_from(sorted(COUNTERS)))
        amount = {"value": str(draw(st.integers(1, 3)))}
        more["consumesCounters"] = [{"counterSet": card, "counters": {"m": amount}}]
    if kind == "shared":
        more["allowMultipleAllocations"] = True
        more["capacity"] = {"bw": {"value": "2", "requestPolicy": {"default": "1"}}}
    if kind == "tainted":
        more["taints"] = [{"key": "k", "effect": "NoSchedule"}]
    return gpu(f"gpu-{number}", **more)


@st.composite
def requests(draw: st.DrawFn, name: str) -> dict:
    def one() -> dict:
        exactly = request(
            count=draw(st.integers(1, 3)), class_name=draw(st.sampled_from(("gpu", "gpu", "big")))
        )["exactly"]
        if draw(st.integers(0, 5)) == 0:
            exactly["allocationMode"] = "All"
            del exactly["count"]
        if draw(st.integers(0, 3)) == 0:
            exactly["tolerations"] = [{"operator": "Exists"}]
        return exactly

    if draw(st.integers(0, 3)) == 0:
        return {"name": name, "firstAvailable": [one() | {"name": f"s{n}"} for n in range(2)]}
    exactly = one()
    if draw(st.integers(0, 4)) == 0:
        exactly["adminAccess"] = True
    return {"name": name, "exactly": exactly}


@st.composite
def claims(draw: st.DrawFn) -> list:
    found = []
    for number in range(draw(st.integers(1, 2))):
        names = [f"r{n}" for n in range(draw(st.integers(1, 3)))]
        constraints = [
            {
                draw(
                    st.sampled_from(("matchAttribute", "distinctAttribute"))
                ): f"gpu.example.com/{on}"
            }
            for on in draw(st.sets(st.sampled_from(("zone", "root")), max_size=1))
        ]
        wanted = [draw(requests(name)) for name in names]
        found.append(claim_of(*wanted, name=f"c{number}", constraints=constraints))
    return found


@st.composite
def supplies(draw: st.DrawFn):
    sets = [{"name": n, "counters": {"m": {"value": str(v)}}} for n, v in COUNTERS.items()]
    pool = [draw(devices(number)) for number in range(draw(st.integers(1, 7)))]
    held = draw(st.sets(st.sampled_from([one["name"] for one in pool]), max_size=2))
    other = claim_of(name="other", status=allocation(*sorted(held)))
    return supply_of(
        slice_of([], name="counters", count=2, sharedCounters=sets),
        slice_of(pool, count=2),
        classes=CLASSES,
        held=(other,),
    )


@settings(max_examples=scaled(80))
@given(supplies(), claims())
def test_the_shortcuts_find_what_a_plain_search_finds(supply, wanted) -> None:
    limit = {"max_steps": 20_000}
    with (
        mock.patch.object(search.Search, "_kind", lambda _, device: device),
        mock.patch.object(search, "_REMEMBER_AFTER", 10**9),
    ):
        plain = place(supply, *wanted, **limit)
    with mock.patch.object(search, "_REMEMBER_AFTER", 0):
        short = place(supply, *wanted, **limit)

    if plain.reason is search.Reason.SEARCH_LIMIT:
        return
    assert (short.reason, short.allocations) == (plain.reason, plain.allocations)
    assert short.steps <= plain.steps
