"""Many nodes: choice of the node, and a state that is what the records say, whatever happens."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from rte.placement.groups import answers
from rte.placement.groups.allocation import Record, RecordError, devices_of, parse_record
from rte.placement.groups.check import violations
from rte.placement.groups.cluster import GroupNodes
from rte.placement.groups.inventory import NOTHING_USED, GroupNodeFacts, Policy
from tests.depth import scaled
from tests.unit.placement.groups.nodes import request, two_sockets

if TYPE_CHECKING:
    from rte.placement.groups.request import GroupsRequest

SMALL = request({"queues": [{"rx": 20, "tx": 20}], "workers": 1}, hugepages={"1Gi": 2})
WITH_GPU = request({"gpus": [{"feeders": 1}]})


def a_cluster(*names: str, **fields: object) -> GroupNodes:
    cluster = GroupNodes()
    for name in names:
        cluster.set_node(name, two_sockets(**fields), GroupNodeFacts(), Policy())
    return cluster


def bind(cluster: GroupNodes, wish: GroupsRequest, uid: str, now: float = 0.0) -> str | None:
    choice = cluster.choose(wish, now)
    if choice.node is None or choice.decision is None or choice.decision.allocation is None:
        return None
    record = Record(pod=uid, node=choice.node, allocation=choice.decision.allocation)
    assert cluster.hold(uid, choice.node, record, now)
    return choice.node


def test_a_record_survives_its_text() -> None:
    cluster = a_cluster("a")
    choice = cluster.choose(request({"gpus": [{}], "queues": [{"rx": 5}]}, hugepages={"1Gi": 1}), 0)
    assert choice.decision is not None
    assert choice.decision.allocation is not None
    record = Record(
        pod="u",
        node="a",
        allocation=choice.decision.allocation,
        inventory="7",
        devices=devices_of(choice.decision.allocation, two_sockets()),
        values={"vlan": "100"},
    )

    assert parse_record(record.text()) == record
    assert record.devices["0000:17:10.0"]["index"] == 0


@pytest.mark.parametrize(
    "text",
    ["", "[]", '{"version": 2, "pod": "u", "node": "n"}', '{"version": 1, "pod": "u"}',
     '{"version": 1, "pod": "u", "node": "n", "misc": {"cpus": [999999999]}}'],
)  # fmt: skip
def test_a_record_that_cannot_be_is_told(text: str) -> None:
    with pytest.raises(RecordError):
        parse_record(text)


def test_a_newer_record_is_read_for_what_is_known_of_it() -> None:
    text = '{"version": 1, "pod": "u", "node": "n", "misc": {"cpus": [3], "new": 1}, "later": {}}'

    assert parse_record(text).allocation.misc.cpus == (3,)


def test_a_copied_record_holds_nothing() -> None:
    cluster = a_cluster("a", "b")
    assert bind(cluster, SMALL, "u1") == "a"
    record = Record(pod="u1", node="a", allocation=cluster.choose(SMALL, 0).decision.allocation)  # type: ignore[union-attr, arg-type]

    assert not cluster.hold("u2", "a", record)
    assert not cluster.hold("u1", "b", record)
    assert cluster.used("b") == NOTHING_USED


def test_pods_without_gpus_go_to_nodes_without() -> None:
    cluster = a_cluster("a")
    cluster.set_node("b", two_sockets(gpus=()), GroupNodeFacts(), Policy())

    assert bind(cluster, SMALL, "u1") == "b"
    assert bind(cluster, WITH_GPU, "u2") == "a"


@pytest.mark.parametrize(("strategy", "second"), [("pack", "a"), ("spread", "b")])
def test_the_fuller_node_comes_first_or_the_emptier(strategy: str, second: str) -> None:
    cluster = GroupNodes()
    for name in "ab":
        policy = Policy(strategy=strategy, nic_sharing="bandwidth")
        cluster.set_node(name, two_sockets(), GroupNodeFacts(), policy)

    assert [bind(cluster, SMALL, uid) for uid in ("u1", "u2")] == ["a", second]


def test_a_node_settles_after_a_start_and_after_a_stop() -> None:
    cluster = a_cluster("a")

    assert bind(cluster, WITH_GPU, "u1", now=100.0) == "a"
    assert cluster.choose(WITH_GPU, 129.9).refusals == {"a": ("cooldown",)}
    assert bind(cluster, WITH_GPU, "u2", now=130.0) == "a"
    cluster.release("u1", at=140.0)
    assert cluster.choose(WITH_GPU, 169.9).node is None
    assert cluster.choose(WITH_GPU, 170.0).node == "a"


def test_nodes_that_differ_in_serial_numbers_only_are_of_one_shape() -> None:
    one = two_sockets()
    other = replace(
        one,
        gpus=tuple(replace(gpu, uuid="GPU-1", index=7) for gpu in one.gpus),
        nics=tuple(replace(nic, mac="02:00:00:00:00:01", name="x") for nic in one.nics),
    )

    assert other.shape == one.shape
    assert replace(one, nics=()).shape != one.shape


def test_what_two_pods_hold_is_told_and_offered_to_nobody() -> None:
    cluster = a_cluster("a")
    allocation = cluster.choose(WITH_GPU, 0).decision.allocation  # type: ignore[union-attr]
    for uid in ("u1", "u2"):
        assert allocation is not None
        cluster.hold(uid, "a", Record(pod=uid, node="a", allocation=allocation))

    assert cluster.conflicts("a") == (
        "CPU 2 is held by pods u1, u2",
        "GPU 0000:17:10.0 is held by pods u1, u2",
    )
    cluster.release("u1")
    assert cluster.conflicts("a") == ()
    assert "0000:17:10.0" in cluster.used("a").gpus


def test_a_device_that_is_gone_is_given_to_nobody_and_comes_back() -> None:
    cluster = a_cluster("a")
    full = two_sockets()
    cluster.set_node("a", replace(full, gpus=()), GroupNodeFacts(), Policy())
    assert cluster.choose(WITH_GPU, 0).refusals == {"a": ("gpus",)}
    cluster.set_node("a", full, GroupNodeFacts(), Policy())
    assert cluster.choose(WITH_GPU, 0).node == "a"


def test_answers_are_forgotten_before_they_fill_the_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("MAX_GROUNDS", "MAX_SUPPLIES", "MAX_ANSWERS"):
        monkeypatch.setattr(answers, name, 3)
    monkeypatch.setattr(answers, "MAX_REQUESTS", 2)
    cluster = a_cluster("a", "b", "c")
    wishes = [request({"workers": count}) for count in (1, 2, 3, 4)]
    for number, wish in enumerate(wishes * 3):
        assert bind(cluster, wish, f"u{number}") is not None or number > 6

    rebuilt = a_cluster("a", "b", "c")
    for name in "abc":
        assert set(cluster.used(name).gpus) == set(rebuilt.used(name).gpus)


def test_searches_that_are_cut_off_do_not_add_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(answers, "SHORT_SEARCH", 0)
    names = [f"n{i}" for i in range(6)]
    cluster = GroupNodes()
    for i, name in enumerate(names):
        node = replace(two_sockets(), reserved_cpus=i)
        cluster.set_node(name, node, GroupNodeFacts(), Policy(max_steps=1))
    wish = request({"workers": 9}, {"workers": 9})

    assert cluster.choose(wish, 0).refusals == dict.fromkeys(names, ("search-limit",))
    assert cluster.choose(request({"workers": 40}), 0).refusals == dict.fromkeys(names, ("cpus",))


class PodsComeAndGo(RuleBasedStateMachine):
    """Pods are placed, fail on the way, end; nodes leave and return; the program restarts."""

    NODES = ("a", "b")

    def __init__(self) -> None:
        super().__init__()
        self.cluster = a_cluster(*self.NODES)
        self.present = set(self.NODES)
        self.records: dict[str, tuple[GroupsRequest, Record]] = {}
        self.born = 0

    @rule(
        wish=st.sampled_from(
            [SMALL, WITH_GPU, request({"workers": 5}), request({"workers": 3}, mapping="none")]
        ),
        fails=st.booleans(),
    )
    def a_pod_comes(self, wish: GroupsRequest, fails: bool) -> None:
        choice = self.cluster.choose(wish, 0.0)
        if choice.node is None or choice.decision is None or choice.decision.allocation is None:
            assert set(choice.refusals) == self.present
            return
        used = self.cluster.used(choice.node)
        assert not violations(wish, choice.decision.allocation, two_sockets(), used, Policy())
        uid, self.born = f"u{self.born}", self.born + 1
        record = Record(pod=uid, node=choice.node, allocation=choice.decision.allocation)
        self.cluster.hold(uid, choice.node, record)
        if fails:
            self.cluster.release(uid)
            assert self.cluster.used(choice.node) == used
        else:
            self.records[uid] = wish, record

    @rule(data=st.data())
    def a_pod_goes(self, data: st.DataObject) -> None:
        if self.records:
            uid = data.draw(st.sampled_from(sorted(self.records)))
            del self.records[uid]
            self.cluster.release(uid)
            self.cluster.release(uid)  # told twice

    @rule(name=st.sampled_from(NODES))
    def a_node_leaves_or_returns(self, name: str) -> None:
        if name in self.present:
            self.cluster.remove_node(name)
            self.present.remove(name)
        else:
            self.cluster.set_node(name, two_sockets(), GroupNodeFacts(), Policy())
            self.present.add(name)

    @rule(nodes_first=st.booleans())
    def the_program_restarts(self, nodes_first: bool) -> None:
        self.cluster = a_cluster(*self.present) if nodes_first else GroupNodes()
        for uid, (_, record) in self.records.items():
            assert self.cluster.hold(uid, record.node, parse_record(record.text()))
        if not nodes_first:
            for name in self.present:
                self.cluster.set_node(name, two_sockets(), GroupNodeFacts(), Policy())

    @invariant()
    def the_state_is_what_the_records_say(self) -> None:
        rebuilt = a_cluster(*self.present)
        for uid, (_, record) in self.records.items():
            rebuilt.hold(uid, record.node, record)
        for name in self.present:
            assert self.cluster.used(name) == rebuilt.used(name)
            assert self.cluster.conflicts(name) == ()


TestPodsComeAndGo = PodsComeAndGo.TestCase
TestPodsComeAndGo.settings = settings(
    max_examples=scaled(25), stateful_step_count=20, deadline=None
)
