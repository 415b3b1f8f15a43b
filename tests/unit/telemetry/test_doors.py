"""What a stranger can do to a listener, over real sockets."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import ssl
from itertools import pairwise
from typing import TYPE_CHECKING

import pytest
from aiohttp import web

from rte.telemetry import connections, doors
from rte.telemetry.connections import Limits
from rte.telemetry.tls import TLSFiles
from tests.cluster.certs import Authority

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Coroutine
    from pathlib import Path

HEAD = b"GET /ok HTTP/1.1\r\nHost: localhost\r\n"
SHORT = Limits(connections=4, head_s=0.4, idle_s=0.5, request_s=1.0, body_bytes=1000)


class Listener:
    """A listener with four routes, and what became of requests."""

    def __init__(self) -> None:
        self.port = 0
        self.tls: ssl.SSLContext | None = None
        self.bodies: list[int] = []
        self.asked = self.turned_away = 0
        self.go_on = asyncio.Event()

    def app(self) -> web.Application:
        """The routes."""
        app = web.Application()
        app.router.add_get("/ok", self._ok)
        app.router.add_get("/slow", self._slow)
        app.router.add_get("/long", self._long)
        app.router.add_get("/stream", self._stream)
        app.router.add_post("/body", self._body)
        app.router.add_post("/unread", self._ok)
        return app

    def turn_away(self) -> None:
        """A connection found too many others."""
        self.turned_away += 1

    async def _ok(self, _: web.Request) -> web.Response:
        self.asked += 1
        return web.Response(text="fine")

    async def _slow(self, _: web.Request) -> web.Response:
        self.asked += 1
        await self.go_on.wait()
        return web.Response(text="late")

    async def _long(self, _: web.Request) -> web.Response:
        self.asked += 1
        return web.Response(body=b"x" * (16 << 20))

    async def _stream(self, request: web.Request) -> web.StreamResponse:
        doors.keep_open(request)
        response = web.StreamResponse()
        await response.prepare(request)
        await response.write(b"first")
        await self.go_on.wait()
        await response.write(b"second")
        return response

    async def _body(self, request: web.Request) -> web.Response:
        self.bodies.append(len(await doors.read_body(request)))
        return web.Response(text="read")

    async def call(self, first: bytes = b"") -> Caller:
        """A new connection, on which this was sent."""
        name = "localhost" if self.tls else None
        reader, writer = await asyncio.open_connection(
            "127.0.0.1", self.port, ssl=self.tls, server_hostname=name
        )
        writer.write(first)
        return Caller(reader, writer)


class Caller:
    """One connection."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader, self.writer = reader, writer

    async def answer(self) -> tuple[int, bytes]:
        """Status and body of the next answer; (0, b""): the connection was closed."""
        async with asyncio.timeout(10):
            try:
                head = await self.reader.readuntil(b"\r\n\r\n")
                length = int(head.lower().partition(b"content-length: ")[2].split(b"\r\n")[0])
                return int(head.split()[1]), await self.reader.readexactly(length)
            except (asyncio.IncompleteReadError, OSError):
                return 0, b""

    async def is_closed(self, within: float = 10.0) -> bool:
        """Whether the listener ends the connection in this time."""
        try:
            async with asyncio.timeout(within):
                return not await self.reader.read(65_536)
        except TimeoutError:
            return False
        except OSError:
            return True

    def close(self) -> None:
        """Hang up."""
        self.writer.close()


Start = "Callable[..., Coroutine[None, None, Listener]]"


@pytest.fixture
async def start() -> AsyncIterator[Start]:
    tasks = []

    async def begin(
        limits: Limits = SHORT, tls: TLSFiles | None = None, address: str = "127.0.0.1:0"
    ) -> Listener:
        made = Listener()
        ports: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        serving = doors.listen(
            made.app(), address, started=ports.set_result, limits=limits, tls=tls, shutdown_s=0.1,
            turned_away=made.turn_away,
        )  # fmt: skip
        tasks.append(asyncio.create_task(serving))
        made.port = await ports
        return made

    yield begin
    for task in tasks:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task


async def test_a_connection_serves_one_request_after_another(start: Start):
    caller = await (await start()).call()
    for _ in range(3):
        caller.writer.write(HEAD + b"\r\n")
        assert await caller.answer() == (200, b"fine")
    caller.close()


