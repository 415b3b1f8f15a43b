"""One pod on one node: a place for all its groups, or every reason why there is none."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from rte.placement.groups.inventory import (
    DEFAULT_POLICY,
    NOTHING_USED,
    GroupInventory,
    GroupNodeFacts,
    Policy,
    Used,
)
from rte.placement.groups.request import GroupsRequest, GroupWish
from rte.placement.groups.search import search
from rte.placement.groups.search.handout import allocate
from rte.placement.groups.search.problem import SearchProblem
from rte.placement.groups.search.supply import GroupSupply

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rte.placement.groups.allocation import GroupsAllocation
    from rte.placement.groups.search.state import Cost

SEARCH_LIMIT = "search-limit"
ALIGNMENT = "alignment"
#: What a node may lack, in the order in which it is told.
RESOURCES = ("gpus", "cpus", "nic", "hugepages")


@dataclass(frozen=True, kw_only=True, slots=True)
class GroupDecision:
    """The answer for one node.

    Attributes:
        allocation: what the pod would get; None where it does not fit.
        reasons: why not; :data:`SEARCH_LIMIT` = not known, the search was cut off.
        cost: the preference of the place, smallest first.
    """

    allocation: GroupsAllocation | None = None
    reasons: tuple[str, ...] = ()
    cost: Cost | None = None


def place(
    request: GroupsRequest,
    inventory: GroupInventory,
    used: Used = NOTHING_USED,
    policy: Policy = DEFAULT_POLICY,
    node: GroupNodeFacts | None = None,
) -> GroupDecision:
    """Find the place of a pod on a node."""
    if reasons := unfit(request, node or GroupNodeFacts(), policy):
        return GroupDecision(reasons=reasons)
    return place_on(request, GroupSupply(inventory, used, policy))


def place_on(
    request: GroupsRequest, supply: GroupSupply, max_steps: int | None = None
) -> GroupDecision:
    """Find the place of a pod on a node that is fit for it.

    ``max_steps`` stands in for the policy's budget of the search.
    """
    policy = supply.policy
    steps = policy.max_steps if max_steps is None else max_steps
    problem = SearchProblem(request, supply)
    try:
        solution = search.find(problem, steps)
        if solution is None:
            return GroupDecision(reasons=_lacking(request, supply, steps))
    except search.SearchLimit:
        return GroupDecision(reasons=(SEARCH_LIMIT,))
    solution = search.improve(problem, solution, policy.max_improvement_steps)
    return GroupDecision(allocation=allocate(problem, solution), cost=solution.cost)


def unfit(request: GroupsRequest, node: GroupNodeFacts, policy: Policy) -> tuple[str, ...]:
    """Why the pod may not go to the node, whatever is free there."""
    resting = (
        node.seconds_since_change is not None
        and node.seconds_since_change < policy.settle_seconds
        and ("all" in policy.settle_for or ("gpu" in policy.settle_for and request.wants_gpus))
    )
    architectures = request.cpu_arch
    checks = {
        "node-cordoned": node.cordoned,
        "node-maintenance": node.maintenance,
        "node-group": not set(node.groups or ("default",)) & set(request.node_groups),
        "cpu-arch": "any" not in architectures and node.cpu_arch not in architectures,
        "cooldown": resting,
    }
    return tuple(reason for reason, applies in checks.items() if applies)


def _lacking(request: GroupsRequest, supply: GroupSupply, max_steps: int) -> tuple[str, ...]:
    """The resources that alone, without any alignment, cannot be had; else the alignment.

    Raises:
        SearchLimit: it is proven that there is no place, but not within the budget why.
    """
    reasons = [
        resource
        for resource in _asked_for(request)
        if search.find(SearchProblem(_alone(request, resource), supply), max_steps) is None
    ]
    return tuple(reasons) or (ALIGNMENT,)


def _asked_for(request: GroupsRequest) -> Iterator[str]:
    """The resources of a request, in the order of :data:`RESOURCES`."""
    groups = request.groups
    asked = {
        "gpus": request.wants_gpus,
        "cpus": bool(request.misc.count) or any(group.cpu_count() for group in groups),
        "nic": any(group.nics for group in groups),
        "hugepages": bool(request.all_pages()),
    }
    return (resource for resource in RESOURCES if asked[resource])


def _alone(request: GroupsRequest, resource: str) -> GroupsRequest:
    """What the request says of one resource, with nothing aligned."""
    groups = request.groups
    if resource == "cpus":
        classes = [(group.name, wish) for group in groups for wish in group.classes()]
        return GroupsRequest(
            groups=tuple(
                GroupWish(name=name, mapping="none", smt=wish.smt, workers=wish.count)
                for name, wish in classes
            ),
            misc=replace(request.misc, mapping="none"),
        )
    if resource == "hugepages":
        return GroupsRequest(hugepages=request.all_pages())
    bare = [GroupWish(name=group.name, mapping="none") for group in groups]
    if resource == "gpus":
        return GroupsRequest(
            groups=tuple(
                replace(empty, gpus=tuple(replace(gpu, feeders=0) for gpu in group.gpus))
                for empty, group in zip(bare, groups, strict=True)
            )
        )
    return GroupsRequest(
        groups=tuple(
            replace(empty, nics=group.nics) for empty, group in zip(bare, groups, strict=True)
        )
    )
