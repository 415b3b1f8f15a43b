"""What allocation does, rule by rule; recorded cases of Kubernetes' own are in tests/vectors."""

from __future__ import annotations

import pytest

from rte.placement.dra import ClaimNode, Reason
from tests.unit.placement.dra.build import (
    GPU,
    NODE,
    allocation,
    claim_of,
    class_of,
    devices_of,
    gpu,
    place,
    request,
    slice_of,
    supply_of,
)

FOUR = slice_of([gpu(f"gpu-{n}", zone=n // 2) for n in range(4)])
TOLERATE = {"operator": "Exists"}


def test_the_first_free_device_in_order_is_taken() -> None:
    held = claim_of(name="other", status=allocation("gpu-0"))

    verdict = place(supply_of(FOUR, held=(held,)), claim_of(request(count=2)))

    assert devices_of(verdict) == ["gpu-1", "gpu-2"]
    (result,) = verdict.allocations.values()
    assert result.node_selector is not None
    assert result.node_selector.node_selector_terms[0].match_fields[0].values == ("n0",)


def test_claims_of_a_pod_do_not_share_devices() -> None:
    verdict = place(
        supply_of(FOUR), claim_of(request(count=3)), claim_of(request(count=2), name="c1")
    )

    assert verdict.reason is Reason.NO_FIT
    assert not verdict.reason.is_fatal


def test_an_allocated_claim_is_only_checked_against_the_node() -> None:
    elsewhere = {"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n1"]}]}
    status = allocation("gpu-0")
    status["allocation"]["nodeSelector"] = {"nodeSelectorTerms": [elsewhere]}
    claim = claim_of(request(), status=status)

    assert place(supply_of(FOUR), claim).reason is Reason.ALLOCATED_ELSEWHERE
    there = ClaimNode(name="n1")
    assert place(supply_of(FOUR, node=there), claim, node=there).allocations == {}


def test_constraints_match_and_differ() -> None:
    numa = "resource.kubernetes.io/numaNode"
    held = claim_of(name="other", status=allocation("gpu-0"))
    supply = supply_of(FOUR, held=(held,))

    together = claim_of(request(count=2), constraints=[{"matchAttribute": numa}])
    apart = claim_of(request(count=2), constraints=[{"distinctAttribute": numa}])
    too_far = claim_of(request(count=3), constraints=[{"distinctAttribute": numa}])

    assert devices_of(place(supply, together)) == ["gpu-2", "gpu-3"]
    assert devices_of(place(supply, apart)) == ["gpu-1", "gpu-2"]
    assert place(supply, too_far).reason is Reason.NO_FIT


def test_the_first_alternative_that_fits_is_taken_and_scored() -> None:
    alternatives = [
        {"name": "many", "deviceClassName": "gpu", "allocationMode": "ExactCount", "count": 5},
        {"name": "few", "deviceClassName": "gpu", "allocationMode": "ExactCount", "count": 2},
    ]

    verdict = place(supply_of(FOUR), claim_of({"name": "r", "firstAvailable": alternatives}))

    assert devices_of(verdict) == ["gpu-0", "gpu-1"]
    assert verdict.allocations["c0"].devices.results[0].request == "r/few"
    assert verdict.score == 7


def test_mode_all_takes_every_device_or_none() -> None:
    every = claim_of(request(allocationMode="All"))
    held = claim_of(name="other", status=allocation("gpu-3"))

    assert len(devices_of(place(supply_of(FOUR), every))) == 4
    assert place(supply_of(FOUR, held=(held,)), every).reason is Reason.NO_FIT
    incomplete = slice_of([], name="half", pool="other", count=2)
    assert place(supply_of(FOUR, incomplete), every).reason is Reason.ALL_INCOMPLETE_POOL


def test_a_new_generation_replaces_the_old_one_even_where_the_node_does_not_see_it() -> None:
    old = slice_of([gpu("old")], name="old", generation=1, count=2)
    new = slice_of([gpu("new")], name="new", generation=2, nodeName="n1")

    assert place(supply_of(old, new), claim_of(request())).reason is Reason.NO_FIT


@pytest.mark.parametrize(
    ("spec", "fits"),
    [
        ({"allNodes": True}, True),
        ({"nodeSelector": {"nodeSelectorTerms": [{}]}}, False),
        (
            {
                "nodeSelector": {
                    "nodeSelectorTerms": [
                        {"matchExpressions": [{"key": "rack", "operator": "In", "values": ["r1"]}]}
                    ]
                }
            },
            True,
        ),
        ({"nodeName": "n1"}, False),
        ({"perDeviceNodeSelection": True}, False),
    ],
)
def test_every_form_of_node_selection(spec: dict, fits: bool) -> None:
    assert place(supply_of(slice_of([gpu("a")], **spec)), claim_of(request())).fits is fits


