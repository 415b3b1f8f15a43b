from __future__ import annotations

import asyncio
import tempfile
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import grpc
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rte import errors
from rte.kubelet import podresources
from rte.kubelet._pb import podresources_pb2 as pb
from rte.kubelet.podresources import PodResources
from rte.model.kubelet import DeviceHolding, ListedContainer, ListedPod
from rte.model.node import ClaimedDevice, MemoryBlock
from tests.depth import scaled
from tests.unit.kubelet.server import serve

if TYPE_CHECKING:
    from collections.abc import Iterator

GPU = "example.com/gpu"
MIB = 1 << 20


@pytest.fixture
def socket() -> Iterator[Path]:
    """In a directory of its own below /tmp: the path of a socket must be short."""
    with tempfile.TemporaryDirectory(prefix="rte-") as directory:
        yield Path(directory) / "kubelet.sock"


def topology(*zones: int) -> pb.TopologyInfo:
    return pb.TopologyInfo(nodes=[pb.NUMANode(ID=zone) for zone in zones])


def device(name: str, *zones: int) -> pb.ContainerDevices:
    return pb.ContainerDevices(resource_name=GPU, device_ids=[name], topology=topology(*zones))


def test_list_decodes_every_field() -> None:
    (pod,) = podresources.decode_pods(
        [
            pb.PodResources(
                name="p",
                namespace="ns",
                containers=[
                    pb.ContainerResources(
                        name="c",
                        cpu_ids=[3, 2, 3],
                        memory=[
                            pb.ContainerMemory(
                                memory_type="memory", size=MIB, topology=topology(1, 0)
                            )
                        ],
                        devices=[device("gpu0", 0), device("gpu0", 1), device("gpu1", 1)],
                        dynamic_resources=[
                            pb.DynamicResource(
                                claim_name="claim",
                                claim_namespace="ns",
                                claim_resources=[
                                    pb.ClaimResource(
                                        driver_name="driver",
                                        pool_name="pool",
                                        device_name="dev",
                                        share_id="share",
                                        cdi_devices=[pb.CDIDevice(name="vendor/class=dev")],
                                    )
                                ],
                            )
                        ],
                    )
                ],
                cpu_ids=[2, 3, 4],
                memory=[
                    pb.ContainerMemory(memory_type="memory", size=2 * MIB, topology=topology(0))
                ],
            )
        ]
    )
    assert pod == ListedPod(
        namespace="ns",
        name="p",
        containers=(
            ListedContainer(
                name="c",
                cpus=0b1100,
                memory=(MemoryBlock("memory", 0b11, MIB),),
                devices=(DeviceHolding(GPU, {"gpu0": 0b11, "gpu1": 0b10}),),
                claimed=(
                    ClaimedDevice(
                        "ns", "claim", "driver", "pool", "dev", "share", ("vendor/class=dev",)
                    ),
                ),
            ),
        ),
        cpus=0b11100,
        memory=(MemoryBlock("memory", 0b1, 2 * MIB),),
    )


def test_no_topology_and_a_topology_without_zones_are_told_apart() -> None:
    answer = pb.AllocatableResourcesResponse(
        cpu_ids=[1],
        devices=[
            pb.ContainerDevices(resource_name=GPU, device_ids=["none"]),
            device("empty"),
            device("anywhere", -1),
        ],
    )
    allocatable = podresources.decode_allocatable(answer)
    assert allocatable.cpus == 0b10
    assert allocatable.devices[0].devices == {"none": None, "empty": 0, "anywhere": 0}


@pytest.mark.parametrize(
    "address", ["/run/kubelet.sock", "unix:/run/kubelet.sock", "unix:///run/kubelet.sock"]
)
def test_addresses_of_one_socket(address: str) -> None:
    assert podresources.socket_path(address) == Path("/run/kubelet.sock")


@pytest.mark.parametrize("address", ["", "unix:", "unix://", "tcp://127.0.0.1:1", "/" + "x" * 107])
def test_a_bad_address_is_a_usage_error(address: str) -> None:
    with pytest.raises(errors.UsageError) as caught:
        podresources.socket_path(address)
    assert "\n" not in str(caught.value)


