"""Answers of podresources on file: readable, and read back as they were."""

from __future__ import annotations

import asyncio
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rte import errors
from rte.kubelet import recorded
from rte.model import bits
from rte.model.kubelet import Allocatable, DeviceHolding, ListedContainer, ListedPod
from rte.model.node import ClaimedDevice, MemoryBlock

names = st.text("abc-0", min_size=1, max_size=6)
masks = st.integers(0, (1 << 80) - 1)
blocks = st.lists(
    st.builds(MemoryBlock, names, masks, st.integers(0, 1 << 40)), max_size=2
).map(tuple)  # fmt: skip
holdings = st.lists(
    st.builds(DeviceHolding, names, st.dictionaries(names, st.none() | masks, max_size=3)),
    max_size=2,
).map(tuple)
claims = st.lists(
    st.builds(
        ClaimedDevice, names, names, names, names, names, cdi=st.lists(names, max_size=2).map(tuple)
    ),
    max_size=2,
).map(tuple)
containers = st.builds(
    ListedContainer, name=names, cpus=masks, memory=blocks, devices=holdings, claimed=claims
)
pods = st.builds(
    ListedPod,
    namespace=names,
    name=names,
    containers=st.lists(containers, max_size=2).map(tuple),
    cpus=masks,
    memory=blocks,
)


@given(
    st.lists(pods, max_size=3).map(tuple),
    st.none() | st.builds(Allocatable, cpus=masks, memory=blocks, devices=holdings),
)
def test_what_was_written_reads_back_as_it_was(listed, allocatable) -> None:
    recording = recorded.Recording.parse(recorded.format_answers(listed, allocatable))
    assert asyncio.run(recording.list()) == listed
    assert asyncio.run(recording.allocatable()) == allocatable


def test_sets_are_readable_and_device_ids_are_no_fields() -> None:
    holding = DeviceHolding("v.d/gpu", {"zones": bits.of([0, 1]), "g1": None})
    container = ListedContainer(
        name="c",
        cpus=bits.of([2, 3]),
        memory=(MemoryBlock("memory", 1, 1024),),
        devices=(holding,),
    )
    pod = ListedPod(namespace="n", name="p", containers=(container,))
    answers = json.loads(recorded.format_answers([pod], Allocatable(cpus=0b111)))
    (shown,) = answers["list"][0]["containers"]
    assert shown["cpus"] == "2-3"
    assert shown["memory"] == [{"resource": "memory", "zones": "0", "size": 1024}]
    assert shown["devices"] == [{"resource": "v.d/gpu", "devices": {"zones": "0-1", "g1": None}}]
    assert answers["allocatable"]["cpus"] == "0-2"


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        "[]",
        "{}",
        '{"list": 1, "allocatable": null}',
        '{"list": [{"containers": [{"cpus": 3}]}], "allocatable": null}',
        '{"list": [], "allocatable": {"cpu": ""}}',
    ],
)
def test_anything_else_is_refused_in_one_line(text: str) -> None:
    with pytest.raises(errors.ParseError, match="recorded podresources"):
        recorded.Recording.parse(text)