async def test_a_head_that_comes_in_pieces_is_one_head(start: Start):
    caller = await (await start()).call()
    for number in range(len(HEAD) + 2):
        caller.writer.write((HEAD + b"\r\n")[number : number + 1])
        await caller.writer.drain()
    assert await caller.answer() == (200, b"fine")
    caller.close()


@pytest.mark.parametrize("first", [b"", HEAD])
async def test_who_sends_no_whole_head_is_hung_up_on(start: Start, first: bytes):
    listener = await start()
    caller = await listener.call(first)
    began = asyncio.get_running_loop().time()
    assert await caller.is_closed()
    assert 0.3 < asyncio.get_running_loop().time() - began < 5
    assert listener.asked == 0
    caller.close()


async def test_the_next_head_has_the_same_time(start: Start):
    caller = await (await start()).call(HEAD + b"\r\n")
    await caller.answer()
    caller.writer.write(HEAD)
    assert await caller.is_closed()
    caller.close()


async def test_a_head_is_bounded_in_bytes(start: Start):
    listener = await start(Limits(head_bytes=4096))
    caller = await listener.call(HEAD + b"X: " + b"x" * 8000)
    assert await caller.is_closed()
    assert listener.asked == 0
    caller.close()


async def test_an_idle_connection_ends(start: Start):
    caller = await (await start()).call(HEAD + b"\r\n")
    assert (await caller.answer())[0] == 200
    assert await caller.is_closed()
    caller.close()


async def test_a_prober_gets_through_while_half_sent_heads_come_without_end(start: Start):
    listener = await start(Limits(connections=4, head_s=60))
    crowd = [await listener.call(HEAD) for _ in range(40)]
    prober = await listener.call(HEAD + b"\r\n")
    assert await prober.answer() == (200, b"fine")
    closed = [await each.is_closed(within=0.2) for each in crowd[:36]]
    assert all(closed)
    assert listener.turned_away == 37
    for each in (*crowd, prober):
        each.close()


async def test_between_a_few_strangers_everybody_else_has_a_turn(start: Start):
    listener = await start()
    async with contextlib.AsyncExitStack() as stack:
        for _ in range(100):  # the kernel takes them; the listener has had no turn yet
            crowd = stack.enter_context(socket.socket())
            crowd.settimeout(10)
            crowd.connect(("127.0.0.1", listener.port))
        turned_away = [0]
        while turned_away[-1] < 96:
            await asyncio.sleep(0)
            turned_away.append(listener.turned_away)
    assert max(now - last for last, now in pairwise(turned_away)) <= 16


async def test_who_has_been_served_stays_while_strangers_make_room(start: Start):
    listener = await start(Limits(connections=4, head_s=60))
    friend = await listener.call(HEAD + b"\r\n")
    await friend.answer()
    crowd = [await listener.call(HEAD) for _ in range(20)]
    friend.writer.write(HEAD + b"\r\n")
    assert await friend.answer() == (200, b"fine")
    for each in (*crowd, friend):
        each.close()


async def test_beyond_the_limit_of_requests_in_hand_nobody_is_let_in(start: Start):
    listener = await start(Limits(connections=2))
    busy = [await listener.call(HEAD.replace(b"/ok", b"/slow") + b"\r\n") for _ in range(2)]
    async with asyncio.timeout(10):
        while listener.asked < 2:
            await asyncio.sleep(0)
    third = await listener.call()
    assert await third.is_closed()
    listener.go_on.set()
    assert [await each.answer() for each in busy] == [(200, b"late")] * 2
    for each in (*busy, third):
        each.close()


@pytest.mark.parametrize(
    "first",
    [b"\r\n", b"PRI * HTTP/2.0\r\n\r\n", HEAD + b"Expect: anything\r\n\r\n"],
    ids=["empty", "http2", "expect"],
)
async def test_what_no_handler_takes_makes_room(start: Start, first: bytes):
    listener = await start(Limits(connections=4, head_s=60))
    crowd = [await listener.call(first) for _ in range(8)]
    await asyncio.sleep(0.1)
    prober = await listener.call(HEAD + b"\r\n")
    assert await prober.answer() == (200, b"fine")
    for each in (*crowd, prober):
        each.close()


async def test_who_asks_again_and_takes_no_answer_makes_room(start: Start):
    listener = await start(Limits(connections=4, head_s=60))
    asking = HEAD.replace(b"/ok", b"/long") + b"\r\n"
    crowd = [await listener.call(asking) for _ in range(4)]
    while listener.asked < 4:
        await asyncio.sleep(0)
    for each in crowd:
        each.writer.write(asking)
    await asyncio.sleep(0.1)
    prober = await listener.call(HEAD + b"\r\n")
    assert await prober.answer() == (200, b"fine")
    for each in (*crowd, prober):
        each.close()


