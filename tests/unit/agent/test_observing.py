"""The observer: consistent states only, at once, from a kubelet that comes, goes and restarts."""

from __future__ import annotations

import asyncio
import math
import os
import random
import time
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from rte import nrt
from rte.accounting.liveness import PodTable
from rte.agent.follow import FileFollower, Signals
from rte.agent.observer.learning import KubeletRestart
from rte.agent.observer.machine import Observer
from rte.agent.observer.messages import KubeletChange, NodeObjectFacts, Observation, Pulse
from rte.agent.observing import Observing
from rte.agent.settings import AgentSettings
from rte.agent.sources import NodeReader
from rte.agent.timings import Timings
from rte.kubelet import PLUGIN_DIR
from rte.kubelet.statefiles import kubelet_epoch
from rte.model.kubelet import ListedContainer, ListedPod
from rte.model.node import ConfigSource, KubeletConfig, NodeState
from rte.sysfs import read_machine
from rte.telemetry.effects import Readiness
from rte.telemetry.metrics import AgentMetrics
from tests.depth import scaled
from tests.unit.agent.kubelets import FIXTURES, FakeKubelet
from tests.unit.agent.test_pods import pod

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable
    from pathlib import Path

MACHINE = FIXTURES / "16-2s-hugepages"
TIMINGS = Timings(
    admission=0.05, torn=0.005, torn_most=0.02, settled=0.1, check=0.02, source=0.02,
    readmission=0.01, relearn=0.05, relearn_most=0.05,
)  # fmt: skip


class Rig:
    """An observer on a fake kubelet, with all that it handed on."""

    def __init__(self, root: Path, *, api: bool = True, timings: Timings = TIMINGS) -> None:
        machine = read_machine(MACHINE / "sys", MACHINE / "proc")
        self.config = KubeletConfig(
            cpu_policy="static", reserved_cpus=1, source=ConfigSource.CONFIGZ
        )
        self.kubelet = FakeKubelet(root, machine.online)
        self.table = PodTable(grace_s=0.1) if api else None
        if self.table:
            self.table.replace([])
        self.metrics = AgentMetrics()
        self.readiness = Readiness()
        self.signals = Signals(self.metrics)
        self.seen: list[NodeState] = []
        self.rests = 0
        self.settings = AgentSettings(
            node_name="n0",
            kubelet_state_dir=root,
            device_plugin_dir=root / PLUGIN_DIR,
            podresources_socket=str(self.kubelet.socket),
        )
        self.learns = 0
        self.facts = NodeObjectFacts(uid="u", version="v1.35.4")
        self.reported: NodeState | None = None
        self.learnt = asyncio.Event()
        self.learnt.set()
        self.trusted_until = -math.inf
        sources = NodeReader(
            machine=lambda: machine,
            learner=self._learn,
            state_dir=root,
            plugin_dir=root / PLUGIN_DIR,
            podresources=self.kubelet,
            socket=self.kubelet.socket,
        )
        scope, faults = self.settings.scope(pods=api), sources.quarantine
        self.observing = Observing(
            Observer(scope, timings, pods=self.table, quarantine=faults),
            sources,
            self.signals,
            self,
            metrics=self.metrics,
            readiness=self.readiness,
            rest=self._rest,
        )

    def _rest(self) -> None:
        self.rests += 1

    def trust(self, until: float) -> None:
        self.trusted_until = until

    @property
    def is_trustworthy(self) -> bool:
        return time.monotonic() < self.trusted_until

    def learn_from(self, source: ConfigSource, policy: str) -> None:
        """What is learnt from now on; something makes the observer ask again."""
        self.config = replace(self.config, source=source, topology_policy=policy)
        self.kubelet.write_devices(f"example.com/{policy}")

    async def _learn(
        self, _memory: int, _patient: bool
    ) -> tuple[KubeletConfig, NodeObjectFacts, NodeState | None]:
        await self.learnt.wait()
        self.learns += 1
        return self.config, self.facts, self.reported

    def offer(self, observation: Observation) -> None:
        state = nrt.decode(observation.object).state
        assert state is not None
        held = 0
        for containers in state.holdings.values():
            for holding in containers.values():
                assert not held & holding.cpus
                held |= holding.cpus
        assert held | state.shared == state.topology.all_cpus
        self.seen.append(state)

    async def until(self, condition: Callable[[NodeState], bool], seconds: float = 30) -> NodeState:
        async with asyncio.timeout(seconds):
            while not (self.seen and condition(self.seen[-1])):
                await asyncio.sleep(0.002)
        return self.seen[-1]

    def start_pod(self, uid: str, cpus: int) -> None:
        """The API and the kubelet tell of a new pod."""
        if self.table:
            self.table.update(pod(uid))
            self.signals.add(KubeletChange.PODS)
        self.kubelet.admit(uid, cpus)

    def count(self, name: str, **labels: str) -> float:
        return self.metrics.registry.get_sample_value(name, labels) or 0.0


