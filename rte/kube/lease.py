"""A Lease that shows that its holder lives."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING

from rte import errors
from rte.kube.resources import LEASES

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping, Sequence

    from rte.kube.client import Client
    from rte.reader.json import Json


class Heartbeat:
    """One Lease, created, renewed and released by its only holder.

    Args:
        client: the API server.
        name: of the Lease.
        namespace: of the Lease.
        holder: identity written into it.
        duration_s: how long after a renewal others take the holder for alive.
        labels: put on the Lease when it is created.
        owners: asked for the owner references when the Lease is created: who owns it may have been
            replaced since the last time.
    """

    def __init__(
        self,
        client: Client,
        name: str,
        namespace: str,
        holder: str,
        *,
        duration_s: int = 40,
        labels: Mapping[str, str] | None = None,
        owners: Callable[[], Awaitable[Sequence[Json]]] | None = None,
    ) -> None:
        self._client = client
        self._path = LEASES.path(name, namespace)
        self._collection = LEASES.path(namespace=namespace)
        self._metadata = {"name": name, "labels": dict(labels or {})}
        self._owners = owners
        self._holder = holder
        self._duration_s = duration_s
        self._acquired = ""
        self._version = ""

    async def renew(self) -> None:
        """Write a fresh ``renewTime``; the Lease is created where it does not exist.

        All fields are written each time: whoever held it before may have given it back meanwhile.

        Raises:
            errors.KubeError: it could not be written.
        """
        now = micro_time(datetime.now(UTC))
        self._acquired = self._acquired or now
        self._version = ""
        spec = {
            "holderIdentity": self._holder,
            "leaseDurationSeconds": self._duration_s,
            "acquireTime": self._acquired,
            "renewTime": now,
        }
        try:
            lease = await self._client.patch(self._path, {"spec": spec})
        except errors.KubeError as error:
            if error.status != 404:
                raise
            owners = await self._owners() if self._owners else ()
            metadata = {**self._metadata, "ownerReferences": [dict(owner) for owner in owners]}
            lease = await self._client.create(
                self._collection, {"metadata": metadata, "spec": spec}
            )
        self._version = str((lease.get("metadata") or {}).get("resourceVersion") or "")

    async def release(self) -> None:
        """Say that nobody holds it; nothing to do where it was never held, or another one has it.

        After a renewal whose answer is not known it is given back whoever has it: another one
        writes all of it with the next renewal.

        Raises:
            errors.KubeError: it could not be written.
        """
        if not self._acquired:
            return
        guard = {"metadata": {"resourceVersion": self._version}} if self._version else {}
        self._version = self._acquired = ""
        spec = {"holderIdentity": None, "leaseDurationSeconds": 1}
        try:
            await self._client.patch(self._path, {**guard, "spec": spec})
        except errors.KubeError as error:
            if error.status not in (404, 409):
                raise


def micro_time(moment: datetime) -> str:
    """The API's ``MicroTime``: RFC 3339 with six decimals."""
    return moment.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
