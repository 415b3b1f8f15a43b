"""The first minutes of the week: nobody refused or forgotten, nothing left behind."""

from __future__ import annotations

from bench import scheduler_week
from tests.depth import scaled

#: Tables that speak of nodes, collections and classes, or of pods that have ended lately, for whom
#: a timer still runs.
OF_NODES = {
    "cluster.nodes", "cluster.rows", "cluster._changed", "cluster.namespaces", "feeds._reports",
    "feeds._resources", "feeds._synced", "intake._gone", "intake._known", "intake._reports",
    "intake._set", "binding._names", "machine._names", "machine._watched", "matches._namespaces",
    "nodes.gone", "timers._heap",
}  # fmt: skip


async def test_every_pod_runs_and_nothing_of_it_is_left() -> None:
    pods, nodes = scaled(400), 8
    result = await scheduler_week.measure(pods, nodes, most=80, limit=120.0)
    assert (result["pods"], result["ran"] + result["evicted"]) == (pods, pods)
    assert (result["refused"], result["failed"], result["forgotten"]) == (0, [], 0)
    assert result["wrongly_pending"] == 0
    left = result["left"]
    assert left.keys() <= OF_NODES
    assert left.pop("nodes.gone") <= pods
    # Of those that ended in the last seconds, who are more where the processor is busy.
    assert left.pop("timers._heap", 0) <= pods // 4
    assert max(left.values()) <= 3 * nodes
