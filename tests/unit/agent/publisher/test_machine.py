"""What the API server has of the node's states; by how long it lacks one the Lease is renewed."""

from __future__ import annotations

from typing import Any

import pytest

from rte import errors
from rte.agent.observer.messages import Observation
from rte.agent.publisher import messages
from rte.agent.publisher.machine import Publisher
from rte.agent.publisher.messages import Offered, Stored, Tick, Watched, WriteRefused, WriteReport
from rte.telemetry.effects import SetReadiness


def report(number: int) -> dict[str, Any]:
    kind = {"apiVersion": "topology.node.k8s.io/v1alpha2", "kind": "NodeResourceTopology"}
    return {**kind, "metadata": {"name": "n0"}, "zones": [{"name": f"node-{number}"}]}


def stored(number: int) -> Stored:
    metadata = {"name": "n0", "resourceVersion": str(number)}
    return Stored({**report(number), "metadata": metadata})


def offer(publisher: Publisher, number: int, now: float) -> list[Any]:
    return publisher.handle(Offered(Observation(report(number), now)), now)


def test_states_that_follow_each_other_count_from_the_first_that_was_not_stored() -> None:
    publisher = Publisher()
    offer(publisher, 1, 10.0)
    for now in range(11, 60):
        publisher.handle(WriteRefused(errors.KubeError("no", status=403)), float(now))
        offer(publisher, now, float(now))
        assert publisher.behind_since() == 10.0


def test_a_write_that_is_stored_counts_from_what_was_offered_after_it_was_sent() -> None:
    publisher = Publisher()
    offer(publisher, 1, 10.0)
    (request,) = publisher.handle(stored(0), 11.0)
    assert isinstance(request, WriteReport)
    offer(publisher, 2, 12.0)
    offer(publisher, 3, 13.0)
    publisher.handle(stored(1), 14.0)
    assert publisher.behind_since() == 12.0
    publisher.handle(stored(3), 15.0)
    assert publisher.behind_since() is None
    offer(publisher, 4, 20.0)
    assert publisher.behind_since() == 20.0


def test_a_state_that_returns_to_what_is_stored_lacks_nothing() -> None:
    publisher = Publisher()
    offer(publisher, 1, 10.0)
    publisher.handle(stored(1), 11.0)
    assert publisher.behind_since() is None
    effects = offer(publisher, 2, 12.0)
    assert any(isinstance(effect, messages.WriteReport) for effect in effects)
    publisher.handle(WriteRefused(errors.KubeError("no", status=403)), 12.5)
    assert publisher.behind_since() == 12.0
    offer(publisher, 1, 13.0)
    publisher.handle(messages.Tick(), 30.0)
    assert publisher.behind_since() is None


@pytest.mark.parametrize("status", [0, 500, 504])
def test_a_write_whose_answer_was_lost_may_be_stored_so_the_object_is_read_again(
    status: int,
) -> None:
    publisher = Publisher()
    offer(publisher, 1, 10.0)
    publisher.handle(stored(1), 11.0)
    offer(publisher, 2, 12.0)
    publisher.handle(WriteRefused(errors.KubeError("lost", status=status)), 12.5)
    assert offer(publisher, 1, 13.0) == [messages.Get()]
    effects = publisher.handle(stored(2), 31.0)
    assert any(isinstance(effect, WriteReport) for effect in effects)
    publisher.handle(stored(1), 32.0)
    assert publisher.behind_since() is None


