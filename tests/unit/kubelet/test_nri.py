"""The plugin that pins containers: its messages, its answers, and a runtime that comes and goes."""

from __future__ import annotations

import asyncio
import itertools
import json
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs

from rte import cli, errors
from rte.cli import nri
from rte.kubelet._pb import nri_pb2 as pb
from rte.kubelet.nri import frames, plugin
from rte.kubelet.nri.frames import PLUGIN, REQUEST, RESPONSE, RUNTIME, Decoder, Message, encode
from rte.kubelet.nri.plugin import Adjuster, serve
from rte.placement.groups.allocation import CONDITION
from rte.placement.groups.delivery.containers import DeviceError, cpus_for, gpus_for
from tests.unit.placement.groups.test_live import RECORD

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from pathlib import Path

ALLOCATION, GROUPS = "topology.rte.dev/allocation", "topology.rte.dev/groups"
ANNOTATIONS = {ALLOCATION: RECORD.text(), GROUPS: '{"version": 1}'}
UUID = "nvidia.com/gpu=${uuid}"
messages = st.lists(
    st.builds(
        Message, st.sampled_from([1, 2]), st.integers(0, 99), st.just(1), st.binary(max_size=40)
    )
)


@given(messages, st.integers(1, 7))
def test_messages_come_whole_however_they_are_cut(sent: list[Message], size: int) -> None:
    decoder = Decoder()
    data = b"".join(map(encode, sent))
    got = [
        message
        for start in range(0, len(data), size)
        for message in decoder.feed(data[start : start + size])
    ]

    assert got == sent


@given(st.binary(max_size=80))
def test_no_bytes_crash_the_decoder(data: bytes) -> None:
    try:
        list(Decoder().feed(data))
    except frames.NRIError as error:
        assert "bytes" in str(error)


def test_connections_that_there_are_not_are_not_kept() -> None:
    decoder = Decoder()
    with pytest.raises(frames.NRIError, match="of connection 7"):
        list(decoder.feed((7).to_bytes(4, "big") + (4 << 20).to_bytes(4, "big")))


async def test_what_a_runtime_tells_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plugin, "_MOST_TOLD_BYTES", 100_000)
    part = pb.SynchronizeRequest(pods=[pb.PodSandbox(id="x" * 40_000)], more=True)
    adjuster = an_adjuster()
    for _ in range(2):
        await adjuster.answer("Synchronize", part.SerializeToString())
    with pytest.raises(frames.NRIError, match="more than 100000 bytes"):
        await adjuster.answer("Synchronize", part.SerializeToString())


@pytest.mark.parametrize("payload", [b"\xff", b"\x0a\xff"])
async def test_a_message_that_cannot_be_read_ends_the_conversation(payload: bytes) -> None:
    adjuster = an_adjuster()
    with pytest.raises(frames.NRIError, match="cannot be read"):
        await plugin._reply(adjuster, payload)
    with pytest.raises(frames.NRIError, match="cannot be read"):
        plugin._registered(payload)


@pytest.mark.parametrize(
    ("annotations", "uid", "node", "wanted"),
    [
        (ANNOTATIONS, "u", "n", "2-4,18"),
        (ANNOTATIONS, "other", "n", ""),
        (ANNOTATIONS, "u", "other", ""),
        ({ALLOCATION: "{"}, "u", "n", ""),
        ({}, "u", "n", ""),
        ({**ANNOTATIONS, GROUPS: '{"x-self-pinned": true}'}, "u", "n", ""),
        ({**ANNOTATIONS, GROUPS: "["}, "u", "n", "2-4,18"),
    ],
)
def test_whom_a_record_pins(annotations: dict[str, str], uid: str, node: str, wanted: str) -> None:
    assert cpus_for(annotations, uid, node) == wanted


async def as_said(pod: pb.PodSandbox) -> str:
    """The scheduler has recorded what the annotation says."""
    return str(pod.annotations[ALLOCATION])