async def test_a_kubelet_answers(socket: Path) -> None:
    asked: list[Any] = []

    async def get(request: pb.GetPodResourcesRequest) -> pb.GetPodResourcesResponse:
        asked.append(request)
        return pb.GetPodResourcesResponse(pod_resources=pb.PodResources(name=request.pod_name))

    answers = {
        "List": pb.ListPodResourcesResponse(pod_resources=[pb.PodResources(name="p")]),
        "GetAllocatableResources": pb.AllocatableResourcesResponse(cpu_ids=[0, 1]),
        "Get": get,
    }
    async with serve(socket, answers), PodResources(f"unix://{socket}") as client:
        assert [pod.name for pod in await client.list()] == ["p"]
        allocatable = await client.allocatable()
        assert allocatable is not None
        assert allocatable.cpus == 0b11
        pod = await client.get("ns", "p")
        assert pod is not None
        assert pod.name == "p"
    assert (asked[0].pod_namespace, asked[0].pod_name) == ("ns", "p")


@pytest.mark.parametrize(
    "refusal",
    [
        None,
        (grpc.StatusCode.UNIMPLEMENTED, "unknown method"),
        (grpc.StatusCode.FAILED_PRECONDITION, "not now"),
        (grpc.StatusCode.UNKNOWN, "PodResources API GetAllocatableResources disabled"),
    ],
)
async def test_a_kubelet_without_get_allocatable_resources(
    socket: Path, refusal: tuple[Any, str] | None
) -> None:
    answers: dict[str, Any] = {"List": pb.ListPodResourcesResponse()}
    if refusal:
        answers |= {"GetAllocatableResources": refusal, "Get": refusal}
    async with serve(socket, answers), PodResources(str(socket)) as client:
        assert await client.list() == ()
        assert await client.allocatable() is None
        assert await client.get("ns", "p") is None


def answer_of(size: int) -> pb.ListPodResourcesResponse:
    """A List answer of exactly that many bytes."""
    answer = pb.ListPodResourcesResponse()
    pod = answer.pod_resources.add(name="p", namespace="ns")
    container = pod.containers.add(name="c")
    container.devices.add(resource_name=GPU)
    while (missing := size - answer.ByteSize()) > 0:
        # Two length prefixes up the tree may grow by a byte, so the rest is approached.
        step = max(min(missing - 8, MIB), 0)
        if step:
            container.devices[0].device_ids.append("x" * step)
        else:
            pod.namespace += "y" * missing
    return answer


async def test_an_answer_of_16_mib_is_read(socket: Path) -> None:
    answer = answer_of(16 * MIB)
    assert answer.ByteSize() == 16 * MIB
    async with serve(socket, {"List": answer}), PodResources(str(socket)) as client:
        (pod,) = await client.list()
    assert sum(len(name) for name in pod.containers[0].devices[0].devices) > MIB


async def test_an_answer_above_16_mib_is_one_clear_line(socket: Path) -> None:
    answer = answer_of(16 * MIB + 1)
    async with serve(socket, {"List": answer}), PodResources(str(socket)) as client:
        with pytest.raises(errors.KubeletError, match=r"the answer is larger than 16 MiB$"):
            await client.list()


async def test_no_socket_says_so(socket: Path) -> None:
    async with PodResources(str(socket)) as client:
        with pytest.raises(errors.KubeletError, match="No such file or directory") as caught:
            await client.list()
    assert str(socket) in str(caught.value)
    assert "\n" not in str(caught.value)


async def test_a_file_that_is_no_socket_says_so(socket: Path) -> None:
    socket.write_text("")
    async with PodResources(str(socket)) as client:
        with pytest.raises(errors.KubeletError, match="not a socket"):
            await client.list()


async def test_a_silent_kubelet_is_given_up_on(socket: Path) -> None:
    release = asyncio.Event()

    async def hang(_request: object) -> pb.ListPodResourcesResponse:
        await release.wait()
        return pb.ListPodResourcesResponse()

    async with (
        serve(socket, {"List": hang}),
        PodResources(str(socket), timeout_seconds=0.1) as client,
    ):
        with pytest.raises(errors.KubeletError, match=r"no answer within 0\.1 s"):
            await client.list()
        release.set()


