"""What an admission can come to, and the values that say so."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from rte.model.bits import Mask, ZoneSet
    from rte.model.node import Holding, NodeState

#: ``(affinity, preferred)``; affinity None means that the provider has no opinion on zones.
Hint: TypeAlias = "tuple[ZoneSet | None, bool]"
#: What one provider says: resource -> its hints. None for a resource: no opinion on it; an empty
#: list: it cannot be satisfied. No resource at all (or None): no opinion on anything.
ProviderHints: TypeAlias = "Mapping[str, Sequence[Hint] | None] | None"

# The kubelet's reasons for a refusal.
TOPOLOGY_AFFINITY_ERROR = "TopologyAffinityError"
SMT_ALIGNMENT_ERROR = "SMTAlignmentError"
UNEXPECTED_ADMISSION_ERROR = "UnexpectedAdmissionError"
EMPTY_POD_SHARED_POOL_ERROR = "EmptyPodSharedPoolError"

# Ours, for a pod that would break the kubelet: no place for it either.
KUBELET_HANGS = "KubeletHangs"
KUBELET_PANICS = "KubeletPanics"

# Why a prediction is uncertain.
UNKNOWN_VERSION = "UnknownKubeletVersion"
UNKNOWN_CONFIGURATION = "UnknownKubeletConfiguration"
ALREADY_KNOWN = "PodAlreadyKnown"
DEVICE_CHOICE = "DeviceChoice"
DEVICES_INCOMPLETE = "DevicesIncomplete"
TOO_MANY_ZONES = "TooManyZones"
TOO_MANY_CONTAINERS = "TooManyContainers"


class Verdict(StrEnum):
    """The three answers."""

    ADMITTED = "admitted"
    REFUSED = "refused"
    UNCERTAIN = "uncertain"


@dataclass(frozen=True, slots=True)
class Merge:
    """One merge of the topology manager: the hints of devices, cpu and memory manager, the result.

    ``container`` is ``*`` for a merge over the whole pod (pod scope).
    """

    container: str
    providers: tuple[ProviderHints, ProviderHints, ProviderHints]
    best: Hint
    admitted: bool


@dataclass(frozen=True, kw_only=True)
class Admission:
    """The kubelet's answer to a pod.

    Attributes:
        verdict: admitted, refused or uncertain.
        reason: the kubelet's reason (``status.reason`` of the refused pod), or ours: one of the
            constants of this module; empty when admitted.
        message: the kubelet's text, or why the answer is uncertain; empty when admitted.
        failed_by: who refused: ``topology`` (the merge), ``devices``, ``cpu`` or ``memory``.
        failed_container: the container at fault, ``*`` for a merge over the whole pod.
        failed_hint: the merged hint that was refused, None unless ``failed_by`` is ``topology``.
        hints: container -> merged hint that its allocation followed; empty under policy none.
        holdings: container -> what it got, for containers that got anything. Of a refused pod:
            what it holds until the kubelet's next cleanup.
        pod_holding: what the pod got as a whole (see ``NodeState.pod_holdings``).
        state: the node afterwards, with a refused pod's residues; the state given when uncertain,
            or when the kubelet would not survive the pod.
        exact: False where the kubelet picks devices at random among ones of different zone sets:
            ``state`` then is one of several (see ``outcomes``).
        merges: every merge that was done.
    """

    verdict: Verdict
    reason: str = ""
    message: str = ""
    failed_by: str = ""
    failed_container: str = ""
    failed_hint: Hint | None = None
    hints: Mapping[str, Hint] = field(default_factory=dict)
    holdings: Mapping[str, Holding] = field(default_factory=dict)
    pod_holding: Holding | None = None
    state: NodeState
    exact: bool = True
    merges: tuple[Merge, ...] = field(default=(), repr=False)

    @property
    def admitted(self) -> bool:
        """Whether the kubelet will surely run the pod."""
        return self.verdict is Verdict.ADMITTED


@dataclass(frozen=True, kw_only=True)
class Start:
    """What became of a pod's containers at their start.

    Attributes:
        state: the node afterwards.
        devices: container -> resource -> the devices (a mask over its pool) given at the start.
        failed: container -> the kubelet's text; it tries again later.
    """

    state: NodeState
    devices: Mapping[str, Mapping[str, Mask]] = field(default_factory=dict)
    failed: Mapping[str, str] = field(default_factory=dict)


class Stop(Exception):  # noqa: N818 - ends an admission, which is no error
    """Ends an admission before its last container; ``cause`` is the bare error of the manager."""

    def __init__(self, reason: str, message: str, cause: str = "") -> None:
        self.reason = reason
        self.message = message
        self.cause = cause or message
        super().__init__(message)


class AllocationRefused(Stop):
    """A manager's allocation failed; ``message`` as the kubelet reports it."""

    @classmethod
    def unexpected(cls, text: str) -> AllocationRefused:
        """An error without a type of its own (pkg/kubelet/cm/admission)."""
        return cls(
            UNEXPECTED_ADMISSION_ERROR, f"Allocate failed due to {text}, which is unexpected", text
        )


class Breaks(Stop):
    """The kubelet would not survive: it loops for ever, or dies."""


class Unpredictable(Stop):
    """Nobody can know."""