async def test_what_is_no_http_leaves_no_traceback(start: Start, caplog: pytest.LogCaptureFixture):
    listener = await start()
    for bad in (b"GET /" + b"a" * 9000 + b" HTTP/1.1\r\n\r\n", HEAD + b"a:\r\n" * 5000 + b"\r\n"):
        caller = await listener.call(bad)
        assert (await caller.answer())[0] == 400
        caller.close()
    assert caplog.text == ""


async def test_an_answer_has_a_time(start: Start):
    caller = await (await start()).call(HEAD.replace(b"/ok", b"/slow") + b"\r\n")
    status, text = await caller.answer()
    assert (status, text) == (503, b"no answer within 1 s\n")
    caller.close()


async def test_a_stream_may_take_longer_but_not_all_connections(start: Start):
    listener = await start()
    asking = HEAD.replace(b"/ok", b"/stream") + b"\r\n"
    streams = [await listener.call(asking) for _ in range(2)]
    for each in streams:
        assert (await each.reader.readuntil(b"first")).startswith(b"HTTP/1.1 200")
    third = await listener.call(asking)
    assert await third.answer() == (503, b"too many listen already\n")
    await asyncio.sleep(SHORT.request_s + 0.1)
    listener.go_on.set()
    for each in streams:
        assert b"second" in await each.reader.readuntil(b"second")
    for each in (*streams, third):
        each.close()


async def test_no_address_has_all_the_streams(start: Start, monkeypatch: pytest.MonkeyPatch):
    """Another machine than this one calls, as far as anybody can tell."""
    monkeypatch.setattr(connections, "caller_of", lambda host: f"from {host}")
    listener = await start(Limits(connections=20, of_caller=20, streams_of_caller=3))
    asking = HEAD.replace(b"/ok", b"/stream") + b"\r\n"
    streams = [await listener.call(asking) for _ in range(3)]
    for each in streams:
        assert (await each.reader.readuntil(b"first")).startswith(b"HTTP/1.1 200")
    fourth = await listener.call(asking)
    assert await fourth.answer() == (503, b"too many listen already\n")
    listener.go_on.set()
    for each in (*streams, fourth):
        each.close()


def posted(path: str, body: bytes, *, length: int | None = None, more: bytes = b"") -> bytes:
    size = len(body) if length is None else length
    kind = b"" if b"Content-Type" in more else b"Content-Type: application/json\r\n"
    return (
        b"POST %s HTTP/1.1\r\nHost: localhost\r\n%sContent-Length: %d\r\n"
        % (path.encode(), kind + more, size)
        + b"\r\n"
        + body
    )


async def test_bodies_are_read_when_they_are_asked_for_and_the_connection_goes_on(start: Start):
    listener = await start(Limits(body_bytes=300_000))
    caller = await listener.call()
    for size in (0, 1, 1000, 300_000):
        caller.writer.write(posted("/body", b"x" * size))
        assert await caller.answer() == (200, b"read")
    assert listener.bodies == [0, 1, 1000, 300_000]
    caller.close()


async def test_a_long_body_is_refused_unread(start: Start):
    listener = await start()
    caller = await listener.call(posted("/body", b"x" * 10_000, length=10_000_000))
    status, _ = await caller.answer()
    assert status == 413
    assert await caller.is_closed()
    assert listener.bodies == []
    caller.close()


async def test_a_body_that_nobody_asks_for_ends_the_connection_after_the_answer(start: Start):
    listener = await start()
    caller = await listener.call(posted("/unread", b"x" * 1000))
    assert await caller.answer() == (200, b"fine")
    assert await caller.is_closed()
    caller.close()


async def test_bodies_of_all_requests_are_bounded_together(start: Start):
    listener = await start(Limits(body_bytes=1000, bodies_bytes=1500))
    first = await listener.call(posted("/body", b"x", length=1000))
    second = await listener.call(posted("/body", b"x" * 999))
    assert (await second.answer())[0] == 503
    first.writer.write(b"x" * 999)
    assert await first.answer() == (200, b"read")
    third = await listener.call(posted("/body", b"x" * 999))
    assert await third.answer() == (200, b"read")
    for each in (first, second, third):
        each.close()