class Shelf:
    """Where a publisher keeps its object: an API server that answers at once.

    ``zones`` is what it has, None for nothing; ``refuses`` is the status that all writes get.
    """

    def __init__(self) -> None:
        self.publisher = Publisher(has_lease=True)
        self.object: dict[str, Any] | None = None
        self.version = 1_000_000
        self.refuses = 0
        self.renewals = self.writes = 0
        self.now = 0.0
        self.is_alive = True
        self.not_ready: dict[str, str] = {}
        self.tell(messages.Trusted(1e9))

    def tell(self, event: Any) -> None:
        for effect in self.publisher.handle(event, self.now):
            match effect:
                case messages.Probe():
                    self.tell(messages.Probed(self.is_alive))
                case messages.Renew():
                    self.renewals += 1
                    self.tell(messages.Renewed())
                case messages.Get() if self.object is None:
                    self.tell(WriteRefused(errors.KubeError("none", status=404)))
                case messages.Get():
                    self.tell(Stored(self.object))
                case messages.AskOwner():
                    self.tell(messages.OwnerKnown(""))
                case WriteReport() if self.refuses:
                    self.tell(WriteRefused(errors.KubeError("no", status=self.refuses)))
                case WriteReport():
                    self.writes += 1
                    self.version += 1
                    self.object = self.versioned(effect.body)
                    self.tell(Stored(self.object))
                case SetReadiness():
                    self.not_ready.pop(effect.name, None)
                    if effect.reason:
                        self.not_ready[effect.name] = effect.reason

    def versioned(self, obj: dict[str, Any]) -> dict[str, Any]:
        metadata = {**obj["metadata"], "resourceVersion": str(self.version)}
        return {**obj, "metadata": metadata}

    def offer(self, number: int) -> None:
        self.tell(Offered(Observation(report(number), self.now)))

    def advance(self, seconds: float) -> None:
        until = self.now + seconds
        while (due := self.publisher.deadline()) <= until:
            self.now = max(self.now, due)
            self.tell(Tick())
        self.now = until

    @property
    def number(self) -> str:
        return self.object["zones"][0]["name"] if self.object else ""


@pytest.mark.parametrize("keeps", [True, False], ids=["an older object", "no object"])
def test_what_an_etcd_of_yesterday_has_is_replaced_at_once(keeps: bool) -> None:
    shelf = Shelf()
    shelf.offer(1)
    yesterday = shelf.object
    shelf.advance(60)
    shelf.offer(2)
    shelf.version = 900_000
    shelf.object = shelf.versioned(yesterday) if keeps and yesterday else None
    shelf.tell(Watched(shelf.object, str(shelf.version), listed=True))
    assert shelf.number == "node-2"


def test_a_list_that_was_answered_late_is_no_foreign_write() -> None:
    shelf = Shelf()
    shelf.offer(1)
    before = shelf.object
    shelf.offer(2)
    shelf.tell(Watched(before, before["metadata"]["resourceVersion"], listed=True))
    assert shelf.writes == 2
    assert shelf.number == "node-2"


def test_an_object_that_is_deleted_again_and_again_comes_back_whole_each_time() -> None:
    shelf = Shelf()
    shelf.offer(1)
    for number in range(2, 30):
        shelf.advance(10)
        shelf.version += 1
        shelf.object = None
        shelf.tell(Watched(None, str(shelf.version)))
        assert shelf.number
        shelf.offer(number)
        assert shelf.number == f"node-{number}"


def test_who_deletes_the_object_at_once_does_not_make_us_write_at_once() -> None:
    shelf = Shelf()
    shelf.offer(1)
    for _ in range(100):
        shelf.advance(0.1)
        if shelf.object is not None:
            shelf.version += 1
            shelf.object = None
            shelf.tell(Watched(None, str(shelf.version)))
    assert shelf.writes <= 12


def test_refused_writes_make_the_agent_not_ready_until_one_is_accepted() -> None:
    shelf = Shelf()
    shelf.offer(1)
    assert not shelf.not_ready
    shelf.refuses = 403
    shelf.offer(2)
    shelf.advance(3600)
    assert "we may not write" in shelf.not_ready["published"]
    shelf.refuses = 0
    shelf.advance(15)
    assert not shelf.not_ready
    assert shelf.number == "node-2"


def test_without_a_sign_of_life_the_lease_is_not_renewed_and_lapses() -> None:
    shelf = Shelf()
    shelf.offer(1)
    shelf.advance(30)
    assert shelf.renewals == 4
    shelf.is_alive = False
    shelf.advance(39)
    assert shelf.renewals == 4
    assert not shelf.not_ready
    shelf.advance(1)
    assert "take this agent for dead" in shelf.not_ready["lease"]
    shelf.is_alive = True
    shelf.advance(10)
    assert not shelf.not_ready


def test_a_kubelet_that_is_away_for_ten_seconds_does_not_end_the_lease() -> None:
    shelf = Shelf()
    shelf.offer(1)
    for _ in range(60):
        shelf.advance(5)
        shelf.is_alive = False
        shelf.advance(10)
        shelf.is_alive = True
        shelf.advance(15)
        assert not shelf.not_ready
