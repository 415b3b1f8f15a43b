"""Quantities, capacities, usage, decoding: what sums and parsers promise."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rte import errors
from rte.model import quantity
from rte.placement.dra import Usage, decode, objects
from rte.placement.dra.structured import capacity
from rte.placement.dra.structured.pools import DeviceID
from tests.unit.placement.dra.build import allocation, claim_of, request


@pytest.mark.parametrize(
    ("text", "nano"),
    [
        ("1", 10**9),
        ("1500m", 1_500_000_000),
        (".5", 500_000_000),
        ("80Gi", 80 * 2**30 * 10**9),
        ("1e3", 10**12),
        ("0.1n", 1),
        ("-0.1n", -1),
        ("100000000000000000000", 10**29),
        ("9Ei", (2**63 - 1) * 10**9),
        ("16Ei", (2**63 - 1) * 10**9),
    ],
)
def test_quantities_are_exact(text: str, nano: int) -> None:
    assert quantity.parse_nano(text) == nano


@given(st.integers(-(10**30), 10**30))
def test_a_formatted_quantity_is_the_same_amount(nano: int) -> None:
    assert quantity.parse_nano(quantity.format_nano(nano)) == nano


def has(value: str, **policy: object) -> objects.DeviceCapacity:
    data = {"value": value, **({"requestPolicy": policy} if policy else {})}
    return decode.device({"name": "d", "capacity": {"c": data}}).capacity["c"]


def takes(
    has_: objects.DeviceCapacity, amount: str | None, *, fractional: bool = True
) -> str | None:
    asks = {} if amount is None else {"c": objects.Nano.parse(amount)}
    taken = capacity.taken(objects.CapacityRequirements(asks), {"c": has_}, fractional=fractional)
    return None if taken is None else str(taken["c"])


def test_what_is_not_asked_for_is_the_default_or_all() -> None:
    assert takes(has("10"), None) == "10"
    assert takes(has("10", default="2"), None) == "2"
    assert takes(has("10"), "3") == "3"


def test_values_and_ranges_round_up() -> None:
    values = has("10", default="1", validValues=["1", "4", "8"])
    assert [takes(values, n) for n in ("1", "2", "5", "9")] == ["1", "4", "8", None]
    steps = has("10", default="2", validRange={"min": "2", "step": "3", "max": "8"})
    assert [takes(steps, n) for n in ("1", "2", "3", "6", "9")] == ["2", "2", "5", "8", None]


def test_fractions_count_in_thousandths_where_the_cluster_knows_them() -> None:
    steps = has("2", default="500m", validRange={"min": "500m", "step": "250m"})
    assert takes(steps, "600m") == "750m"
    assert takes(steps, "600m", fractional=False) == "1"
    with pytest.raises(capacity.UnusableCapacityError):
        takes(steps, "600100u")


@given(st.integers(0, 50), st.integers(1, 20), st.integers(1, 9))
def test_a_step_never_gives_less_and_less_than_a_step_more(
    asked: int, least: int, step: int
) -> None:
    policy = {"default": str(least), "validRange": {"min": str(least), "step": str(step)}}
    taken = int(takes(has("100", **policy), str(asked)) or -1)

    assert taken >= max(asked, least)
    assert taken == least or taken - asked < step
    assert (taken - least) % step == 0


RESULTS = st.lists(
    st.builds(
        lambda device, share, admin, amount: {
            "device": device,
            "adminAccess": admin,
            **({"shareID": share, "consumedCapacity": {"bw": str(amount)}} if share else {}),
        },
        st.sampled_from("abc"),
        st.sampled_from(("", "s1", "s2")),
        st.booleans(),
        st.integers(0, 5),
    ),
    max_size=4,
)


def held(results: list[dict]) -> objects.AllocationResult:
    rows = [{"request": "r", "driver": "d", "pool": "p", **row} for row in results]
    claim = claim_of(request(), status={"allocation": {"devices": {"results": rows}}})
    assert claim.status.allocation is not None
    return claim.status.allocation


@given(st.lists(RESULTS, max_size=4), RESULTS)
def test_adding_and_removing_an_allocation_leaves_no_trace(before, results) -> None:
    usage, plain = Usage(), Usage()
    for one in before:
        usage.add(held(one))
        plain.add(held(one))
    usage.add(held(results))
    usage.remove(held(results))

    for name in "abc":
        device = DeviceID("d", "p", name)
        assert usage.is_taken(device) == plain.is_taken(device)
        assert usage.is_shared(device) == plain.is_shared(device)
        assert dict(usage.consumed(device)) == dict(plain.consumed(device)) or not any(
            usage.consumed(device).values()
        )


def test_admin_access_holds_nothing() -> None:
    usage = Usage()
    claim = claim_of(request(), status=allocation("a", adminAccess=True))
    usage.add(claim.status.allocation)

    assert not usage.is_allocated(DeviceID("gpu.example.com", "n0", "a"))


def test_what_was_decoded_is_encoded() -> None:
    data = {
        "devices": {
            "results": [
                {
                    "request": "r",
                    "driver": "d",
                    "pool": "p",
                    "device": "x",
                    "shareID": "1-2",
                    "consumedCapacity": {"bw": "1500m"},
                    "tolerations": [{"operator": "Exists"}],
                }
            ],
            "config": [{"source": "FromClass", "opaque": {"driver": "d", "parameters": {"a": 1}}}],
        }
    }
    claim = decode.resource_claim({"metadata": {"name": "c"}, "status": {"allocation": data}})

    assert decode.encode(claim.status.allocation) == {
        "devices": {
            "results": (
                {**data["devices"]["results"][0], "tolerations": ({"operator": "Exists"},)},
            ),
            "config": tuple(data["devices"]["config"]),
        }
    }


def test_unknown_fields_are_named_where_they_matter() -> None:
    device = {"name": "a", "capacity": {"c": {"value": "1", "unit": "lanes"}}, "rail": 3}
    data = {
        "metadata": {"name": "s", "managedFields": []},
        "spec": {
            "driver": "d",
            "pool": {"name": "p", "generation": 1, "resourceSliceCount": 1, "weight": 2},
            "nodeName": "n0",
            "devices": [device, {"name": "b"}],
        },
    }

    spec = decode.resource_slice(data).spec

    assert spec.unknown == ("pool.weight",)
    assert [one.unknown for one in spec.devices] == [("capacity[c].unit", "rail"), ()]
    assert spec.devices[0].capacity["c"].value == 10**9


@pytest.mark.parametrize(
    "data",
    [
        None,
        [],
        {},
        {"metadata": {"name": "s"}, "spec": {}},
        {"metadata": {"name": "s"}, "spec": {"driver": "d", "pool": "p"}},
        {
            "metadata": {"name": "s"},
            "spec": {
                "driver": "d",
                "pool": {"name": "p"},
                "devices": [{"name": "a", "capacity": {"c": {"value": "lots"}}}],
            },
        },
    ],
)
def test_what_is_no_slice_is_refused_in_one_line(data: object) -> None:
    with pytest.raises(errors.ParseError) as refused:
        decode.resource_slice(data)
    assert "\n" not in str(refused.value)
