"""The kubelet's configuration: from the kubelet itself, else through the API server."""

from __future__ import annotations

import ssl
import subprocess
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from rte import errors
from rte.kube.client import Client
from rte.kube.credentials import Credentials, tls_context
from rte.kube.node import kubelet_address, read_configz

CONFIGZ = {"kubeletconfig": {"topologyManagerPolicy": "restricted"}}


def node(port: int = 0, address: str = "127.0.0.1") -> dict[str, Any]:
    status = {
        "addresses": [
            {"type": "Hostname", "address": "n0"},
            {"type": "InternalIP", "address": address},
        ],
        "daemonEndpoints": {"kubeletEndpoint": {"Port": port}},
    }
    return {"metadata": {"name": "n0"}, "status": status if port else {}}


def test_the_kubelets_address_is_the_internal_one():
    assert kubelet_address(node(10250)) == "https://127.0.0.1:10250"
    assert kubelet_address(node(10250, "fd00::1")) == "https://[fd00::1]:10250"
    assert kubelet_address(node()) == ""


def test_of_several_internal_addresses_the_kubelets_own_is_the_first():
    listed = node(10250, "10.0.0.5")
    data_network = {"type": "InternalIP", "address": "192.168.77.5"}
    listed["status"]["addresses"].append(data_network)
    assert kubelet_address(listed) == "https://10.0.0.5:10250"


@pytest.fixture
def certificate(tmp_path: Path) -> Path:
    """As a kubelet makes it for itself: it names the node and no address."""
    return make_certificate(tmp_path)


def make_certificate(tmp_path: Path) -> Path:
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256",
         "-nodes", "-subj", "/CN=n0", "-addext", "subjectAltName=DNS:n0", "-days", "1",
         "-keyout", str(tmp_path / "kubelet.key"), "-out", str(tmp_path / "kubelet.crt")],
        check=True, capture_output=True,
    )  # fmt: skip
    return tmp_path / "kubelet.crt"


async def serve(certificate: Path | None, seen: list[str]) -> tuple[web.AppRunner, int]:
    async def handler(request: web.Request) -> web.Response:
        seen.append(f"{request.path} {request.headers.get('Authorization')}")
        if request.path.endswith("configz"):
            return web.json_response(CONFIGZ)
        return web.json_response({"reason": "NotFound"}, status=404)

    app = web.Application()
    app.router.add_route("*", "/{path:.*}", handler)
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    context = None
    if certificate:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(certificate, certificate.with_suffix(".key"))
    await web.TCPSite(runner, "127.0.0.1", 0, ssl_context=context).start()
    return runner, runner.addresses[0][1]


async def test_the_kubelet_itself_is_asked_with_our_token(certificate: Path):
    seen: list[str] = []
    runner, port = await serve(certificate, seen)
    access = Credentials(server="https://127.0.0.1:1", tls=tls_context(), token=lambda: "t")
    async with Client(access) as client:
        answer = await read_configz(client, node(port), kubelet_certificate=certificate)
    await runner.cleanup()
    assert answer == CONFIGZ
    assert seen == ["/configz Bearer t"]


async def test_a_kubelet_that_cannot_be_verified_gets_no_token(certificate: Path):
    seen: list[str] = []
    runner, port = await serve(certificate, seen)
    access = Credentials(server="https://127.0.0.1:1", tls=tls_context(), token=lambda: "t")
    async with Client(access) as client:
        with pytest.raises(errors.KubeError, match="nodes/configz"):
            await read_configz(client, node(port))
    await runner.cleanup()
    assert seen == []


async def test_without_an_address_the_api_server_passes_the_question_on():
    seen: list[str] = []
    runner, port = await serve(None, seen)
    async with Client(Credentials(server=f"http://127.0.0.1:{port}")) as client:
        assert await read_configz(client, node()) == CONFIGZ
    await runner.cleanup()
    assert seen == ["/api/v1/nodes/n0/proxy/configz None"]


async def test_a_certificate_that_was_made_anew_since_it_was_mounted_alone_is_named(
    certificate: Path, tmp_path: Path
):
    """The mount of one file stays with the file that was there."""
    seen: list[str] = []
    (tmp_path / "former").mkdir()
    former = make_certificate(tmp_path / "former")
    runner, port = await serve(certificate, seen)
    access = Credentials(server="https://127.0.0.1:1", tls=tls_context(), token=lambda: "t")
    with former.open("rb") as mounted:
        former.unlink()
        path = Path(f"/proc/self/fd/{mounted.fileno()}")
        async with Client(access) as client:
            with pytest.raises(errors.KubeError, match="was made anew since: restart"):
                await read_configz(client, node(port), kubelet_certificate=path)
    await runner.cleanup()