def configured(source: ConfigSource) -> Callable[[NodeState], bool]:
    return lambda state: state.config.source is source


@asynccontextmanager
async def running(rig: Rig) -> AsyncIterator[Rig]:
    files = FileFollower(
        rig.signals,
        state_dir=rig.kubelet.root,
        plugin_dir=rig.kubelet.root / PLUGIN_DIR,
        socket=rig.kubelet.socket,
        retry_s=0.02,
    )
    tasks = [asyncio.create_task(coroutine) for coroutine in (rig.observing.run(), files.run())]
    try:
        yield rig
    finally:
        for task in tasks:
            task.cancel()
        results = await asyncio.gather(*tasks, return_exceptions=True)
    for result in results:
        if isinstance(result, Exception):
            raise result


def up_for_long(rig: Rig) -> None:
    """Its kubelet was not started a moment ago."""
    began = time.time() - 30
    os.utime(rig.kubelet.socket, (began, began))


@pytest.fixture
async def rig(tmp_path: Path) -> AsyncIterator[Rig]:
    made = Rig(tmp_path / "kubelet")
    made.kubelet.start()
    up_for_long(made)
    async with running(made):
        await made.until(lambda state: state.synced)
        yield made


async def test_the_first_reading_is_handed_on_and_the_source_is_ready(rig: Rig):
    assert rig.readiness.reasons == ()
    assert rig.seen[0].shared == rig.kubelet.cpus
    assert rig.is_trustworthy


async def test_an_admission_is_one_observation_of_the_whole(rig: Rig):
    rig.start_pod("a", 0b110)
    state = await rig.until(lambda state: "a" in state.admitted)
    assert state.holdings["a"]["c"].cpus == 0b110
    assert all(state.shared == rig.kubelet.cpus or "a" in state.admitted for state in rig.seen)


async def test_podresources_are_compared_once_nothing_changes_any_more(tmp_path: Path):
    made = Rig(tmp_path / "kubelet", timings=replace(TIMINGS, check=1.0, check_most=60.0))
    made.kubelet.start()
    up_for_long(made)
    async with running(made) as rig:
        await rig.until(lambda state: state.synced)
        rig.start_pod("a", 0b110)
        await rig.until(lambda state: "a" in state.admitted)
        lists, began = rig.kubelet.lists, time.monotonic()
        while time.monotonic() < began + 1.2:
            rig.kubelet.write_cpus()
            await asyncio.sleep(0.05)  # as often as a busy node changes
        assert rig.kubelet.lists == lists
        async with asyncio.timeout(30):
            while rig.kubelet.lists == lists:
                await asyncio.sleep(0.01)


async def test_podresources_are_compared_in_the_end_however_much_changes(tmp_path: Path):
    made = Rig(tmp_path / "kubelet", timings=replace(TIMINGS, check=0.1, check_most=0.3))
    made.kubelet.start()
    up_for_long(made)
    async with running(made) as rig:
        await rig.until(lambda state: state.synced)
        lists = rig.kubelet.lists
        async with asyncio.timeout(30):
            while rig.kubelet.lists == lists:
                rig.kubelet.write_cpus()
                await asyncio.sleep(0.01)


async def test_a_torn_state_is_never_handed_on(rig: Rig):
    rig.table.update(pod("a"))
    rig.kubelet.entries["a"] = {"c": 0b110}
    whole = rig.kubelet.cpu_state()
    rig.kubelet.entries = {}
    rig.kubelet.write_cpus(default=rig.kubelet.cpus & ~0b110)  # the first of two writes
    await asyncio.sleep(0.05)  # the agent looks again and again; nothing may come of it
    assert rig.count("rte_readings_total", result="torn") > 1
    assert rig.seen[-1].shared == rig.kubelet.cpus
    rig.kubelet.write("cpu_manager_state", whole)
    state = await rig.until(lambda state: "a" in state.holdings)
    assert state.shared == rig.kubelet.cpus & ~0b110


