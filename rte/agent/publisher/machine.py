"""The publisher as a machine: ``handle`` is the way in, effects and a deadline are the way out.

It has no clock, task, lock or I/O. One request about the object is under way at a time; what is
offered meanwhile coalesces, so after an outage there is one write, of the latest state. It never
writes when nothing of ours differs.
"""

from __future__ import annotations

import math
from collections import deque
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from rte.agent.backoff import Backoff
from rte.agent.publisher import messages, ownership
from rte.agent.publisher.renewals import Renewals, Rhythm
from rte.telemetry.effects import Condition, Measured, Said

if TYPE_CHECKING:
    from collections.abc import Callable

    from rte import errors
    from rte.agent.observer.messages import Observation
    from rte.agent.publisher.messages import Effect, Event, Request

#: What the API server takes our field manager to be (the user agent's first part).
FIELD_MANAGER = "rte-agent"

#: ``reason`` of an error about the Node, which is not about the object that is to be written.
NO_SUCH_NODE = "NoSuchNode"

#: After these the object may be another one than we think.
_STALE = (404, 409, 410, 422)


@dataclass(frozen=True, kw_only=True, slots=True)
class Pace:
    """Seconds between attempts.

    Attributes:
        first_retry: before the second attempt; doubles up to ``last_retry``, half of it random.
        last_retry: the longest wait between attempts.
        resync: the object is read afresh this often (30 % jitter) even when nothing happens.
        shared_repair: between repairs of our annotations while sharing the object.
    """

    first_retry: float = 0.1
    last_retry: float = 10.0
    resync: float = 3600.0
    shared_repair: float = 30.0


