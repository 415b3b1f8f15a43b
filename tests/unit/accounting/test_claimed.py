"""Devices of DRA that containers hold get into the reading under the UID of their pod."""

from __future__ import annotations

from dataclasses import replace

from rte import accounting
from rte.model.kubelet import ListedContainer, ListedPod, NodePod
from rte.model.node import ClaimedDevice
from tests.unit.accounting.nodes import STATIC, Kubelet

GPU = ClaimedDevice("ns", "gpus", "gpu.example.com", "n0", "gpu-0")


def test_what_podresources_lists_is_told_by_uid() -> None:
    kubelet = Kubelet(STATIC)
    listed = ListedPod("ns", "p", (ListedContainer("main", claimed=(GPU,)), ListedContainer("log")))
    view = replace(kubelet.view(), pods=(listed,))

    reading = accounting.build_reading(
        "n0", kubelet.machine, view, [NodePod(uid="u", namespace="ns", name="p")]
    )

    assert reading.claimed == {"u": {"main": (GPU,)}}
