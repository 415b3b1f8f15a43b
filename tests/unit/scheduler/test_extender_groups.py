"""Newer kube-schedulers before the extender: groups, retries, candidates without victims."""

from __future__ import annotations

import asyncio
import itertools
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rte.scheduler.front import extender as extenders
from rte.scheduler.front import picks as picking
from rte.scheduler.front.extender import Extender
from rte.scheduler.front.picks import PICK_S, Picks, is_grouped
from rte.scheduler.front.wakeups import WAKE_ANNOTATION
from rte.scheduler.loop.messages import Bound, Outcome
from tests.depth import scaled
from tests.unit.scheduler.build import World, pod_object
from tests.unit.scheduler.town import until

if TYPE_CHECKING:
    from rte.scheduler.framework.objects import PodView
    from tests.unit.scheduler.conftest import Caller


def grouped(pod: dict[str, Any]) -> dict[str, Any]:
    """The pod as kube-scheduler 1.36 sends a member of a PodGroup."""
    return {**pod, "spec": {**pod["spec"], "schedulingGroup": {"podGroupName": "gang"}}}


async def names(call: Caller, pod: dict[str, Any], *nodes: str) -> list[str]:
    return list((await call("filter", Pod=pod, NodeNames=list(nodes)))["NodeNames"])


def woken(call: Caller, name: str) -> bool:
    return WAKE_ANNOTATION in (call.town.get(name)["metadata"].get("annotations") or {})


@pytest.mark.parametrize(
    "part",
    [
        {"spec": {"schedulingGroup": {"podGroupName": "g"}}},
        {"spec": {"workloadRef": {"name": "w", "podGroup": "g"}}},
        {"metadata": {"labels": {"scheduling.x-k8s.io/pod-group": "g"}}},
    ],
)
def test_members_of_groups_of_each_kind_are_known(part: dict[str, Any]) -> None:
    assert is_grouped(part)
    assert not is_grouped(pod_object())


async def test_members_that_are_filtered_before_any_is_bound_get_zones_of_their_own(
    call: Caller,
) -> None:
    pods = [grouped(call.pod(f"g{number}", "5")) for number in range(4)]
    given = [await names(call, pod, "a", "b") for pod in pods]
    assert sorted(itertools.chain(*given)) == ["a", "a", "b"]
    assert given[3] == []
    bound = [(pod, nodes[0]) for pod, nodes in zip(pods, given, strict=True) if nodes]
    assert await asyncio.gather(*(call.bind(*each) for each in bound)) == ["", "", ""]
    await until(lambda: all(call.town.phase(f"g{number}") == "Running" for number in range(3)))
    assert call.town.refusals == []


async def test_a_pod_outside_the_group_is_not_given_what_was_promised(
    call: Caller,
) -> None:
    member, other = grouped(call.pod("member", "5")), call.pod("other", "5")
    assert await names(call, member, "b") == ["b"]
    answer = await call("filter", Pod=other, NodeNames=["b"])
    assert answer["NodeNames"] == []
    assert "Insufficient cpu" in answer["FailedNodes"]["b"]
    assert "Insufficient cpu" in await call.bind(other, "b")
    assert await call.bind(member, "b") == ""


async def test_another_answer_for_the_same_pod_takes_the_place_of_the_first(
    call: Caller,
) -> None:
    first, second = grouped(call.pod("first", "5")), grouped(call.pod("second", "5"))
    assert await names(call, first, "b") == ["b"]
    assert await names(call, second, "b") == []
    assert await names(call, first, "a") == ["a"]
    await until(lambda: woken(call, "second"))
    assert await names(call, second, "b") == ["b"]