def test_a_device_with_a_node_of_its_own_is_for_that_node() -> None:
    devices = [gpu("theirs", nodeName="n1"), gpu("ours", nodeName="n0")]

    supply = supply_of(slice_of(devices, perDeviceNodeSelection=True))

    assert devices_of(place(supply, claim_of(request()))) == ["ours"]


def partition(name: str, memory: str) -> dict:
    consumes = [{"counterSet": "card", "counters": {"memory": {"value": memory}}}]
    return gpu(name, consumesCounters=consumes)


def partitions(memory: str = "80Gi") -> tuple:
    counters = [{"name": "card", "counters": {"memory": {"value": memory}}}]
    return (
        slice_of([], name="counters", count=2, sharedCounters=counters),
        slice_of(
            [partition("whole", "80Gi"), partition("a", "40Gi"), partition("b", "40Gi")], count=2
        ),
    )


def test_partitions_share_the_counters_of_their_card() -> None:
    slices = partitions()

    assert devices_of(place(supply_of(*slices), claim_of(request(count=2)))) == ["a", "b"]
    held = claim_of(name="other", status=allocation("a"))
    assert devices_of(place(supply_of(*slices, held=(held,)), claim_of(request()))) == ["b"]


def test_an_overdrawn_counter_blocks_only_who_consumes_it() -> None:
    """Kubernetes' own search gives up on the whole pool."""
    counters = [
        {"name": name, "counters": {"memory": {"value": "40Gi"}}} for name in ("card", "other")
    ]
    free = gpu(
        "free", consumesCounters=[{"counterSet": "other", "counters": {"memory": {"value": "1Gi"}}}]
    )
    slices = (
        slice_of([], name="counters", count=2, sharedCounters=counters),
        slice_of([partition("whole", "80Gi"), partition("a", "40Gi"), free], count=2),
    )
    held = claim_of(name="other", status=allocation("whole"))

    supply = supply_of(*slices, held=(held,))

    assert devices_of(place(supply, claim_of(request()))) == ["free"]
    assert place(supply, claim_of(request(count=2))).reason is Reason.NO_FIT


def test_a_pod_may_watch_the_device_that_it_uses() -> None:
    """Kubernetes' own search keeps a watched device from the rest of the pod."""
    one = supply_of(slice_of([gpu("only")]))
    watch = request("watch", adminAccess=True)

    verdict = place(one, claim_of(watch, request("use")))

    assert devices_of(verdict) == ["only", "only"]
    results = verdict.allocations["c0"].devices.results
    assert [result.admin_access for result in results] == [True, None]
    assert place(one, claim_of(watch, request("again", adminAccess=True))).reason is Reason.NO_FIT


def test_taints_keep_away_who_does_not_tolerate_them() -> None:
    taint = {"key": "sick", "value": "yes", "effect": "NoSchedule"}
    hint = {"key": "old", "effect": "None"}
    supply = supply_of(slice_of([gpu("a", taints=[taint]), gpu("b", taints=[hint])]))

    assert devices_of(place(supply, claim_of(request()))) == ["b"]
    tolerant = request(tolerations=[{"key": "sick", "operator": "Equal", "value": "yes"}])
    assert devices_of(place(supply, claim_of(tolerant))) == ["a"]
    assert devices_of(place(supply, claim_of(request(tolerations=[TOLERATE])))) == ["a"]


def test_shares_of_a_device_are_counted_by_capacity() -> None:
    policy = {"default": "1G", "validRange": {"min": "1G", "step": "500M"}}
    nic = gpu(
        "nic",
        allowMultipleAllocations=True,
        capacity={"bw": {"value": "3G", "requestPolicy": policy}},
    )
    supply = supply_of(slice_of([nic]))

    def asking(amount: str, name: str) -> object:
        return claim_of(request(capacity={"requests": {"bw": amount}}), name=name)

    verdict = place(supply, asking("1200M", "c0"), asking("1G", "c1"))

    taken = [one.devices.results[0] for one in verdict.allocations.values()]
    assert [str(result.consumed_capacity["bw"]) for result in taken] == ["1500000000", "1000000000"]
    assert [result.share_id for result in taken] == ["share-0", "share-1"]
    assert place(supply, asking("2G", "c0"), asking("1200M", "c1")).reason is Reason.NO_FIT
    assert (
        place(supply, claim_of(request(capacity={"requests": {"x": "1"}}))).reason is Reason.NO_FIT
    )


