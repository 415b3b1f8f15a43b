"""Objects are decoded as the API's own structs decode them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rte.model import quantity
from rte.sim.apiserver.schema import quantities, typed
from rte.sim.apiserver.status import DecodeError


@pytest.mark.parametrize(
    ("given_text", "shown"),
    [
        ("1000m", "1"), ("1024Mi", "1Gi"), ("0.5Gi", "512Mi"), ("1.5Gi", "1536Mi"),
        ("2000", "2k"), ("1e3", "1e3"), ("1e0", "1e0"), ("0.1", "100m"), ("2.5", "2500m"),
        ("128974848", "128974848"), ("0", "0"), ("0Gi", "0"), ("512", "512"), ("-1", "-1"),
        ("1e999", "1e999"), ("9" * 30 + "Ei", "9223372036854775807"),
    ],
)  # fmt: skip
def test_quantities_take_the_canonical_text(given_text: str, shown: str) -> None:
    assert quantities.canonical(given_text) == shown


_SUFFIXES = ("", "m", "k", "M", "G", "Ki", "Mi", "Gi", "e3")


@given(st.integers(0, 10**6), st.sampled_from(_SUFFIXES))
def test_the_canonical_text_is_stable_and_keeps_the_value(number: int, suffix: str) -> None:
    once = quantities.canonical(f"{number}{suffix}")
    assert quantities.canonical(once) == once
    assert quantity.parse(once, scale=1000) == quantity.parse(f"{number}{suffix}", scale=1000)


@pytest.mark.parametrize(
    "text", ["", "x", "1X", "1.2.3", "Gi", "1 Gi", "--1", "1e999999", "9" * 50]
)
def test_other_text_is_no_quantity(text: str) -> None:
    with pytest.raises(DecodeError):
        quantities.canonical(text)


def test_unknown_fields_are_dropped_and_named() -> None:
    body = {"metadata": {"name": "a"}, "spec": {"containers": [{"name": "c", "x": 1}]}, "y": 2}
    pod, unknown = typed.decode("core/v1.Pod", body)
    assert unknown == ["y", "spec.containers[0].x"]
    assert pod["spec"]["containers"] == [{"name": "c", "resources": {}}]


def test_empty_values_are_left_out_where_the_type_says_so() -> None:
    pod, _ = typed.decode(
        "core/v1.Pod", {"metadata": {"name": "a", "labels": {}}, "spec": {"nodeName": ""}}
    )
    assert pod == {"metadata": {"name": "a"}, "spec": {"containers": None}, "status": {}}


@pytest.mark.parametrize(
    ("body", "text"),
    [
        ({"metadata": {"labels": {"a": 1}}},
         "cannot unmarshal number into Go struct field ObjectMeta.metadata.labels of type string"),
        ({"spec": {"containers": "x"}},
         "unmarshal string into Go struct field PodSpec.spec.containers of type []v1.Container"),
        ({"spec": {"priority": True}}, "cannot unmarshal bool into Go struct field"),
        ({"spec": {"priority": 1 << 40}}, "of type int32"),
        ([], "cannot unmarshal array"),
    ],
)  # fmt: skip
def test_a_wrong_type_is_told_in_the_decoders_words(body: object, text: str) -> None:
    with pytest.raises(DecodeError) as caught:
        typed.decode("core/v1.Pod", body)
    assert text in str(caught.value)


def test_times_come_out_in_utc_and_with_the_types_precision() -> None:
    node, _ = typed.decode(
        "core/v1.Node",
        {
            "status": {
                "conditions": [{"type": "R", "lastHeartbeatTime": "2026-01-01T02:00:00+02:00"}]
            }
        },
    )
    assert node["status"]["conditions"][0]["lastHeartbeatTime"] == "2026-01-01T00:00:00Z"
    with pytest.raises(DecodeError, match="cannot parse"):
        typed.decode("coordination/v1.Lease", {"spec": {"renewTime": "2026-01-01T00:00:00Z"}})
