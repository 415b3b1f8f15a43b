"""What the publisher is told, and what it wants done."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, TypeAlias

from rte.agent.observer.messages import Tick as Tick  # noqa: PLC0414 - an event of both
from rte.telemetry.effects import Measured, Said, SetReadiness

if TYPE_CHECKING:
    from rte import errors
    from rte.agent.observer.messages import Observation
    from rte.reader.json import JsonObject

# --- events ---


@dataclass(frozen=True, slots=True)
class Offered:
    """A newer state."""

    observation: Observation


@dataclass(frozen=True, slots=True)
class Trusted:
    """What was offered last is to be trusted until then, unless told otherwise."""

    until: float


@dataclass(frozen=True, slots=True)
class Stored:
    """What the API server has by now: the answer to a request."""

    object: JsonObject


@dataclass(frozen=True, slots=True)
class OwnerKnown:
    """:class:`AskOwner` was carried out: the UID of the Node; empty: nobody knows."""

    uid: str


@dataclass(frozen=True, slots=True)
class WriteRefused:
    """The request failed."""

    error: errors.RteError


@dataclass(frozen=True, slots=True)
class Watched:
    """A watch tells: the object as it is now, None when it is gone, and since which version.

    ``listed``: the watch began anew, with all that there is.
    """

    object: JsonObject | None
    version: str
    listed: bool = False


@dataclass(frozen=True, slots=True)
class Probed:
    """:class:`Probe` was carried out: whether the kubelet has just answered."""

    alive: bool


@dataclass(frozen=True, slots=True)
class Renewed:
    """:class:`Renew` was carried out, or failed because of ``error``."""

    error: errors.RteError | None = None


@dataclass(frozen=True, slots=True)
class Stopping:
    """The process ends: nothing is under way any more, and what is missing is tried once."""


Event: TypeAlias = (
    Offered
    | Trusted
    | Stored
    | OwnerKnown
    | WriteRefused
    | Watched
    | Probed
    | Renewed
    | Stopping
    | Tick
)

# --- effects ---


@dataclass(frozen=True, slots=True)
class Get:
    """Read the object; answered by :class:`Stored` or :class:`WriteRefused`."""


@dataclass(frozen=True, slots=True)
class AskOwner:
    """Learn who the Node is now; answered by :class:`OwnerKnown` or :class:`WriteRefused`."""


@dataclass(frozen=True, slots=True)
class WriteReport:
    """Write the object; answered by :class:`Stored` or :class:`WriteRefused`.

    ``body`` is what is to be stored, with what is not ours; ``wanted`` is our part of it.
    """

    operation: Literal["create", "update"]
    body: JsonObject
    wanted: JsonObject


@dataclass(frozen=True, slots=True)
class Probe:
    """Ask the kubelet for a sign of life; answered by :class:`Probed`."""


@dataclass(frozen=True, slots=True)
class Renew:
    """Renew the Lease; answered by :class:`Renewed`."""


#: What was offered last is stored.
PUBLISHED = SetReadiness("published")

Request: TypeAlias = Get | AskOwner | WriteReport
Effect: TypeAlias = Request | Probe | Renew | Measured | Said | SetReadiness
