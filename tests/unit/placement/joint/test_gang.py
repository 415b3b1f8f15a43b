"""Gangs: a place for all that every kubelet admits in any order, or why there is none."""

import dataclasses

from hypothesis import given, settings
from hypothesis import strategies as st

from rte.placement.joint import gang
from rte.placement.joint.gang import Blame, GangVerdict, place_together
from rte.placement.joint.node import Member
from tests.depth import scaled
from tests.unit.placement import build
from tests.unit.placement.build import GPU, container, pod, pool, simple
from tests.unit.placement.joint.worlds import members, most, node, takes


@st.composite
def clusters(draw):
    states = draw(st.lists(build.used_nodes(longest=3), min_size=1, max_size=2))
    return [
        node(f"n{place}", state, labels=draw(st.sampled_from([{}, {"k": "x"}, {"k": "y"}])))
        for place, (state, _) in enumerate(states)
    ]


@settings(max_examples=scaled(60), deadline=None)
@given(nodes=clusters(), data=st.data())
def test_the_largest_placement_is_found_and_valid(nodes, data):
    kinds = data.draw(st.lists(build.pods(), min_size=1, max_size=2))
    pods = [data.draw(st.sampled_from(kinds)) for _ in range(data.draw(st.integers(1, 3)))]
    pods = [dataclasses.replace(each, uid=str(number)) for number, each in enumerate(pods)]
    key = data.draw(st.sampled_from(["", "k"]))
    answer = place_together(
        nodes, [Member(pod=each) for each in pods], topology_key=key, maximize=True
    )
    if answer.verdict is GangVerdict.CUT_OFF:
        return
    assert answer.most == most(nodes, pods, key) == len(answer.places)
    assert (answer.verdict is GangVerdict.FITS) == (answer.most == len(pods))
    for each in nodes:
        assert takes(each, [one for one in pods if answer.places.get(one.uid) == each.name])


def test_a_place_that_only_one_pod_can_use_is_left_to_it():
    # Only "b" has a GPU, and beside a pod that may take its zone nobody is sure to get it.
    nodes = [node("b", build.node(devices={GPU: pool(0)})), node("c", build.node())]
    wide = simple("w", cpus=7)
    with_gpu = simple("g", cpus=7, gpus=1)
    answer = place_together(nodes, members(wide, wide, with_gpu))
    assert answer.verdict is GangVerdict.FITS
    assert answer.places == {"w-0": "c", "w-1": "c", "g-2": "b"}


def test_every_order_of_arrival_must_do():
    # Free: 7 and 8 CPUs. 4 then 7: the 4 takes zone 0, the 7 fits zone 1. 4 and 8: only if the 4
    # comes first, or the 8: both ways it goes to zone 1. 3, 4 and 8: likewise.
    state = build.node()
    assert place_together([node("n", state)], members(simple("a", 4), simple("b", 8))).places
    # The 5 comes to zone 0 behind the 4 no more, so it takes the zone of the 8.
    three = members(simple("a", 4), simple("b", 5), simple("c", 4))
    answer = place_together([node("n", state)], three, maximize=True)
    assert (answer.verdict, answer.blame) == (GangVerdict.DOES_NOT_FIT, Blame.ZONES)
    assert answer.most == 2


def test_blame_names_what_would_have_to_be_otherwise():
    nodes = [
        node("a", build.node(), labels={"rack": "1"}),
        node("b", build.node(), labels={"rack": "2"}),
    ]
    large = members(simple("a", 8), simple("b", 8))
    assert place_together(nodes, large).verdict is GangVerdict.FITS
    assert place_together(nodes, large, topology_key="rack").blame is Blame.TOPOLOGY_KEY
    assert place_together(nodes, members(simple("a", 9))).blame is Blame.ZONES
    tight = [node("a", build.node(), room={"cpu": 7000})]
    answer = place_together(tight, large)
    assert answer.blame is Blame.TOTALS
    assert answer.shortages[0].places == 0
    unexplained = place_together(tight, large, explains=False)
    assert (unexplained.verdict, unexplained.blame) == (GangVerdict.DOES_NOT_FIT, None)


def test_a_node_without_the_label_takes_no_pod():
    nodes = [node("a", build.node()), node("b", build.node(), labels={"rack": ""})]
    answer = place_together(nodes, members(simple("a", 8)), topology_key="rack")
    assert (answer.places, answer.value) == ({"a-0": "b"}, "")


def racks(free):
    """Nodes by block and rack; ``free``: of each rack, how many nodes there are with 8 + 7 CPUs."""
    return [
        node(f"{block}-{rack}-{place}", build.node(), labels={"block": block, "rack": rack})
        for (block, rack), count in free.items()
        for place in range(count)
    ]


