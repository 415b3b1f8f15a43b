"""Connections of an HTTP listener, in number, bytes and time.

aiohttp sees a connection once the whole head of a request is there, and its body once the handler
asks for it: until then a connection costs its head, whose size and time are bounded. Where too
many wait, the one that waits longest makes room, of the caller that has most: a prober gets
through whatever else comes.
"""

from __future__ import annotations

import asyncio
import ipaddress
import logging
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, cast

from aiohttp import web

if TYPE_CHECKING:
    import ssl
    from collections.abc import Callable

logger = logging.getLogger(__name__)

#: One read of a socket; what a connection sends before anybody has asked for it.
READ_BYTES = 16 << 10
#: The client of a request that is refused unread gets this long to take the answer.
LINGER_S = 1.0
#: How much of a request that is refused is read and thrown away, so that the answer arrives.
_LINGER_BYTES = 1 << 20
#: Between two lines of the log about callers that are turned away.
_SAY_AGAIN_S = 60.0


@dataclass(frozen=True, kw_only=True, slots=True)
class Limits:
    """What one listener allows.

    Attributes:
        connections: in all.
        of_caller: of one address (IPv6: of a /64), where it is not this machine.
        streams_of_caller: answers without an end, of one address likewise; in all they take half
            of the connections at most.
        head_s: for the head of a request, and for TLS.
        idle_s: for the next request of a connection that was answered.
        request_s: for one answer, its body included.
        head_bytes: of request line and headers.
        body_bytes: of one request.
        bodies_bytes: of all requests that are being answered.
    """

    connections: int = 64
    of_caller: int = 32
    streams_of_caller: int = 8
    head_s: float = 5.0
    idle_s: float = 75.0
    request_s: float = 30.0
    head_bytes: int = 32 << 10
    body_bytes: int = 1 << 20
    bodies_bytes: int = 4 << 20


class Door:
    """All connections of a listener."""

    def __init__(
        self,
        serve: Callable[[], asyncio.Protocol],
        limits: Limits,
        address: str,
        context: ssl.SSLContext | None,
        turned_away: Callable[[], None],
    ) -> None:
        self.serve = serve
        self._turned_away = turned_away
        self.limits = limits
        self.context = context
        self.loop = asyncio.get_running_loop()
        #: Everybody's: it is emptied before the next read.
        self.buffer = memoryview(bytearray(READ_BYTES))
        self.bodies = 0
        self.open: set[Connection] = set()
        self._address = address
        self._of: Counter[str] = Counter()
        self._silent_until = 0.0

    def admit(self, new: Connection) -> bool:
        """Take a connection in, where need be for another one that waits."""
        limits = self.limits
        of_caller = limits.of_caller if new.caller else limits.connections
        if self._of[new.caller] >= of_caller:
            crowd = [each for each in self.open if each.caller == new.caller]
        else:
            crowd = list(self.open) if len(self.open) >= limits.connections else []
        if crowd:
            self._turned_away()
            self._say(new.caller)
            waiting = [each for each in crowd if each.waits()]
            if not waiting:
                return False
            # Who has served before is more likely to be a friend.
            min(waiting, key=self._worth).end()
        self.open.add(new)
        self._of[new.caller] += 1
        return True

    def _worth(self, one: Connection) -> tuple[int, bool, float]:
        return -self._of[one.caller], one.has_served and not one.is_unread(), one.since

    def forget(self, gone: Connection) -> None:
        """A connection has ended."""
        if gone in self.open:
            self.open.remove(gone)
            self._of[gone.caller] -= 1
            if not self._of[gone.caller]:
                del self._of[gone.caller]

    async def close(self) -> None:
        """End them all."""
        greetings = [each.greeting for each in self.open if each.greeting]
        for each in tuple(self.open):
            each.end()
        await asyncio.gather(*greetings)

    def _say(self, caller: str) -> None:
        now = self.loop.time()
        if now >= self._silent_until:
            self._silent_until = now + _SAY_AGAIN_S
            logger.warning(
                "too many connections at %s: the longest waiting are closed; the last caller is %s",
                self._address,
                caller or "this machine",
            )


