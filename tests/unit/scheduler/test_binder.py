"""Nothing is written, or waited for, beyond what is left of the lease."""

from __future__ import annotations

from typing import Any

from rte import errors
from rte.scheduler.loop.messages import Outcome
from rte.scheduler.shell.binder import Binder
from rte.scheduler.shell.leader import Leader
from tests.unit.scheduler.build import World


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


async def test_a_bind_is_not_waited_for_longer_than_the_lease_lasts() -> None:
    api, left = Api(failures=1), iter((1.5, 0.4, 0.0))
    binder = Binder(api, left_s=lambda: next(left), timeout_s=1.0)  # type: ignore[arg-type]
    bound = await binder.bind(World().pod(name="p"), "n")
    assert bound.outcome is Outcome.BOUND
    assert api.timeouts == [1.0, 0.4]


async def test_without_a_lease_nothing_is_sent() -> None:
    api = Api()
    binder = Binder(api, left_s=lambda: 0.0, timeout_s=1.0)  # type: ignore[arg-type]
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
