"""One reading of a kubelet's files and socket, through the command line's settings."""

from __future__ import annotations

import asyncio
import json
import time
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from rte import errors, nrt
from rte.agent import oneshot
from rte.agent.settings import AgentSettings, SinkKind, SinkSetting
from rte.kubelet._pb import podresources_pb2 as pb
from rte.model import bits
from tests.checkpoints import sealed
from tests.unit.kubelet.server import serve

if TYPE_CHECKING:
    from collections.abc import Callable

FIXTURE = Path(__file__).parents[3] / "fixtures" / "sysfs" / "64-2s"
UID = "3f0e2c1a-2d5b-4d8e-9a6f-0b1c2d3e4f50"
CONFIG = """\
apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration
cpuManagerPolicy: static
topologyManagerPolicy: single-numa-node
topologyManagerScope: pod
reservedSystemCPUs: 0,32
"""


@pytest.fixture
def state_dir(tmp_path: Path) -> Path:
    """A kubelet with one pod on CPUs 1 and 33 of zone 0."""
    directory = tmp_path / "kubelet"
    directory.mkdir()
    (directory / "config.yaml").write_text(CONFIG)
    write(
        directory / "allocated_pods_state",
        {
            "data": json.dumps(
                {"entries": {UID: {"ContainerResources": {"app": {}}, "PodLevelResources": None}}}
            ),
        },
    )
    write_cpu_state(directory, default="0,2-32,34-63")
    return directory


def write(path: Path, document: dict[str, Any]) -> None:
    path.write_text(json.dumps(sealed(document)))


def write_cpu_state(directory: Path, *, default: str) -> None:
    write(
        directory / "cpu_manager_state",
        {
            "policyName": "static",
            "defaultCpuSet": default,
            "entries": {UID: {"app": "1,33"}},
        },
    )


@pytest.fixture
def settings(tmp_path: Path, state_dir: Path) -> AgentSettings:
    return AgentSettings(
        sysfs_root=FIXTURE / "sys",
        procfs_root=FIXTURE / "proc",
        kubelet_state_dir=state_dir,
        node_name="worker-1",
        oneshot=True,
        oneshot_timeout=5.0,
        sink=SinkSetting(SinkKind.FILE, tmp_path / "nrt.json"),
    )


async def published(settings: AgentSettings) -> nrt.NRT:
    await oneshot.run(settings, {})
    assert settings.sink.path is not None
    return nrt.decode(json.loads(settings.sink.path.read_text()))


async def test_the_state_files_alone_tell_who_holds_what(settings: AgentSettings) -> None:
    told = await published(settings)

    assert told.problems == ()
    assert (told.policy, told.scope) == ("single-numa-node", "pod")
    assert told.state.holdings[UID]["app"].cpus == bits.of((1, 33))
    assert told.state.reserved == bits.of((0, 32))
    assert told.state.admitted == {UID}
    assert told.zones[0].resources["cpu"] == (32_000, 30_000, 28_000)


@pytest.fixture
def no_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    """Waits between two readings take no time, and count."""
    waited = 0.0

    async def wait(seconds: float) -> None:
        nonlocal waited
        waited += seconds

    monkeypatch.setattr(oneshot, "_wait", wait)
    clock = SimpleNamespace(monotonic=lambda: time.monotonic() + waited)
    monkeypatch.setattr(oneshot, "time", clock)


@pytest.mark.usefixtures("no_waiting")
async def test_podresources_names_the_pods_and_who_is_active(
    settings: AgentSettings, tmp_path: Path
) -> None:
    """The pod is in the files and gone from podresources: its CPUs are free again."""
    socket = tmp_path / "s"
    answers = {
        "List": pb.ListPodResourcesResponse(),
        "GetAllocatableResources": pb.AllocatableResourcesResponse(
            cpu_ids=[cpu for cpu in range(64) if cpu not in (0, 32)]
        ),
    }
    async with serve(socket, answers):
        told = await published(replace(settings, podresources_socket=str(socket)))

    assert told.state.holdings == {}
    assert told.zones[0].resources["cpu"] == (32_000, 30_000, 30_000)
    assert told.fingerprint == "pfp0v001ef46db3751d8e999"


