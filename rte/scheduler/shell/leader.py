"""One active replica: a Lease, judged by the monotonic clock on both sides.

The holder counts from the moment *before* each successful renewal and stops a margin early; others
count from the moment they saw the Lease change last. No clock of another machine and no wall clock
takes part, so a clock that jumps changes nothing.
"""

from __future__ import annotations

import asyncio
import logging
import math
import os
import socket
import uuid
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from rte import errors
from rte.kube.lease import micro_time
from rte.kube.resources import LEASES

if TYPE_CHECKING:
    from collections.abc import Callable

    from rte.kube.client import Client

logger = logging.getLogger(__name__)

#: No bind starts when less than this part of the lease is left.
_MARGIN = 0.35


@dataclass(frozen=True, kw_only=True)
class _Seen:
    """The Lease as last observed, and when (monotonic) it was first seen so."""

    holder: str
    renewed: str
    duration_s: float
    since: float


class Leader:
    """Holds, renews and gives up one Lease.

    Args:
        client: the API server.
        name: of the Lease.
        namespace: of the Lease.
        lease_s: a holder is replaced when it has not renewed for so long.
        renew_s: time between renewals.
        clock: seconds of a monotonic clock.
        changed: called with True when we become active, with False when we cease to be.
        renewed: called after each renewal: binds may begin that had to wait for it.
    """

    def __init__(
        self,
        client: Client,
        *,
        name: str,
        namespace: str,
        lease_s: float,
        renew_s: float,
        clock: Callable[[], float],
        changed: Callable[[bool], None],
        renewed: Callable[[], None] = lambda: None,
    ) -> None:
        self._client = client
        self._path = LEASES.path(name, namespace)
        self._collection = LEASES.path(namespace=namespace)
        self._metadata = {"name": name, "namespace": namespace}
        self._lease_s = lease_s
        self._renew_s = renew_s
        self._clock = clock
        self._changed = changed
        self._renewed = renewed
        self._until = 0.0
        self._active = False
        self._seen: _Seen | None = None
        self.identity = f"{socket.gethostname()}_{os.getpid()}_{uuid.uuid4().hex[:8]}"

    def left_s(self) -> float:
        """Seconds of the lease that are left, 0 when they are too few to begin anything."""
        left = self._until - self._clock() if self._active else 0.0
        return left if left > self._lease_s * _MARGIN else 0.0

    def may_bind(self) -> bool:
        """Whether enough of the lease is left for a write; asked right before each."""
        return self.left_s() > 0

    async def run(self) -> None:
        """Acquire and renew until cancelled, then give the Lease up."""
        try:
            while True:
                started = self._clock()
                await self._once()
                # Counted from the beginning, so that slow answers do not use up the lease.
                pause = self._renew_s if self._active else self._renew_s / 2
                await asyncio.sleep(max(pause / 10, pause - (self._clock() - started)))
        finally:
            if self._active:
                self._set(active=False)
                await asyncio.shield(self._release())

    async def _once(self) -> None:
        started = self._clock()
        try:
            # Not wait_for: in Python 3.11 it loses a cancellation that comes with the answer.
            async with asyncio.timeout(max(0.2, self._lease_s / 2)):
                held = await self._try(started)
        except (errors.KubeError, TimeoutError) as error:
            held = False
            if not self._active:
                why = str(error) or "no answer in time"
                logger.warning("cannot read or write the Lease %s: %s", self._path, why)
        if held:
            if self._active and not self.may_bind():
                logger.warning("the Lease %s was renewed late: binds had to wait", self._path)
            self._until = started + self._lease_s
            self._set(active=True)
            self._renewed()
        elif self._clock() >= self._until:
            self._set(active=False)

    async def _try(self, now: float) -> bool:
        """One attempt to hold the Lease; True when it is ours from ``now`` on."""
        try:
            lease = await self._client.get(self._path)
        except errors.KubeError as error:
            if error.status != 404:
                raise
            return await self._create()
        spec = lease.get("spec") or {}
        holder = str(spec.get("holderIdentity") or "")
        if holder and holder != self.identity and not self._is_dead(spec, holder, now):
            if self._active:
                # Somebody has taken it: stop at once, whatever is left by our count.
                self._until = now
            return False
        return await self._write(lease, holder)

    def _is_dead(self, spec: dict[str, Any], holder: str, now: float) -> bool:
        renewed = str(spec.get("renewTime") or "")
        seen = self._seen
        if seen is None or (seen.holder, seen.renewed) != (holder, renewed):
            duration = float(spec.get("leaseDurationSeconds") or self._lease_s)
            self._seen = _Seen(holder=holder, renewed=renewed, duration_s=duration, since=now)
            return False
        return now - seen.since > seen.duration_s

    async def _write(self, lease: dict[str, Any], holder: str) -> bool:
        spec = self._spec(lease.get("spec") or {}, taken=holder != self.identity)
        try:
            # Guarded by the resourceVersion of what was read.
            await self._client.update(self._path, {**lease, "spec": spec})
        except errors.KubeError as error:
            if error.status == 409:
                return False
            raise
        return True

    async def _create(self) -> bool:
        lease = {
            "apiVersion": LEASES.api_version,
            "kind": "Lease",
            "metadata": self._metadata,
            "spec": self._spec({}, taken=True),
        }
        try:
            await self._client.create(self._collection, lease)
        except errors.KubeError as error:
            if error.status == 409:
                return False
            raise
        return True

    def _spec(self, old: dict[str, Any], *, taken: bool) -> dict[str, Any]:
        now = micro_time(datetime.now(UTC))
        return {
            **old,
            "holderIdentity": self.identity,
            "leaseDurationSeconds": max(1, round(self._lease_s)),
            "renewTime": now,
            "acquireTime": now if taken else old.get("acquireTime") or now,
            "leaseTransitions": int(old.get("leaseTransitions") or 0) + int(taken and bool(old)),
        }

    async def _release(self) -> None:
        try:
            lease = await self._client.get(self._path)
            spec = lease.get("spec") or {}
            if spec.get("holderIdentity") == self.identity:
                spec = {**spec, "holderIdentity": "", "leaseDurationSeconds": 1}
                await self._client.update(self._path, {**lease, "spec": spec})
        except errors.KubeError as error:
            logger.warning("the Lease could not be given up: %s", error)

    def _set(self, *, active: bool) -> None:
        if active != self._active:
            self._active = active
            logger.info("this replica is %s", "active" if active else "standing by")
            self._changed(active)


class Always:
    """Stands for leader election when there is only one replica."""

    identity = "sole"

    def left_s(self) -> float:
        """For ever."""
        return math.inf

    def may_bind(self) -> bool:
        """Always."""
        return True