class Connection(asyncio.BufferedProtocol):
    """One connection: waits for a head, or has a request in hand."""

    def __init__(self, door: Door) -> None:
        self.caller = ""
        self.since = 0.0
        self.has_served = False
        self.limit: asyncio.Timeout | None = None
        self.greeting: asyncio.Task[None] | None = None
        self._door = door
        #: The socket; with TLS what is above it comes later.
        self._plain: asyncio.Transport | None = None
        self._transport: asyncio.Transport | None = None
        self._inner: asyncio.Protocol | None = None
        self._head = bytearray()
        #: Bytes of the body in hand that are still to come; None: no request is in hand.
        self._left: int | None = None
        self._reserved = 0
        #: What is thrown away yet of a request that was refused; None: it was not.
        self._refused: int | None = None
        self._is_stream = False
        self._alarm: asyncio.TimerHandle | None = None

    @property
    def request_s(self) -> float:
        """Time for one answer."""
        return self._door.limits.request_s

    def waits(self) -> bool:
        """No handler is at work: what aiohttp has not taken for a request may never become one."""
        return self.limit is None

    def is_unread(self) -> bool:
        """The caller has not taken all of the last answer yet."""
        plain = self._plain
        return plain is not None and plain.get_write_buffer_size() > 0

    # asyncio's side

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Somebody calls."""
        self._plain = plain = cast("asyncio.Transport", transport)
        peer = transport.get_extra_info("peername")
        self.caller = caller_of(peer[0]) if peer else ""
        if not self._door.admit(self):
            plain.abort()
            return
        self._expect(self._door.limits.head_s)
        if self._door.context is None:
            self._transport = plain
        else:
            plain.pause_reading()
            self.greeting = self._door.loop.create_task(self._greet(plain, self._door.context))

    async def _greet(self, plain: asyncio.Transport, context: ssl.SSLContext) -> None:
        """TLS: only for those who were admitted, because its buffers cost most."""
        try:
            self._transport = await self._door.loop.start_tls(
                plain,
                self,
                context,
                server_side=True,
                ssl_handshake_timeout=self._door.limits.head_s,
                ssl_shutdown_timeout=LINGER_S,
            )
        except OSError as error:
            logger.debug("no TLS with %s: %s", self.caller, error)
        if self._transport is not None:
            self._take_head(0)
        else:  # asyncio tells nobody of a connection that ends before its TLS is complete
            plain.abort()
            self.connection_lost(None)

    def get_buffer(self, sizehint: int) -> memoryview:  # noqa: ARG002 - asyncio's
        """Where the next bytes go."""
        return self._door.buffer

    def buffer_updated(self, nbytes: int) -> None:
        """Bytes have come."""
        data = bytes(self._door.buffer[:nbytes])
        if self._refused is not None:
            self._refused -= nbytes
            if self._refused < 0 and self._transport is not None:
                self._transport.pause_reading()
        elif self._left is not None:
            self._take_body(data)
        else:
            if not self._head and self._inner is not None:
                self._expect(self._door.limits.head_s)
            self._head += data
            self._take_head(max(0, len(self._head) - nbytes - 3))

    def pause_writing(self) -> None:
        """The caller reads slowly."""
        if self._inner is not None:
            self._inner.pause_writing()

    def resume_writing(self) -> None:
        """The caller has caught up."""
        if self._inner is not None:
            self._inner.resume_writing()

    def connection_lost(self, exc: Exception | None) -> None:
        """It is over."""
        self._door.forget(self)
        if self._alarm is not None:
            self._alarm.cancel()
        self._head.clear()
        self._release()
        inner, self._inner = self._inner, None
        if inner is not None:
            inner.connection_lost(exc)

    # The request

    def _take_head(self, begin: int) -> None:
        limits, transport = self._door.limits, self._transport
        end = self._head.find(b"\r\n\r\n", begin) + 4
        if end < 4:
            # What is no HTTP aiohttp says at once.
            end = len(self._head) if self._head and not chr(self._head[0]).isalpha() else 0
        if (end or len(self._head)) > limits.head_bytes:
            self.end()
        elif end and transport is not None:  # None: TLS is not complete
            head = bytes(self._head[:end])
            del self._head[:end]
            self._left = 0
            transport.pause_reading()
            self._expect(limits.request_s + limits.head_s)
            if self._inner is None:
                self._inner = self._door.serve()
                self._inner.connection_made(transport)
            self._inner.data_received(head)

    def admit_body(self, request: web.Request) -> None:
        """Let the body of the request in hand come.

        Raises:
            web.HTTPException: it is too much.
        """
        if not request.body_exists:
            return
        length, limits = request.content_length, self._door.limits
        if length is None:
            raise web.HTTPLengthRequired(text="give a Content-Length\n")
        if length > limits.body_bytes:
            raise web.HTTPRequestEntityTooLarge(max_size=limits.body_bytes, actual_size=length)
        if self._door.bodies + length > limits.bodies_bytes:
            raise web.HTTPServiceUnavailable(
                text="too many requests at once\n", headers={"Retry-After": "1"}
            )
        self._door.bodies += length
        self._reserved = self._left = length
        early, self._head = bytes(self._head), bytearray()
        self._take_body(early)
        if self._transport is not None:
            self._transport.resume_reading()

    def keep_open(self) -> None:
        """The answer is a stream."""
        limits = self._door.limits
        streams = [each for each in self._door.open if each._is_stream]  # noqa: SLF001 - of its own kind
        own = sum(each.caller == self.caller for each in streams)
        if len(streams) >= limits.connections // 2 or (
            self.caller and own >= limits.streams_of_caller
        ):
            raise web.HTTPServiceUnavailable(text="too many listen already\n")
        self._is_stream = True
        if self.limit is not None:
            self.limit.reschedule(None)
        if self._alarm is not None:
            self._alarm.cancel()
        if self._transport is not None:
            self._transport.resume_reading()  # so that its end is seen

    def has_unread(self, request: web.Request) -> bool:
        """Whether a part of the request was not read: no other one can follow it."""
        return bool(self._left or self._head or (request.body_exists and not self._reserved))

    def answered(self, request: web.Request) -> None:
        """The handler is through with the request in hand."""
        unread = self.has_unread(request)
        self._release()
        self.limit, self._is_stream, self._left = None, False, None
        transport = self._transport
        if transport is None or transport.is_closing():
            return
        self.has_served = True
        if unread:
            self._head.clear()
            self._refused = _LINGER_BYTES
            self._expect(2 * LINGER_S)
        else:
            self._expect(self._door.limits.idle_s)
        transport.resume_reading()

    def _take_body(self, data: bytes) -> None:
        assert self._left is not None  # noqa: S101 - a request is in hand
        if len(data) > self._left:
            self.end()  # nobody sends the next request before the answer to the last one
            return
        self._left -= len(data)
        if data and self._inner is not None:
            self._inner.data_received(data)

    def _release(self) -> None:
        self._door.bodies -= self._reserved
        self._reserved = 0

    def _expect(self, seconds: float) -> None:
        """End the connection unless it goes on within this time."""
        self.since = self._door.loop.time()
        if self._alarm is not None:
            self._alarm.cancel()
        self._alarm = self._door.loop.call_later(seconds, self.end)

    def end(self) -> None:
        """Close at once, whatever is on its way."""
        self._door.forget(self)
        if self._plain is not None:
            self._plain.abort()


def caller_of(host: str) -> str:
    """The address that limits go by, empty for this machine. One IPv6 address has its /64."""
    try:
        address = ipaddress.ip_address(host.partition("%")[0])
    except ValueError:
        return host
    if isinstance(address, ipaddress.IPv6Address):
        address = address.ipv4_mapped or address
    if address.is_loopback:
        return ""
    if isinstance(address, ipaddress.IPv6Address):
        return str(ipaddress.ip_network((address, 64), strict=False))
    return str(address)
