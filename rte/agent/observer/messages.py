"""What the observer is told, and what it wants done.

What was read carries the epoch, which start of the kubelet it was read from: an answer of a kubelet
that is no longer there is never taken for one of its successor.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeAlias

from rte.telemetry.effects import Measured, Said, SetReadiness

if TYPE_CHECKING:
    from collections.abc import Mapping

    from rte import errors
    from rte.model.kubelet import KubeletView, StateFiles
    from rte.model.machine import Machine
    from rte.model.node import KubeletConfig, NodeState
    from rte.reader.json import JsonObject


class KubeletChange(enum.Flag):
    """What may have changed."""

    NOTHING = 0
    FILES = enum.auto()  #: a state file of the kubelet
    DEVICES = enum.auto()  #: the device manager's checkpoint: plugins come and go, health
    SOCKET = enum.auto()  #: the podresources socket is new: the kubelet was started
    PODS = enum.auto()  #: a pod of this node began or ended in the API
    MACHINE = enum.auto()  #: of the hardware: CPUs on-line, huge pages, devices, links
    LEARNT = enum.auto()  #: the kubelet's configuration and its Node are known anew
    POLL = enum.auto()  #: nothing known; look again at what has no notification


@dataclass(frozen=True, kw_only=True)
class NodeObjectFacts:
    """What the Node object says; empty where the API is not asked.

    ``capacity`` is by resource, millicores and base units; ``annotations`` are those that koordlet
    copies; ``heard`` is when the kubelet last reported, by its own clock (Unix time).
    """

    uid: str = ""
    version: str = ""
    capacity: Mapping[str, int] = field(default_factory=dict)
    annotations: Mapping[str, str] = field(default_factory=dict)
    heard: float | None = field(default=None, compare=False)


@dataclass(frozen=True, slots=True)
class Observation:
    """An NRT object to publish, and when its cause was noticed."""

    object: JsonObject
    noticed: float


# --- events ---


@dataclass(frozen=True, slots=True)
class Noticed:
    """Something may have changed; ``at`` is when the first of it was noticed."""

    changes: KubeletChange
    at: float


@dataclass(frozen=True, slots=True)
class MachineRead:
    """:class:`ReadMachine` was carried out; None: it cannot be read, because of ``problem``."""

    machine: Machine | None
    problem: errors.RteError | None = None


@dataclass(frozen=True, slots=True)
class FilesRead:
    """:class:`ReadFiles` was carried out.

    ``files`` is None where no files are read, or because of ``problem``. ``epoch`` was told after
    the files were read, ``started`` is when that kubelet was started, on the clock of ``now``, and
    ``made`` the same by its own clock (Unix time); None: unknown.
    """

    files: StateFiles | None
    epoch: str
    started: float | None = None
    problem: errors.RteError | None = None
    made: float | None = None


@dataclass(frozen=True, slots=True)
class Answered:
    """:class:`Ask` was carried out: podresources, and the files read around it.

    ``epoch`` is that of before and after the question; if those differ, that is the ``problem``.
    """

    epoch: str
    view: KubeletView | None
    files: StateFiles | None = None
    problem: errors.RteError | None = None


@dataclass(frozen=True, slots=True)
class Pulse:
    """The kubelet of that epoch has given a sign of life, or has not because of ``problem``."""

    epoch: str
    problem: errors.RteError | None = None


@dataclass(frozen=True, slots=True)
class Learnt:
    """:class:`Learn` was carried out; ``epoch`` is that of question and answer.

    ``config`` is None where nobody can tell and that is accepted. ``reported`` is what the object
    said when it was asked for first: of the same start of the kubelet it tells what that has read.
    """

    epoch: str
    config: KubeletConfig | None = None
    node: NodeObjectFacts = NodeObjectFacts()
    reported: NodeState | None = None
    problem: errors.RteError | None = None


@dataclass(frozen=True, slots=True)
class PodsListed:
    """All pods of this node, as the API shows them."""

    items: tuple[JsonObject, ...]


@dataclass(frozen=True, slots=True)
class PodSeen:
    """A pod of this node is new or another."""

    obj: JsonObject


@dataclass(frozen=True, slots=True)
class PodGone:
    """A pod of this node was deleted."""

    obj: JsonObject


@dataclass(frozen=True, slots=True)
class PodsUnknown:
    """The API tells no longer of pods; what it told is getting old."""


@dataclass(frozen=True, slots=True)
class OwnerSeen:
    """The UID of the Node as it is now."""

    uid: str


@dataclass(frozen=True, slots=True)
class Tick:
    """A deadline is due."""


PodsEvent: TypeAlias = PodsListed | PodSeen | PodGone | PodsUnknown
Event: TypeAlias = (
    Noticed | MachineRead | FilesRead | Answered | Pulse | Learnt | PodsEvent | OwnerSeen | Tick
)

# --- effects ---


@dataclass(frozen=True, slots=True)
class ReadMachine:
    """Read the hardware; answered by :class:`MachineRead`."""


@dataclass(frozen=True, slots=True)
class ReadFiles:
    """Read the state files, unchanged ones not again; answered by :class:`FilesRead`."""

    previous: StateFiles | None


@dataclass(frozen=True, slots=True)
class Ask:
    """Ask podresources; answered by :class:`Answered`."""

    previous: StateFiles | None


@dataclass(frozen=True, slots=True)
class Learn:
    """Ask for configuration and Node, once; answered by :class:`Learnt`.

    ``patient``: a kubelet that does not answer yet is a failure, and no reason to be content with a
    weaker source.
    """

    epoch: str
    memory_bytes: int
    patient: bool


@dataclass(frozen=True, slots=True)
class Publish:
    """Hand the object on; ``left_out``: whether an annotation would make it too large."""

    observation: Observation
    left_out: Mapping[str, bool] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Failed:
    """No reading: ``torn``, the kubelet is between two writes, or ``failed``."""

    result: str
    error: errors.RteError


@dataclass(frozen=True, slots=True)
class CompareAdmissions:
    """The node has this state now: compare admissions with their predictions."""

    state: NodeState


Effect: TypeAlias = (
    ReadMachine
    | ReadFiles
    | Ask
    | Learn
    | Publish
    | Failed
    | CompareAdmissions
    | Measured
    | Said
    | SetReadiness
)
