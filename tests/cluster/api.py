"""A plain JSON client of the API server for tests: objects in, objects out."""

from __future__ import annotations

import json
import time
import urllib.parse
from typing import TYPE_CHECKING, Any

import urllib3

from rte import errors
from tests.cluster.processes import ClusterError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

Object = dict[str, Any]

_PATCHES = {
    "merge": "application/merge-patch+json",
    "json": "application/json-patch+json",
    "strategic": "application/strategic-merge-patch+json",
    "apply": "application/apply-patch+yaml",
}


class Api:
    """One identity's view of the API server. Thread-safe.

    All methods raise :class:`rte.errors.KubeError` with the status code and reason of a refusal.
    ``name`` is the one in the server's certificate, where its address is another.
    """

    def __init__(self, server: str, ca: Path, token: str = "", *, name: str = "") -> None:
        self.server = server
        self.token = token
        headers = {"Accept": "application/json"}
        if token:
            headers["Authorization"] = f"Bearer {token}"
        self._pool = urllib3.PoolManager(
            ca_certs=str(ca),
            headers=headers,
            maxsize=32,
            retries=False,
            assert_hostname=name or None,
        )

    def close(self) -> None:
        """Drop idle connections."""
        self._pool.clear()

    def request(
        self,
        method: str,
        path: str,
        body: Any = None,
        *,
        content_type: str = "application/json",
        timeout: float = 30,
        **query: Any,
    ) -> Any:
        """One request; the answer as JSON (as text where it is none)."""
        response = self._send(method, path, body, content_type, timeout, query, stream=False)
        text = response.data.decode()
        try:
            return json.loads(text) if text else {}
        except ValueError:
            return text

    def get(self, path: str, **query: Any) -> Object:
        """Read one object or a list."""
        return self.request("GET", path, **query)

    def find(self, path: str) -> Object | None:
        """Read one object, None where there is none."""
        try:
            return self.get(path)
        except errors.KubeError as error:
            if error.status == 404:
                return None
            raise

    def create(self, path: str, body: Object) -> Object:
        """POST to a collection."""
        return self.request("POST", path, body)

    def replace(self, path: str, body: Object) -> Object:
        """PUT an object."""
        return self.request("PUT", path, body)

    def patch(self, path: str, body: Any, kind: str = "merge", **query: Any) -> Object:
        """PATCH an object; ``kind`` is merge, json, strategic or apply."""
        return self.request("PATCH", path, body, content_type=_PATCHES[kind], **query)

    def delete(self, path: str, *, grace: int | None = None, missing_ok: bool = True) -> None:
        """Delete an object, or a collection."""
        body: Object = {"apiVersion": "v1", "kind": "DeleteOptions"}
        if grace is not None:
            body["gracePeriodSeconds"] = grace
        try:
            self.request("DELETE", path, body)
        except errors.KubeError as error:
            if error.status != 404 or not missing_ok:
                raise

    def watch(
        self, path: str, *, resource_version: str = "", seconds: float = 600, **query: Any
    ) -> Iterator[tuple[str, Object]]:
        """Events of a collection as (type, object), until ``seconds`` are over.

        Without a resource version it begins with an ADDED event for each object that exists.
        """
        query |= {"watch": "1", "timeoutSeconds": max(1, int(seconds + 0.999))}
        if resource_version:
            query["resourceVersion"] = resource_version
        response = self._send("GET", path, None, "", seconds + 5, query, stream=True)
        buffer = b""
        try:
            for chunk in response.stream(65536):
                *lines, buffer = (buffer + chunk).split(b"\n")
                for line in lines:
                    event = json.loads(line)
                    if event["type"] == "ERROR":
                        raise _failure(int(event["object"].get("code", 0)), event["object"], path)
                    yield event["type"], event["object"]
        except (urllib3.exceptions.ProtocolError, urllib3.exceptions.ReadTimeoutError):
            return
        finally:
            response.close()
            response.release_conn()

    def wait(
        self,
        path: str,
        name: str,
        done: Callable[[Object | None], Any],
        *,
        seconds: float = 90,
        what: str = "",
    ) -> Object | None:
        """Wait, by watch, until ``done`` accepts an object of a collection (None: it is gone).

        Raises:
            ClusterError: not in time; the message holds the object's status.
        """
        deadline = time.monotonic() + seconds
        latest: Object | None = None
        while (left := deadline - time.monotonic()) > 0:
            page = self.get(path, fieldSelector=f"metadata.name={name}")
            latest = next(iter(page["items"]), None)
            if done(latest):
                return latest
            events = self.watch(
                path,
                resource_version=page["metadata"]["resourceVersion"],
                seconds=left,
                fieldSelector=f"metadata.name={name}",
            )
            for kind, obj in events:
                latest = None if kind == "DELETED" else obj
                if done(latest):
                    return latest
        shown = json.dumps((latest or {}).get("status"))[:1500]
        raise ClusterError(f"{what or f'{path}/{name}'}: not within {seconds:g} s; status: {shown}")

    def _send(
        self,
        method: str,
        path: str,
        body: Any,
        content_type: str,
        timeout: float,
        query: dict[str, Any],
        *,
        stream: bool,
    ) -> urllib3.BaseHTTPResponse:
        headers = dict(self._pool.headers)
        if body is not None:
            headers["Content-Type"] = content_type
        url = self.server + path
        if query:
            url += "?" + urllib.parse.urlencode(query)
        try:
            response = self._pool.request(
                method,
                url,
                body=None if body is None else json.dumps(body),
                headers=headers,
                timeout=timeout,
                preload_content=not stream,
            )
        except urllib3.exceptions.HTTPError as error:
            raise errors.KubeError(f"{method} {path}: {error}") from error
        if response.status >= 400:
            raw = response.data.decode(errors="replace")
            response.release_conn()
            try:
                details = json.loads(raw)
            except ValueError:
                details = {"message": raw}
            raise _failure(response.status, details, f"{method} {path}")
        return response


def _failure(status: int, details: Object, what: str) -> errors.KubeError:
    message = f"{what}: {status} {details.get('message', '')}"
    return errors.KubeError(message, status=status, reason=str(details.get("reason", "")))
