"""Keeps the NodeResourceTopology object in the API server equal to the latest observation."""

from __future__ import annotations

import asyncio
import logging
import random
import time
from collections import deque
from contextlib import aclosing
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import orjson

from rte import errors
from rte.agent import ownership
from rte.agent.learn import NO_SUCH_NODE
from rte.kube import retry
from rte.kube.resources import NRTS
from rte.kube.watch import watch

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    import tenacity

    from rte.agent.mailbox import Mailbox
    from rte.kube.client import Client
    from rte.kube.watch import Event
    from rte.telemetry.health import Readiness
    from rte.telemetry.metrics import AgentMetrics

logger = logging.getLogger(__name__)

#: What the API server takes our field manager to be (the user agent's first part).
FIELD_MANAGER = "rte-agent"


@dataclass(frozen=True, slots=True)
class Observation:
    """An NRT object to publish, and when (``time.monotonic``) its cause was noticed."""

    object: dict[str, Any]
    noticed: float


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


class KubeSink:
    """The only writer of this node's object, as far as others let it be.

    It never writes when nothing of ours differs. While a write is under way observations coalesce
    in the mailbox, so after an outage there is one write, of the latest state.
    """

    def __init__(
        self,
        client: Client,
        node_name: str,
        mailbox: Mailbox[Observation],
        *,
        metrics: AgentMetrics,
        readiness: Readiness,
        pace: Pace = Pace(),
        tolerance: ownership.Tolerance | None = None,
        before_create: Callable[[], Awaitable[None]] | None = None,
    ) -> None:
        self._client = client
        self._name = node_name
        self._mailbox = mailbox
        self._metrics = metrics
        self._readiness = readiness
        self._pace = pace
        self._tolerance = tolerance or ownership.Tolerance()
        self._wanted: Observation | None = None
        self._confirmed: Observation | None = None
        self._stored: dict[str, Any] | None = None
        self._unstorable: dict[str, Any] = {}
        self._published: set[str] = set()
        self._own_versions: deque[str] = deque(maxlen=64)
        self._seen: list[Event] = []
        self._trigger = "start"
        self._next_repair = 0.0
        self._complaint = ""
        self._before_create = before_create
        self._adopts = True
        self.first_publish = asyncio.Event()

    def behind_since(self) -> float | None:
        """Since when (``time.monotonic``) the API server lacks the current state; None if not."""
        wanted = self._wanted
        if wanted is None:
            return 0.0
        return None if wanted is self._confirmed else wanted.noticed

    async def run(self) -> None:
        """Publish until cancelled."""
        loop = asyncio.get_running_loop()
        next_resync = loop.time() + self._resync_interval()
        while True:
            timeout = next_resync - loop.time()
            if self._tolerance.sharing:
                timeout = min(timeout, self._tolerance.quiet_for(time.monotonic()) + 0.001)
                if self._trigger == "repair":
                    timeout = min(timeout, self._next_repair - time.monotonic())
            try:
                async with asyncio.timeout(max(0.0, timeout)):
                    await self._mailbox.wait()
            except TimeoutError:
                if loop.time() >= next_resync:
                    self._forget("resync")
                    next_resync = loop.time() + self._resync_interval()
            self._claim_when_quiet()
            await self._settle()

    async def flush(self) -> None:
        """Write the last observation, one attempt: for the end of the process.

        Raises:
            errors.KubeError: it could not be written.
        """
        self._take()
        if self._wanted is None or self._wanted is self._confirmed:
            return
        try:
            await self._sync()
        except errors.KubeError as error:
            if error.status != 409:
                raise
            # The write that the end of the process cut off has been stored all the same.
            await self._sync()

    async def follow(self) -> None:
        """Watch the object, so that what others do to it is noticed; until cancelled."""
        while True:
            try:
                events = watch(
                    self._client, NRTS.path(), field_selector=f"metadata.name={self._name}"
                )
                async with aclosing(events):
                    async for event in events:
                        self._seen.append(event)
                        self._mailbox.poke()
            except errors.KubeError as error:
                # The sink itself reports what is wrong; without this watch it repairs at a resync.
                logger.debug("own object is not watched: %s", error)
            await asyncio.sleep(self._pace.last_retry * random.uniform(0.5, 1.0))  # noqa: S311

    def _resync_interval(self) -> float:
        return self._pace.resync * random.uniform(0.7, 1.0)  # noqa: S311 - spreads load

    def _forget(self, trigger: str) -> None:
        self._stored = None
        self._confirmed = None
        self._unstorable = {}
        self._adopts = True
        self._trigger = trigger

    def _take(self) -> None:
        """Make the latest observation the wanted one; an equal object is not a new one."""
        latest = self._mailbox.take()
        if latest is None:
            return
        if self._wanted is None or latest.object != self._wanted.object:
            self._wanted = latest
            if self._trigger == "repair":
                self._trigger = "change"

    async def _settle(self) -> None:
        """Bring the object to the latest observation, however long the API server is away."""
        self._take()
        self._digest()
        if self._wanted is None or self._wanted is self._confirmed:
            return
        now = time.monotonic()
        if self._trigger == "repair" and self._tolerance.sharing and now < self._next_repair:
            return
        attempts = retry.forever(
            retry_on=lambda error: isinstance(error, errors.KubeError),
            before_sleep=self._failed,
            first_s=self._pace.first_retry,
            most_s=self._pace.last_retry,
        )
        async for attempt in attempts:
            with attempt:
                await self._sync()

    async def _sync(self) -> None:
        """One attempt.

        Raises:
            errors.KubeError: the object is not (known to be) as wanted.
        """
        self._take()
        self._digest()
        wanted = self._wanted
        if wanted is None:
            return
        if self._stored is None:
            try:
                self._stored = await self._client.get(NRTS.path(self._name))
            except errors.KubeError as error:
                if error.status != 404:
                    raise
                if self._before_create is not None:
                    # Whoever deleted it may have been the garbage collector: its Node is a new one.
                    await self._before_create()
                    self._take()
                    wanted = self._wanted or wanted
                await self._create(wanted)
            self._published |= ownership.annotations_of(self._stored or {}, FIELD_MANAGER)
        patch = self._patch_for(wanted)
        if patch and patch != self._unstorable:
            try:
                await self._update(wanted, patch)
            except errors.KubeError as error:
                if error.status != 403 or "ownerReferences" not in patch.get("metadata", {}):
                    raise
                # With OwnerReferencesPermissionEnforcement only who may delete it may adopt it.
                self._adopts = False
                if rest := self._patch_for(wanted):
                    await self._update(wanted, rest)
                logger.warning(
                    "the NodeResourceTopology was made by somebody else and stays when the Node "
                    "goes: allow delete on noderesourcetopologies, or delete it once (%s)",
                    error,
                )
        self._confirm(wanted)

    async def _create(self, wanted: Observation) -> None:
        stored = await self._client.create(NRTS.path(), wanted.object)
        self._accepted(stored, wanted, "create", len(orjson.dumps(wanted.object)))

    async def _update(self, wanted: Observation, patch: dict[str, Any]) -> None:
        """Send back what is stored, patched: refused if anybody has written since.

        The API server would do the same with the patch, but more slowly: it would have to encode
        the object for it and decode the result.
        """
        assert self._stored is not None  # noqa: S101 - _sync has just read it
        body = ownership.apply(patch, self._stored)
        # Items of a list need not have a kind. Without managed fields the server keeps its own.
        body |= {name: wanted.object[name] for name in ("apiVersion", "kind")}
        body["metadata"] = {**body["metadata"], "managedFields": []}
        try:
            stored = await self._client.update(NRTS.path(self._name), body)
        except errors.KubeError as error:
            if error.status in (404, 409, 410, 422):
                self._stored = None
            raise
        self._accepted(stored, wanted, "update", len(orjson.dumps(body)))

    def _accepted(
        self, stored: dict[str, Any], wanted: Observation, operation: str, size: int
    ) -> None:
        self._stored = stored
        self._own_versions.append(str(stored["metadata"]["resourceVersion"]))
        self._published = set((wanted.object["metadata"].get("annotations") or {}).keys())
        self._metrics.writes.labels(operation, self._trigger).inc()
        self._metrics.write_bytes.observe(size)
        if self._trigger in ("start", "change"):
            self._metrics.publish_seconds.observe(time.monotonic() - wanted.noticed)
        if self._trigger == "repair":
            self._next_repair = time.monotonic() + self._pace.shared_repair
        left = self._patch_for(wanted)
        if left and left != self._unstorable:
            # Writing it again would change nothing and never end.
            logger.warning(
                "the API server does not store all that was sent (%s): is the CRD complete?",
                ", ".join(sorted(left)),
            )
        self._unstorable = left

    def _confirm(self, wanted: Observation) -> None:
        self._confirmed = wanted
        self._trigger = "change"
        self._metrics.last_publish.set_to_current_time()
        self._readiness.met("published")
        self.first_publish.set()
        if self._complaint:
            self._complaint = ""
            logger.info("publishing works again")

    def _patch_for(self, wanted: Observation) -> dict[str, Any]:
        return ownership.difference(
            self._stored or {},
            wanted.object,
            self._published,
            sharing=self._tolerance.sharing,
            adopts=self._adopts,
        )

    async def _failed(self, state: tenacity.RetryCallState) -> None:
        error = state.outcome.exception() if state.outcome else None
        if not isinstance(error, errors.KubeError):
            return
        self._metrics.write_failures.labels(str(error.status)).inc()
        if error.status in (404, 409, 410, 422):
            self._stored = None
        hint = _hint(error)
        if error.status == 409 and state.attempt_number < 3:
            return
        if hint != self._complaint:
            self._complaint = hint
            logger.error("cannot publish, will keep trying: %s (%s)", hint, error)

    def _digest(self) -> None:
        """Learn from what the watch has seen since the last time."""
        events, self._seen = self._seen, []
        for event in events:
            if event.kind == "LISTED":
                items = event.object.get("items") or []
                obj = items[0] if items else None
            else:
                obj = None if event.kind == "DELETED" else event.object
            self._noticed(obj, _version(obj or event.object))

    def _noticed(self, obj: dict[str, Any] | None, version: str) -> None:
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
        now = time.monotonic()
        begins = self._tolerance.foreign_write(now, ours_overwritten=harmed)
        if harmed:
            self._metrics.foreign_overwrites.inc()
            self._confirmed = None
            self._trigger = "repair"
            rival = ownership.last_foreign_writer(obj or {}, FIELD_MANAGER)
            logger.warning(
                "our NodeResourceTopology was %s by %s; repairing it",
                "deleted" if obj is None else "changed",
                rival or "somebody",
            )
            if begins:
                self._metrics.sharing.set(1)
                logger.error(
                    "%s keeps writing the NodeResourceTopology of this node: from now on only "
                    "annotations under %s are maintained; stop one of the two writers",
                    rival or "another writer",
                    ownership.OWN_PREFIX,
                )

    def _claim_when_quiet(self) -> None:
        tolerance = self._tolerance
        if tolerance.sharing and tolerance.quiet_for(time.monotonic()) == 0:
            tolerance.claim()
            self._metrics.sharing.set(0)
            logger.info("no other writer seen for a while: maintaining the whole object again")
            self._forget("resync")


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
