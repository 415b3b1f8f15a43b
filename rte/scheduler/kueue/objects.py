"""What is read of Kueue's objects (Kueue 0.17, apis/kueue/v1beta2)."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING

from rte import errors
from rte.k8s import wire
from rte.k8s.wire import Wire
from rte.reader.json import JsonObject  # noqa: TC001 - msgspec reads the annotations
from rte.scheduler.framework.objects import version_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from rte.reader.json import Json

#: Label of pods: the pod set that they belong to.
POD_SET = "kueue.x-k8s.io/podset"

#: Values of ``status.admissionChecks[].state``.
PENDING, READY, RETRY, REJECTED = "Pending", "Ready", "Retry", "Rejected"

#: Kueue's name for the pod set of a Workload that has one (``DefaultPodSetName``).
ONLY_POD_SET = "main"


class _Individual(Wire, frozen=True, kw_only=True):
    prefix: str | None = None
    suffix: str | None = None
    roots: tuple[str, ...] = ()


class _Level(Wire, frozen=True, kw_only=True):
    universal: str | None = None
    individual: _Individual | None = None


class _Counts(Wire, frozen=True, kw_only=True):
    universal: int | None = None
    individual: tuple[int, ...] | None = None


class _Slice(Wire, frozen=True, kw_only=True):
    domain_count: int = 0
    values_per_level: tuple[_Level, ...] = ()
    pod_counts: _Counts | None = None


class TopologyAssignment(Wire, frozen=True, kw_only=True):
    """How Kueue's topology-aware scheduling spreads the pods of a set over values of labels."""

    levels: tuple[str, ...] = ()
    slices: tuple[_Slice, ...] = ()

    def domains(self) -> Iterator[tuple[dict[str, str], int]]:
        """Node labels, and how many pods go to nodes that have them."""
        for part in self.slices:
            for index in range(part.domain_count):
                values = [_value(level, index) for level in part.values_per_level]
                yield dict(zip(self.levels, values, strict=True)), _count(part.pod_counts, index)


def _value(level: _Level, index: int) -> str:
    one = level.individual
    if one is None:
        return level.universal or ""
    return f"{one.prefix or ''}{one.roots[index]}{one.suffix or ''}"


def _count(counts: _Counts | None, index: int) -> int:
    if counts is None:
        return 0
    return counts.universal or 0 if counts.individual is None else counts.individual[index]


class PodSet(Wire, frozen=True, kw_only=True):
    """Pods of one template."""

    name: str = ONLY_POD_SET
    count: int = 1
    template: JsonObject


class PodSetAssignment(Wire, frozen=True, kw_only=True):
    """What Kueue gave to a pod set: flavors by resource, and the pods that it may have."""

    name: str = ONLY_POD_SET
    flavors: dict[str, str] | None = None
    count: int | None = None
    topology_assignment: TopologyAssignment | None = None


class Additions(Wire, frozen=True, kw_only=True):
    """What pods of the set ``name`` get beside their template (PodSetUpdate)."""

    name: str = ""
    labels: dict[str, str] | None = None
    annotations: dict[str, str] | None = None
    node_selector: dict[str, str] | None = None
    tolerations: tuple[JsonObject, ...] | None = None


class CheckState(Wire, frozen=True, kw_only=True):
    """How one AdmissionCheck stands for a Workload (``retry_count`` is Kueue's to write)."""

    name: str
    state: str = PENDING
    last_transition_time: str | None = None
    message: str = ""
    retry_count: int | None = None
    pod_set_updates: tuple[Additions, ...] | None = None


class _PriorityRef(Wire, frozen=True, kw_only=True):
    kind: str | None = None


class _Spec(Wire, frozen=True, kw_only=True):
    pod_sets: tuple[PodSet, ...] = ()
    active: bool | None = None
    priority: int | None = None
    priority_class_ref: _PriorityRef | None = None


class _Admission(Wire, frozen=True, kw_only=True):
    pod_set_assignments: tuple[PodSetAssignment, ...] | None = None


class _Status(Wire, frozen=True, kw_only=True):
    admission: _Admission | None = None
    admission_checks: tuple[CheckState, ...] | None = None
    conditions: tuple[wire.Condition, ...] | None = None


class _Workload(Wire, frozen=True, kw_only=True):
    metadata: wire.Metadata
    spec: _Spec
    status: _Status | None = None


class _FlavorSpec(Wire, frozen=True, kw_only=True):
    node_labels: dict[str, str] | None = None
    tolerations: tuple[JsonObject, ...] | None = None


