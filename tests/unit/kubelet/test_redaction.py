"""Private names and ids leave a kubelet's files; what is left are sound files."""

from __future__ import annotations

import json

import pytest

from rte import errors
from rte.kubelet import recorded, statefiles
from rte.kubelet.redaction import Redaction, without_responses
from rte.model.kubelet import ListedContainer, ListedPod
from tests import checkpoints

GPU = "GPU-01234567-89ab-cdef-0123-456789abcdef"


def device_checkpoint(container: str = "secret") -> str:
    entry = {
        "PodUID": "u",
        "ContainerName": container,
        "ResourceName": "v.d/gpu",
        "DeviceIDs": {"0": [GPU]},
        "AllocResp": "VE9QU0VDUkVU",
    }
    data = {"PodDeviceEntries": [entry], "RegisteredDevices": {"v.d/gpu": [GPU]}}
    return json.dumps(checkpoints.sealed({"Data": data, "Checksum": 0}))


def cpu_state() -> dict[str, object]:
    entries = {"u": {"secret": "2-3", "other": "4"}}
    return {"policyName": "static", "defaultCpuSet": "0-1", "entries": entries, "checksum": 0}


def test_a_device_checkpoint_without_responses_is_sound() -> None:
    text = without_responses(device_checkpoint())
    assert "VE9Q" not in text
    assert statefiles.parse_device_checkpoint(text).registered == {"v.d/gpu": frozenset({GPU})}


@pytest.mark.parametrize("seal", [checkpoints.sealed, checkpoints.embedded])
def test_containers_get_the_same_number_in_every_file(seal) -> None:
    redaction = Redaction()
    cpu = redaction.file(statefiles.CPU_STATE, json.dumps(seal(cpu_state())))
    parsed = statefiles.parse_cpu_state(cpu)
    assert parsed.entries == {"u": {"container-1": 0b1100, "container-2": 0b10000}}
    devices = redaction.file(statefiles.DEVICE_CHECKPOINT, device_checkpoint("other"))
    assert list(statefiles.parse_device_checkpoint(devices).entries["u"]) == ["container-2"]
    assert GPU not in devices
    pod = ListedPod("space", "secret-pod", (ListedContainer("secret", 0b1100),))
    answers = redaction.file("podresources.json", recorded.format_answers([pod], None))
    (listed,) = recorded.Recording.parse(answers).pods
    assert (listed.namespace, listed.name) == ("namespace-1", "pod-1")
    assert listed.containers[0].name == "container-1"
    assert "secret" not in cpu + devices + answers
    assert "space" not in answers.replace("namespace", "")


def test_admitted_pods_keep_their_uids() -> None:
    data = json.dumps({"entries": {"u": {"ContainerResources": {"secret": {}}}}})
    text = json.dumps(checkpoints.sealed({"data": data, "checksum": 0}))
    redacted = Redaction().file(statefiles.ALLOCATED_PODS, text)
    assert statefiles.parse_allocated_pods(redacted).pods == {"u": frozenset({"container-1"})}


def test_addresses_and_uuids_become_numbers() -> None:
    redaction = Redaction()
    text = redaction.text(f"00:1B:21:aa:bb:cc 0000:17:00.0 {GPU} 00:1b:21:aa:bb:cc 0-63")
    assert text == "02:00:00:00:00:00 0000:17:00.0 GPU-1 02:00:00:00:00:00 0-63"
    infiniband = ":".join(["80"] * 20)
    assert redaction.text(infiniband) == "02:00:00:00:00:01"


@pytest.mark.parametrize("text", ["", "[]", "{}", "3", '{"policyName": 1}'])
def test_damaged_files_are_refused(text: str) -> None:
    with pytest.raises(errors.ParseError):
        Redaction().file(statefiles.CPU_STATE, text)