async def test_a_refused_pods_residue_is_published_without_admitting_it(rig: Rig):
    rig.table.update(pod("a", phase="Pending"))
    rig.kubelet.entries["a"] = {"c": 0b110}
    rig.kubelet.write_cpus()
    state = await rig.until(lambda state: "a" in state.holdings)
    assert "a" not in state.admitted


@pytest.mark.parametrize("how", ["terminal", "gone"])
async def test_an_ending_is_published_although_the_kubelet_writes_nothing(rig: Rig, how: str):
    rig.start_pod("a", 0b110)
    await rig.until(lambda state: "a" in state.admitted)
    if how == "terminal":
        rig.table.update(pod("a", phase="Succeeded"))
    else:
        rig.table.remove(pod("a"))
    rig.signals.add(KubeletChange.PODS)
    state = await rig.until(lambda state: "a" not in state.holdings)
    assert state.shared == rig.kubelet.cpus


async def test_a_pod_that_the_api_has_never_shown_is_dropped_unless_podresources_lists_it(
    rig: Rig,
):
    rig.kubelet.entries |= {"static": {"c": 0b110}, "gone": {"c": 0b11000}}
    rig.kubelet.listed.append(
        ListedPod(
            namespace="kube-system",
            name="no-mirror",
            containers=(ListedContainer(name="c", cpus=0b110),),
        )
    )
    rig.kubelet.admitted += ["static", "gone"]
    rig.kubelet.write_cpus()
    rig.kubelet.write_admitted()
    await rig.until(lambda state: {"static", "gone"} == state.holdings.keys())
    await rig.until(lambda state: {"static"} == state.holdings.keys())
    rig.start_pod("a", 0b100000)
    state = await rig.until(lambda state: "a" in state.admitted)
    assert state.holdings.keys() == {"static", "a"}
    # Nothing but podresources tells when it ends: no file is written, no pod deleted.
    rig.kubelet.listed = [listed for listed in rig.kubelet.listed if listed.name != "no-mirror"]
    await rig.until(lambda state: state.holdings.keys() == {"a"})


async def test_without_the_api_podresources_tells_of_endings(tmp_path: Path):
    rig = Rig(tmp_path / "kubelet", api=False)
    rig.kubelet.start()
    async with running(rig):
        await rig.until(lambda state: state.synced)
        rig.kubelet.entries["a"] = {"c": 0b110}
        rig.kubelet.write_cpus()
        rig.kubelet.admitted.append("a")
        rig.kubelet.listed.append(
            ListedPod(
                namespace="default",
                name="a",
                containers=(ListedContainer(name="c", cpus=0b110),),
            )
        )
        rig.kubelet.write_admitted()
        await rig.until(lambda state: "a" in state.holdings)
        rig.kubelet.listed.clear()
        rig.signals.add(KubeletChange.POLL)
        state = await rig.until(lambda state: "a" not in state.holdings)
        assert state.shared == rig.kubelet.cpus


async def test_what_the_kubelet_read_at_its_start_survives_a_restart_of_the_agent(tmp_path: Path):
    """Huge pages were made after it, of which the Node has some, and nobody else tells where."""
    rig = Rig(tmp_path / "kubelet")
    rig.kubelet.start()
    async with running(rig):
        now = (await rig.until(lambda state: state.synced)).topology
    pages = {2 << 20: 3, 1 << 30: 0}
    at_start = replace(now, zones=tuple(replace(zone, hugepages=pages) for zone in now.zones))
    rig = Rig(tmp_path / "another")
    rig.kubelet.start()
    capacity = {"hugepages-2Mi": 2 * 3 << 21, "hugepages-1Gi": 0}
    rig.facts = replace(rig.facts, capacity=capacity)
    epoch = kubelet_epoch(rig.kubelet.socket, None)
    rig.reported = NodeState(
        topology=at_start, config=rig.config, epoch=epoch, reserved=1, shared=rig.kubelet.cpus
    )
    async with running(rig):
        assert (await rig.until(lambda state: state.synced)).topology == at_start


async def test_a_kubelet_that_is_not_there_yet_is_waited_for(tmp_path: Path):
    rig = Rig(tmp_path / "kubelet")
    rig.kubelet.up = False
    async with running(rig):
        await asyncio.sleep(0.1)
        assert rig.seen == []
        assert rig.readiness.reasons
        assert not rig.is_trustworthy
        rig.kubelet.start()
        await rig.until(lambda state: state.synced)
        assert rig.readiness.reasons == ()


