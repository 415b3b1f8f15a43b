"""Bodies as ``kubectl`` sends them: protobuf gives the same objects as JSON."""

from __future__ import annotations

import base64
import struct
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rte.sim.apiserver import API
from rte.sim.apiserver.schema import protobuf
from rte.sim.apiserver.status import DecodeError

if TYPE_CHECKING:
    import aiohttp

#: What kubectl 1.37.1 sent for "create deployment web --image=nginx:1 --replicas=2 --port=80",
#: "create job once --image=busybox:1 -- sleep 5", "create secret generic s --from-literal=user=me"
#: and "create poddisruptionbudget guard --selector=app=web --min-available=50%".
DEPLOYMENT = (
    "azhzAAoVCgdhcHBzL3YxEgpEZXBsb3ltZW50EroBCh8KA3dlYhIAGgAiACoAMgA4AEIAWgoKA2FwcBIDd2ViEogBCA"
    "ISDAoKCgNhcHASA3dlYhpuChwKABIAGgAiACoAMgA4AEIAWgoKA2FwcBIDd2ViEk4SMAoFbmdpbngSB25naW54OjEq"
    "ADIKCgAQABhQIgAqAEIAagByAIABAIgBAJABAKIBABoAMgBCAEoAUgBYAGAAaACCAQCKAQCaAQDCAQAiAgoAKAA4AB"
    "oMCAAQABgAIAAoADgAGgAiAA=="
)
JOB = (
    "azhzAAoPCghiYXRjaC92MRIDSm9iEooBChQKBG9uY2USABoAIgAqADIAOABCABJoMmYKEAoAEgAaACIAKgAyADgAQg"
    "ASUhIvCgRvbmNlEglidXN5Ym94OjEaBXNsZWVwGgE1KgBCAGoAcgCAAQCIAQCQAQCiAQAaBU5ldmVyMgBCAEoAUgBY"
    "AGAAaACCAQCKAQCaAQDCAQAaCCAAKAAwADoAGgAiAA=="
)
SECRET = "azhzAAoMCgJ2MRIGU2VjcmV0EiEKEQoBcxIAGgAiACoAMgA4AEIAEgoKBHVzZXISAm1lGgAaACIA"
BUDGET = (
    "azhzAAogCglwb2xpY3kvdjESE1BvZERpc3J1cHRpb25CdWRnZXQSPgoVCgVndWFyZBIAGgAiACoAMgA4AEIAEhkKCQ"
    "gBEAAaAzUwJRIMCgoKA2FwcBIDd2ViGgoIABgAIAAoADAAGgAiAA=="
)


def test_a_deployment_of_kubectl() -> None:
    found = protobuf.decode("apps/v1.Deployment", base64.b64decode(DEPLOYMENT))
    assert (found["apiVersion"], found["kind"]) == ("apps/v1", "Deployment")
    assert found["metadata"]["name"] == "web"
    assert found["metadata"]["creationTimestamp"] is None
    assert found["spec"]["replicas"] == 2
    assert found["spec"]["selector"] == {"matchLabels": {"app": "web"}}
    (container,) = found["spec"]["template"]["spec"]["containers"]
    assert (container["name"], container["image"]) == ("nginx", "nginx:1")
    assert container["ports"][0]["containerPort"] == 80


def test_commands_secrets_and_percentages() -> None:
    job = protobuf.decode("batch/v1.Job", base64.b64decode(JOB))
    assert job["spec"]["template"]["spec"]["containers"][0]["command"] == ["sleep", "5"]
    secret = protobuf.decode("core/v1.Secret", base64.b64decode(SECRET))
    assert secret["data"] == {"user": base64.b64encode(b"me").decode()}
    budget = protobuf.decode("policy/v1.PodDisruptionBudget", base64.b64decode(BUDGET))
    assert budget["spec"]["minAvailable"] == "50%"


def test_what_is_created_equals_what_json_creates() -> None:
    first, second = API(), API()
    body = protobuf.decode("apps/v1.Deployment", base64.b64decode(DEPLOYMENT))
    template = {
        "metadata": {"labels": {"app": "web"}},
        "spec": {
            "containers": [{"name": "nginx", "image": "nginx:1", "ports": [{"containerPort": 80}]}]
        },
    }
    plain = {
        "metadata": {"name": "web", "labels": {"app": "web"}},
        "spec": {
            "replicas": 2,
            "selector": {"matchLabels": {"app": "web"}},
            "template": template,
        },
    }
    made = [
        first.create("deployments", body, "default"),
        second.create("deployments", plain, "default"),
    ]
    assert made[0]["spec"] == made[1]["spec"]
    assert made[0]["metadata"]["labels"] == made[1]["metadata"]["labels"]


