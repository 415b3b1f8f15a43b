"""What the publisher is told, and what it wants done."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from rte.telemetry.effects import Condition, Measured, Said

if TYPE_CHECKING:
    from rte import errors
    from rte.agent.observer.messages import Observation

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

    object: dict[str, Any]


@dataclass(frozen=True, slots=True)
class OwnerKnown:
    """:class:`AskOwner` was carried out: the UID of the Node; empty: nobody knows."""

    uid: str


@dataclass(frozen=True, slots=True)
class Refused:
    """The request failed."""

    error: errors.KubeError


@dataclass(frozen=True, slots=True)
class Watched:
    """A watch tells: the object as it is now, None when it is gone, and since which version."""

    object: dict[str, Any] | None
    version: str


@dataclass(frozen=True, slots=True)
class Renewed:
    """:class:`Renew` was carried out, or failed because of ``error``."""

    error: errors.KubeError | None = None


@dataclass(frozen=True, slots=True)
class Stopping:
    """The process ends: nothing is under way any more, and what is missing is tried once."""


@dataclass(frozen=True, slots=True)
class Tick:
    """A deadline is due."""


Event: TypeAlias = (
    Offered | Trusted | Stored | OwnerKnown | Refused | Watched | Renewed | Stopping | Tick
)

# --- effects ---


@dataclass(frozen=True, slots=True)
class Get:
    """Read the object; answered by :class:`Stored` or :class:`Refused`."""


@dataclass(frozen=True, slots=True)
class AskOwner:
    """Learn who the Node is now; answered by :class:`OwnerKnown` or :class:`Refused`."""


@dataclass(frozen=True, slots=True)
class Write:
    """Write the object; answered by :class:`Stored` or :class:`Refused`."""

    operation: Literal["create", "update"]
    body: dict[str, Any]


@dataclass(frozen=True, slots=True)
class Renew:
    """Renew the Lease; answered by :class:`Renewed`."""


Request: TypeAlias = Get | AskOwner | Write
Effect: TypeAlias = Request | Renew | Measured | Said | Condition
