"""State files byte for byte as real kubelets wrote them, checksums included."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest
from fnv_hash_fast import fnv1a_32

from rte.kubelet import statefiles
from rte.model.kubelet import DeviceCheckpoint, DeviceHolding
from rte.sim.kubelet import files

_UID = "3d7a2447-838a-4324-a732-185cbcf4844a"
_ENTRIES = '{"c0":"1,9","c1":"8","i0":"1,9"}'
CPU = [
    '{"policyName":"none","defaultCpuSet":"","checksum":1353318690}',
    '{"policyName":"static","defaultCpuSet":"0-15","checksum":4220024897}',
    f'{{"policyName":"static","defaultCpuSet":"0,2-7,10-15","entries":{{"{_UID}":{_ENTRIES}}},%s'
    % '"checksum":1955116033}',
]
_ROW = (
    '"memoryMap":{"hugepages-1Gi":{"total":0,"systemReserved":0,"allocatable":0,"reserved":0,'
    '"free":0},"hugepages-2Mi":{"total":134217728,"systemReserved":0,"allocatable":134217728,'
)
MEMORY = [
    '{"policyName":"None","machineState":{},"checksum":4236770233}',
    '{"policyName":"Static","machineState":{"0":{"numberOfAssignments":3,' + _ROW +
    '"reserved":4194304,"free":130023424},"memory":{"total":4294967296,"systemReserved":536870912,'
    '"allocatable":3623878656,"reserved":402653184,"free":3221225472}},"cells":[0]},"1":{'
    '"numberOfAssignments":0,' + _ROW + '"reserved":0,"free":134217728},"memory":{"total":'
    '4294967296,"systemReserved":0,"allocatable":4160749568,"reserved":0,"free":4160749568}},'
    '"cells":[1]}},"entries":{"3d7a2447-838a-4324-a732-185cbcf4844a":{"c0":[{"numaAffinity":[0],'
    '"type":"hugepages-2Mi","size":4194304},{"numaAffinity":[0],"type":"memory","size":268435456}],'
    '"c1":[{"numaAffinity":[0],"type":"memory","size":134217728}]}},"checksum":2013274744}',
]  # fmt: skip


@pytest.mark.parametrize("text", CPU)
def test_cpu_manager_state(text: str) -> None:
    assert files.encode_cpu_state(statefiles.parse_cpu_state(text)).decode() == text


@pytest.mark.parametrize("text", MEMORY)
def test_memory_manager_state(text: str) -> None:
    assert files.encode_memory_state(statefiles.parse_memory_state(text)).decode() == text


RECORDED = Path(__file__).parents[2] / "vectors/kubelet_state_files.jsonl.gz"


def test_the_formats_of_other_releases() -> None:
    """1.34 (the oldest format), 1.36 (pod entries beside) and 1.37 (all in ``data``)."""
    seen = set()
    with gzip.open(RECORDED, "rt", encoding="utf-8") as lines:
        for case in map(json.loads, lines):
            written = case["files"]
            cpu = statefiles.parse_cpu_state(written["cpu_manager_state"])
            memory = statefiles.parse_memory_state(written["memory_manager_state"])
            # With the gate on, 1.36 guards pod entries even where there are none.
            if case["version"] != "v1.36.4" or cpu.pod_entries:
                assert files.encode_cpu_state(cpu).decode() == written["cpu_manager_state"]
                assert files.encode_memory_state(memory).decode() == written["memory_manager_state"]
                seen.add((case["version"], bool(cpu.pod_entries)))
    expected = {("v1.34.8", False), ("v1.36.4", True), ("v1.37.1", False), ("v1.37.1", True)}
    assert seen == expected


def test_allocated_pods_state_leaves_ordinary_init_containers_out() -> None:
    limits = {"cpu": "2", "memory": "128Mi"}
    spec = {
        "containers": [{"name": "c0", "resources": {"limits": limits, "requests": limits}}],
        "initContainers": [{"name": "i0", "resources": {"limits": limits}}],
    }
    text = files.encode_allocated_pods({"9dc05e69-4876-41b1-8183-64d8fc7f16a4": spec})
    assert json.loads(text)["checksum"] == 1543735577
    assert statefiles.parse_allocated_pods(text).pods == {
        "9dc05e69-4876-41b1-8183-64d8fc7f16a4": frozenset({"c0"})
    }


def test_the_device_checkpoint_survives_the_parser() -> None:
    held = {"gpu0": 0b11, "gpu1": None}
    checkpoint = DeviceCheckpoint(
        entries={"u": {"c": (DeviceHolding("example.com/gpu", held),)}},
        registered={"example.com/gpu": frozenset({"gpu0", "gpu1"})},
    )
    text = files.encode_device_checkpoint(checkpoint)
    assert statefiles.parse_device_checkpoint(text) == checkpoint


def test_the_device_checkpoints_checksum() -> None:
    ids = frozenset({"gpu2"})
    text = files.encode_device_checkpoint(DeviceCheckpoint(registered={"example.com/gpu": ids}))
    dump = (
        "(checkpoint.checkpointData){PodDeviceEntries:([]checkpoint.PodDevicesEntry)<nil> "
        "RegisteredDevices:(map[string][]string)map[example.com/gpu:[gpu2]]}"
    )
    assert json.loads(text)["Checksum"] == fnv1a_32(dump.encode())