class Flavor(Wire, frozen=True, kw_only=True):
    """A ResourceFlavor."""

    spec: _FlavorSpec | None = None

    @property
    def additions(self) -> Additions:
        """What pods of the flavor get."""
        spec = self.spec or _FlavorSpec()
        return Additions(node_selector=spec.node_labels, tolerations=spec.tolerations)


class _CheckSpec(Wire, frozen=True, kw_only=True):
    controller_name: str
    parameters: JsonObject | None = None


class _CheckStatus(Wire, frozen=True, kw_only=True):
    conditions: tuple[wire.Condition, ...] | None = None


class _Check(Wire, frozen=True, kw_only=True):
    metadata: wire.Metadata
    spec: _CheckSpec
    status: _CheckStatus | None = None


@dataclass(frozen=True, kw_only=True)
class AdmissionCheck:
    """An AdmissionCheck.

    Attributes:
        name: of the object.
        version: its resourceVersion.
        controller: who decides about it (``spec.controllerName``).
        has_parameters: it names parameters; ours takes none.
        active: status and reason of its condition Active; empty where it has none.
    """

    name: str
    version: str
    controller: str
    has_parameters: bool
    active: tuple[str, str]


@dataclass(frozen=True, kw_only=True)
class Workload:
    """A Workload, as far as admission goes.

    Attributes:
        key: ``namespace/name``.
        uid: of the object.
        version: its resourceVersion.
        number: likewise, as a number.
        reserved_at: Unix time since which it has its quota, None: it has none.
        admitted_at: Unix time since which it may run, None: it may not.
        is_over: it is finished, evicted or switched off.
        checks: by name, in the order of the object.
        pod_sets: what it would start.
        assignments: pod set -> what Kueue gave to it.
        priority: among Workloads.
        pod_priority: of its pods, as far as it is known.
    """

    key: str
    uid: str
    version: str
    number: int
    reserved_at: float | None
    admitted_at: float | None
    is_over: bool
    checks: Mapping[str, CheckState]
    pod_sets: tuple[PodSet, ...]
    assignments: Mapping[str, PodSetAssignment]
    priority: int
    pod_priority: int

    @property
    def namespace(self) -> str:
        """Where it and its pods are."""
        return self.key.partition("/")[0]

    @property
    def name(self) -> str:
        """Of the object."""
        return self.key.partition("/")[2]


def read_workload(obj: Json) -> Workload:
    """A Workload object.

    Raises:
        errors.ParseError: a field has another type than the API's.
    """
    read = wire.read(obj, _Workload, "Workload")
    metadata, status = read.metadata, read.status or _Status()
    since = {item.type: _moment(item) for item in status.conditions or () if item.status == "True"}
    priority, by_class = read.spec.priority or 0, read.spec.priority_class_ref
    return Workload(
        key=f"{metadata.namespace}/{metadata.name}",
        uid=metadata.uid or "",
        version=str(obj["metadata"].get("resourceVersion") or ""),
        number=version_of(obj["metadata"]),
        reserved_at=since.get("QuotaReserved"),
        admitted_at=since.get("Admitted"),
        is_over=read.spec.active is False
        or bool(metadata.deletion_timestamp)
        or not {"Finished", "Evicted"}.isdisjoint(since),
        checks={each.name: each for each in status.admission_checks or ()},
        pod_sets=read.spec.pod_sets,
        assignments={
            each.name: each
            for each in (status.admission and status.admission.pod_set_assignments) or ()
        },
        priority=priority,
        # A WorkloadPriorityClass orders Workloads; their pods have none of it.
        pod_priority=priority if by_class and by_class.kind == "PriorityClass" else 0,
    )


def _moment(condition: wire.Condition) -> float:
    try:
        return datetime.fromisoformat(condition.last_transition_time or "").timestamp()
    except ValueError:
        raise errors.ParseError("time", condition.last_transition_time) from None


def read_flavor(obj: Json) -> Flavor:
    """A ResourceFlavor object.

    Raises:
        errors.ParseError: a field has another type than the API's.
    """
    return wire.read(obj, Flavor, "ResourceFlavor")


def read_check(obj: Json) -> AdmissionCheck:
    """An AdmissionCheck object.

    Raises:
        errors.ParseError: a field has another type than the API's.
    """
    read = wire.read(obj, _Check, "AdmissionCheck")
    conditions = (read.status and read.status.conditions) or ()
    active = next((each for each in conditions if each.type == "Active"), None)
    return AdmissionCheck(
        name=read.metadata.name or "",
        version=str(obj["metadata"].get("resourceVersion") or ""),
        controller=read.spec.controller_name,
        has_parameters=read.spec.parameters is not None,
        active=(active.status or "", active.reason or "") if active else ("", ""),
    )
