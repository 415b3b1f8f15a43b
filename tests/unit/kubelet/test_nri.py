"""The plugin that pins containers: its messages, its answers, and a runtime that comes and goes."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rte.kubelet._pb import nri_pb2 as pb
from rte.kubelet.nri import frames, plugin
from rte.kubelet.nri.frames import PLUGIN, REQUEST, RESPONSE, RUNTIME, Decoder, Message, encode
from rte.kubelet.nri.plugin import Pinner, serve
from rte.placement.groups.pinning import cpus_for
from tests.unit.placement.groups.test_live import RECORD

if TYPE_CHECKING:
    from pathlib import Path

ALLOCATION, GROUPS = "topology.rte.dev/allocation", "topology.rte.dev/groups"
ANNOTATIONS = {ALLOCATION: RECORD.text(), GROUPS: '{"version": 1}'}
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


def a_pinner() -> Pinner:
    return Pinner(lambda annotations, uid: cpus_for(annotations, uid, "n"))


def a_pod(uid: str = "u") -> pb.PodSandbox:
    return pb.PodSandbox(id="s", name="p", namespace="d", uid=uid, annotations=ANNOTATIONS)


def test_a_container_is_pinned_as_it_is_created() -> None:
    asked = pb.CreateContainerRequest(pod=a_pod(), container=pb.Container(name="c"))
    answer = a_pinner().answer("CreateContainer", asked.SerializeToString())

    assert answer == pb.CreateContainerResponse.FromString(answer.SerializeToString())
    assert answer.adjust.linux.resources.cpu.cpus == "2-4,18"
    other = pb.CreateContainerRequest(pod=a_pod("other"))
    left = a_pinner().answer("CreateContainer", other.SerializeToString())
    assert left == pb.CreateContainerResponse()


def test_containers_that_run_already_are_pinned_when_the_plugin_comes() -> None:
    pinner = a_pinner()
    first = pb.SynchronizeRequest(pods=[a_pod()], more=True)
    then = pb.SynchronizeRequest(
        containers=[
            pb.Container(id="c", pod_sandbox_id="s"), pb.Container(id="x", pod_sandbox_id="t")
        ]
    )  # fmt: skip

    assert pinner.answer("Synchronize", first.SerializeToString()).more
    answer = pinner.answer("Synchronize", then.SerializeToString())

    (update,) = answer.update
    assert (update.container_id, update.linux.resources.cpu.cpus) == ("c", "2-4,18")


def test_a_question_that_cannot_be_read_is_told() -> None:
    with pytest.raises(frames.NRIError, match="CreateContainer cannot be read"):
        a_pinner().answer("CreateContainer", b"\xff")


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

    serving = asyncio.create_task(serve(path, a_pinner(), "40"))
    server = await asyncio.start_unix_server(runtime, path)
    for _ in range(2):
        created = pb.CreateContainerResponse.FromString((await answers.get()).payload)
        assert created.adjust.linux.resources.cpu.cpus == "2-4,18"
        assert (await answers.get()).status.code == 12
    serving.cancel()
    await asyncio.wait([serving])
    server.close()