async def test_a_promise_ends_with_its_pod_and_with_time(
    call: Caller,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(picking, "PICK_S", 0.2)
    monkeypatch.setattr(extenders, "PICK_S", 0.2)
    given_up, waits = grouped(call.pod("given-up", "5")), call.pod("waits", "5")
    assert await names(call, given_up, "b") == ["b"]
    assert await names(call, waits, "b") == []
    await until(lambda: woken(call, "waits"))
    assert await names(call, waits, "b") == ["b"]
    monkeypatch.setattr(picking, "PICK_S", 60.0)
    deleted, sleeps = grouped(call.pod("deleted", "5")), call.pod("sleeps", "5")
    assert await names(call, deleted, "b") == ["b"]
    assert await names(call, sleeps, "b") == []
    call.town.end("deleted")
    await until(lambda: woken(call, "sleeps"))


async def test_a_retry_on_another_node_leaves_nothing_on_the_first(
    call: Caller,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """kube-scheduler hangs up while the API server is slow, and tries another node."""
    go = asyncio.Event()
    real = call.scheduler._binder.bind

    async def slow(pod: PodView, node: str, annotations: Any) -> Bound:
        await go.wait()
        if node == "a":
            return Bound(pod.uid, Outcome.REFUSED, message="the API server fell over")
        return await real(pod, node, annotations)

    monkeypatch.setattr(call.scheduler._binder, "bind", slow)
    pod = call.pod("p", "5")
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(call.bind(pod, "a"), 0.2)
    retry = asyncio.create_task(call.bind(pod, "b"), name="retry")
    await asyncio.sleep(0)
    go.set()
    assert await retry == ""
    await until(lambda: call.town.phase("p") == "Running")
    nodes = call.scheduler.cluster.nodes
    uid = pod["metadata"]["uid"]
    assert uid not in nodes["a"].pods
    assert uid in nodes["b"].pods
    assert await call.bind(pod, "b") == ""
    assert await call.bind(pod, "a") == "the pod is bound to b"


def test_a_decision_replaces_the_one_before() -> None:
    world = World()
    world.node("a")
    world.node("b")
    pod = world.pod(cpu="6")
    world.cluster.assume(pod.uid, "a")
    world.cluster.assume(pod.uid, "b")
    assert list(world.cluster.nodes["a"].pods) == []
    world.cluster.remove_pod(pod.uid, 1.0)
    assert list(world.cluster.nodes["b"].pods) == []


async def test_a_node_that_was_never_offered_wakes_nobody(call: Caller) -> None:
    first, second = call.pod("first", "5"), call.pod("second", "5")
    assert await call.bind(first, "b") == ""
    assert await names(call, second, "b") == []
    await until(lambda: call.town.phase("first") == "Running")
    call.town.pod("elsewhere", "1", nodeName="a")
    await until(lambda: call.town.phase("elsewhere") == "Running")
    call.town.end("elsewhere")
    await until(lambda: not call.scheduler.cluster.nodes["a"].pods)
    await asyncio.sleep(0.05)
    assert not woken(call, "second")
    call.town.end("first")
    await until(lambda: woken(call, "second"))


async def test_candidates_without_victims_get_victims_or_are_dropped(
    call: Caller,
) -> None:
    """kube-scheduler's own filters pass on the node: only the zones stand in the way."""
    call.town.api.create("priorityclasses", {"metadata": {"name": "urgent"}, "value": 10})
    running = [call.pod(f"r{number}", "3") for number in range(2)]
    for pod in running:
        call.town.pod(pod["metadata"]["name"] + "x", "1", nodeName="a")
        assert await call.bind(pod, "a") == ""
        await until(lambda pod=pod: call.town.phase(pod["metadata"]["name"]) == "Running")
    node = call.scheduler.cluster.nodes["a"]
    await until(lambda: node.outlook() is not None and not node.outlook().in_flight)
    urgent = call.pod("urgent", "7", priorityClassName="urgent")
    assert await names(call, urgent, "a", "b") == ["b"]
    nothing: dict[str, Any] = {"Pods": [], "NumPDBViolations": 0}
    answer = await call("preempt", Pod=urgent, NodeNameToMetaVictims={"a": nothing, "b": nothing})
    kept = answer["NodeNameToMetaVictims"]
    assert list(kept) == ["a"]  # b takes the pod as it is: a node without victims is an error
    assert kept["a"]["Pods"]
    await until(lambda: woken(call, "urgent"))


# What is promised, by any order of answers, binds and endings

_PODS = [f"pod{number}" for number in range(5)]
_steps = st.lists(
    st.one_of(
        st.tuples(
            st.just("filter"), st.sampled_from(_PODS), st.sets(st.sampled_from("ab"), min_size=1)
        ),
        st.tuples(st.just("bind"), st.sampled_from(_PODS), st.just(frozenset[str]())),
        st.tuples(st.just("wait"), st.just(""), st.just(frozenset[str]())),
    ),
    max_size=25,
)


class _Played:
    """An extender on a cluster that is fed by hand; time and binds are the test's."""

    def __init__(self) -> None:
        self.world = World()
        self.world.node("a")
        self.world.node("b")
        self.now = 0.0
        self.scheduler: Any = type(
            "Scheduler",
            (),
            {
                "cluster": self.world.cluster,
                "cycle": self.world.cycle,
                "feeds": type("Feeds", (), {"pods_seen": 1 << 60}),
                "spawn": lambda self, work: work.close(),
            },
        )()
        client: Any = None
        self.extender = Extender(self.scheduler, client, clock=lambda: self.now)
        self.objects = {name: grouped(pod_object(name, "6")) for name in _PODS}
        self.views = {name: self.world.pod(obj) for name, obj in self.objects.items()}

    def held(self) -> list[tuple[str, int]]:
        """(node, zone) of everything that is bound or promised."""
        found = []
        for name, entry in self.world.cluster.nodes.items():
            twin = entry.beside(self.extender._picks.on(name, besides=""))
            outlook = twin.outlook()
            assert outlook is not None
            assert not outlook.doubtful
            for containers in outlook.predicted.holdings.values():
                for holding in containers.values():
                    found += [
                        (name, zone)
                        for zone, cpus in outlook.predicted.topology.zone_cpus.items()
                        if cpus & holding.cpus
                    ]
        return found


@settings(max_examples=scaled(60), deadline=None)
@given(_steps)
def test_no_zone_is_promised_twice_and_no_promise_is_left(steps: list[Any]) -> None:
    async def play() -> None:
        played = _Played()
        extender, cluster = played.extender, played.world.cluster
        for verb, name, nodes in steps:
            if verb == "filter" and not cluster.assumed.get(played.views[name].uid):
                answer = extender.filter({"Pod": played.objects[name], "NodeNames": sorted(nodes)})
                assert len(answer["NodeNames"]) <= 1
                promised = extender._picks.node_of(played.views[name].uid)
                assert answer["NodeNames"] == ([promised] if promised else [])
            elif verb == "bind":
                uid = played.views[name].uid
                node = extender._picks.node_of(uid)
                if node:
                    cluster.assume(uid, node)
                    extender._end_pick(uid)
            elif verb == "wait":
                played.now += PICK_S
                extender._expire_picks()
                assert len(extender._picks) == 0
            held = played.held()
            assert len(held) == len(set(held))
        played.now += PICK_S
        extender._expire_picks()
        assert len(extender._picks) == 0
        assert len(played.held()) == len(cluster.assumed)

    asyncio.run(play())


def test_promises_are_one_for_each_pod() -> None:
    world, picks = World(), Picks()
    pod = world.pod(cpu="2")
    picks.promise(pod, "a", 0.0)
    picks.promise(pod, "b", 1.0)
    assert picks.on("a", besides="") == []
    assert picks.on("b", besides="") == [pod]
    assert picks.on("b", besides=pod.uid) == []
    assert picks.expire(PICK_S) == []
    assert picks.expire(PICK_S + 1.0) == ["b"]
    assert picks.end(pod.uid) == ""