def an_adjuster(
    gpu_device: str = "", recorded: Callable[[pb.PodSandbox], Awaitable[str]] = as_said
) -> Adjuster:
    return Adjuster(
        recorded,
        lambda annotations, uid: cpus_for(annotations, uid, "n"),
        lambda annotations, uid: gpus_for(annotations, uid, "n", gpu_device),
    )


def a_pod(uid: str = "u") -> pb.PodSandbox:
    return pb.PodSandbox(id="s", name="p", namespace="d", uid=uid, annotations=ANNOTATIONS)


async def test_a_container_is_pinned_as_it_is_created() -> None:
    asked = pb.CreateContainerRequest(pod=a_pod(), container=pb.Container(name="c"))
    answer = await an_adjuster().answer("CreateContainer", asked.SerializeToString())

    assert answer == pb.CreateContainerResponse.FromString(answer.SerializeToString())
    assert answer.adjust.linux.resources.cpu.cpus == "2-4,18"
    other = pb.CreateContainerRequest(pod=a_pod("other"))
    left = await an_adjuster().answer("CreateContainer", other.SerializeToString())
    assert not left.adjust.HasField("linux")
    assert not left.adjust.CDI_devices


async def nothing(pod: pb.PodSandbox) -> str:
    return ""


async def another(pod: pb.PodSandbox) -> str:
    return RECORD.text().replace('"cpus":[4]', '"cpus":[5]')


@pytest.mark.parametrize(
    ("recorded", "uid", "cpus", "gpus"),
    [(nothing, "u", "", []), (another, "u", "2-3,5,18", []), (another, "v", "", [])],
)
async def test_what_counts_is_what_the_scheduler_has_recorded(
    recorded: Callable[[pb.PodSandbox], Awaitable[str]], uid: str, cpus: str, gpus: list[str]
) -> None:
    """The pod's author has written the annotation: all GPUs, and CPUs of others."""
    pod = a_pod(uid)
    pod.annotations.update(with_gpus("GPU-5ea1", "GPU-5ea2"))
    adjuster = an_adjuster("" if cpus else UUID, recorded)
    asked = pb.CreateContainerRequest(pod=pod, container=pb.Container(name="c"))
    told = pb.SynchronizeRequest(pods=[pod], containers=[pb.Container(id="c", pod_sandbox_id="s")])

    answer = await adjuster.answer("CreateContainer", asked.SerializeToString())
    updates = await adjuster.answer("Synchronize", told.SerializeToString())

    assert answer.adjust.linux.resources.cpu.cpus == cpus
    assert [device.name for device in answer.adjust.CDI_devices] == gpus
    assert [it.linux.resources.cpu.cpus for it in updates.update] == ([cpus] if cpus else [])


async def test_while_the_api_server_is_away_only_containers_of_pods_it_told_of_are_created() -> (
    None
):
    calls: list[str] = []

    async def once(pod: pb.PodSandbox) -> str:
        calls.append(pod.uid)
        if len(calls) > 1:
            raise errors.KubeError("no answer")
        return RECORD.text()

    adjuster = an_adjuster(recorded=once)
    asked = pb.Envelope(method="CreateContainer")

    async def create(pod: pb.PodSandbox) -> pb.Reply:
        asked.payload = pb.CreateContainerRequest(pod=pod).SerializeToString()
        return pb.Reply.FromString(await plugin._reply(adjuster, asked.SerializeToString()))

    for _ in range(2):
        answer = pb.CreateContainerResponse.FromString((await create(a_pod())).payload)
        assert answer.adjust.linux.resources.cpu.cpus == "2-4,18"
    assert (await create(a_pod("v"))).status.message == "no answer"
    assert (await create(pb.PodSandbox(uid="w"))).status.code == 0  # no groups: nobody is asked
    assert calls == ["u", "v"]


class Api:
    """An API server that has one pod, or answers with an error."""

    def __init__(self, pod: dict[str, Any] | None = None, status: int = 0) -> None:
        self.pod, self.status = pod, status

    async def get(self, path: str) -> dict[str, Any]:
        assert path == "/api/v1/namespaces/d/pods/p"
        if self.pod is None:
            raise errors.KubeError("no", status=self.status)
        return self.pod


