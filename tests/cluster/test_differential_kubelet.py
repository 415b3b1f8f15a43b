"""Real kubelets of every release grant what was predicted, and the simulated kubelet does as they
do: the same verdicts, reasons, CPU sets and memory blocks, while random pods come and go.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import pytest

from tests.cluster import builder, random_pods
from tests.cluster.doubles import doubles

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from tests.cluster.cluster import Cluster
    from tests.cluster.node import Node

Object = dict[str, Any]
SEED = int(os.environ.get("RTE_SEED", "1"))
#: Each is one pod for each configuration.
ROUNDS = int(os.environ.get("RTE_ROUNDS", "44"))
#: In both zones, in one only, across both, and without topology.
DEVICES = {
    "example.com/gpu": [[0], [0], [1], [1]],
    "example.com/nic": [[1], [1], [1]],
    "example.com/link": [[0, 1], [0, 1], [0]],
    "example.com/any": [None, None, None],
}
#: All of a resource alike: under the gate they are picked when containers start, which nobody sees.
LIKE_DEVICES = {
    "example.com/gpu": [[0], [0], [0]],
    "example.com/nic": [[1], [1], [1]],
    "example.com/any": [None, None, None],
}
SMALL = "2x12,memory=8Gi,hugepages-2Mi=256"
WIDE = "4x6,sockets=2,memory=4Gi,hugepages-2Mi=128,l3=1"
#: Every policy and scope, with the options that it goes with.
CONFIGURATIONS: tuple[Object, ...] = (
    {"policy": "none", "cpu_options": {"distribute-cpus-across-numa": "true"}},
    {"policy": "none", "scope": "pod", "cpu_options": {"strict-cpu-reservation": "true"}},
    {
        "policy": "best-effort",
        "reserved_cpus": "0-1",
        "topology_options": {"prefer-closest-numa-nodes": "true"},
        "shape": WIDE,
    },
    {
        "policy": "best-effort",
        "scope": "pod",
        "cpu_options": {"distribute-cpus-across-numa": "true", "align-by-socket": "true"},
        "shape": WIDE,
    },
    {"policy": "restricted", "cpu_options": {"full-pcpus-only": "true"}},
    {
        "policy": "restricted",
        "scope": "pod",
        "cpu_options": {"prefer-align-cpus-by-uncorecache": "true"},
        "shape": WIDE,
    },
    {"policy": "single-numa-node"},
    {
        "policy": "single-numa-node",
        "scope": "pod",
        "cpu_options": {"distribute-cpus-across-cores": "true"},
    },
)


@pytest.mark.parametrize("release", builder.PROVEN)
def test_a_real_kubelet_grants_what_was_predicted(
    cluster: Cluster, fresh_nodes: Callable[[Sequence[Object]], list[Node]], release: str
) -> None:
    _play(cluster, fresh_nodes, release, {})


@pytest.mark.parametrize("release", ["1.36", "1.37"])
def test_pods_that_are_served_as_a_whole(
    cluster: Cluster, fresh_nodes: Callable[[Sequence[Object]], list[Node]], release: str
) -> None:
    _play(cluster, fresh_nodes, release, {"PodLevelResourceManagers": True})


def _play(
    cluster: Cluster,
    fresh_nodes: Callable[[Sequence[Object]], list[Node]],
    release: str,
    gates: dict[str, bool],
) -> None:
    """Random pods on kubelets of a release, one for each configuration."""
    nodes = fresh_nodes([_node(release, gates, configuration) for configuration in CONFIGURATIONS])
    kinds = random_pods.Kinds(devices=list(nodes[0].devices()), pod_level=0.6 if gates else 0.2)
    with doubles(cluster, nodes, kinds, SEED) as both:
        for number in range(ROUNDS):
            if number == ROUNDS * 3 // 4:
                both.restart()
            both.round(number)
    found = [line for pair in both.pairs for line in pair.differences]
    counts = sum((pair.counts for pair in both.pairs), start=both.pairs[0].counts.__class__())
    print(f"kubelet {release} {gates or ''}: {dict(counts)}")
    assert not found, f"{len(found)} differences:\n" + "\n".join(found)
    assert counts["pods"] > ROUNDS * len(CONFIGURATIONS) * 0.85, "too few kubelets were left"
    assert 0.1 < counts["refused"] / counts["pods"] < 0.7, "the pods do not probe the limits"
    assert counts["uncertain"] / counts["pods"] < 0.1, "too little is predicted for certain"


def _node(release: str, gates: dict[str, bool], configuration: Object) -> Object:
    kubelet = dict(configuration)
    # Short, for the sockets in its folder.
    policy, scope = kubelet["policy"].partition("-")[0], kubelet.get("scope", "container")
    return {
        "name": f"{policy}-{scope}-{release.replace('.', '-')}" + "-whole" * bool(gates),
        "shape": kubelet.pop("shape", SMALL),
        "devices": LIKE_DEVICES if gates else DEVICES,
        "version": release,
        # The kubelet's own clean-up between admissions comes at no set time.
        "kubelet": {**kubelet, "reconcile": "1h", "feature_gates": gates},
    }