async def test_a_state_directory_that_comes_later_is_found(tmp_path: Path):
    rig = Rig(tmp_path / "kubelet")
    away = tmp_path / "away"
    rig.kubelet.root.rename(away)
    async with running(rig):
        await asyncio.sleep(0.05)
        assert rig.seen == []
        away.rename(rig.kubelet.root)
        rig.kubelet.start()
        await rig.until(lambda state: state.synced)
        rig.start_pod("a", 0b110)
        await rig.until(lambda state: "a" in state.admitted)


async def test_after_a_restart_the_node_is_not_synced_until_its_pods_are_back(rig: Rig):
    rig.start_pod("a", 0b110)
    before = await rig.until(lambda state: "a" in state.admitted)
    rig.kubelet.listed.clear()
    rig.config = replace(rig.config, topology_policy="restricted")
    rig.learnt.clear()
    rig.kubelet.start()
    state = await rig.until(lambda state: not state.synced)
    assert state == replace(before, synced=False)
    rig.learnt.set()
    state = await rig.until(lambda state: state.epoch != before.epoch)
    assert not state.synced
    assert state.config.topology_policy == "restricted"
    rig.kubelet.listed.append(ListedPod(namespace="default", name="a"))
    state = await rig.until(lambda state: state.synced)
    assert state.holdings["a"]["c"].cpus == 0b110
    assert rig.count("rte_kubelet_restarts_total") == 1


async def test_a_node_is_not_synced_before_the_new_configuration_is_known(rig: Rig):
    rig.learnt.clear()
    epoch = rig.seen[-1].epoch
    rig.kubelet.start()
    await rig.until(lambda state: not state.synced)
    await asyncio.sleep(0.1)
    assert (rig.seen[-1].epoch, rig.seen[-1].synced) == (epoch, False)
    rig.learnt.set()
    await rig.until(lambda state: state.synced)
    assert rig.seen[-1].epoch != epoch


async def test_a_weaker_source_never_replaces_the_configuration_of_the_same_kubelet(rig: Rig):
    """configz told single-numa-node; later its port is shut, and config.yaml says none."""
    rig.learn_from(ConfigSource.CONFIGZ, "single-numa-node")
    await rig.until(lambda state: state.config.topology_policy == "single-numa-node")
    learnt = rig.learns
    rig.learn_from(ConfigSource.USUAL_FILE, "none")
    async with asyncio.timeout(30):
        while rig.learns == learnt:
            await asyncio.sleep(0.005)
    await asyncio.sleep(0.05)
    assert rig.seen[-1].config.topology_policy == "single-numa-node"
    # Of another kubelet even the weaker one is better than what was true of the former.
    rig.kubelet.start()
    state = await rig.until(configured(ConfigSource.USUAL_FILE))
    assert state.config.topology_policy == "none"
    assert state.config.is_assumed


async def test_the_best_source_is_asked_until_it_has_answered(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
):
    rig = Rig(tmp_path / "kubelet")
    rig.config = replace(rig.config, source=ConfigSource.USUAL_FILE)
    rig.kubelet.start()
    in_force = "rte_kubelet_config_source"
    async with running(rig):
        await rig.until(lambda state: state.synced and state.config.is_assumed)
        assert rig.count(in_force, source="config.yaml") == 1
        async with asyncio.timeout(30):
            while rig.learns < 3:
                await asyncio.sleep(0.005)
        assert len([r for r in caplog.records if "nodes/configz" in r.message]) == 1
        rig.config = replace(rig.config, source=ConfigSource.CONFIGZ)
        await rig.until(configured(ConfigSource.CONFIGZ))
        assert rig.count(in_force, source="config.yaml") == 0
        assert rig.count(in_force, source="configz") == 1
        learnt = rig.learns
        await asyncio.sleep(0.3)
        assert rig.learns == learnt


