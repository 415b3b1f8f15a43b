"""Sequences recorded with the real packages of Kubernetes v1.36.3.

They were run as the vectors of 1.35 were, but without changes to the kubelet: devices are compared
by their number per zone set, and each sequence ends where a random pick would have mattered. Two of
them differ from 1.35, where device hints also combine zones without such devices.
"""

import gzip
import json
from collections import Counter
from pathlib import Path

import pytest

from rte import placement
from rte.model import bits
from tests.conformance import kubelet

FILE = Path(__file__).with_name("kubelet-1.36.3.jsonl.gz")
CASES = [json.loads(line) for line in gzip.decompress(FILE.read_bytes()).splitlines()]


def differences(case, version):
    state = placement.initial_state(
        kubelet.topology_of(case["machine"]),
        kubelet.config_of(case["config"]),
        {name: kubelet.pool_of(rows) for name, rows in case["devices"].items()},
        version,
    )
    active = {}
    for number, step in enumerate(case["steps"]):
        if step["op"] == "admit":
            pod = kubelet.pod_of(step)
            answer = placement.execute(state, pod)
            if not matches(answer, step):
                return f"step {number}: {answer.reason} {answer.holdings}"
            if answer.admitted:
                active[pod.uid] = pod
            state = placement.settle(answer.state, frozenset(active))
        elif step["op"] == "start":
            state = placement.start(state, active[step["pod"]])
        else:
            del active[step["pod"]]
            state = placement.remove(state, step["pod"])
        if "shared" in step and bits.format_list(state.shared) != step["shared"]:
            return f"step {number}: shared pool {bits.format_list(state.shared)}"
        if memory_of(state) != step["mem"]:
            return f"step {number}: memory {memory_of(state)}"
    return ""


def matches(answer, step):
    if (answer.admitted, answer.reason) != (step["ok"], step.get("reason", "")):
        return False
    if not answer.admitted:
        return answer.message == step.get("msg", answer.message)
    for name, recorded in step["alloc"].items():
        held = answer.holdings.get(name)
        ours = bits.format_list(held.cpus) if held else ""
        blocks = [
            [block.resource, list(bits.members(block.zones)), block.size]
            for block in (held.memory if held else ())
        ]
        if ours != recorded.get("cpus", "") or blocks != recorded.get("mem", []):
            return False
        taken = held.devices if held else {}
        pools = answer.state.devices
        for resource in taken.keys() | recorded.get("dev", {}).keys():
            pool = pools[resource]
            mine = Counter(pool.zones[place] for place in bits.members(taken.get(resource, 0)))
            theirs = Counter(
                pool.zones[pool.ids.index(device)] for device in recorded["dev"].get(resource, ())
            )
            if mine != theirs:
                return False
    return True


def memory_of(state):
    return {
        str(zone): [
            row.assignments,
            list(bits.members(row.group)),
            {name: amounts.free for name, amounts in row.amounts.items()},
        ]
        for zone, row in state.memory.items()
    }


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["id"])
def test_1_36_is_predicted(case):
    assert differences(case, "v1.36.3") == ""


def test_some_of_it_is_not_what_1_35_does():
    assert any(differences(case, "v1.35.4") for case in CASES)
