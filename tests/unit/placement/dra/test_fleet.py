"""A fleet answers as if every node were asked anew, whatever has changed."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from rte.placement.dra import ClaimNode, allocate
from rte.placement.dra.fleet import DeviceFleet
from tests.depth import scaled
from tests.unit.placement.dra.build import (
    GPU,
    allocation,
    claim_of,
    class_of,
    gpu,
    request,
    slice_of,
)
from tests.unit.placement.dra.test_inventory import SLICES, rule

NODES = [ClaimNode(name=f"n{number}") for number in range(3)]
CLAIMS = [[claim_of(request(count=count))] for count in (1, 2)]
STEPS = st.lists(
    st.tuples(st.just("slice"), SLICES)
    | st.tuples(st.just("gone"), st.sampled_from("abc"))
    | st.tuples(st.just("hold"), st.sampled_from(["p/x", "p/y", "q/x", "q/y"]))
    | st.tuples(st.just("free"), st.none())
    | st.tuples(st.just("rule"), st.sampled_from("xy"))
    | st.tuples(st.just("ask"), st.integers(0, 1))
    | st.tuples(st.just("node"), st.integers(0, 2))
    | st.tuples(st.just("lost"), st.integers(0, 2)),
    max_size=25,
)


@settings(max_examples=scaled(150))
@given(STEPS)
def test_it_tells_the_nodes_that_fit(steps) -> None:
    fleet = DeviceFleet()
    fleet.put_class(class_of())
    present, held = {node.name: node for node in NODES}, []
    for node in NODES:
        fleet.put_node(node)
    for what, value in steps:
        if what == "slice":
            fleet.put_slice(value)
        elif what == "gone":
            fleet.remove_slice(value)
        elif what == "hold":
            pool, device = value.split("/")
            claim = claim_of(request(), status=allocation(device, pool=pool))
            held.append(claim.status.allocation)
            fleet.add(held[-1])
        elif what == "free" and held:
            fleet.remove(held.pop())
        elif what == "rule":
            fleet.put_rule(rule("r", device=value))
        elif what == "ask":
            fleet.fitting(CLAIMS[value])
        elif what == "node":
            fleet.put_node(NODES[value])
            present[NODES[value].name] = NODES[value]
        elif what == "lost":
            fleet.remove_node(NODES[value].name)
            present.pop(NODES[value].name, None)

    for claims in CLAIMS:
        anew = {
            node.name
            for node in present.values()
            if allocate(node, claims, fleet.supply(node)).fits
        }
        assert set(fleet.fitting(claims)) == anew


def test_an_allocated_claim_ties_the_pod_to_its_nodes() -> None:
    fleet = DeviceFleet()
    fleet.put_class(class_of())
    for node in NODES:
        fleet.put_node(node)
        fleet.put_slice(slice_of([gpu("a")], name=node.name, pool=node.name, nodeName=node.name))
    term = {"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n1"]}]}
    status = allocation("a", driver=GPU, pool="elsewhere")
    status["allocation"]["nodeSelector"] = {"nodeSelectorTerms": [term]}
    given = claim_of(request(), name="given", status=status)

    assert set(fleet.fitting([claim_of(request())])) == {"n0", "n1", "n2"}
    assert set(fleet.fitting([given, claim_of(request())])) == {"n1"}


def test_a_new_class_is_seen() -> None:
    fleet = DeviceFleet()
    fleet.put_node(NODES[0])
    fleet.put_slice(slice_of([gpu("a")]))

    assert not fleet.fitting([claim_of(request())])
    fleet.put_class(class_of())
    assert set(fleet.fitting([claim_of(request())])) == {"n0"}
    fleet.remove_class("gpu")
    assert not fleet.fitting([claim_of(request())])


def test_claims_that_ask_for_other_amounts_have_other_answers() -> None:
    fleet = DeviceFleet()
    fleet.put_class(class_of())
    fleet.put_node(NODES[0])
    fleet.put_slice(slice_of([{**gpu("a"), "capacity": {"memory": {"value": "80Gi"}}}]))

    def fits(memory: str) -> set[str]:
        asked = request(capacity={"requests": {"memory": memory}})
        return set(fleet.fitting([claim_of(asked)]))

    assert fits("80Gi") == {"n0"}
    assert not fits("81Gi")