def told(status: str = "True", uid: str = "u", kind: str = CONDITION) -> dict[str, Any]:
    condition = {"type": kind, "status": status, "message": "text"}
    return {
        "metadata": {"name": "p", "uid": uid},
        "spec": {"containers": []},
        "status": {"conditions": [{"type": "Ready", "status": "True"}, condition]},
    }


@pytest.mark.parametrize(
    ("api", "wanted"),
    [
        (Api(told()), "text"),
        (Api(told(status="False")), ""),
        (Api(told(uid="a namesake")), ""),
        (Api(told(kind="example.com/Allocated")), ""),
        (Api({**told(), "status": {}}), ""),
        (Api(status=404), ""),
    ],
)
async def test_the_record_is_a_condition_of_the_pod(api: Api, wanted: str) -> None:
    assert await nri._recorded(api, a_pod()) == wanted  # type: ignore[arg-type]


@pytest.mark.parametrize("api", [Api(status=500), Api({"spec": {}})])
async def test_without_an_answer_nobody_guesses(api: Api) -> None:
    with pytest.raises(errors.RteError):
        await nri._recorded(api, a_pod())  # type: ignore[arg-type]


def with_gpus(*uuids: str) -> dict[str, str]:
    """The annotations of a pod that was given these GPUs."""
    (group,) = RECORD.allocation.groups
    addresses = tuple(f"0000:1{i}:00.0" for i in range(len(uuids)))
    record = replace(
        RECORD,
        allocation=structs.replace(
            RECORD.allocation, groups=(structs.replace(group, gpus=addresses),)
        ),
        devices={
            address: {"uuid": uuid, "model": "A100", "index": i}
            for i, (address, uuid) in enumerate(zip(addresses, uuids, strict=True))
        },
    )
    return {**ANNOTATIONS, ALLOCATION: record.text()}


@pytest.mark.parametrize(
    ("template", "wanted"),
    [
        ("", []),
        (UUID, ["nvidia.com/gpu=GPU-5ea1", "nvidia.com/gpu=GPU-5ea2"]),
        ("amd.com/gpu=${index}", ["amd.com/gpu=0", "amd.com/gpu=1"]),
        ("site.example/pci=${address}", ["site.example/pci=0000:10:00.0",
                                         "site.example/pci=0000:11:00.0"]),
    ],
)  # fmt: skip
@pytest.mark.parametrize("self_pinned", [False, True])
async def test_a_container_gets_the_gpus_of_its_pod(
    template: str, wanted: list[str], self_pinned: bool
) -> None:
    """Whoever pins its threads itself has its GPUs from us nevertheless."""
    pod = a_pod()
    pod.annotations.update(with_gpus("GPU-5ea1", "GPU-5ea2"))
    pod.annotations[GROUPS] = json.dumps({"version": 1, "x-self-pinned": self_pinned})
    asked = pb.CreateContainerRequest(pod=pod, container=pb.Container(name="c"))

    answer = await an_adjuster(template).answer("CreateContainer", asked.SerializeToString())

    assert [device.name for device in answer.adjust.CDI_devices] == wanted
    assert bool(answer.adjust.linux.resources.cpu.cpus) is not self_pinned


def test_of_another_pods_record_no_gpu_is_taken() -> None:
    assert gpus_for(with_gpus("GPU-5ea1"), "other", "n", UUID) == ()


def test_without_a_name_for_its_gpu_a_container_is_not_created() -> None:
    """Its driver told no UUID."""
    with pytest.raises(DeviceError, match=r"'nvidia\.com/gpu=' is no name such as"):
        gpus_for(with_gpus(""), "u", "n", UUID)


@pytest.mark.parametrize("name", ["gpu", "nvidia.com/gpu=${serial}", "${uuid}", "a/b=c/d"])
def test_a_wrong_name_of_devices_is_told_at_once(
    name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["nri", "--gpu-device", name]) == 2
    (line,) = capsys.readouterr().err.strip().splitlines()
    assert "GPU device" in line


