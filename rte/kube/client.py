"""A thin client of the API server: JSON over HTTP, errors as values of one type."""

from __future__ import annotations

import os
import socket
import ssl
from typing import TYPE_CHECKING, Any, Final

import aiohttp
import orjson

from rte import __version__, errors
from rte.reader import jsontext

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Mapping
    from typing import Self

    from rte.kube.credentials import Credentials
    from rte.reader.json import Json, JsonValue

JSON: Final = "application/json"
MERGE_PATCH: Final = "application/merge-patch+json"
JSON_PATCH: Final = "application/json-patch+json"
STRATEGIC_PATCH: Final = "application/strategic-merge-patch+json"
APPLY: Final = "application/apply-patch+yaml"

#: The server keeps idle connections for 90 s; a warm one saves the TLS handshake.
_KEEPALIVE_S = 75.0

#: ``reason`` of an error when the server's certificate does not verify.
UNVERIFIED: Final = "Unverified"

_FAILURES = (aiohttp.ClientError, OSError, TimeoutError)


class Client:
    """One API server over pooled connections. An async context manager; one per process is enough.

    ``timeout_s`` is for a whole request (watches aside), ``component`` names the user agent.
    """

    def __init__(
        self,
        credentials: Credentials,
        *,
        timeout_s: float = 10.0,
        component: str = "rte",
        connections: int = 64,
    ) -> None:
        self.credentials = credentials
        self._timeout_s = timeout_s
        self._component = component
        self._connections = connections
        self._session: aiohttp.ClientSession | None = None
        self._apart: list[Client] = []

    async def __aenter__(self) -> Self:
        self.open()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    def open(self) -> None:
        """Requests may be made from now on."""
        connector = aiohttp.TCPConnector(limit=self._connections, keepalive_timeout=_KEEPALIVE_S)
        headers = {"User-Agent": f"{self._component}/{__version__}", "Accept": JSON}
        self._session = aiohttp.ClientSession(connector=connector, headers=headers)
        for other in self._apart:
            other.open()

    async def close(self) -> None:
        """End all connections."""
        for other in self._apart:
            await other.close()
        if self._session:
            await self._session.close()

    def apart(self, connections: int) -> Client:
        """A client with connections of its own, which nothing else can occupy; ends with this."""
        other = Client(
            self.credentials,
            timeout_s=self._timeout_s,
            component=self._component,
            connections=connections,
        )
        self._apart.append(other)
        if self._session:
            other.open()
        return other

    async def get(self, path: str, **params: str) -> JsonValue:
        """Read one object, or list a collection."""
        return await self.request("GET", path, params=params)

    async def create(self, path: str, body: Json) -> JsonValue:
        """Post an object to a collection (or to a subresource such as ``binding``)."""
        return await self.request("POST", path, body=body)

    async def update(self, path: str, body: Json) -> JsonValue:
        """Replace an object; its ``resourceVersion``, where given, must still be current."""
        return await self.request("PUT", path, body=body)

    async def patch(self, path: str, body: JsonValue, *, kind: str = MERGE_PATCH) -> JsonValue:
        """Patch an object; a merge patch that names a ``resourceVersion`` is guarded by it."""
        return await self.request("PATCH", path, body=body, content_type=kind)

    async def delete(self, path: str, body: Json | None = None) -> JsonValue:
        """Delete an object; ``body`` is a DeleteOptions."""
        return await self.request("DELETE", path, body=body)

    async def request(
        self,
        method: str,
        path: str,
        *,
        body: JsonValue = None,
        params: Mapping[str, str] | None = None,
        content_type: str = JSON,
        timeout_s: float | None = None,
    ) -> JsonValue:
        """One request; the decoded JSON answer, or text where the answer is not JSON.

        Raises:
            errors.KubeError: refused (``status``, ``reason``, ``retry_after``), or no answer
                (``status`` 0).
        """
        response = await self._send(
            method,
            path,
            aiohttp.ClientTimeout(total=timeout_s or self._timeout_s),
            params=params or None,
            data=None if body is None else orjson.dumps(body),
            headers={} if body is None else {"Content-Type": content_type},
        )
        data = await self._read(response)
        if not response.content_type.endswith("json"):
            return data.decode(errors="replace")
        try:
            return jsontext.answer(data, "answer")
        except errors.MalformedError as error:
            raise errors.KubeError(
                f"{method} {path}: the answer is not JSON: {error.why}"
            ) from None

    async def stream(
        self, path: str, params: Mapping[str, str], *, silence_s: float
    ) -> AsyncGenerator[JsonValue, None]:
        """The JSON lines of a long answer (a watch), until the server ends it.

        Raises:
            errors.KubeError: refused, cut off, not JSON, or nothing heard for ``silence_s``.
        """
        limit = aiohttp.ClientTimeout(sock_connect=self._timeout_s, sock_read=silence_s)
        response = await self._send("GET", path, limit, params=params, headers={})
        _find_dead_peers(response)
        rest = b""
        try:
            async for chunk in response.content.iter_any():
                *lines, rest = (rest + chunk).split(b"\n") if b"\n" in chunk else (rest + chunk,)
                for line in lines:
                    yield jsontext.answer(line, "event")
        except errors.MalformedError as error:
            raise errors.KubeError(f"watch {path}: not JSON: {error.why}") from None
        except _FAILURES as error:
            raise self._unreachable(error) from error
        finally:
            response.close()

    async def _send(
        self, method: str, path: str, limit: aiohttp.ClientTimeout, **options: Any
    ) -> aiohttp.ClientResponse:
        """The response, its status good; a 401 or an unknown CA is tried once more, re-read."""
        if self._session is None:
            raise RuntimeError("Client is used outside its context")
        access = self.credentials
        for last in (False, True):
            token = await access.authorization()
            if token:
                options["headers"] = {**options["headers"], "Authorization": token}
            try:
                response = await self._session.request(
                    method,
                    access.server + path,
                    timeout=limit,
                    ssl=access.context() or True,
                    server_hostname=access.server_name or None,
                    proxy=access.proxy or None,
                    allow_redirects=False,
                    **options,
                )
            except aiohttp.ClientConnectorCertificateError as error:
                if last:
                    raise self._unreachable(error) from error
                access.reload_ca()
                continue
            except _FAILURES as error:
                raise self._unreachable(error) from error
            if response.status < 300:
                return response
            refusal = _refusal(method, path, response, await self._read(response))
            if last or response.status != 401 or await access.authorization() == token:
                raise refusal
        raise AssertionError("the second round returns or raises")

    async def _read(self, response: aiohttp.ClientResponse) -> bytes:
        try:
            return await response.read()
        except _FAILURES as error:
            raise self._unreachable(error) from error
        finally:
            response.release()

    def _unreachable(self, error: BaseException) -> errors.KubeError:
        unknown = isinstance(
            error, aiohttp.ClientSSLError | aiohttp.ClientConnectorCertificateError
        )
        return errors.KubeError(
            f"no answer from {self.credentials.server}: {_cause(error)}",
            reason=UNVERIFIED if unknown else "",
        )