def varint(number: int) -> bytes:
    out = b""
    while number > 127:
        out, number = out + bytes([number & 127 | 128]), number >> 7
    return out + bytes([number])


def chunk(number: int, data: bytes) -> bytes:
    return varint(number << 3 | 2) + varint(len(data)) + data


def encode(name: str, value: dict[str, Any]) -> bytes:
    """The encoder that a client has, for the few types of these tests."""
    numbers = {field: (number, kind) for number, (field, kind) in protobuf._structs()[name].items()}
    out = b""
    for field, item in value.items():
        number, kind = numbers[field]
        kind = kind.removeprefix("*")
        if kind == "{}string":
            for key, text in item.items():
                out += chunk(number, chunk(1, key.encode()) + chunk(2, text.encode()))
        elif kind.startswith("[]"):
            for one in item:
                out += chunk(number, one.encode() if kind == "[]string" else encode(kind[2:], one))
        elif kind == "string":
            out += chunk(number, item.encode())
        elif kind in ("int32", "int64", "bool"):
            out += varint(number << 3) + varint(int(item) & (1 << 64) - 1)
        elif kind == "float64":
            out += varint(number << 3 | 1) + struct.pack("<d", item)
        else:
            out += chunk(number, encode(kind, item))
    return out


texts = st.text(min_size=1, max_size=8)
pods = st.fixed_dictionaries(
    {
        "metadata": st.fixed_dictionaries(
            {"name": texts, "labels": st.dictionaries(texts, texts, min_size=1, max_size=3)}
        ),
        "spec": st.fixed_dictionaries(
            {
                "nodeName": texts,
                "priority": st.integers(-(1 << 31), (1 << 31) - 1),
                "hostNetwork": st.booleans(),
                "terminationGracePeriodSeconds": st.integers(-(1 << 63), (1 << 63) - 1),
                "containers": st.lists(
                    st.fixed_dictionaries(
                        {"name": texts, "args": st.lists(texts, min_size=1, max_size=3)}
                    ),
                    min_size=1,
                    max_size=3,
                ),
            }
        ),
    }
)


def message(name: str, value: dict[str, Any]) -> bytes:
    return b"k8s\0" + chunk(1, chunk(1, b"v1") + chunk(2, b"Pod")) + chunk(2, encode(name, value))


@given(pods)
def test_what_a_client_encodes_is_what_it_meant(pod: dict[str, Any]) -> None:
    found = protobuf.decode("core/v1.Pod", message("core/v1.Pod", pod))
    assert found == {"apiVersion": "v1", "kind": "Pod", **pod}


@given(st.binary(max_size=200))
def test_hostile_bytes_are_refused_or_read(data: bytes) -> None:
    for body in (
        data,
        b"k8s\0" + data,
        b"k8s\0" + chunk(2, data),
        message("core/v1.Pod", {}) + data,
    ):
        try:
            protobuf.decode("core/v1.Pod", body)
        except DecodeError as error:
            assert str(error)


@given(pods, st.data())
def test_damaged_messages_are_refused_or_read(pod: dict[str, Any], data: st.DataObject) -> None:
    body = bytearray(message("core/v1.Pod", pod))
    at = data.draw(st.integers(4, len(body) - 1))
    body[at] ^= data.draw(st.integers(1, 255))
    try:
        protobuf.decode("core/v1.Pod", bytes(body))
    except DecodeError as error:
        assert str(error)


async def test_over_http(http: aiohttp.ClientSession) -> None:
    url = "/apis/apps/v1/namespaces/default/deployments"
    kind = {"Content-Type": protobuf.MEDIA_TYPE}
    async with http.post(url, data=base64.b64decode(DEPLOYMENT), headers=kind) as answer:
        assert answer.status == 201
    async with http.post(url, data=b"k8s\0\xff", headers=kind) as answer:
        assert answer.status == 400
        assert "cannot be read" in (await answer.json())["message"]


@pytest.mark.parametrize("body", [b"", b"{}", b"k8s"])
def test_other_bodies_are_told_from_protobuf(body: bytes) -> None:
    with pytest.raises(DecodeError, match="does not appear to be a protobuf message"):
        protobuf.decode("core/v1.Pod", body)