POD = pb.SynchronizeRequest(pods=[a_pod()])
BOXES = [pb.Container(id=f"c{i}", pod_sandbox_id="s") for i in range(2)]
FIRST = pb.SynchronizeRequest(containers=[BOXES[0], pb.Container(id="x", pod_sandbox_id="t")])
LAST = pb.SynchronizeRequest(containers=BOXES[1:])


@pytest.mark.parametrize("parts", [*itertools.permutations((POD, FIRST, LAST))])
async def test_containers_that_run_already_are_pinned_when_all_is_told(
    parts: tuple[pb.SynchronizeRequest, ...],
) -> None:
    """containerd closes the connection of a plugin that answers updates to another part."""
    adjuster = an_adjuster()
    told = [pb.SynchronizeRequest.FromString(part.SerializeToString()) for part in parts]
    for part in told[:-1]:
        part.more = True

    *before, answer = [
        await adjuster.answer("Synchronize", part.SerializeToString()) for part in told
    ]

    assert before == [pb.SynchronizeResponse(more=True)] * 2
    assert not answer.more
    assert {update.container_id for update in answer.update} == {"c0", "c1"}
    assert {update.linux.resources.cpu.cpus for update in answer.update} == {"2-4,18"}
    assert not any(update.ignore_failure for update in answer.update)


async def test_what_a_runtime_told_in_part_before_it_ended_counts_no_more() -> None:
    adjuster = an_adjuster()
    half = pb.SynchronizeRequest(pods=[a_pod()], containers=BOXES, more=True)

    await adjuster.answer("Synchronize", half.SerializeToString())
    await adjuster.answer("Configure", b"")

    assert not (await adjuster.answer("Synchronize", LAST.SerializeToString())).update


async def test_a_question_that_cannot_be_read_is_told() -> None:
    with pytest.raises(frames.NRIError, match="CreateContainer cannot be read"):
        await an_adjuster().answer("CreateContainer", b"\xff")


async def test_what_keeps_a_container_from_being_created_is_told_to_the_runtime() -> None:
    pod = a_pod()
    pod.annotations.update(with_gpus(""))
    asked = pb.Envelope(method="CreateContainer")
    asked.payload = pb.CreateContainerRequest(pod=pod).SerializeToString()

    reply = pb.Reply.FromString(await plugin._reply(an_adjuster(UUID), asked.SerializeToString()))

    assert reply.status.code == 9
    assert "is no name such as" in reply.status.message


async def test_a_runtime_that_comes_back_is_served_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(plugin, "_AGAIN_S", 0.01)
    path = tmp_path / "nri.sock"
    answers: asyncio.Queue[pb.Reply] = asyncio.Queue()

    async def runtime(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        decoder = Decoder()
        asked = pb.Envelope(method="CreateContainer")
        asked.payload = pb.CreateContainerRequest(pod=a_pod()).SerializeToString()
        while data := await reader.read(3):
            for message in decoder.feed(data):
                if message.connection == RUNTIME:
                    told = pb.Envelope.FromString(message.payload)
                    assert told.method == "RegisterPlugin"
                    writer.write(encode(Message(RUNTIME, 1, RESPONSE, b"")))
                    for stream, method in ((1, "CreateContainer"), (3, "StopContainer")):
                        asked.method = method
                        body = asked.SerializeToString()
                        writer.write(encode(Message(PLUGIN, stream, REQUEST, body)))
                else:
                    answers.put_nowait(pb.Reply.FromString(message.payload))
                    if message.stream == 3:
                        writer.close()
                        return

    serving = asyncio.create_task(serve(path, an_adjuster(), "40"))
    server = await asyncio.start_unix_server(runtime, path)
    for _ in range(2):
        created = pb.CreateContainerResponse.FromString((await answers.get()).payload)
        assert created.adjust.linux.resources.cpu.cpus == "2-4,18"
        assert (await answers.get()).status.code == 12
    serving.cancel()
    await asyncio.wait([serving])
    server.close()