def _cause(error: BaseException) -> str:
    """In words what aiohttp wraps: who asks knows the address, and nobody its objects."""
    inner: BaseException = error
    if isinstance(error, aiohttp.ClientConnectorCertificateError):
        inner = error.certificate_error
    elif isinstance(error, aiohttp.ClientConnectorError):
        inner = error.os_error
    if isinstance(inner, ssl.SSLCertVerificationError):
        return f"its certificate is not valid: {inner.verify_message.rstrip('.')}"
    if isinstance(inner, ssl.SSLError):
        return f"no TLS with it: {(inner.reason or str(inner)).replace('_', ' ').lower()}"
    if isinstance(inner, OSError) and (inner.errno or 0) > 0:
        return os.strerror(inner.errno or 0)
    text = inner.strerror if isinstance(inner, OSError) else None
    return " ".join((text or str(inner)).split()) or type(error).__name__


def _refusal(method: str, path: str, response: JsonValue, data: bytes) -> errors.KubeError:
    """The error that a Status object (or a proxy's plain text) describes, on one line."""
    reason, message = "", data[:300].decode(errors="replace")
    try:
        status = jsontext.answer(data, "refusal")
        if isinstance(status, dict):
            reason, message = str(status.get("reason") or ""), str(status.get("message") or "")
    except errors.MalformedError:
        pass
    after = response.headers.get("Retry-After", "")
    title = f"{response.status} {reason or response.reason or ''}"
    return errors.KubeError(
        f"{method} {path}: {title}: {' '.join(message.split())[:500]}",
        status=response.status,
        reason=reason,
        retry_after=float(after) if after.isascii() and after.isdigit() else 0.0,
    )


def _find_dead_peers(response: aiohttp.ClientResponse) -> None:
    """Let the kernel notice a dead peer within 30 s: a watch itself may be silent for minutes."""
    transport = response.connection.transport if response.connection else None
    sock: socket.socket | None = transport.get_extra_info("socket") if transport else None
    if sock is not None and sock.family in (socket.AF_INET, socket.AF_INET6):
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        for option, value in (("KEEPIDLE", 15), ("KEEPINTVL", 5), ("KEEPCNT", 3)):
            sock.setsockopt(socket.IPPROTO_TCP, getattr(socket, f"TCP_{option}"), value)