def test_the_narrowest_level_that_has_room_for_all_is_taken():
    nodes = racks({("x", "1"): 1, ("x", "2"): 2, ("y", "1"): 1, ("y", "2"): 1})
    levels = ("rack", "block")

    def placed(count):
        answer = place_together(nodes, members(*[simple("a", 5)] * count), preferred=levels)
        assert answer.verdict is GangVerdict.FITS
        return answer.level, {name.split("-")[0] for name in answer.places.values()}

    assert placed(4)[0] == "rack"
    assert placed(6) == ("rack", {"x", "y"})  # racks named 2: a name is all that is known
    assert placed(8)[0] == ""
    nested = place_together(
        nodes, members(*[simple("a", 5)] * 4), topology_key="block", preferred=("rack",)
    )
    assert (nested.level, nested.value) == ("rack", "x")
    assert set(nested.places.values()) == {"x-2-0", "x-2-1"}


def test_a_wider_level_is_better_than_none():
    nodes = racks({("x", "1"): 1, ("y", "3"): 1, ("y", "4"): 1})
    four = members(*[simple("a", 5)] * 4)
    answer = place_together(nodes, four, preferred=("rack", "block"))
    assert (answer.level, set(answer.places.values())) == ("block", {"y-3-0", "y-4-0"})


def test_no_level_is_worth_waiting_for():
    nodes = racks({("x", "1"): 1, ("y", "3"): 1})
    four = members(*[simple("a", 5)] * 4)
    answer = place_together(nodes, four, preferred=("rack", "block"))
    assert (answer.verdict, answer.level) == (GangVerdict.FITS, "")
    bound = place_together(nodes, four, topology_key="block", preferred=("rack",))
    assert (bound.verdict, bound.blame) == (GangVerdict.DOES_NOT_FIT, Blame.TOPOLOGY_KEY)


@settings(max_examples=scaled(40), deadline=None)
@given(nodes=clusters(), data=st.data())
def test_a_level_is_taken_if_and_only_if_all_fit_there(nodes, data):
    """And a preference never keeps anybody out."""
    one = data.draw(build.pods())
    pods = [dataclasses.replace(one, uid=str(number)) for number in range(2)]
    asked = [Member(pod=each) for each in pods]
    answer = place_together(nodes, asked, preferred=("k",))
    alone = place_together(nodes, asked)
    bound = place_together(nodes, asked, topology_key="k")
    if GangVerdict.CUT_OFF in {answer.verdict, alone.verdict, bound.verdict}:
        return
    assert answer.verdict is alone.verdict
    assert (answer.level == "k") == (bound.verdict is GangVerdict.FITS)


def test_at_least_so_many_is_enough():
    nodes = [node("a", build.node())]
    five = members(*[simple("a", 5)] * 5)
    assert place_together(nodes, five).verdict is GangVerdict.DOES_NOT_FIT
    answer = place_together(nodes, five, min_count=2)
    assert (answer.verdict, len(answer.places)) == (GangVerdict.FITS, 2)


def test_pods_in_flight_are_on_their_node_in_any_order():
    flying = simple("flying", 8)
    nodes = [node("a", build.node(), arriving=(flying,), used={"pods": 1})]
    assert place_together(nodes, members(simple("a", 7))).verdict is GangVerdict.FITS
    assert place_together(nodes, members(simple("a", 8))).verdict is GangVerdict.DOES_NOT_FIT


def test_members_go_where_other_rules_allow():
    nodes = [node("a", build.node()), node("b", build.node())]
    only_b = Member(pod=simple("x", 8), nodes=frozenset({"b"}))
    assert place_together(nodes, [only_b]).places == {"x": "b"}
    nowhere = dataclasses.replace(only_b, nodes=frozenset())
    assert place_together(nodes, [nowhere]).verdict is GangVerdict.DOES_NOT_FIT


def test_what_is_cut_off_does_not_say_that_it_does_not_fit():
    spanning = build.node(devices={GPU: pool((0, 1))})
    nodes = [node(f"n{n}", spanning) for n in range(3)]
    answer = place_together(nodes, members(*[simple("a", 3)] * 4), steps=2)
    assert answer.verdict is GangVerdict.CUT_OFF
    assert answer.most is None
    assert answer.blame is None


def test_identical_pods_and_nodes_cost_no_more_than_one():
    nodes = [node(f"n{n}", build.node()) for n in range(200)]
    pods = members(*[pod("a", container(cpus=3, memory=1))] * 400)
    answer = place_together(nodes, pods)
    assert answer.verdict is GangVerdict.FITS
    assert answer.steps < 400  # fewer than pods, let alone pods on nodes


def test_no_pod_fits_everywhere_and_nothing_fits_nowhere():
    assert place_together([], []).verdict is GangVerdict.FITS
    assert place_together([], members(simple("a"))).verdict is GangVerdict.DOES_NOT_FIT


def test_the_default_budget_is_about_a_second():
    assert gang.STEPS <= 6_000


def test_a_pod_pushes_others_to_where_they_can_go():
    # Each node has a zone for one large pod; "c" alone may be used by "y".
    nodes = [node("b", build.node()), node("c", build.node())]
    anywhere = [Member(pod=simple(f"x{n}", 8)) for n in range(1)]
    bound = Member(pod=simple("y", 7), nodes=frozenset({"b"}))
    other = Member(pod=simple("z", 8), nodes=frozenset({"b", "c"}))
    answer = place_together(nodes, [*anywhere, bound, other])
    assert answer.verdict is GangVerdict.FITS
    assert answer.places["y"] == "b"
