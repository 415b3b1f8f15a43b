"""Nothing is written, or waited for, beyond what is left of the lease."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from rte import errors
from rte.placement.groups import allocation
from rte.scheduler.loop.messages import Outcome
from rte.scheduler.shell.binder import WIDTH, Binder
from rte.scheduler.shell.leader import Leader
from tests.unit.scheduler.build import World

if TYPE_CHECKING:
    from collections.abc import Callable


class Api:
    """Notes requests; they fail as often as asked."""

    def __init__(self, failures: int = 0) -> None:
        self.failures = failures
        self.timeouts: list[float] = []
        self.sent: list[tuple[str, Any]] = []

    async def request(
        self,
        method: str,
        path: str,
        *,
        body: Any,
        timeout_s: float,
        content_type: str = "",
        params: Any = None,
    ) -> Any:
        self.timeouts.append(timeout_s)
        self.sent.append((f"{method} {path.rpartition('/')[2]}", body))
        self.failures -= 1
        if self.failures >= 0:
            raise errors.KubeError("no answer")
        return {}

    async def get(self, path: str, **_: str) -> Any:
        return {"metadata": {"uid": "uid-p"}, "spec": {}}


def binder_of(api: Api, left_s: Callable[[], float] = lambda: 10.0) -> Binder:
    slots = asyncio.Semaphore(WIDTH)
    return Binder(api, left_s=left_s, timeout_s=1.0, slots=slots)  # type: ignore[arg-type]


@pytest.fixture
async def no_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    """Timers of the loop are due at once; nothing here waits for anything else."""
    loop: Any = asyncio.get_running_loop()
    waited = 0.0

    def select(timeout: float | None) -> list[Any]:
        nonlocal waited
        found = ready(0)
        waited += 0 if found else timeout or 0
        return found

    ready, now = loop._selector.select, loop.time
    monkeypatch.setattr(loop._selector, "select", select)
    monkeypatch.setattr(loop, "time", lambda: now() + waited)


class Slow(Api):
    """Answers when it is let; notes how many wait for that."""

    def __init__(self) -> None:
        super().__init__()
        self.under_way = 0
        self.most = 0
        self.reads = 0
        self.let = asyncio.Event()

    async def request(self, method: str, path: str, **options: Any) -> Any:
        self.under_way += 1
        self.most = max(self.most, self.under_way)
        await self.let.wait()
        self.under_way -= 1
        return await super().request(method, path, **options)

    async def get(self, path: str, **_: str) -> Any:
        self.reads += 1
        return await super().get(path)


async def test_more_binds_than_the_api_takes_at_a_time_wait_unsent() -> None:
    """Sent all at once, those at the end would time out and be sent again."""
    api = Slow()
    binder, world = binder_of(api), World()
    binds = [asyncio.create_task(binder.bind(world.pod(), "n")) for _ in range(5 * WIDTH)]
    await asyncio.sleep(0)
    api.let.set()
    assert {(await bind).outcome for bind in binds} == {Outcome.BOUND}
    assert (api.most, api.reads) == (WIDTH, 0)


async def test_what_was_not_sent_before_the_lease_ended_needs_no_reading_back() -> None:
    api, left = Slow(), [10.0]
    binder, world = binder_of(api, lambda: left[0]), World()
    binds = [asyncio.create_task(binder.bind(world.pod(), "n")) for _ in range(WIDTH + 1)]
    await asyncio.sleep(0)
    left[0] = 0.0
    api.let.set()
    outcomes = [(await bind).outcome for bind in binds]
    assert outcomes == [Outcome.BOUND] * WIDTH + [Outcome.ABANDONED]
    assert api.reads == 0


async def test_a_bind_is_not_waited_for_longer_than_the_lease_lasts() -> None:
    api, left = Api(failures=1), iter((1.5, 0.4, 0.0))
    binder = binder_of(api, lambda: next(left))
    bound = await binder.bind(World().pod(name="p"), "n")
    assert bound.outcome is Outcome.BOUND
    assert api.timeouts == [1.0, 0.4]


async def test_an_allocation_is_recorded_in_the_status_before_the_bind() -> None:
    """Each request is sent again until it has an answer, the first one first."""
    api, pod = Api(failures=1), World().pod(name="p")
    bound = await binder_of(api).bind(pod, "n", {allocation.ANNOTATION: "text"})

    assert bound.outcome is Outcome.BOUND
    assert [what for what, _ in api.sent] == ["PATCH status", "PATCH status", "POST binding"]
    (condition,) = api.sent[1][1]["status"]["conditions"]
    assert (condition["type"], condition["status"]) == (allocation.CONDITION, "True")
    assert condition["message"] == "text"
    assert api.sent[1][1]["metadata"] == {"uid": pod.uid}
    assert api.sent[2][1]["metadata"]["annotations"] == {allocation.ANNOTATION: "text"}


async def test_what_a_watch_has_shown_as_recorded_is_recorded_again() -> None:
    """It may be older than what an earlier decision has recorded."""
    pod, api = replace(World().pod(name="p"), recorded="text"), Api()
    await binder_of(api).bind(pod, "n", {allocation.ANNOTATION: "text"})
    assert [what for what, _ in api.sent] == ["PATCH status", "POST binding"]


async def test_a_bind_without_groups_takes_back_what_was_recorded() -> None:
    pod, api = replace(World().pod(name="p"), recorded="text"), Api()
    await binder_of(api).bind(pod, "n")
    assert [what for what, _ in api.sent] == ["PATCH status", "POST binding"]
    (condition,) = api.sent[0][1]["status"]["conditions"]
    assert (condition["status"], condition["message"]) == ("False", "")


async def test_without_a_lease_nothing_is_sent() -> None:
    api = Api()
    binder = binder_of(api, lambda: 0.0)
    bound = await binder.bind(World().pod(name="p"), "n")
    assert bound.outcome is Outcome.ABANDONED
    assert api.timeouts == []


def test_what_is_left_of_a_lease_is_nothing_when_it_is_too_little_to_begin() -> None:
    now = 10.0
    leader = Leader(
        Api(),  # type: ignore[arg-type]
        name="l", namespace="n", lease_s=3.0, renew_s=1.0, clock=lambda: now,
        changed=lambda _: None, renewed=lambda: None,
    )  # fmt: skip
    leader._active, leader._until = True, 12.5
    assert leader.left_s() == 2.5
    now = 11.6
    assert leader.left_s() == 0.0
    assert not leader.may_bind()


class Failing(Api):
    """An admission webhook of binds is down: each is answered 500."""

    async def request(self, method: str, path: str, **options: Any) -> Any:
        await super().request(method, path, **options)
        raise errors.KubeError("failed calling webhook", status=500)


@pytest.mark.usefixtures("no_waiting")
async def test_a_bind_that_fails_is_given_up_after_a_few_tries() -> None:
    api = Failing()
    bound = await binder_of(api).bind(World().pod(name="p"), "n")
    assert bound.outcome is Outcome.FAILED
    assert bound.message == "failed calling webhook (6 tries)"
    assert len(api.sent) == 6


class Late(Api):
    """No request is answered, and the last one is carried out when its deadline is near."""

    def __init__(self) -> None:
        super().__init__(failures=100)
        self.bound_from = float("inf")
        self.limits: list[str] = []

    async def request(self, method: str, path: str, **options: Any) -> Any:
        self.limits.append(options["params"]["timeout"])
        self.bound_from = asyncio.get_running_loop().time() + 0.9 * options["timeout_s"]
        return await super().request(method, path, **options)

    async def get(self, path: str, **_: str) -> Any:
        bound = asyncio.get_running_loop().time() >= self.bound_from
        return {"metadata": {"uid": "uid-p"}, "spec": {"nodeName": "n"} if bound else {}}


@pytest.mark.usefixtures("no_waiting")
async def test_a_bind_without_an_answer_is_given_up_only_when_it_cannot_come_true() -> None:
    api = Late()
    bound = await binder_of(api).bind(World().pod(name="p"), "n")
    assert bound.outcome is Outcome.BOUND
    assert api.limits == ["1.000s"] * 6