async def test_a_kubelet_that_is_slow_to_greet_is_heard(socket: Path) -> None:
    ended = asyncio.Event()

    async def slowly(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await asyncio.sleep(0.5)
        to, back = await asyncio.open_unix_connection(behind)
        await asyncio.gather(_pipe(reader, back), _pipe(to, writer))
        ended.set()

    behind = socket.with_name("behind.sock")
    answer = pb.ListPodResourcesResponse(pod_resources=[pb.PodResources(name="p")])
    async with (
        serve(behind, {"List": answer}),
        await asyncio.start_unix_server(slowly, socket),
    ):
        async with PodResources(str(socket)) as client:
            (pod,) = await client.list()
        assert pod.name == "p"
        await ended.wait()


async def _pipe(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with suppress(ConnectionError):
        while chunk := await reader.read(4096):
            writer.write(chunk)
    writer.close()


async def test_an_error_of_the_kubelet_is_one_line(socket: Path) -> None:
    refusal = (grpc.StatusCode.INTERNAL, "broken\nin two lines")
    async with serve(socket, {"List": refusal}), PodResources(str(socket)) as client:
        with pytest.raises(errors.KubeletError) as caught:
            await client.list()
    assert str(caught.value).endswith("INTERNAL: broken in two lines")


async def test_an_answer_that_is_no_message_is_one_line(socket: Path) -> None:
    async with serve(socket, {"List": b"\xff\xff"}), PodResources(str(socket)) as client:
        with pytest.raises(errors.ParseError) as caught:
            await client.list()
    assert "podresources List" in str(caught.value)
    assert "\n" not in str(caught.value)


async def test_the_client_outlives_a_restart_of_the_kubelet(socket: Path) -> None:
    async with PodResources(str(socket)) as client:
        for name in ("before", "after"):
            answer = pb.ListPodResourcesResponse(pod_resources=[pb.PodResources(name=name)])
            async with serve(socket, {"List": answer}):
                (pod,) = await answered(client)
                assert pod.name == name
            with pytest.raises(errors.KubeletError):
                await client.list()


async def answered(client: PodResources) -> tuple[ListedPod, ...]:
    """The channel waits a moment before it connects again."""
    async with asyncio.timeout(30):
        while True:
            try:
                return await client.list()
            except errors.KubeletError:
                await asyncio.sleep(0.01)


@pytest.mark.parametrize("number", [-1, 1 << 20, (1 << 63) - 1])
def test_an_impossible_cpu_is_refused(number: int) -> None:
    answer = pb.AllocatableResourcesResponse(cpu_ids=[number])
    with pytest.raises(errors.ParseError, match="podresources CPU"):
        podresources.decode_allocatable(answer)


KINDS = {
    pb.ListPodResourcesResponse: lambda answer: podresources.decode_pods(answer.pod_resources),
    pb.AllocatableResourcesResponse: podresources.decode_allocatable,
}


@pytest.mark.parametrize("kind", KINDS)
@settings(max_examples=scaled(1000), deadline=None)
@given(data=st.data())
def test_garbage_is_a_sound_value_or_one_clear_line(kind: Any, data: st.DataObject) -> None:
    text = bytearray(
        pb.AllocatableResourcesResponse(
            cpu_ids=range(70),
            devices=[device("gpu0", 0, 1)],
            memory=[pb.ContainerMemory(memory_type="memory", size=1, topology=topology(0))],
        ).SerializeToString()
        if kind is pb.AllocatableResourcesResponse
        else answer_of(120).SerializeToString()
    )
    place = data.draw(st.integers(0, len(text)))
    text[place : place + data.draw(st.integers(0, 8))] = data.draw(st.binary(max_size=8))
    try:
        KINDS[kind](podresources.decode(kind, bytes(text)))
    except errors.ParseError as error:
        assert "\n" not in str(error)


async def test_a_connection_that_is_closed_is_told_at_once_and_the_next_question_says_why(
    socket: Path,
) -> None:
    async with podresources.PodResources(str(socket)) as client:
        closed = asyncio.create_task(client.wait_closed())
        async with serve(socket, {"List": pb.ListPodResourcesResponse()}):
            assert await client.list() == ()
            await asyncio.sleep(0.1)
            assert not closed.done()
        await asyncio.wait_for(closed, 5)
        with pytest.raises(errors.KubeletGoneError):
            await client.list()


async def test_who_made_a_former_socket_is_not_asked_any_more_though_it_lives_on(
    socket: Path,
) -> None:
    def named(name: str) -> dict[str, Any]:
        return {"List": pb.ListPodResourcesResponse(pod_resources=[pb.PodResources(name=name)])}

    async with serve(socket, named("former")), PodResources(str(socket)) as client:
        assert [pod.name for pod in await client.list()] == ["former"]
        closed = asyncio.create_task(client.wait_closed())
        later = socket.with_name("later.sock")
        async with serve(later, named("present")):
            later.replace(socket)
            assert [pod.name for pod in await client.list()] == ["present"]
            await asyncio.wait_for(closed, 5)
            assert [pod.name for pod in await client.list()] == ["present"]
