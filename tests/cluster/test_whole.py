"""What kubelet, agent and scheduler do together, the same on simulated and on real ones."""

from __future__ import annotations

import random

import pytest

from rte.model import bits
from tests.cluster import worlds
from tests.cluster.pods import container, pod

OURS = "rte-scheduler"
SHAPES = ("2x8",)


@pytest.fixture(params=["simulated", pytest.param("real", marks=pytest.mark.cluster)])
def world(request, tmp_path):
    """``with world(policy, shapes) as w``: the same cluster on either back end."""
    if request.param == "simulated":
        return worlds.simulated
    return lambda policy, shapes: worlds.real(request, policy, shapes)


def condition(obj):
    found = [c for c in obj["status"].get("conditions", ()) if c["type"] == "PodScheduled"]
    return found[0] if found else {}


def held(state, uid):
    mask = 0
    for holding in state.holdings.get(uid, {}).values():
        mask |= holding.cpus
    return mask


def zones_of(state, mask):
    return [zone for zone, cpus in state.topology.zone_cpus.items() if cpus & mask]


def test_a_pod_gets_its_cpus_in_one_zone_and_gives_them_back(world):
    with world("single-numa-node", SHAPES) as w:
        (node,) = w.nodes
        wanted = pod(container(4, "1Gi"), name="whole-one", scheduler=OURS)
        w.create(wanted)
        placed = w.running(wanted)
        assert placed["status"]["phase"] == "Running"
        assert placed["spec"]["nodeName"] == node
        uid = placed["metadata"]["uid"]
        state = w.state(node, lambda s: uid in s.admitted, "the pod is confirmed")
        cpus = held(state, uid)
        assert cpus.bit_count() == 4
        assert len(zones_of(state, cpus)) == 1
        assert not cpus & state.shared
        (block,) = [b for h in state.holdings[uid].values() for b in h.memory]
        assert block.size == 1 << 30
        w.end(placed)
        after = w.state(node, lambda s: uid not in s.holdings, "the pod is let go")
        assert after.shared & cpus == cpus


def test_what_fits_no_zone_waits_and_is_told_why(world):
    with world("single-numa-node", SHAPES) as w:
        wanted = pod(container(9, "1Gi"), name="too-wide", scheduler=OURS)
        w.create(wanted)
        told = w.wait(wanted, lambda obj: condition(obj).get("status") == "False", "is told why")
        assert "TopologyAffinityError" in condition(told)["message"]
        assert not told["spec"].get("nodeName")
        w.end(told)


def test_a_refused_pod_leaves_nothing_behind(world):
    with world("single-numa-node", SHAPES) as w:
        (node,) = w.nodes
        before = w.state(node, lambda s: s.synced, "the kubelet is synced")
        refused = pod(container(9, "1Gi"), name="bypass", node=node)
        w.create(refused)
        failed = w.wait(refused, lambda obj: obj["status"].get("phase") == "Failed", "is refused")
        assert failed["status"]["reason"] == "TopologyAffinityError"
        uid = failed["metadata"]["uid"]
        state = w.state(node, lambda s: uid not in s.holdings, "nothing is left of it")
        assert (state.shared, uid in state.admitted) == (before.shared, False)
        w.end(failed)


def test_containers_init_containers_and_sidecars_share_a_pods_cpus_as_the_kubelet_says(world):
    with world("restricted", SHAPES) as w:
        (node,) = w.nodes
        wanted = pod(
            container(2, "256Mi"),
            container(3, "256Mi"),
            init=[
                container(4, "256Mi", command=["sleep", "0.1"]),
                container(1, "256Mi", sidecar=True),
            ],
            name="family",
            scheduler=OURS,
        )
        w.create(wanted)
        placed = w.running(wanted)
        assert placed["status"]["phase"] == "Running"
        uid = placed["metadata"]["uid"]
        state = w.state(node, lambda s: uid in s.admitted, "the pod is confirmed")
        sizes = {name: h.cpus.bit_count() for name, h in state.holdings[uid].items()}
        assert sizes == {"i0": 4, "i1": 1, "c0": 2, "c1": 3}
        parts = state.holdings[uid]
        assert not parts["c0"].cpus & parts["c1"].cpus
        assert not parts["i1"].cpus & (parts["c0"].cpus | parts["c1"].cpus)
        w.end(placed)


@pytest.mark.parametrize("seed", [1, 2])
def test_a_stream_of_pods_meets_no_refusal_and_leaves_an_empty_node(world, seed):
    rng = random.Random(seed)
    with world("single-numa-node", ("2x8", "2x8")) as w:
        pods = [
            pod(
                *(
                    container(rng.choice([1, 2, 3, 4, 6]), "256Mi")
                    for _ in range(rng.choice([1, 1, 2]))
                ),
                name=f"s{seed}-{number}",
                scheduler=OURS,
            )
            for number in range(10)
        ]
        for each in pods:
            w.create(each)
        uids = set()
        waiting = {each["metadata"]["name"] for each in pods}
        for _, obj in w.api.watch(worlds.PODS, seconds=60):
            name, phase = obj["metadata"]["name"], obj["status"].get("phase")
            assert phase != "Failed", obj["status"]
            if phase == "Running" and name in waiting:
                # Whoever runs ends at once: a large pod may wait for the small ones around it.
                waiting.discard(name)
                uids.add(obj["metadata"]["uid"])
                w.end(obj)
            if not waiting:
                break
        assert not waiting, f"never ran: {waiting}"
        for node in w.nodes:
            state = w.state(node, lambda s: not uids & s.holdings.keys(), "all pods are let go")
            assert bits.format_list(state.shared) == bits.format_list(state.topology.all_cpus)
