"""A Lease that shows that its holder lives."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from rte import errors
from rte.kube.resources import LEASES

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping, Sequence

    from rte.kube.client import Client


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
        owners: Callable[[], Awaitable[Sequence[Mapping[str, Any]]]] | None = None,
    ) -> None:
        self._client = client
        self._path = LEASES.path(name, namespace)
        self._collection = LEASES.path(namespace=namespace)
        self._metadata = {
            "name": name,
            "namespace": namespace,
            "labels": dict(labels or {}),
        }
        self._owners = owners
        self._holder = holder
        self._duration_s = duration_s
        self._held = False

    async def renew(self) -> None:
        """Write a fresh ``renewTime``; the Lease is created where it does not exist.

        Raises:
            errors.KubeError: it could not be written.
        """
        now = micro_time(datetime.now(UTC))
        spec: dict[str, Any] = {"renewTime": now}
        if not self._held:
            spec |= {
                "holderIdentity": self._holder,
                "leaseDurationSeconds": self._duration_s,
                "acquireTime": now,
            }
        try:
            await self._client.patch(self._path, {"spec": spec})
        except errors.KubeError as error:
            self._held = False
            if error.status != 404:
                raise
            spec |= {
                "holderIdentity": self._holder,
                "leaseDurationSeconds": self._duration_s,
                "acquireTime": now,
            }
            owners = await self._owners() if self._owners else ()
            metadata = {**self._metadata, "ownerReferences": [dict(owner) for owner in owners]}
            lease = {"apiVersion": LEASES.api_version, "kind": "Lease"}
            await self._client.create(
                self._collection, {**lease, "metadata": metadata, "spec": spec}
            )
        self._held = True

    async def release(self) -> None:
        """Say that nobody holds it; nothing to do where it was never held.

        Raises:
            errors.KubeError: it could not be written.
        """
        if self._held:
            self._held = False
            await self._client.patch(
                self._path, {"spec": {"holderIdentity": None, "leaseDurationSeconds": 1}}
            )


def micro_time(moment: datetime) -> str:
    """The API's ``MicroTime``: RFC 3339 with six decimals."""
    return moment.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
