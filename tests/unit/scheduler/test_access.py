"""Who may ask the scheduler: by certificate or token, as the API server says."""

from __future__ import annotations

import asyncio
import contextlib
import ssl
from typing import TYPE_CHECKING, Any

import aiohttp
import pytest
from aiohttp import web

from rte import errors
from rte.scheduler.front import serving
from rte.scheduler.front.access import Access
from rte.scheduler.front.tls import Files
from rte.scheduler.settings import SchedulerSettings
from rte.telemetry import health
from rte.telemetry.health import Readiness
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

    async def create(self, path: str, body: dict[str, Any]) -> dict[str, Any]:
        if self.error is not None:
            raise self.error
        spec = body["spec"]
        self.asked.append(body["kind"])
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
    context = Files(*made.server, made.authority.certificate).context()
    task = asyncio.create_task(
        health.serve(
            "127.0.0.1:0", bytes, Readiness(), started=ports.set_result, routes=routes, tls=context
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


@pytest.mark.parametrize("text", ["", "garbage"])
def test_tls_files_that_cannot_be_used_are_one_line(tmp_path: Path, text: str):
    (tmp_path / "c").write_text(text)
    with pytest.raises(errors.UsageError) as caught:
        Files(tmp_path / "c", tmp_path / "missing").context()
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("host", "is_so"),
    [("127.0.0.1", True), ("127.9.9.9", True), ("::1", True), ("localhost", True),
     ("", False), ("0.0.0.0", False), ("::", False), ("example.com", False)],
)  # fmt: skip
def test_only_this_machine_reaches_a_loopback_address(host: str, is_so: bool):
    assert health.is_loopback(host) is is_so


async def test_renewed_files_are_served_without_a_restart(
    door: Door, monkeypatch: pytest.MonkeyPatch
):
    files = Files(*door.server, door.authority.certificate)
    context = files.context()
    loaded: list[Any] = []
    load: Callable[..., None] = ssl.SSLContext.load_cert_chain
    monkeypatch.setattr(
        ssl.SSLContext, "load_cert_chain", lambda *args: (loaded.append(args), load(*args))
    )
    monkeypatch.setattr("rte.scheduler.front.tls._LOOK_S", 0.01)
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
