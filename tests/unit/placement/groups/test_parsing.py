"""The request annotation: what it says, and where it is wrong."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rte.placement.groups.document import RequestError
from rte.placement.groups.parsing import check_pages, parse_request
from rte.placement.groups.request import NICWish, QueueWish, matches


def fault(text: str) -> tuple[str, str]:
    with pytest.raises(RequestError) as caught:
        parse_request(text)
    return caught.value.code, caught.value.path


def pod(*groups: dict[str, Any], **fields: Any) -> str:
    return json.dumps({"version": 1, "groups": list(groups), **fields})


def test_queues_ask_for_a_nic_and_their_rates_add_up() -> None:
    group = {"name": "a", "queues": [{"rx": 10, "tx": 0.5}, {"rx": 2.125, "cpus": 1}]}
    (got,) = parse_request(pod(group)).groups

    assert got.nics == (NICWish(rx=12_125, tx=500),)
    assert got.queues == (
        QueueWish(rx=10_000, tx=500, cpus=2, nic=0),
        QueueWish(rx=2_125, tx=0, cpus=1, nic=0),
    )


def test_a_group_without_bandwidth_has_no_nic_unless_it_asks_for_one() -> None:
    bare, explicit = parse_request(
        pod({"name": "a", "queues": [{"rx": 0}]}, {"name": "b", "queues": [{}], "nics": [{}]})
    ).groups

    assert bare.nics == ()
    assert bare.queues[0].nic is None
    assert explicit.nics == (NICWish(),)


def test_a_group_inherits_and_a_count_is_written_out() -> None:
    text = pod({"name": "a", "workers": 1, "count": 2}, mapping="pcie", pcieScope="root")
    groups = parse_request(text).groups

    assert [group.name for group in groups] == ["a-0", "a-1"]
    assert {(group.mapping, group.scope) for group in groups} == {("pcie", "root")}


def test_what_is_carried_along_is_not_read() -> None:
    text = pod(
        {"name": "a", "workers": 1, "params": [1], "x-note": None},
        render=3,
        params=None,
        **{"x-y": 1},
    )

    assert parse_request(text).groups[0].workers == 1


@pytest.mark.parametrize(
    ("text", "code", "path"),
    [
        ("{", "syntax", ""),
        ('{"version": NaN}', "syntax", ""),
        ("[" * 100_000, "syntax", ""),
        ("9" * 5000, "syntax", ""),
        ("3", "type", ""),
        ('{"version": 1, "version": 1}', "duplicate", "version"),
        ('{"version": 1, "misc": {"count": 1, "count": 1}}', "duplicate", "misc.count"),
        (pod(hugepages={"1Gi": 1, "1024Mi": 1}), "duplicate", "hugepages.1024Mi"),
        (pod({"name": "a", "workers": True}), "type", "groups[0].workers"),
        (pod({"name": "a", "workers": None}), "type", "groups[0].workers"),
        (pod({"name": "a", "nics": [{"gbps": {"rx": 1e400}}]}), "syntax", ""),
        (pod({"name": "a", "nics": [{"minGbps": 10001}]}), "value", "groups[0].nics[0].minGbps"),
        (pod({"name": "a", "nics": [], "queues": [{"tx": 1}]}), "reference",
         "groups[0].queues[0].nic"),
        (pod({"name": "a", "gpus": [{"count": 33}] * 2}), "limit", ""),
        (pod({"name": "a", "nics": [{}] * 33}), "limit", ""),
        (pod({"name": "a", "workers": 4096, "count": 2}), "limit", ""),
        (pod(), "empty", ""),
        (pod({"name": "a"}), "empty", "groups[0]"),
        (pod({"name": "a", "workers": 1}, cpuArch=[]), "empty", "cpuArch"),
    ],
)  # fmt: skip
def test_a_fault_is_named_with_its_place(text: str, code: str, path: str) -> None:
    assert fault(text) == (code, path)


@pytest.mark.parametrize("text", ["1e-3", "0.001", "9999.999", "1e4", "0.0", "12.50000", "0e-99"])
def test_rates_are_exact(text: str) -> None:
    queue = f'{{"version": 1, "groups": [{{"name": "a", "queues": [{{"rx": {text}}}]}}]}}'

    assert parse_request(queue).groups[0].queues[0].rx == round(float(text) * 1000)


@pytest.mark.parametrize("text", ["1e-4", "0.0001", "10000.001", "1e999999", "-1e-999999999"])
def test_rates_that_are_no_whole_mbps_are_faults(text: str) -> None:
    queue = f'{{"version": 1, "groups": [{{"name": "a", "queues": [{{"rx": {text}}}]}}]}}'

    assert fault(queue) == ("value", "groups[0].queues[0].rx")


@pytest.mark.parametrize(
    ("name", "model", "same"),
    [
        ("1080", "NVIDIA GeForce GTX 1080 Ti", False),
        ("1080Ti", "NVIDIA GeForce GTX 1080 Ti", True),
        ("1080 ti", "GTX 1080Ti", True),
        ("A10", "NVIDIA A100-SXM4-80GB", False),
        ("A100", "NVIDIA A100-SXM4-80GB", True),
        ("V100", "Tesla V100-SXM2-16GB", True),
        ("RX 7900", "AMD Radeon RX 7900 XTX", False),
        ("2080 super", "GeForce RTX 2080 SUPER", True),
        ("V100", "", False),
    ],
)
def test_models_are_compared_word_by_word(name: str, model: str, same: bool) -> None:
    assert matches((name,), model) == same


@pytest.mark.parametrize(
    ("asked", "path"),
    [({"1Gi": 3}, ""), ({"1Gi": 2}, "hugepages.1Gi"), ({"1Gi": 3, "2Mi": 1}, "hugepages.2Mi")],
)
def test_the_containers_ask_for_the_pages_of_the_request(asked: dict[str, int], path: str) -> None:
    wish = parse_request(pod({"name": "a", "hugepages": {"1Gi": 1}}, hugepages={"1Gi": 2}))

    if not path:
        check_pages(wish, asked)
        return
    with pytest.raises(RequestError) as caught:
        check_pages(wish, asked)
    assert (caught.value.code, caught.value.path) == ("mismatch", path)


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["name", "count", "rx", "nic", "queues", "gpus", "nics", "smt", "x-a"]),
            inner,
            max_size=3,
        )
    ),
    max_leaves=8,
)


@given(
    st.dictionaries(
        st.sampled_from(
            ["version", "groups", "misc", "hugepages", "mapping", "nodeGroups", "cpuArch", "params"]
        ),
        json_values | st.just(1),
    )
)
def test_no_document_crashes_the_parser(document: dict[str, Any]) -> None:
    try:
        parse_request(json.dumps(document))
    except RequestError as error:
        assert error.code
        assert "\n" not in str(error)
