"""The table of this node's pods: who is active, who has ended."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from rte.accounting import liveness
from rte.accounting.liveness import PodTable
from rte.agent.follow import Signals, follow_pods
from rte.agent.observer.messages import KubeletChange, PodSeen, PodsListed, PodsUnknown
from rte.telemetry.metrics import AgentMetrics

if TYPE_CHECKING:
    from rte.kube.client import Client
    from rte.sim.apiserver import APIServer


def pod(uid: str, *, phase: str = "Running", mirror: str = "", **metadata: Any) -> dict[str, Any]:
    annotations = (
        {"kubernetes.io/config.mirror": mirror, "kubernetes.io/config.hash": mirror}
        if mirror
        else {}
    )
    return {
        "metadata": {
            "uid": uid, "name": uid, "namespace": "default", "annotations": annotations, **metadata,
        },
        "spec": {"nodeName": "n0", "containers": [{"name": "c", "image": "pause"}]},
        "status": {"phase": phase, "startTime": "2026-01-01T00:00:00Z"},
    }  # fmt: skip


def states(table: PodTable) -> dict[str, bool]:
    """UID -> is over."""
    return {item.uid: item.terminal for item in table.pods()}


def test_a_pod_that_runs_then_is_over_then_gone_stays_over_while_files_know_it():
    table = PodTable()
    table.replace([pod("a")])
    assert table.update(pod("a", phase="Succeeded"))
    assert states(table) == {"a": True}
    table.remove(pod("a", phase="Succeeded"))
    table.retain(frozenset({"a"}), 0)
    assert states(table) == {"a": True}
    table.retain(frozenset(), 0)
    assert states(table) == {}


def test_events_that_change_nothing_here_are_no_change():
    table = PodTable()
    table.replace([pod("a")])
    assert not table.update(pod("a", resourceVersion="2"))
    assert not table.remove(pod("b"))


def test_what_a_new_list_lacks_has_ended():
    table = PodTable()
    table.replace([pod("a"), pod("b")])
    table.replace([pod("b")])
    assert states(table) == {"a": True, "b": False}


def test_uids_of_the_files_from_before_the_first_list_are_doubtful_if_it_lacks_them():
    table = PodTable()
    table.expect(frozenset({"old", "a"}))
    table.replace([pod("a")])
    assert table.retain(frozenset({"old", "a"}), 0) is None
    assert table.doubtful(0) == {"old"}
    table.bury(frozenset({"old"}))
    assert states(table) == {"a": False, "old": True}


def test_uids_of_the_first_files_are_doubtful_if_a_list_from_before_lacks_them():
    table = PodTable()
    table.replace([pod("a")])
    table.expect(frozenset({"old", "a"}))
    assert table.retain(frozenset({"old", "a", "new"}), 0) == 2
    assert table.unseen == {"new"}
    assert table.retain(frozenset({"old", "a"}), 0) is None
    assert table.doubtful(0) == {"old"}


def test_a_uid_unknown_to_the_api_is_too_new_at_first_and_doubtful_after_a_while():
    table = PodTable(grace_s=2)
    table.replace([])
    assert table.retain(frozenset({"x"}), 10) == 2
    assert table.retain(frozenset({"x"}), 11.5) == 0.5
    assert table.doubtful(11.5) == frozenset()
    assert table.retain(frozenset({"x"}), 12) is None
    assert table.doubtful(12) == {"x"}


def test_nobody_is_doubtful_while_another_is_too_new_to_tell():
    table = PodTable(grace_s=2)
    table.replace([])
    table.retain(frozenset({"x"}), 10)
    table.retain(frozenset({"x", "y"}), 13)
    assert table.doubtful(13) == frozenset()
    assert table.doubtful(15) == {"x", "y"}


def test_a_uid_that_the_api_shows_late_is_active():
    table = PodTable(grace_s=2)
    table.replace([])
    table.retain(frozenset({"x"}), 10)
    table.update(pod("x"))
    table.retain(frozenset({"x"}), 20)
    assert states(table) == {"x": False}


def test_without_a_watch_nobody_is_taken_for_gone():
    table = PodTable(grace_s=0)
    assert table.retain(frozenset({"x"}), 10) is None
    assert table.doubtful(20) == frozenset()


def test_a_mirror_deleted_by_hand_does_not_end_its_static_pod():
    table = PodTable(grace_s=2)
    table.replace([pod("mirror-uid", mirror="static-uid")])
    assert states(table) == {"static-uid": False}
    table.remove(pod("mirror-uid", mirror="static-uid"))
    table.retain(frozenset({"static-uid"}), 0)
    assert states(table) == {}
    table.update(pod("another-mirror", mirror="static-uid"))
    assert states(table) == {"static-uid": False}


def test_a_mirror_that_a_new_list_lacks_does_not_end_its_static_pod_either():
    table = PodTable(grace_s=2)
    table.replace([pod("mirror-uid", mirror="static-uid")])
    table.replace([])
    assert table.retain(frozenset({"static-uid"}), 0) == 2
    assert states(table) == {}
    assert table.doubtful(1) == frozenset()
    assert table.doubtful(2) == {"static-uid"}  # podresources tells


def test_a_pod_is_admitted_once_the_kubelet_reports_on_it_and_has_not_refused_it():
    waiting = pod("a", phase="Pending")
    waiting["status"].pop("startTime")
    assert not liveness.node_pod(waiting).admitted
    assert liveness.node_pod(pod("a", phase="Pending")).admitted
    assert not liveness.node_pod(pod("a", phase="Failed")).admitted


async def _until(condition: Any) -> None:
    async with asyncio.timeout(30):
        while not condition():
            await asyncio.sleep(0.002)


async def test_the_watch_sees_only_this_nodes_pods(client: Client, bare_server: APIServer):
    metrics = AgentMetrics()
    signals = Signals(metrics)
    task = asyncio.create_task(follow_pods(client, "n0", signals, metrics))
    await signals.wait(5)
    assert signals.take_events() == [PodsListed(())]
    signals.take()
    other = pod("other")
    other["spec"]["nodeName"] = "n1"
    for obj in (pod("mine"), other):
        obj["metadata"].pop("uid")
        bare_server.api.create("pods", {"apiVersion": "v1", "kind": "Pod", **obj}, "default")
    await signals.wait(5)
    (seen,) = signals.take_events()
    assert isinstance(seen, PodSeen)
    assert seen.obj["metadata"]["name"] == "mine"
    task.cancel()


async def test_without_the_right_to_watch_podresources_is_polled(
    client: Client, bare_server: APIServer
):
    bare_server.faults.fail_next(code=403, path="/pods")
    metrics = AgentMetrics()
    signals = Signals(metrics)
    task = asyncio.create_task(
        follow_pods(client, "n0", signals, metrics, poll_s=0.01, retry_s=0.1)
    )
    await asyncio.wait_for(signals.wait(), 5)
    assert signals.take()[0] == KubeletChange.POLL
    assert signals.take_events() == [PodsUnknown()]
    assert metrics.registry.get_sample_value("rte_pod_watch_up") == 0
    await _until(lambda: PodsListed(()) in signals.take_events())  # it is tried again
    assert metrics.registry.get_sample_value("rte_pod_watch_up") == 1
    task.cancel()