def test_what_kubernetes_abandons_the_pod_for_is_fatal() -> None:
    supply = supply_of(FOUR)

    missing = place(supply, claim_of(request(class_name="nothing")))
    too_many = place(supply, claim_of(request(count=33)))
    broken = place(supply, claim_of(request(selectors=[{"cel": {"expression": "device.x"}}])))
    failing = place(
        supply, claim_of(request(selectors=[{"cel": {"expression": 'device.attributes["a"].b'}}]))
    )

    answers = (missing, too_many, broken, failing)
    assert [answer.reason for answer in answers] == [
        Reason.CLASS_NOT_FOUND,
        Reason.TOO_MANY,
        Reason.CEL_COMPILE,
        Reason.CEL_RUNTIME,
    ]
    assert all(answer.reason.is_fatal and "\n" not in answer.message for answer in answers)
    assert "cannot place" in broken.message
    assert "gpu-0" in failing.message


def test_the_expressions_of_a_claim_are_bounded_together() -> None:
    supply = supply_of(FOUR)
    long = [{"cel": {"expression": "true" + "&&true" * 166}} for _ in range(16)]

    assert place(supply, claim_of(request(selectors=long))).fits
    more = claim_of(request("a", selectors=long), request("b", selectors=long[:1]))
    verdict = place(supply, more)

    assert verdict.reason is Reason.UNSUPPORTED
    assert "its expressions have 17000 characters, of 16384 at most" in verdict.message


def test_an_invalid_pool_is_named_where_nothing_fits() -> None:
    twice = slice_of([gpu("a"), gpu("a")])

    verdict = place(supply_of(twice), claim_of(request()))

    assert verdict.reason is Reason.INVALID_POOLS
    assert "duplicate device name a" in verdict.message


def test_what_a_later_kubernetes_adds_is_not_allocated() -> None:
    supply = supply_of(slice_of([gpu("new", exclusiveZone=True), gpu("known")]))

    assert devices_of(place(supply, claim_of(request()))) == ["known"]
    assert place(supply, claim_of(request(allocationMode="All"))).reason is Reason.NO_FIT
    wish = place(supply, claim_of(request(topology="same-rail")))
    assert wish.reason is Reason.UNSUPPORTED
    assert "requests[0].exactly.topology" in wish.message


def test_parameters_come_from_the_class_and_the_claim() -> None:
    opaque = {"driver": GPU, "parameters": {"mode": "fast"}}
    supply = supply_of(FOUR, classes=(class_of(config=[{"opaque": opaque}]),))
    own = [{"requests": ["b"], "opaque": opaque}]

    (result,) = place(supply, claim_of(request("a"), request("b"), config=own)).allocations.values()

    assert [(c.source, c.requests) for c in result.devices.config] == [
        ("FromClass", ()),
        ("FromClaim", ("b",)),
    ]


def test_a_search_that_is_cut_off_says_so() -> None:
    many = slice_of([gpu(f"gpu-{n}", attributes={"n": {"int": n}}) for n in range(24)])
    constraint = {"matchAttribute": f"{GPU}/n"}

    verdict = place(
        supply_of(many), claim_of(request(count=2), constraints=[constraint]), max_steps=50
    )

    assert verdict.reason is Reason.SEARCH_LIMIT
    assert verdict.reason.is_uncertain


def test_a_pod_with_very_many_devices_is_no_trouble() -> None:
    """Deeper than Python's own stack."""
    claims = [claim_of(request(count=32), name=f"c{n:02d}") for n in range(64)]
    slices = [
        slice_of([gpu(f"g{n}") for n in range(128)], name=f"s{s}", pool=f"p{s}") for s in range(16)
    ]

    assert len(devices_of(place(supply_of(*slices), *claims))) == 2048


def test_interchangeable_devices_are_tried_once() -> None:
    """Two requests that cannot be served together, with sixteen equal devices between them."""
    pool = slice_of([gpu(f"gpu-{n:02d}") for n in range(16)])
    claim = claim_of(request("a", count=9), request("b", count=8))

    verdict = place(supply_of(pool), claim)

    assert verdict.reason is Reason.NO_FIT
    assert verdict.steps < 1000


def test_ranks_say_which_device_comes_first_and_which_not_at_all() -> None:
    ranks = {"gpu-3": 0, "gpu-1": 1}.get

    def rank(device: object) -> int | None:
        return ranks(device.id.device)

    supply = supply_of(FOUR)

    assert devices_of(place(supply, claim_of(request(count=2)), ranks=rank)) == ["gpu-3", "gpu-1"]
    assert place(supply, claim_of(request(count=3)), ranks=rank).reason is Reason.NO_FIT
    every = claim_of(request(allocationMode="All"))
    assert place(supply, every, ranks=rank).reason is Reason.NO_FIT
    assert NODE.name == "n0"
