"""The smallest set of moves: each proven, none needless."""

import itertools

from hypothesis import given, settings
from hypothesis import strategies as st

from rte import placement
from rte.placement.joint.defrag import Disruptions, Movable, plan_moves
from rte.placement.joint.gang import GangVerdict
from rte.placement.joint.node import Member
from tests.depth import scaled
from tests.unit.placement import build
from tests.unit.placement.build import GPU, container, pod, pool, simple
from tests.unit.placement.joint.worlds import members, node


def running(state, name, *pods, priorities=()):
    """A node on which these pods run, all of them movable."""
    state = build.filled(state, *pods)
    ranks = itertools.chain(priorities, itertools.repeat(0))
    movable = [Movable(pod=each, node=name, priority=rank) for each, rank in zip(pods, ranks)]  # noqa: B905
    return node(name, state), movable


def played(nodes, movable, plan, target):
    """Whether the plan holds: every move is admitted in turn, and the target at the end."""
    states = {each.name: each.state for each in nodes}
    pods = {each.pod.uid: each for each in movable}
    for move in plan.moves:
        assert pods[move.pod].node == move.source
        states[move.source] = placement.remove(states[move.source], move.pod)
        assert placement.admit(states[move.target], pods[move.pod].pod).admitted
        answer = placement.execute(states[move.target], pods[move.pod].pod)
        states[move.target] = placement.start(answer.state, pods[move.pod].pod)
    return placement.admit(states[plan.places[target.uid]], target).admitted


def smallest(nodes, movable, target, most=2):
    """(moves, priorities) of the best plan, by trying every sequence; None: there is none."""
    best = None
    names = [each.name for each in nodes]
    for count in range(most + 1):
        for order in itertools.permutations(movable, count):
            for homes in itertools.product(names, repeat=count):
                states = {each.name: each.state for each in nodes}
                for each, home in zip(order, homes, strict=True):
                    states[each.node] = placement.remove(states[each.node], each.pod.uid)
                    if not placement.admit(states[home], each.pod).admitted:
                        break
                    answer = placement.execute(states[home], each.pod)
                    states[home] = placement.start(answer.state, each.pod)
                else:
                    if any(placement.admit(state, target).admitted for state in states.values()):
                        priority = sum(each.priority for each in order)
                        best = min(best or (count, priority), (count, priority))
        if best is not None:
            return best
    return None


@settings(max_examples=scaled(40), deadline=None)
@given(data=st.data())
def test_no_plan_is_smaller(data):
    sizes = st.sampled_from([1, 2, 3, 4, 5])
    policy = data.draw(st.sampled_from(["single-numa-node", "restricted", "best-effort"]))
    nodes, movable = [], []
    for name in ("a", "b"):
        state, pods = build.node(policy=policy), []
        for number in range(data.draw(st.integers(0, 3))):
            each = simple(f"{name}{number}", data.draw(sizes), data.draw(st.integers(1, 6)))
            answer = placement.execute(state, each)
            if answer.admitted:
                state = answer.state
                pods.append(each)
        ranks = [data.draw(st.integers(0, 2)) for _ in pods]
        nodes.append(node(name, state))
        movable += [
            Movable(pod=each, node=name, priority=rank)
            for each, rank in zip(pods, ranks, strict=True)
        ]
    target = simple("t", data.draw(st.sampled_from([5, 6, 7, 8])), data.draw(st.integers(1, 9)))
    plan = plan_moves(nodes, [Member(pod=target)], movable, most_moves=2)
    best = smallest(nodes, movable, target)
    if plan.verdict is GangVerdict.FITS:
        assert plan.minimal
        assert (len(plan.moves), plan.priority) == best
        assert played(nodes, movable, plan, target)
    else:
        assert best is None


def test_the_pod_of_the_lowest_priority_moves():
    a, first = running(build.node(), "a", simple("x", 4), simple("y", 5), priorities=(7, 9))
    b, second = running(build.node(), "b", simple("z", 4), simple("w", 5), priorities=(1, 3))
    plan = plan_moves([a, b], members(simple("t", 8)), [*first, *second])
    assert [move.pod for move in plan.moves] == []  # w and y are in zone 1, 8 are free nowhere
    assert plan.verdict is GangVerdict.DOES_NOT_FIT


def test_a_pod_may_move_inside_its_node():
    # 3 + 3 of 7 in zone 0, then one of them ends: the 2 in zone 1 fits zone 0.
    state = build.filled(build.node(), simple("x", 4), simple("y", 3), simple("z", 2))
    state = placement.remove(state, "y")
    each = Movable(pod=simple("z", 2), node="a")
    plan = plan_moves([node("a", state)], members(simple("t", 8)), [each])
    assert [(move.source, move.target) for move in plan.moves] == [("a", "a")]
    assert plan.minimal


def test_a_gang_gets_its_places():
    a, first = running(build.node(), "a", simple("x", 4), simple("y", 4))
    b, second = running(build.node(), "b", simple("z", 1))
    plan = plan_moves([a, b], members(simple("t", 8), simple("u", 8)), [*first, *second])
    assert plan.verdict is GangVerdict.FITS
    assert [move.pod for move in plan.moves] == ["y"]
    assert sorted(plan.places.values()) == ["a", "b"]


def test_budgets_of_disruption_are_kept():
    a, first = running(build.node(), "a", simple("x", 4), simple("y", 4))
    b, _ = running(build.node(), "b", simple("z", 8))
    nodes, target = [a, b, node("c", build.filled(build.node(), simple("w", 8)))], simple("t", 8)
    assert plan_moves(nodes, members(target), first).moves
    none = Disruptions(pods=frozenset({"y"}), allowed=0)
    assert plan_moves(nodes, members(target), first, budgets=[none]).verdict is not GangVerdict.FITS


def test_a_move_goes_where_the_pod_may_go():
    a, first = running(build.node(), "a", simple("x", 4), simple("y", 4))
    b = node("b", build.node())
    there = [Movable(pod=each.pod, node="a", nodes=frozenset({"a"})) for each in first]
    target = Member(pod=simple("t", 8), nodes=frozenset({"a"}))
    assert plan_moves([a, b], [target], there).verdict is GangVerdict.DOES_NOT_FIT
    assert plan_moves([a, b], [target], first).verdict is GangVerdict.FITS


def test_moves_whose_outcome_a_pick_decides_are_followed_in_every_way():
    state = build.node(policy="none", memory_policy="None", devices={GPU: pool(0, 1)})
    each = pod("x", container(cpus=1, memory=1, gpus=1))
    a = node("a", build.filled(state, each))
    need_both = pod("t", container(cpus=1, memory=1, gpus=2))
    b = node("b", build.node(policy="none", memory_policy="None", devices={GPU: pool(0)}))
    plan = plan_moves([a, b], members(need_both), [Movable(pod=each, node="a")])
    assert [move.target for move in plan.moves] == ["b"]


def test_a_search_that_is_cut_off_says_so():
    a, first = running(build.node(), "a", simple("x", 4), simple("y", 4))
    plan = plan_moves([a], members(simple("t", 8)), first, steps=1)
    assert plan.verdict is GangVerdict.CUT_OFF
    assert not plan.minimal
    limited = plan_moves([a], members(simple("t", 9)), first, most_moves=1)
    assert limited.verdict is GangVerdict.CUT_OFF
