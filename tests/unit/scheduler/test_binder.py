"""Nothing is written, or waited for, beyond what is left of the lease."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from rte import errors
from rte.scheduler.loop.messages import Outcome
from rte.scheduler.shell.binder import WIDTH, Binder
from rte.scheduler.shell.leader import Leader
from tests.unit.scheduler.build import World

if TYPE_CHECKING:
    from collections.abc import Callable


class Api:
    """Notes requests; binds fail as often as asked."""

    def __init__(self, failures: int = 0) -> None:
        self.failures = failures
        self.timeouts: list[float] = []

    async def request(self, method: str, path: str, *, body: Any, timeout_s: float) -> Any:
        self.timeouts.append(timeout_s)
        self.failures -= 1
        if self.failures >= 0:
            raise errors.KubeError("no answer")
        return {}

    async def get(self, path: str, **_: str) -> Any:
        return {"metadata": {"uid": "uid-p"}, "spec": {}}


def binder_of(api: Api, left_s: Callable[[], float] = lambda: 10.0) -> Binder:
    slots = asyncio.Semaphore(WIDTH)
    return Binder(api, left_s=left_s, timeout_s=1.0, slots=slots)  # type: ignore[arg-type]


class Slow(Api):
    """Answers when it is let; notes how many wait for that."""

    def __init__(self) -> None:
        super().__init__()
        self.under_way = 0
        self.most = 0
        self.reads = 0
        self.let = asyncio.Event()

    async def request(self, method: str, path: str, *, body: Any, timeout_s: float) -> Any:
        self.under_way += 1
        self.most = max(self.most, self.under_way)
        await self.let.wait()
        self.under_way -= 1
        return await super().request(method, path, body=body, timeout_s=timeout_s)

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
