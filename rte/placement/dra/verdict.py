"""The answer of an allocation: devices, or why not."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

    from rte.placement.dra.objects import AllocationResult


class Reason(StrEnum):
    """Why a pod's claims cannot be allocated on a node."""

    NO_FIT = "no_fit"
    ALLOCATED_ELSEWHERE = "allocated_elsewhere"  #: the node selector of an allocated claim
    INVALID_POOLS = "invalid_pools"  #: no fit, and a pool of the node is invalid
    CLASS_NOT_FOUND = "class_not_found"
    CEL_COMPILE = "cel_compile"
    CEL_RUNTIME = "cel_runtime"
    ALL_INCOMPLETE_POOL = "all_incomplete_pool"
    ALL_INVALID_POOL = "all_invalid_pool"
    ALL_CONSTRAINT = "all_constraint"
    TOO_MANY = "too_many"  #: a claim holds 32 devices at most
    FEATURE_OFF = "feature_off"
    CAPACITY = "capacity"  #: a value that cannot be represented
    UNSUPPORTED = "unsupported"  #: rte does not understand an expression or a field
    NOT_ALIGNED = "not_aligned"  #: no devices in the zones that the pod requires
    SEARCH_LIMIT = "search_limit"  #: the search was cut off: whether it fits is not known

    @property
    def is_fatal(self) -> bool:
        """Whether kube-scheduler gives up on the pod, not only on the node, for this cycle."""
        return self not in (
            Reason.NO_FIT,
            Reason.ALLOCATED_ELSEWHERE,
            Reason.INVALID_POOLS,
            Reason.NOT_ALIGNED,
            Reason.SEARCH_LIMIT,
        )

    @property
    def is_uncertain(self) -> bool:
        """Whether Kubernetes' own allocator might answer otherwise."""
        return self in (Reason.UNSUPPORTED, Reason.SEARCH_LIMIT)


class ClaimRefusal(Exception):  # noqa: N818 - an answer on its way up, not a failure
    """Ends an allocation."""

    def __init__(self, reason: Reason, message: str) -> None:
        self.reason = reason
        super().__init__(message)


@dataclass(frozen=True, kw_only=True)
class ClaimVerdict:
    """What became of a pod's claims on one node.

    Attributes:
        reason: None where they fit.
        message: one line for the user; empty where they fit.
        allocations: claim name -> allocation, for claims that were not allocated before.
        score: kube-scheduler's node score: the sum of 8 less the place of each chosen alternative.
        steps: how many devices the search tried.
    """

    reason: Reason | None = None
    message: str = ""
    allocations: Mapping[str, AllocationResult]
    score: int = 0
    steps: int = 0

    @property
    def fits(self) -> bool:
        """Whether every claim has its devices."""
        return self.reason is None