async def test_a_restarted_kubelet_that_answers_nothing_is_not_taken_for_the_former_one(rig: Rig):
    rig.start_pod("a", 0b110)
    await rig.until(lambda state: "a" in state.admitted)
    seen = len(rig.seen)
    rig.kubelet.start()
    rig.kubelet.up = False
    state = await rig.until(lambda state: not state.synced)
    # What was known of the former kubelet goes together, its epoch included.
    assert state == replace(rig.seen[seen - 1], synced=False)
    lists = rig.kubelet.lists
    async with asyncio.timeout(30):
        while rig.kubelet.lists < lists + 10:
            await asyncio.sleep(0.005)
    assert [state.synced for state in rig.seen[seen:]] == [False]
    assert rig.readiness.reasons
    rig.kubelet.up = True
    synced = await rig.until(lambda state: state.synced)
    assert synced.epoch != state.epoch


async def test_a_kubelet_that_does_not_run_is_not_synced_and_one_that_hangs_is_not_gone(rig: Rig):
    rig.start_pod("a", 0b110)
    before = await rig.until(lambda state: "a" in state.admitted)
    seen = len(rig.seen)
    rig.kubelet.up = False  # it hangs
    rig.signals.add(KubeletChange.SOCKET)
    async with asyncio.timeout(30):
        while not rig.readiness.reasons:
            await asyncio.sleep(0.002)
    assert len(rig.seen) == seen
    rig.kubelet.is_gone = True
    assert await rig.until(lambda state: not state.synced) == replace(before, synced=False)
    assert "synced: the kubelet does not run" in rig.readiness.reasons
    rig.start_pod("b", 0b1000)  # files that are written meanwhile change nothing about that
    assert not (await rig.until(lambda state: "b" in state.admitted)).synced
    rig.kubelet.up, rig.kubelet.is_gone = True, False
    assert (await rig.until(lambda state: state.synced)).epoch == before.epoch
    async with asyncio.timeout(30):
        while rig.readiness.reasons:
            await asyncio.sleep(0.002)


async def test_one_answer_of_a_restarted_kubelet_is_not_counted_twice(rig: Rig):
    rig.kubelet.start()
    rig.kubelet.answers = 1
    async with asyncio.timeout(30):
        while rig.kubelet.answers:
            await asyncio.sleep(0.005)
    for _ in range(10):
        rig.kubelet.write_cpus()
        await asyncio.sleep(0.005)
    assert not rig.seen[-1].synced
    rig.kubelet.answers = None
    await rig.until(lambda state: state.synced)


async def test_a_source_that_has_gone_silent_ends_the_trust(tmp_path: Path):
    """Files and API go on telling, and yet nobody knows what devices there are."""
    rig = Rig(tmp_path / "kubelet", timings=replace(TIMINGS, stale=0.1))
    rig.kubelet.start()
    async with running(rig):
        await rig.until(lambda state: state.synced)
        rig.kubelet.up = False
        rig.start_pod("a", 0b110)
        await rig.until(lambda state: "a" in state.admitted)
        async with asyncio.timeout(30):
            while rig.is_trustworthy:
                await asyncio.sleep(0.005)
        rig.kubelet.up = True
        async with asyncio.timeout(30):
            while not rig.is_trustworthy:
                await asyncio.sleep(0.005)


async def test_trust_ends_when_nothing_is_looked_at_any_more(tmp_path: Path):
    """No poll comes: a task hangs, or the process was stopped."""
    rig = Rig(tmp_path / "kubelet", timings=replace(TIMINGS, stale=0.1, poll=0.1))
    rig.kubelet.start()
    async with running(rig):
        await rig.until(lambda state: state.synced)
        assert rig.is_trustworthy
        async with asyncio.timeout(30):
            while rig.is_trustworthy:
                await asyncio.sleep(0.005)
        rig.signals.add(KubeletChange.POLL)
        async with asyncio.timeout(30):
            while not rig.is_trustworthy:
                await asyncio.sleep(0.005)


async def test_while_podresources_is_away_files_go_on_telling(rig: Rig):
    rig.kubelet.up = False
    rig.start_pod("a", 0b110)
    await rig.until(lambda state: "a" in state.admitted)
    async with asyncio.timeout(30):
        while not rig.readiness.reasons:
            await asyncio.sleep(0.005)
    rig.kubelet.up = True
    async with asyncio.timeout(30):
        while rig.readiness.reasons:
            await asyncio.sleep(0.005)


async def test_a_half_written_file_is_waited_out(rig: Rig):
    rig.kubelet.entries["a"] = {"c": 0b110}
    whole = rig.kubelet.cpu_state()
    path = rig.kubelet.root / "cpu_manager_state"
    path.write_text(whole[:40])
    await asyncio.sleep(0.05)
    assert rig.seen[-1].shared == rig.kubelet.cpus
    path.write_text(whole)
    await rig.until(lambda state: "a" in state.holdings)