async def test_a_body_comes_with_its_length(start: Start):
    caller = await (await start()).call(
        b"POST /body HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
        b"Transfer-Encoding: chunked\r\n\r\n"
    )
    assert (await caller.answer())[0] == 411
    caller.close()


async def test_requests_do_not_come_in_bundles(start: Start):
    listener = await start()
    caller = await listener.call((HEAD + b"\r\n") * 3000)
    assert await caller.answer() == (200, b"fine")
    assert await caller.is_closed()
    assert listener.asked == 1
    caller.close()


async def test_what_is_no_http_is_told_so(start: Start):
    caller = await (await start()).call(b"\x16\x03\x01\x02\x00")
    assert (await caller.answer())[0] == 400
    caller.close()


FORMS = [b"text/plain", b"application/x-www-form-urlencoded", b"multipart/form-data; boundary=x"]


@pytest.mark.parametrize("kind", FORMS)
async def test_what_a_form_of_another_site_can_post_is_refused(start: Start, kind: bytes):
    listener = await start()
    more = b"Content-Type: " + kind + b"\r\n"
    caller = await listener.call(posted("/body", b"{}", more=more))
    assert await caller.answer() == (415, b"expected Content-Type: application/json\n")
    assert listener.bodies == []
    caller.close()


@pytest.mark.parametrize(
    ("host", "origin", "status"),
    [
        (b"localhost:1", b"", 200),
        (b"127.0.0.1:1", b"http://127.0.0.1:1", 200),
        (b"[::1]:1", b"", 200),
        (b"rte.attacker.example", b"", 403),
        (b"rte.attacker.example:10261", b"", 403),
        (b"[", b"", 403),
        (b"localhost:1", b"http://attacker.example", 403),
        (b"localhost:1", b"http://localhost:2", 403),
        (b"localhost:1", b"null", 403),
    ],
)
async def test_on_loopback_host_and_origin_are_this_machines(
    start: Start, host: bytes, origin: bytes, status: int
):
    head = b"GET /ok HTTP/1.1\r\nHost: " + host + b"\r\n"
    head += b"Origin: " + origin + b"\r\n" if origin else b""
    caller = await (await start()).call(head + b"\r\n")
    found, text = await caller.answer()
    assert found == status
    assert status == 200 or text.count(b"\n") == 1
    caller.close()


async def test_elsewhere_any_name_will_do(start: Start):
    listener = await start(address="0.0.0.0:0")
    caller = await listener.call(b"GET /ok HTTP/1.1\r\nHost: node-7.example\r\n\r\n")
    assert await caller.answer() == (200, b"fine")
    caller.close()


# TLS


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    made = Authority(tmp_path_factory.mktemp("pki") / "ca")
    made.create()
    return made


@pytest.fixture(scope="module")
def pair(authority: Authority) -> tuple[Path, Path]:
    return authority.issue("server", "rte", sans="DNS:localhost")


@pytest.fixture
async def over_tls(
    start: Start, authority: Authority, pair: tuple[Path, Path]
) -> Callable[..., Coroutine[None, None, Listener]]:
    async def begin(limits: Limits = SHORT) -> Listener:
        made = await start(limits, TLSFiles(*pair))
        made.tls = ssl.create_default_context(cafile=str(authority.certificate))
        return made

    return begin


async def test_over_tls_requests_and_bodies_come_as_without(over_tls: Start):
    listener = await over_tls(Limits(body_bytes=300_000))
    caller = await listener.call(HEAD + b"\r\n")
    assert await caller.answer() == (200, b"fine")
    caller.writer.write(posted("/body", b"x" * 300_000))
    assert await caller.answer() == (200, b"read")
    caller.close()


async def test_who_begins_no_tls_is_hung_up_on_and_makes_room_for_who_does(over_tls: Start):
    listener = await over_tls()
    crowd = [Caller(*await asyncio.open_connection("127.0.0.1", listener.port)) for _ in range(20)]
    caller = await listener.call(HEAD + b"\r\n")
    assert await caller.answer() == (200, b"fine")
    assert all([await each.is_closed() for each in crowd])
    for each in (*crowd, caller):
        each.close()


async def test_garbage_for_tls_ends_the_connection(over_tls: Start):
    listener = await over_tls()
    caller = Caller(*await asyncio.open_connection("127.0.0.1", listener.port))
    caller.writer.write(HEAD + b"\r\n")
    assert await caller.is_closed()
    caller.close()
