"""What the machine of the AdmissionChecks is told beside what watches tell, and what it wants."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

from rte.scheduler.loop.messages import Gone, Leading, Listed, Seen, Tick, Turn
from rte.telemetry.effects import Measured, Said

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rte.reader.json import Json
    from rte.scheduler.framework.events import ClusterEvent
    from rte.scheduler.loop.gangs.decide import Found, GangQuestion

#: Names of the collections that are watched.
WORKLOADS, CHECKS, FLAVORS = "kueue-workloads", "kueue-checks", "kueue-flavors"
TEMPLATES = "claim-templates"


@dataclass(frozen=True, slots=True)
class Happened:
    """The cluster has changed."""

    events: Sequence[ClusterEvent]


@dataclass(frozen=True, slots=True)
class Written:
    """What became of :class:`Judge`; where it was ``done``, the object was Seen as it is now."""

    key: str
    done: bool


@dataclass(frozen=True, slots=True)
class WorkloadSolved:
    """The answer to :class:`SolveWorkload`."""

    key: str
    found: Found | Exception


Event: TypeAlias = (
    Seen | Gone | Listed | Leading | Tick | Turn | Happened | WorkloadSolved | Written
)


@dataclass(frozen=True, slots=True)
class Judge:
    """Write items of ``status.admissionChecks`` of a Workload, if it is of that version still.

    Answered by :class:`Written`.
    """

    key: str
    uid: str
    version: str
    items: tuple[Json, ...]


@dataclass(frozen=True, slots=True)
class SolveWorkload:
    """Find out about a Workload's pods; answered by :class:`WorkloadSolved`."""

    key: str
    question: GangQuestion


@dataclass(frozen=True, slots=True)
class Activate:
    """Write the condition Active of an AdmissionCheck, if it is of that version still."""

    name: str
    version: str
    condition: Json


Effect: TypeAlias = Judge | Activate | SolveWorkload | Measured | Said