async def test_a_socket_that_was_asked_for_must_answer(
    settings: AgentSettings, tmp_path: Path
) -> None:
    with pytest.raises(errors.KubeletError) as caught:
        await published(replace(settings, podresources_socket=str(tmp_path / "absent")))

    assert "\n" not in str(caught.value)
    assert not settings.sink.path.exists()


@pytest.fixture
def between_readings(monkeypatch: pytest.MonkeyPatch) -> Callable[[Callable[[], None]], list[int]]:
    """Do something instead of waiting between two readings; counts the waits."""

    def instead(act: Callable[[], None]) -> list[int]:
        waits: list[int] = []

        async def wait(seconds: float) -> None:
            waits.append(1)
            act()
            await asyncio.sleep(seconds)

        monkeypatch.setattr(oneshot, "_wait", wait)
        return waits

    return instead


async def test_a_state_between_two_writes_is_read_again(
    settings: AgentSettings, state_dir: Path, between_readings: Callable
) -> None:
    write_cpu_state(state_dir, default="0,2-31,34-63")  # CPU 32 is nowhere
    waits = between_readings(lambda: write_cpu_state(state_dir, default="0,2-32,34-63"))

    told = await published(settings)

    assert len(waits) == 1
    assert told.state.shared == bits.parse_list("0,2-32,34-63")


async def test_a_state_that_stays_torn_fails_within_the_time_given(
    settings: AgentSettings, state_dir: Path
) -> None:
    write_cpu_state(state_dir, default="0,2-31,34-63")  # CPU 32 is nowhere

    with pytest.raises(errors.InconsistentStateError, match=r"no consistent state within 0\.2 s"):
        await published(replace(settings, oneshot_timeout=0.2))

    assert not settings.sink.path.exists()


@pytest.mark.parametrize("damage", ["", "{", '{"policyName": 3}', '{"entries": {}}'])
async def test_a_damaged_file_is_one_line(
    settings: AgentSettings, state_dir: Path, damage: str
) -> None:
    (state_dir / "cpu_manager_state").write_text(damage)

    with pytest.raises(errors.RteError, match="cpu_manager_state") as caught:
        await published(replace(settings, oneshot_timeout=0.2))

    assert "\n" not in str(caught.value)
    assert not settings.sink.path.exists()


async def test_two_readings_of_the_same_state_give_the_same_bytes(
    settings: AgentSettings,
) -> None:
    await published(settings)
    first = settings.sink.path.read_bytes()
    await published(settings)

    assert settings.sink.path.read_bytes() == first


async def test_podresources_alone_give_the_zones(settings: AgentSettings, tmp_path: Path) -> None:
    """Where state files are out of reach: exclusive CPUs by zone, pods without UIDs."""
    socket = tmp_path / "s"
    pod = pb.PodResources(
        name="job",
        namespace="default",
        containers=[pb.ContainerResources(name="app", cpu_ids=[1, 33])],
    )
    answers = {
        "List": pb.ListPodResourcesResponse(pod_resources=[pod]),
        "GetAllocatableResources": pb.AllocatableResourcesResponse(
            cpu_ids=[cpu for cpu in range(64) if cpu not in (0, 32)]
        ),
    }
    config = tmp_path / "kubelet.yaml"
    config.write_text(CONFIG)
    async with serve(socket, answers):
        told = await published(
            replace(
                settings,
                kubelet_state_dir=None,
                podresources_socket=f"unix://{socket}",
                kubelet_config_file=config,
            )
        )

    assert told.zones[0].resources["cpu"] == (32_000, 30_000, 28_000)
    assert told.zones[1].resources["cpu"] == (32_000, 32_000, 32_000)
    assert (told.policy, told.scope) == ("single-numa-node", "pod")
