"""The publisher as a machine: ``handle`` is the way in, effects and a deadline are the way out.

It has no clock, task, lock or I/O. One request about the object is under way at a time; what is
offered meanwhile coalesces, so after an outage there is one write, of the latest state. It never
writes when nothing of ours differs.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING

from rte import errors
from rte.agent.publisher import messages, ownership
from rte.agent.publisher.renewals import Renewals
from rte.agent.timings import DEFAULT
from rte.model.backoff import Backoff
from rte.telemetry.effects import Measured, Said, SetReadiness
from rte.telemetry.quarantine import Quarantine

if TYPE_CHECKING:
    from collections.abc import Callable

    from rte.agent.observer.messages import Observation
    from rte.agent.publisher.messages import Effect, Event, Request
    from rte.agent.timings import Timings
    from rte.reader.json import JsonObject

#: What the API server takes our field manager to be (the user agent's first part).
FIELD_MANAGER = "rte-agent"

#: ``reason`` of an error about the Node, which is not about the object that is to be written.
NO_SUCH_NODE = "NoSuchNode"

#: After these the object may be another one than we think.
_STALE = (404, 409, 410, 422)


class Publisher:
    """The only writer of this node's object, as far as others let it be.

    Args:
        timings: see there.
        has_lease: a Lease shows that the agent lives.
        tolerance: of other writers.
        jitter: factor of each wait, 0.5 to 1.

    Attributes:
        quarantine: what has caused an internal error.
    """

    def __init__(
        self,
        timings: Timings = DEFAULT,
        *,
        has_lease: bool = False,
        tolerance: ownership.Tolerance | None = None,
        jitter: Callable[[], float] = lambda: 1.0,
    ) -> None:
        self.quarantine = Quarantine()
        self._timings = timings
        self._has_lease = has_lease
        self._renewals = Renewals(timings)
        self._tolerance = tolerance or ownership.Tolerance()
        self._jitter = jitter
        self._waits = Backoff(timings.first_retry, timings.last_retry, jitter)
        self._wanted: Observation | None = None
        self._confirmed: Observation | None = None
        self._writing: Observation | None = None
        # Since when the API server lacks what was offered; and what it will lack once the write
        # under way is stored.
        self._lacks_since: float | None = None
        self._lacks_next: float | None = None
        self._stored: JsonObject | None = None
        self._unstorable: JsonObject = {}
        self._published: set[str] = set()
        self._watched: list[messages.Watched] = []
        self._trigger = "start"
        self._next_create = -math.inf
        self._next_resync = math.inf
        self._request: Request | None = None
        self._retry_at = -math.inf
        self._complaint = ""
        self._adopts = True
        self._unadopted: errors.RteError | None = None
        self._stopping = self._gave_up = False
        self._effects: list[Effect] = []

    # --- the way in, and the way out -------------------------------------------------------------

    def handle(self, event: Event, now: float) -> list[Effect]:
        """Take an event in; what has to be done about it."""
        with self.quarantine.guard("publisher", type(event).__name__, now) as bulkhead:
            self._take(event, now)
            self._step(now)
        if bulkhead.fault is not None:
            # What is offered next, or the same later; the Lease waits for it.
            self._request, self._retry_at = None, bulkhead.fault.until
        self.quarantine.tidy(now)
        effects = [*self._effects, *self.quarantine.effects]
        self._effects.clear()
        self.quarantine.effects.clear()
        return effects

    def _take(self, event: Event, now: float) -> None:
        match event:
            case messages.Offered():
                self._offer(event.observation)
            case messages.Trusted():
                self._renewals.trusted_until = event.until
            case messages.Stored():
                self._answered(event.object, now)
            case messages.OwnerKnown():
                self._create(event.uid)
            case messages.WriteRefused():
                self._refused(event.error, now)
            case messages.Watched():
                self._watched.append(event)
            case messages.Probed():
                since = self.behind_since()
                self._effects += self._renewals.probed(since, now, alive=event.alive)
            case messages.Renewed():
                self._effects += self._renewals.renewed(event.error, now)
            case messages.Stopping():
                self._stopping = True
                self._request = None
                self._retry_at = -math.inf
                self._waits.worked()
            case messages.Tick():
                self._tick(now)

    def deadline(self) -> float:
        """When ``handle(Tick(), now)`` is due; infinite: only after the next event."""
        beat = self._renewals.due
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
            self._forget(now)
        if now >= self._next_resync:
            self._next_resync = now + self._resync_interval()
            self._forget(now)
        self._effects += self._renewals.beat(now)

    def _resync_interval(self) -> float:
        return self._timings.resync * (0.4 + 0.6 * self._jitter())

    def _forget(self, now: float) -> None:
        """What is stored is to be read afresh; until then nobody knows that anything is lacking."""
        if self.is_current:
            self._lacks_since = now
        self._stored = self._confirmed = None
        self._unstorable = {}
        self._adopts = True
        self._trigger = "resync"

    def _put_off_until(self) -> float:
        """What a rival overwrites at once is repaired later, and what is deleted not at once."""
        if self._trigger != "repair":
            return -math.inf
        if self._stored is None:
            return self._next_create
        return self._tolerance.repair_at

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
            self._send(messages.WriteReport("create", owned, owned))

    def _update(self, wanted: Observation, patch: JsonObject) -> None:
        """Send back what is stored, patched: refused if anybody has written since.

        The API server would do the same with the patch, but more slowly: it would have to encode
        the object for it and decode the result.
        """
        body = ownership.apply(patch, self._stored or {})
        # Items of a list need not have a kind. Without managed fields the server keeps its own.
        body |= {name: wanted.object[name] for name in ("apiVersion", "kind")}
        body["metadata"] = {**body["metadata"], "managedFields": []}
        self._writing = wanted
        self._send(messages.WriteReport("update", body, wanted.object))

    def _answered(self, stored: JsonObject, now: float) -> None:
        request, self._request = self._request, None
        self._stored = stored
        if isinstance(request, messages.WriteReport) and self._writing is not None:
            self._accepted(request.operation, self._writing, now)
        else:
            self._published |= ownership.annotations_of(stored, FIELD_MANAGER)

    def _accepted(self, operation: str, wanted: Observation, now: float) -> None:
        self._published = set((wanted.object["metadata"].get("annotations") or {}).keys())
        self._effects.append(Measured("writes", labels=(operation, self._trigger)))
        if self._trigger in ("start", "change"):
            self._effects.append(Measured("publish_seconds", now - wanted.noticed, how="observe"))
        if self._trigger == "repair":
            self._tolerance.repaired(now)
        if operation == "create":
            self._next_create = now + self._timings.recreate
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
        self._effects.append(messages.PUBLISHED)
        if self._has_lease:
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

    def _patch_for(self, wanted: Observation) -> JsonObject:
        return ownership.difference(
            self._stored or {},
            wanted.object,
            self._published,
            sharing=self._tolerance.sharing,
            adopts=self._adopts,
        )

    # --- failures --------------------------------------------------------------------------------

    def _refused(self, error: errors.RteError, now: float) -> None:
        request, self._request = self._request, None
        status, _, asked = _status(error)
        if isinstance(request, messages.Get) and status == 404:
            # Whoever deleted it may have been the garbage collector: its Node is a new one.
            self._send(messages.AskOwner())
            return
        if self._may_not_adopt(request, error):
            self._adopts, self._unadopted = False, error
            return
        self._unadopted = None
        self._effects.append(Measured("write_failures", labels=(str(status),)))
        is_unsure = isinstance(request, messages.WriteReport) and not 400 <= status < 500
        if status in _STALE or is_unsure:  # it may have been stored, and the answer was lost
            self._stored = None
        self._retry_at = now + self._waits.failed(asked)
        if self._stopping:
            self._give_up(error)
            return
        hint = _hint(error)
        if hint != self._complaint and (status != 409 or self._waits.attempts >= 3):
            self._complaint = hint
            why = "" if hint == str(error) else f" ({error})"
            line = f"cannot publish, will keep trying: {hint}{why}"
            self._effects += [Said("error", line), SetReadiness("published", hint)]

    def _may_not_adopt(self, request: Request | None, error: errors.RteError) -> bool:
        """With OwnerReferencesPermissionEnforcement only who may delete it may adopt it."""
        return (
            isinstance(request, messages.WriteReport)
            and request.operation == "update"
            and _status(error)[0] == 403
            and self._adopts
            and self._writing is not None
            and "ownerReferences" in self._patch_for(self._writing).get("metadata", {})
        )

    def _give_up(self, error: errors.RteError) -> None:
        """At the end of the process: one attempt, another one only after a conflict.

        The write that the end cut off may have been stored all the same.
        """
        self._gave_up = _status(error)[0] != 409 or self._waits.attempts > 1
        if self._gave_up:
            line = f"the last state may not be published: {error}"
            self._effects.append(Said("warning", line))

    # --- other writers ---------------------------------------------------------------------------

    def _digest(self, now: float) -> None:
        """Learn from what the watch has seen while a request was under way."""
        watched, self._watched = self._watched, []
        for event in watched:
            self._noticed(event, now)

    def _noticed(self, event: messages.Watched, now: float) -> None:
        stored, obj, version = self._stored, event.object, event.version
        if stored is None:
            return
        known = _version(stored)
        is_older = version.isdigit() and known.isdigit() and int(version) < int(known)
        if event.listed and is_older:
            # It was answered late, or etcd was restored.
            self._forget(now)
            return
        if is_older or version == known:
            return
        self._stored = obj
        if self._confirmed is None or self._wanted is None:
            return
        harmed = obj is None or bool(self._patch_for(self._wanted))
        # Who deletes it does not write it: there is nothing to share.
        begins = obj is not None and self._tolerance.foreign_write(now, ours_overwritten=harmed)
        if not harmed:
            return
        self._confirmed = None
        self._trigger = "repair"
        rival = ownership.last_foreign_writer(obj or {}, FIELD_MANAGER)
        what = "deleted" if obj is None else "changed"
        line = f"our NodeResourceTopology was {what} by {rival or 'somebody'}; repairing it"
        level = "debug" if self._tolerance.sharing and not begins else "warning"
        self._effects += [Measured("foreign_overwrites"), Said(level, line)]
        if begins:
            line = (
                f"{rival or 'another writer'} keeps writing the NodeResourceTopology of this "
                "node: zones and attributes are repaired each time, annotations other than "
                f"{ownership.OWN_PREFIX} are left to it; stop one of the two writers"
            )
            self._effects += [Measured("sharing", 1.0, how="set"), Said("error", line)]


def _version(obj: JsonObject) -> str:
    return str((obj.get("metadata") or {}).get("resourceVersion") or "")


def _status(error: errors.RteError) -> tuple[int, str, float]:
    """Status, reason and Retry-After of the API server's answer; 0 where there is none."""
    if isinstance(error, errors.KubeError):
        return error.status, error.reason, error.retry_after
    return 0, "", 0.0


def _hint(error: errors.RteError) -> str:
    if not isinstance(error, errors.KubeError):
        return str(error)
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