class Publisher:
    """The only writer of this node's object, as far as others let it be.

    Args:
        pace: see there.
        rhythm: of the Lease; None: there is no Lease.
        tolerance: of other writers.
        jitter: factor of each wait, 0.5 to 1.

    """

    def __init__(
        self,
        pace: Pace = Pace(),
        rhythm: Rhythm | None = None,
        tolerance: ownership.Tolerance | None = None,
        *,
        jitter: Callable[[], float] = lambda: 1.0,
    ) -> None:
        self._pace = pace
        self._renewals = Renewals(rhythm) if rhythm else None
        self._tolerance = tolerance or ownership.Tolerance()
        self._jitter = jitter
        self._waits = Backoff(pace.first_retry, pace.last_retry, jitter)
        self._wanted: Observation | None = None
        self._confirmed: Observation | None = None
        self._writing: Observation | None = None
        # Since when the API server lacks what was offered; and what it will lack once the write
        # under way is stored.
        self._lacks_since: float | None = None
        self._lacks_next: float | None = None
        self._stored: dict[str, Any] | None = None
        self._unstorable: dict[str, Any] = {}
        self._published: set[str] = set()
        self._own_versions: deque[str] = deque(maxlen=64)
        self._watched: list[messages.Watched] = []
        self._trigger = "start"
        self._next_repair = -math.inf
        self._next_resync = math.inf
        self._request: Request | None = None
        self._retry_at = -math.inf
        self._complaint = ""
        self._adopts = True
        self._unadopted: errors.KubeError | None = None
        self._stopping = self._gave_up = False
        self._effects: list[Effect] = []

    # --- the way in, and the way out -------------------------------------------------------------

    def handle(self, event: Event, now: float) -> list[Effect]:
        """Take an event in; what has to be done about it."""
        match event:
            case messages.Offered():
                self._offer(event.observation)
            case messages.Trusted():
                if self._renewals:
                    self._renewals.trusted_until = event.until
            case messages.Stored():
                self._answered(event.object, now)
            case messages.OwnerKnown():
                self._create(event.uid)
            case messages.Refused():
                self._refused(event.error, now)
            case messages.Watched():
                self._watched.append(event)
            case messages.Renewed():
                if self._renewals:
                    self._effects += self._renewals.renewed(event.error, now)
            case messages.Stopping():
                self._stopping = True
                self._request = None
                self._retry_at = -math.inf
                self._waits.worked()
            case messages.Tick():
                self._tick(now)
        self._step(now)
        effects, self._effects = self._effects, []
        return effects

    def deadline(self) -> float:
        """When ``handle(Tick(), now)`` is due; infinite: only after the next event."""
        beat = self._renewals.due if self._renewals else math.inf
        if self._request is not None:
            return beat
        due = min(beat, self._next_resync)
        if self._tolerance.sharing:
            due = min(due, self._tolerance.claim_at())
        if not self.is_current:
            due = min(due, max(self._retry_at, self._put_off_until()))
        return due

    @property
    def is_current(self) -> bool:
        """Whether the API server has what was offered last."""
        return self._wanted is None or self._wanted is self._confirmed

    def behind_since(self) -> float | None:
        """Since when the API server lacks the state of the node; None if it has the current one.

        A state that is replaced by the next one before it is stored counts on.
        """
        if self._wanted is None or self.is_current:
            return None
        return self._wanted.noticed if self._lacks_since is None else self._lacks_since

    # --- requests --------------------------------------------------------------------------------

    def _offer(self, latest: Observation) -> None:
        """Make it the wanted one; an equal object is not a new one."""
        if self._wanted is None or latest.object != self._wanted.object:
            self._wanted = latest
            if self._lacks_since is None:
                self._lacks_since = latest.noticed
            if self._lacks_next is None:
                self._lacks_next = latest.noticed
            if self._trigger == "repair":
                self._trigger = "change"

    def _tick(self, now: float) -> None:
        if self._tolerance.sharing and now >= self._tolerance.claim_at():
            self._tolerance.claim()
            self._effects += [
                Measured("sharing", 0.0, how="set"),
                Said(
                    "info", "no other writer seen for a while: maintaining the whole object again"
                ),
            ]
            self._forget()
        if now >= self._next_resync:
            self._next_resync = now + self._resync_interval()
            self._forget()
        if self._renewals and now >= self._renewals.due:
            self._effects += self._renewals.beat(self.behind_since(), now)

    def _resync_interval(self) -> float:
        return self._pace.resync * (0.4 + 0.6 * self._jitter())

    def _forget(self) -> None:
        self._stored = self._confirmed = None
        self._unstorable = {}
        self._adopts = True
        self._trigger = "resync"

    def _put_off_until(self) -> float:
        """A rival's overwrites are repaired at a slow pace."""
        slow = self._trigger == "repair" and self._tolerance.sharing
        return self._next_repair if slow else -math.inf

    def _step(self, now: float) -> None:
        """The next request, if one is due."""
        if self._next_resync == math.inf:
            self._next_resync = now + self._resync_interval()
        if self._request is not None:
            return
        self._digest(now)
        wanted = self._wanted
        if wanted is None or self.is_current or self._gave_up:
            return
        if not self._stopping and now < max(self._retry_at, self._put_off_until()):
            return
        if self._stored is None:
            self._send(messages.Get())
            return
        patch = self._patch_for(wanted)
        if patch and patch != self._unstorable:
            self._update(wanted, patch)
        else:
            self._confirm(wanted)

    def _send(self, request: Request) -> None:
        self._request = request
        self._lacks_next = None
        self._effects.append(request)

    def _create(self, owner_uid: str) -> None:
        self._request = None
        if self._wanted is not None:
            owned = ownership.owned_by(owner_uid, self._wanted.object)
            self._wanted = self._writing = replace(self._wanted, object=owned)
            self._send(messages.Write("create", owned))

    def _update(self, wanted: Observation, patch: dict[str, Any]) -> None:
        """Send back what is stored, patched: refused if anybody has written since.

        The API server would do the same with the patch, but more slowly: it would have to encode
        the object for it and decode the result.
        """
        body = ownership.apply(patch, self._stored or {})
        # Items of a list need not have a kind. Without managed fields the server keeps its own.
        body |= {name: wanted.object[name] for name in ("apiVersion", "kind")}
        body["metadata"] = {**body["metadata"], "managedFields": []}
        self._writing = wanted
        self._send(messages.Write("update", body))

    def _answered(self, stored: dict[str, Any], now: float) -> None:
        request, self._request = self._request, None
        self._stored = stored
        if isinstance(request, messages.Write) and self._writing is not None:
            self._accepted(request.operation, self._writing, now)
        else:
            self._published |= ownership.annotations_of(stored, FIELD_MANAGER)

    def _accepted(self, operation: str, wanted: Observation, now: float) -> None:
        self._own_versions.append(_version(self._stored or {}))
        self._published = set((wanted.object["metadata"].get("annotations") or {}).keys())
        self._effects.append(Measured("writes", labels=(operation, self._trigger)))
        if self._trigger in ("start", "change"):
            self._effects.append(Measured("publish_seconds", now - wanted.noticed, how="observe"))
        if self._trigger == "repair":
            self._next_repair = now + self._pace.shared_repair
        left = self._patch_for(wanted)
        if left and left != self._unstorable:
            # Writing it again would change nothing and never end.
            line = (
                f"the API server does not store all that was sent ({', '.join(sorted(left))}): "
                "is the CRD complete?"
            )
            self._effects.append(Said("warning", line))
        self._unstorable = left
        self._confirm(wanted)

    def _confirm(self, wanted: Observation) -> None:
        self._confirmed = wanted
        self._lacks_since = None if wanted is self._wanted else self._lacks_next
        self._trigger = "change"
        self._waits.worked()
        self._retry_at = -math.inf
        self._effects.append(Condition("published"))
        if self._renewals:
            self._renewals.begin()
        if self._unadopted is not None:
            line = (
                "the NodeResourceTopology was made by somebody else and stays when the Node goes: "
                "allow delete on noderesourcetopologies, or delete it once "
                f"({self._unadopted})"
            )
            self._effects.append(Said("warning", line))
            self._unadopted = None
        if self._complaint:
            self._complaint = ""
            self._effects.append(Said("info", "publishing works again"))

    def _patch_for(self, wanted: Observation) -> dict[str, Any]:
        return ownership.difference(
            self._stored or {},
            wanted.object,
            self._published,
            sharing=self._tolerance.sharing,
            adopts=self._adopts,
        )

    # --- failures --------------------------------------------------------------------------------

    def _refused(self, error: errors.KubeError, now: float) -> None:
        request, self._request = self._request, None
        if isinstance(request, messages.Get) and error.status == 404:
            # Whoever deleted it may have been the garbage collector: its Node is a new one.
            self._send(messages.AskOwner())
            return
        if self._may_not_adopt(request, error):
            self._adopts, self._unadopted = False, error
            return
        self._unadopted = None
        self._effects.append(Measured("write_failures", labels=(str(error.status),)))
        is_unsure = isinstance(request, messages.Write) and not 400 <= error.status < 500
        if error.status in _STALE or is_unsure:  # it may have been stored, and the answer was lost
            self._stored = None
        self._retry_at = now + self._waits.failed(error.retry_after)
        if self._stopping:
            self._give_up(error)
            return
        hint = _hint(error)
        if hint != self._complaint and (error.status != 409 or self._waits.attempts >= 3):
            self._complaint = hint
            line = f"cannot publish, will keep trying: {hint} ({error})"
            self._effects.append(Said("error", line))

    def _may_not_adopt(self, request: Request | None, error: errors.KubeError) -> bool:
        """With OwnerReferencesPermissionEnforcement only who may delete it may adopt it."""
        return (
            isinstance(request, messages.Write)
            and request.operation == "update"
            and error.status == 403
            and self._adopts
            and self._writing is not None
            and "ownerReferences" in self._patch_for(self._writing).get("metadata", {})
        )

    def _give_up(self, error: errors.KubeError) -> None:
        """At the end of the process: one attempt, another one only after a conflict.

        The write that the end cut off may have been stored all the same.
        """
        self._gave_up = error.status != 409 or self._waits.attempts > 1
        if self._gave_up:
            line = f"the last state may not be published: {error}"
            self._effects.append(Said("warning", line))

    # --- other writers ---------------------------------------------------------------------------

    def _digest(self, now: float) -> None:
        """Learn from what the watch has seen while a request was under way."""
        watched, self._watched = self._watched, []
        for event in watched:
            self._noticed(event.object, event.version, now)

    def _noticed(self, obj: dict[str, Any] | None, version: str, now: float) -> None:
        stored = self._stored
        if stored is None or version in self._own_versions:
            return
        known = _version(stored)
        if version.isdigit() and known.isdigit() and int(version) <= int(known):
            return
        self._stored = obj
        if self._confirmed is None or self._wanted is None:
            return
        harmed = obj is None or bool(self._patch_for(self._wanted))
        begins = self._tolerance.foreign_write(now, ours_overwritten=harmed)
        if not harmed:
            return
        self._confirmed = None
        self._trigger = "repair"
        rival = ownership.last_foreign_writer(obj or {}, FIELD_MANAGER)
        what = "deleted" if obj is None else "changed"
        line = f"our NodeResourceTopology was {what} by {rival or 'somebody'}; repairing it"
        self._effects += [Measured("foreign_overwrites"), Said("warning", line)]
        if begins:
            line = (
                f"{rival or 'another writer'} keeps writing the NodeResourceTopology of this "
                f"node: from now on only annotations under {ownership.OWN_PREFIX} are maintained; "
                "stop one of the two writers"
            )
            self._effects += [Measured("sharing", 1.0, how="set"), Said("error", line)]


def _version(obj: dict[str, Any]) -> str:
    return str((obj.get("metadata") or {}).get("resourceVersion") or "")


def _hint(error: errors.KubeError) -> str:
    if error.reason == NO_SUCH_NODE:
        return "the node is not registered (yet), or has another name"
    match error.status:
        case 401:
            return "the API server does not accept our credentials: check the service account token"
        case 403:
            return "we may not write NodeResourceTopologies: check RBAC and admission policies"
        case 404:
            return "the NodeResourceTopology CRD is not installed: apply manifests/crd"
        case 0:
            return "the API server cannot be reached"
        case 413 | 422:
            return "the API server refuses the object"
        case _:
            return f"the API server answers {error.status}"
