"""What the API server has of the node's states; by how long it lacks one the Lease is renewed."""

from __future__ import annotations

from typing import Any

import pytest

from rte import errors
from rte.agent.observer.messages import Observation
from rte.agent.publisher import messages
from rte.agent.publisher.machine import Publisher
from rte.agent.publisher.messages import Offered, Refused, Stored, Write


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
        publisher.handle(Refused(errors.KubeError("no", status=403)), float(now))
        offer(publisher, now, float(now))
        assert publisher.behind_since() == 10.0


def test_a_write_that_is_stored_counts_from_what_was_offered_after_it_was_sent() -> None:
    publisher = Publisher()
    offer(publisher, 1, 10.0)
    (request,) = publisher.handle(stored(0), 11.0)
    assert isinstance(request, Write)
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
    assert any(isinstance(effect, messages.Write) for effect in effects)
    publisher.handle(Refused(errors.KubeError("no", status=403)), 12.5)
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
    publisher.handle(Refused(errors.KubeError("lost", status=status)), 12.5)
    assert offer(publisher, 1, 13.0) == [messages.Get()]
    effects = publisher.handle(stored(2), 31.0)
    assert any(isinstance(effect, Write) for effect in effects)
    publisher.handle(stored(1), 32.0)
    assert publisher.behind_since() is None
