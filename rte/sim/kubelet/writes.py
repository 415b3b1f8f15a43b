"""What a kubelet writes into the API about its pods: status, events, and that they are gone."""

from __future__ import annotations

import secrets
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from rte.sim.apiserver import DeleteOptions, StatusError
from rte.sim.apiserver.verbs import changing

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rte.sim.apiserver import API
    from rte.sim.kubelet.status import Obj


def moment() -> str:
    """Now, as objects carry it."""
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


@contextmanager
def _unless(*codes: int) -> Iterator[None]:
    """An answer that only says that somebody was faster is no error."""
    try:
        yield
    except StatusError as error:
        if error.status not in codes:
            raise


class PodWriter:
    """Writes for the kubelet of a node."""

    def __init__(self, api: API, node: str) -> None:
        self._api, self._node = api, node

    def status(self, pod: Obj, body: Obj) -> Obj:
        """Write a pod's status; returns the pod then."""
        metadata = pod["metadata"]
        with _unless(404, 409, 422):  # gone, or another pod of the same name
            pod = self._api.patch(
                "pods",
                metadata["name"],
                {"metadata": {"uid": metadata["uid"]}, "status": body},
                metadata["namespace"],
                content_type=changing.STRATEGIC_PATCH,
                subresource="status",
            )
        return pod  # noqa: RET504 (as it was, if somebody was faster)

    def delete(self, pod: Obj) -> None:
        """Nothing of it is left on the node."""
        metadata = pod["metadata"]
        options = DeleteOptions(grace=0, uid=metadata["uid"])
        with _unless(404, 409):  # gone already
            self._api.delete("pods", metadata["name"], metadata["namespace"], options)

    def event(self, pod: Obj, kind: str, reason: str, message: str) -> None:
        """An event about a pod."""
        metadata, now = pod["metadata"], moment()
        involved = ("namespace", "name", "uid", "resourceVersion")
        event = {
            "metadata": {"name": f"{metadata['name'][:200]}.{secrets.token_hex(8)}"},
            "involvedObject": {
                "kind": "Pod",
                "apiVersion": "v1",
                **{key: metadata[key] for key in involved},
            },
            "reason": reason,
            "message": message,
            "source": {"component": "kubelet", "host": self._node},
            "firstTimestamp": now,
            "lastTimestamp": now,
            "count": 1,
            "type": kind,
            "reportingComponent": "kubelet",
            "reportingInstance": self._node,
        }
        with _unless(403, 404):  # the namespace is being deleted
            self._api.create("events", event, metadata["namespace"])
