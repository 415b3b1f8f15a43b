"""Who may ask the scheduler: by certificate or token, as the API server says."""

from __future__ import annotations

import asyncio
import contextlib
import ssl
from typing import TYPE_CHECKING, Any

import aiohttp
import pytest
from aiohttp import web
from aiohttp.test_utils import make_mocked_request

from rte import errors
from rte.scheduler.front import serving
from rte.scheduler.front.access import Access
from rte.scheduler.settings import SchedulerSettings
from rte.telemetry import doors, health
from rte.telemetry.effects import Readiness
from rte.telemetry.tls import TLSFiles
from tests.cluster.certs import Authority

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable
    from pathlib import Path


class Reviewer:
    """The API server, as far as it is asked about callers."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.rights = {("system:kube-scheduler", "/bind"), ("alice", "/explain")}
        self.error: errors.KubeError | None = None
        self.answers = asyncio.Event()
        self.answers.set()

    async def create(self, path: str, body: dict[str, Any]) -> dict[str, Any]:
        if self.error is not None:
            raise self.error
        spec = body["spec"]
        self.asked.append(body["kind"])
        await self.answers.wait()
        if path.endswith("/tokenreviews"):
            known = spec["token"] in ("alice", "bob")
            user = {"username": spec["token"], "groups": ["g"], "extra": {"k": ["v"]}}
            return {"status": {"authenticated": True, "user": user} if known else {}}
        assert path.endswith("/subjectaccessreviews")
        asked = spec["nonResourceAttributes"]
        assert asked["verb"] == "post"
        return {"status": {"allowed": (spec["user"], asked["path"]) in self.rights}}


class Door:
    """A listener with protected routes, over TLS."""

    def __init__(self, folder: Path) -> None:
        self.reviewer = Reviewer()
        self.now = 0.0
        self.port = 0
        authority = Authority(folder / "ca")
        authority.create()
        self.authority = authority
        self.foreign = Authority(folder / "foreign")
        self.foreign.create()
        self.server = authority.issue("server", "rte-scheduler", sans="IP:127.0.0.1")

    async def post(
        self, path: str, *, token: str = "", client: tuple[Path, Path] | None = None
    ) -> int:
        """The status of the answer."""
        context = ssl.create_default_context(cafile=str(self.authority.certificate))
        if client:
            context.load_cert_chain(*client)
        headers = {"Authorization": f"Bearer {token}"} if token else {}
        async with (
            aiohttp.ClientSession() as session,
            session.post(
                f"https://127.0.0.1:{self.port}{path}", ssl=context, headers=headers
            ) as answer,
        ):
            await answer.read()
            return answer.status


@pytest.fixture
async def door(tmp_path: Path) -> AsyncIterator[Door]:
    made = Door(tmp_path)
    access = Access(made.reviewer, lambda: made.now)  # type: ignore[arg-type]

    async def done(_: web.Request) -> web.Response:
        return web.Response(text="done")

    routes = access.protect([web.post("/bind", done), web.post("/explain", done)])
    ports: asyncio.Future[int] = asyncio.get_running_loop().create_future()
    files = TLSFiles(*made.server, made.authority.certificate)
    task = asyncio.create_task(
        health.serve(
            "127.0.0.1:0", bytes, Readiness(), started=ports.set_result, routes=routes, tls=files
        )
    )
    made.port = await asyncio.wait_for(ports, 5)
    yield made
    task.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await task


async def test_kube_schedulers_certificate_may_bind_and_no_other(door: Door):
    ours = door.authority.issue("kube-scheduler", "system:kube-scheduler")
    assert await door.post("/bind", client=ours) == 200
    kubelet = door.authority.issue("kubelet", "system:node:n0", "system:nodes")
    assert await door.post("/bind", client=kubelet) == 403
    assert await door.post("/explain", client=ours) == 403


async def test_without_a_certificate_nobody_binds(door: Door):
    assert await door.post("/bind") == 401
    assert await door.post("/bind", token="nobody") == 401
    assert await door.post("/bind", token="alice") == 403


async def test_a_certificate_of_another_authority_is_no_certificate(door: Door):
    forged = door.foreign.issue("kube-scheduler", "system:kube-scheduler")
    with pytest.raises((aiohttp.ClientError, ssl.SSLError)):
        await door.post("/bind", client=forged)
    assert door.reviewer.asked == []


async def test_explain_needs_a_token_and_the_right(door: Door):
    assert await door.post("/explain") == 401
    assert await door.post("/explain", token="mallory") == 401
    assert await door.post("/explain", token="bob") == 403
    assert await door.post("/explain", token="alice") == 200


async def test_an_answer_about_a_caller_holds_ten_seconds(door: Door):
    for _ in range(3):
        assert await door.post("/explain", token="alice") == 200
    assert door.reviewer.asked == ["TokenReview", "SubjectAccessReview"]
    door.reviewer.rights.clear()
    assert await door.post("/explain", token="alice") == 200
    door.now = 10.0
    assert await door.post("/explain", token="alice") == 403


async def test_tokens_that_nobody_has_seen_are_asked_about_a_few_a_second(door: Door):
    first = [await door.post("/explain", token=f"made-up-{number}") for number in range(60)]
    assert first == [401] * 20 + [429] * 40
    assert len(door.reviewer.asked) == 20
    door.now = 2.0
    second = [await door.post("/explain", token=f"again-{number}") for number in range(20)]
    assert second == [401] * 10 + [429] * 10


async def test_who_was_let_in_before_is_let_in_while_strangers_try(door: Door):
    assert await door.post("/explain", token="alice") == 200
    for number in range(40):
        await door.post("/explain", token=f"made-up-{number}")
    assert await door.post("/explain", token="alice") == 200
    door.now = 11.0
    for number in range(200):
        await door.post("/explain", token=f"again-{number}")
    assert await door.post("/explain", token="alice") == 200


async def test_the_same_token_is_asked_about_once_and_a_refusal_is_kept(door: Door):
    door.reviewer.answers.clear()
    callers = [asyncio.create_task(door.post("/explain", token="mallory")) for _ in range(30)]
    async with asyncio.timeout(10):
        while not door.reviewer.asked:
            await asyncio.sleep(0.01)
    door.reviewer.answers.set()
    assert set(await asyncio.gather(*callers)) == {401}
    assert await door.post("/explain", token="mallory") == 401
    assert door.reviewer.asked == ["TokenReview"]


async def test_while_the_api_server_is_slow_few_wait_for_it():
    reviewer = Reviewer()
    reviewer.answers.clear()
    access = Access(reviewer, lambda: 0.0)  # type: ignore[arg-type]

    async def done(_: web.Request) -> web.Response:
        return web.Response()

    (route,) = access.protect([web.post("/explain", done)])

    async def ask(number: int) -> int:
        # Each from an address of its own.
        request = make_mocked_request("POST", "/explain", {"Authorization": f"Bearer {number}"})
        answer: web.Response = await route.handler(request.clone(remote=f"10.0.0.{number}"))
        return answer.status

    asking = [asyncio.create_task(ask(number)) for number in range(80)]
    async with asyncio.timeout(10):
        while sum(task.done() for task in asking) < 48:
            await asyncio.sleep(0.01)
    assert len(reviewer.asked) == 32
    reviewer.answers.set()
    assert sorted(await asyncio.gather(*asking)) == [401] * 32 + [429] * 48


async def test_while_nobody_can_be_checked_nobody_gets_in(door: Door):
    door.reviewer.error = errors.KubeError("no answer")
    assert await door.post("/explain", token="alice") == 503


async def test_health_is_for_everybody(door: Door):
    context = ssl.create_default_context(cafile=str(door.authority.certificate))
    async with (
        aiohttp.ClientSession() as session,
        session.get(f"https://127.0.0.1:{door.port}/readyz", ssl=context) as answer,
    ):
        assert answer.status == 200


def test_without_tls_the_verbs_are_served_on_a_loopback_address_only(tmp_path: Path):
    for address in (":10261", "0.0.0.0:10261", "[::]:10261", "10.0.0.1:1", "example.com:1"):
        with pytest.raises(errors.UsageError, match="anybody"):
            serving.tls_files(SchedulerSettings(extender_listen=address))
    for address in ("127.0.0.1:10261", "[::1]:10261", "localhost:1", ""):
        assert serving.tls_files(SchedulerSettings(extender_listen=address)) is None
    with pytest.raises(errors.UsageError, match="belong together"):
        serving.tls_files(SchedulerSettings(tls_cert_file=tmp_path / "c"))
    with pytest.raises(errors.UsageError, match="needs --tls-cert-file"):
        serving.tls_files(SchedulerSettings(listen_tls=True))
    with pytest.raises(errors.UsageError, match="needs --tls-cert-file"):
        serving.tls_files(SchedulerSettings(client_ca_file=tmp_path / "c"))


async def test_metrics_are_for_those_who_show_a_certificate_where_that_is_asked(
    tmp_path: Path,
) -> None:
    authority = Authority(tmp_path / "ca")
    authority.create()
    files = TLSFiles(*authority.issue("server", "rte", sans="IP:127.0.0.1"), authority.certificate)
    ports: asyncio.Future[int] = asyncio.get_running_loop().create_future()
    task = asyncio.create_task(
        health.serve(
            "127.0.0.1:0", lambda: b"m 1\n", Readiness(), started=ports.set_result, tls=files,
            only_known=True,
        )
    )  # fmt: skip
    url = f"https://127.0.0.1:{await ports}"
    stranger = ssl.create_default_context(cafile=str(authority.certificate))
    prometheus = ssl.create_default_context(cafile=str(authority.certificate))
    prometheus.load_cert_chain(*authority.issue("prometheus", "prometheus"))
    async with aiohttp.ClientSession() as session:
        found = {}
        for name, context in (("stranger", stranger), ("prometheus", prometheus)):
            for path in ("/metrics", "/readyz"):
                async with session.get(url + path, ssl=context) as answer:
                    found[name, path] = answer.status
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    assert found == {
        ("stranger", "/metrics"): 401,
        ("stranger", "/readyz"): 200,
        ("prometheus", "/metrics"): 200,
        ("prometheus", "/readyz"): 200,
    }


@pytest.mark.parametrize("text", ["", "garbage"])
def test_tls_files_that_cannot_be_used_are_one_line(tmp_path: Path, text: str):
    (tmp_path / "c").write_text(text)
    with pytest.raises(errors.UsageError) as caught:
        TLSFiles(tmp_path / "c", tmp_path / "missing").context()
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("host", "is_so"),
    [("127.0.0.1", True), ("127.9.9.9", True), ("::1", True), ("localhost", True),
     ("", False), ("0.0.0.0", False), ("::", False), ("example.com", False)],
)  # fmt: skip
def test_only_this_machine_reaches_a_loopback_address(host: str, is_so: bool):
    assert doors.is_loopback(host) is is_so


async def test_renewed_files_are_served_without_a_restart(
    door: Door, monkeypatch: pytest.MonkeyPatch
):
    files = TLSFiles(*door.server, door.authority.certificate)
    context = files.context()
    loaded: list[Any] = []
    load: Callable[..., None] = ssl.SSLContext.load_cert_chain
    monkeypatch.setattr(
        ssl.SSLContext, "load_cert_chain", lambda *args: (loaded.append(args), load(*args))
    )
    monkeypatch.setattr("rte.telemetry.tls._LOOK_S", 0.01)
    task = asyncio.create_task(files.follow(context))
    await asyncio.sleep(0.03)
    assert loaded == []
    door.authority.issue("server", "rte-scheduler", sans="IP:127.0.0.1")
    async with asyncio.timeout(30):
        while not loaded:
            await asyncio.sleep(0.01)
    task.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await task