async def test_a_lasting_problem_makes_the_node_not_ready_and_is_told_once(
    rig: Rig, caplog: pytest.LogCaptureFixture
):
    rig.kubelet.write("cpu_manager_state", "garbage")
    async with asyncio.timeout(30):
        while not rig.readiness.reasons:
            await asyncio.sleep(0.005)
    await asyncio.sleep(0.1)
    assert len([r for r in caplog.records if "damaged" in r.message]) == 1
    rig.kubelet.write_cpus()
    async with asyncio.timeout(30):
        while rig.readiness.reasons:
            await asyncio.sleep(0.005)


async def test_a_state_that_cannot_be_read_for_long_is_not_trusted(tmp_path: Path):
    rig = Rig(tmp_path / "kubelet", timings=replace(TIMINGS, stale=0.05))
    rig.kubelet.start()
    async with running(rig):
        await rig.until(lambda state: state.synced)
        rig.kubelet.write("cpu_manager_state", "")
        async with asyncio.timeout(30):
            while rig.is_trustworthy:
                await asyncio.sleep(0.005)
        rig.kubelet.write_cpus()
        async with asyncio.timeout(30):
            while not rig.is_trustworthy:
                await asyncio.sleep(0.005)


async def test_an_idle_node_hands_nothing_new_on(rig: Rig):
    await asyncio.sleep(0.1)
    lists = rig.kubelet.lists
    await asyncio.sleep(0.2)
    assert rig.kubelet.lists == lists
    assert rig.seen[-1] == rig.seen[0] or rig.seen[-1].synced


async def test_after_a_sign_of_life_it_rests_though_nothing_has_changed(rig: Rig):
    await rig.until(lambda state: state.synced)
    rests, states = rig.rests, len(rig.seen)
    rig.signals.give(Pulse(""))
    async with asyncio.timeout(30):
        while rig.rests == rests:
            await asyncio.sleep(0.002)
    assert len(rig.seen) == states


@pytest.mark.parametrize("seed", range(3))
async def test_random_pods_come_and_go_and_every_state_handed_on_is_sound(rig: Rig, seed: int):
    rng = random.Random(seed)
    alive: list[str] = []
    free = [1 << cpu for cpu in range(1, rig.kubelet.cpus.bit_length())]
    for number in range(60):
        if alive and (rng.random() < 0.5 or not free):
            uid = alive.pop(rng.randrange(len(alive)))
            rig.table.remove(pod(uid))
            rig.signals.add(KubeletChange.PODS)
            free += [1 << bit for bit in range(64) if rig.kubelet.entries[uid]["c"] >> bit & 1]
        else:
            # What ended pods still hold goes with the next admission, before it takes its own.
            for uid in set(rig.kubelet.entries) - set(alive):
                del rig.kubelet.entries[uid]
                rig.kubelet.admitted.remove(uid)
            uid = f"p{number}"
            mask = free.pop(rng.randrange(len(free)))
            alive.append(uid)
            rig.start_pod(uid, mask)
        if rng.random() < 0.5:
            await asyncio.sleep(rng.uniform(0, 0.01))
    wanted = {uid: rig.kubelet.entries[uid]["c"] for uid in alive}
    await rig.until(
        lambda state: {uid: held["c"].cpus for uid, held in state.holdings.items()} == wanted
    )


