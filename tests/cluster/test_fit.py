"""What ``rte fit`` says is what then happens: N fit, N are placed, and one more waits."""

from __future__ import annotations

import json
import os
import random

import pytest
import yaml

from rte.cli import main
from tests.cluster import worlds
from tests.cluster.test_scheduler import PODS, random_pod

#: Random states and shapes on each cluster; ``RTE_ROUNDS`` asks for more.
ROUNDS = 2
#: Shapes of which more fit would only take longer.
MOST_COPIES = 10
SHAPES = ("2x8", "4x4")


@pytest.fixture(params=["simulated", pytest.param("real", marks=pytest.mark.cluster)])
def world(request):
    """``with world(policy, shapes) as w``: the same cluster on either back end."""
    if request.param == "simulated":
        return worlds.simulated
    return lambda policy, shapes: worlds.real(request, policy, shapes)


def outcome(obj):
    """Whether a pod runs, waits, or neither yet."""
    status = (obj or {}).get("status") or {}
    assert status.get("phase") != "Failed", status
    if status.get("phase") == "Running":
        return "runs"
    conditions = status.get("conditions") or ()
    return "waits" if any(each.get("reason") == "Unschedulable" for each in conditions) else ""


def settle(w):
    """Wait until every report shows just the pods that are there; they are returned by node."""
    there = {}
    for node in w.nodes:
        # Of all namespaces: an agent has a pod as well.
        items = w.api.get("/api/v1/pods", fieldSelector=f"spec.nodeName={node}")["items"]
        there[node] = {each["metadata"]["name"] for each in items}
        uids = {each["metadata"]["uid"] for each in items}
        w.state(
            node,
            lambda state, uids=uids: state.synced and state.admitted == uids,
            f"is synced and shows {uids}",
        )
    return there


def fill(w, pods, fitting):
    """Create pods of which so many fit: these run, and the others are told to wait."""
    for each in pods:
        w.create(each)
    names = {each["metadata"]["name"] for each in pods}
    running = set()
    for _, each in w.api.watch(PODS, seconds=120) if fitting else ():
        if each["metadata"]["name"] in names and outcome(each) == "runs":
            running.add(each["metadata"]["name"])
        if len(running) >= fitting:
            break
    for each in pods:
        if each["metadata"]["name"] not in running:
            w.wait(each, lambda obj: outcome(obj) == "waits", "waits")
    # When every report shows who has come, still nobody else has a place.
    there = settle(w)
    assert set().union(*there.values()) & names == running


@pytest.mark.parametrize("policy", ["single-numa-node", "restricted", "best-effort"])
def test_as_many_are_placed_as_fit_and_one_more_waits(world, policy, tmp_path, capsys):
    manifest = tmp_path / "pod.yaml"
    rng = random.Random(os.environ.get("RTE_SEED", "1") + policy)

    def fits(pod):
        capsys.readouterr()
        manifest.write_text(yaml.safe_dump(pod))
        main(["fit", "-f", str(manifest), "--kubeconfig", str(w.kubeconfig), "-o", "json"])
        return json.loads(capsys.readouterr().out)

    with world(policy, SHAPES) as w:
        there, counts = [], []
        for number in range(int(os.environ.get("RTE_ROUNDS", str(ROUNDS)))):
            gone = [pod for pod in there if rng.random() < 0.4]
            w.end(*gone)
            there = [pod for pod in there if pod not in gone]
            settle(w)
            for each in range(rng.randint(0, 4)):
                pod = random_pod(rng, 10 * number + each)
                if fits(pod)["pods"]:
                    fill(w, [pod], 1)
                    there.append(pod)
            said = {"exact": False}
            while not said["exact"] or said["pods"] > MOST_COPIES:
                shape = random_pod(rng, number)
                said = fits(shape)
            copies = [
                {**shape, "metadata": {"name": f"copy-{number}-{each}"}}
                for each in range(said["pods"] + 1)
            ]
            fill(w, copies, said["pods"])
            counts.append(said["pods"])
            w.end(*copies)
        w.end(*there)
    with capsys.disabled():
        print(f"{policy}: as many as fit were placed, and one more waited: {counts}")