@settings(
    max_examples=scaled(50),
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(text=st.binary(max_size=200))
def test_garbage_in_a_state_file_neither_stops_the_observer_nor_is_published(
    tmp_path_factory: pytest.TempPathFactory, text: bytes
):
    async def scenario() -> None:
        rig = Rig(tmp_path_factory.mktemp("garbage") / "kubelet")
        rig.kubelet.start()
        up_for_long(rig)
        async with running(rig):
            await rig.until(lambda state: state.synced)
            (rig.kubelet.root / "cpu_manager_state").write_bytes(text)
            (rig.kubelet.root / "allocated_pods_state").write_bytes(text)
            await asyncio.sleep(0.01)
            rig.start_pod("a", 0b110)
            await rig.until(lambda state: "a" in state.admitted)

    asyncio.run(scenario())


# Restarts


def test_a_long_running_kubelet_is_synced_when_its_list_is_complete():
    restart = KubeletRestart(120)
    restart.notice("e", 1000, 1)
    restart.check({"a"}, {"a", "b"}, 1000)
    assert not restart.synced
    restart.check({"a", "b"}, {"a", "b"}, 1001)
    restart.check({"a", "b"}, {"a", "b"}, 1002)
    assert restart.synced


def test_a_young_kubelets_list_must_be_complete_twice():
    restart = KubeletRestart(120)
    restart.notice("e", 1000, 999)
    restart.check({"a"}, {"a"}, 1000)
    assert not restart.synced
    restart.check({"a"}, {"a"}, 1000)
    assert restart.synced


def test_a_kubelet_that_never_takes_up_a_pod_is_synced_in_the_end():
    restart = KubeletRestart(120)
    restart.notice("e", 1000, 1000)
    assert restart.check(set(), {"a"}, 1119) == ""
    assert not restart.synced
    assert "1 of its pods" in restart.check(set(), {"a"}, 1121)
    assert restart.synced


async def test_without_the_api_the_pods_from_before_the_restart_are_waited_for(tmp_path: Path):
    rig = Rig(tmp_path / "kubelet", api=False)
    rig.kubelet.start()
    up_for_long(rig)
    async with running(rig):
        await rig.until(lambda state: state.synced)
        rig.kubelet.admit("a", 0b110)
        rig.kubelet.listed[:] = [
            ListedPod(
                namespace="default",
                name="a",
                containers=(ListedContainer(name="c", cpus=0b110),),
            )
        ]
        before = await rig.until(lambda state: "a" in state.admitted)
        back, rig.kubelet.listed = rig.kubelet.listed, []
        rig.kubelet.start()
        await rig.until(lambda state: not state.synced and state.epoch != before.epoch)
        lists = rig.kubelet.lists
        async with asyncio.timeout(30):
            while rig.kubelet.lists < lists + 5:
                await asyncio.sleep(0.005)
        assert not rig.seen[-1].synced
        rig.kubelet.listed = back
        state = await rig.until(lambda state: state.synced)
        assert state.holdings["a"]["c"].cpus == 0b110


def test_a_report_from_before_the_start_is_the_former_kubelets():
    restart = KubeletRestart(120)
    assert not restart.is_before(1, 1000)  # no start is known
    restart.notice("e", 1000, 990, made=990)
    assert restart.is_before(900, 1000)
    assert not restart.is_before(989, 1000)  # it reports before it makes its socket
    assert not restart.is_before(None, 1000)
    assert not restart.is_before(900, 1121)  # it never will


def test_a_start_of_which_no_clock_tells_is_a_moment_ago_and_its_reports_are_its_own():
    restart = KubeletRestart(120)
    restart.notice("e", 1000, None)
    assert not restart.is_settled(1000)
    restart.check({"a"}, {"a"}, 1000)
    assert not restart.synced
    assert not restart.is_before(1, 1000)
    assert restart.may_be_before(1)  # so the Node is read again later
    assert restart.is_settled(1121)


def test_a_kubelet_was_not_started_before_the_former_one_was_seen_last():
    """The clock was set on by an hour since it made its socket."""
    restart = KubeletRestart(120)
    restart.notice("former", 1000, 400)
    restart.notice("former", 5000, 400)
    restart.notice("e", 5001, 1401)
    restart.check({"a"}, {"a"}, 5001)
    assert not restart.synced
    assert not restart.is_settled(5001)


async def test_the_version_of_the_former_kubelet_is_not_taken_for_the_new_ones(rig: Rig):
    """An upgrade in place: the Node tells the old version until the new kubelet has reported."""
    rig.facts = replace(rig.facts, heard=time.time() - 100)
    rig.kubelet.start()
    learnt = rig.learns
    async with asyncio.timeout(30):
        while rig.learns < learnt + 3:
            await asyncio.sleep(0.005)
    assert not rig.seen[-1].synced
    rig.facts = replace(rig.facts, heard=time.time(), version="v1.37.1")
    state = await rig.until(lambda state: state.synced)
    assert state.kubelet_version == "v1.37.1"


def test_a_missing_socket_is_no_restart():
    restart = KubeletRestart(120)
    assert restart.notice("e", 1000, 1)
    assert not restart.notice("", 1001, None)
    assert not restart.notice("e", 1002, 1)
    assert restart.epoch == "e"
