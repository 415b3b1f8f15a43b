"""Credentials: in-cluster, kubeconfig in all its forms, and bad files on one line."""

from __future__ import annotations

import base64
import ssl
import subprocess
from typing import TYPE_CHECKING, Any

import pytest
import yaml
from aiohttp import web
from hypothesis import given
from hypothesis import strategies as st

from rte import errors
from rte.kube import credentials
from rte.kube.client import Client

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture(scope="session")
def pem(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A self-signed certificate and its key."""
    return certify(tmp_path_factory.mktemp("pem"), "test")


def certify(folder: Path, name: str) -> Path:
    """Make a self-signed certificate of that name, and its key."""
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256",
         "-nodes", "-subj", f"/CN={name}", "-days", "1",
         "-keyout", str(folder / "key.pem"), "-out", str(folder / "crt.pem")],
        check=True, capture_output=True,
    )  # fmt: skip
    return folder


def kubeconfig(path: Path, user: dict[str, Any], **cluster: Any) -> Path:
    body = {
        "current-context": "x",
        "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u", "namespace": "ns"}}],
        "clusters": [{"name": "c", "cluster": {"server": "https://127.0.0.1:6443/", **cluster}}],
        "users": [{"name": "u", "user": user}],
    }
    file = path / "kubeconfig"
    file.write_text(yaml.safe_dump(body))
    return file


async def test_a_pod_finds_its_service_account(tmp_path: Path, pem: Path):
    (tmp_path / "token").write_text("a-secret\n")
    (tmp_path / "namespace").write_text("rte-system")
    (tmp_path / "ca.crt").write_bytes((pem / "crt.pem").read_bytes())
    environ = {"KUBERNETES_SERVICE_HOST": "fd00::1", "KUBERNETES_SERVICE_PORT": "6443"}
    access = credentials.in_cluster(environ, tmp_path)
    assert access.server == "https://[fd00::1]:6443"
    assert access.namespace == "rte-system"
    assert await access.authorization() == "Bearer a-secret"
    assert "a-secret" not in repr(access)


@pytest.mark.parametrize("missing", ["token", "ca.crt"])
def test_a_pod_without_its_files_says_which(tmp_path: Path, pem: Path, missing: str):
    (tmp_path / "token").write_text("abc")
    (tmp_path / "ca.crt").write_bytes((pem / "crt.pem").read_bytes())
    (tmp_path / missing).unlink()
    with pytest.raises(errors.KubeError, match=missing):
        credentials.in_cluster({"KUBERNETES_SERVICE_HOST": "h"}, tmp_path)


def test_an_empty_token_file_is_an_error_and_a_vanished_one_keeps_the_last_token(tmp_path: Path):
    file = tmp_path / "token"
    file.write_text("")
    token = credentials.TokenFile(file)
    with pytest.raises(errors.KubeError, match="is empty"):
        token()
    file.write_text("abc")
    assert token() == "abc"
    file.unlink()
    assert token() == "abc"


async def test_kubeconfig_with_a_token(tmp_path: Path):
    access = credentials.load(kubeconfig(tmp_path, {"token": "t"}), {})
    assert (access.server, access.namespace) == ("https://127.0.0.1:6443", "ns")
    assert await access.authorization() == "Bearer t"


async def test_kubeconfig_with_a_token_file_and_ca_relative_to_it(tmp_path: Path, pem: Path):
    (tmp_path / "tok").write_text("t1")
    (tmp_path / "ca.pem").write_bytes((pem / "crt.pem").read_bytes())
    file = kubeconfig(tmp_path, {"tokenFile": "tok"}, **{"certificate-authority": "ca.pem"})
    access = credentials.from_kubeconfig(file)
    assert await access.authorization() == "Bearer t1"
    assert access.tls is not None
    assert len(access.tls.get_ca_certs()) == 1


async def test_kubeconfig_with_basic_authentication_proxy_and_server_name(tmp_path: Path):
    file = kubeconfig(
        tmp_path,
        {"username": "u", "password": "p"},
        **{"proxy-url": "http://proxy:3128", "tls-server-name": "api"},
    )
    access = credentials.from_kubeconfig(file)
    assert await access.authorization() == "Basic " + base64.b64encode(b"u:p").decode()
    assert (access.proxy, access.server_name) == ("http://proxy:3128", "api")


def test_kubeconfig_with_client_certificates_from_files_and_data(tmp_path: Path, pem: Path):
    crt, key = (pem / "crt.pem").read_bytes(), (pem / "key.pem").read_bytes()
    inline = {
        "client-certificate-data": base64.b64encode(crt).decode(),
        "client-key-data": base64.b64encode(key).decode(),
    }
    files = {"client-certificate": str(pem / "crt.pem"), "client-key": str(pem / "key.pem")}
    for user in (inline, files):
        authority = {"certificate-authority-data": base64.b64encode(crt).decode()}
        assert credentials.from_kubeconfig(kubeconfig(tmp_path, user, **authority)).tls


async def test_kubeconfig_with_an_exec_plugin(tmp_path: Path):
    program = tmp_path / "plugin"
    program.write_text(
        '#!/bin/sh\necho \'{"kind": "ExecCredential", "apiVersion":'
        ' "client.authentication.k8s.io/v1", "status": {"token": "from-plugin"}}\'\n'
    )
    program.chmod(0o755)
    plugin = {
        "exec": {
            "apiVersion": "client.authentication.k8s.io/v1",
            "command": str(program),
            "interactiveMode": "Never",
        }
    }
    access = credentials.from_kubeconfig(kubeconfig(tmp_path, plugin))
    assert await access.authorization() == "Bearer from-plugin"


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        "a: [",
        "current-context: x",
        "current-context: x\ncontexts: [{name: x, context: {cluster: gone}}]",
        (
            "current-context: x\ncontexts: [{name: x, context: {cluster: c}}]\n"
            "clusters: [{name: c, cluster: {server: 'https://h', certificate-authority-data: '*'}}]"
        ),
    ],
)
def test_bad_kubeconfigs_are_one_line_that_names_the_file(tmp_path: Path, text: str):
    file = tmp_path / "kubeconfig"
    file.write_text(text)
    with pytest.raises(errors.KubeError) as refused:
        credentials.from_kubeconfig(file)
    assert str(file) in str(refused.value) or "certificate-authority" in str(refused.value)
    assert "\n" not in str(refused.value)


_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner),
    max_leaves=8,
)
_FIELD = st.sampled_from(["server", "token", "exec", "client-key-data", "tokenFile", "proxy-url"])


@given(
    cluster=st.dictionaries(_FIELD, _JSON, max_size=3) | _JSON,
    user=st.dictionaries(_FIELD, _JSON, max_size=3) | _JSON,
)
def test_garbage_in_a_kubeconfig_is_a_kube_error_or_credentials(
    tmp_path_factory: pytest.TempPathFactory, cluster: Any, user: Any
):
    file = tmp_path_factory.getbasetemp() / "garbage"
    body = {
        "current-context": "x",
        "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u"}}],
        "clusters": [{"name": "c", "cluster": cluster}],
        "users": [{"name": "u", "user": user}],
    }
    file.write_text(yaml.safe_dump(body))
    try:
        credentials.from_kubeconfig(file)
    except errors.KubeError as error:
        assert "\n" not in str(error)


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("", "it is empty (give --kubeconfig FILE)"),
        ("3", "expected a mapping"),
        ("{current-context: x}", "it has no context named 'x'"),
        ("{current-context: x, contexts: [{name: x, context: }]}", "it names no cluster"),
    ],
)
def test_a_kubeconfig_that_says_nothing_is_told_in_words(tmp_path: Path, text: str, told: str):
    file = tmp_path / "config"
    file.write_text(text)
    with pytest.raises(errors.KubeError) as caught:
        credentials.from_kubeconfig(file)
    assert told in str(caught.value)


def test_nowhere_to_connect_to_says_what_to_give(tmp_path: Path):
    with pytest.raises(errors.KubeError, match="--kubeconfig"):
        credentials.load(None, {"HOME": str(tmp_path)})
    with pytest.raises(errors.KubeError, match="cannot read"):
        credentials.load(tmp_path / "missing", {})


async def test_kubeconfig_from_the_environment(tmp_path: Path):
    file = kubeconfig(tmp_path, {"token": "t"})
    access = credentials.load(None, {"KUBECONFIG": f"{file}:/other", "HOME": "/nowhere"})
    assert await access.authorization() == "Bearer t"


async def test_several_kubeconfigs_count_together_as_for_kubectl(tmp_path: Path, pem: Path):
    """Context and cluster in one file, the user in another one; what comes first counts."""
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
    (tmp_path / "one" / "ca.pem").write_bytes((pem / "crt.pem").read_bytes())
    one = kubeconfig(tmp_path / "one", {}, **{"certificate-authority": "ca.pem"})
    body = yaml.safe_load(one.read_text())
    del body["users"]
    one.write_text(yaml.safe_dump(body))
    two = kubeconfig(tmp_path / "two", {"token": "of-two"}, server="http://not-this-one")
    access = credentials.load(None, {"KUBECONFIG": f"{one}:/absent:{two}", "HOME": "/nowhere"})
    assert (access.server, access.namespace) == ("https://127.0.0.1:6443", "ns")
    assert await access.authorization() == "Bearer of-two"
    assert access.tls is not None
    assert len(access.tls.get_ca_certs()) == 1


@pytest.mark.parametrize("broken", ["", "[]", "a: [", "current-context: x"])
def test_several_kubeconfigs_of_which_one_is_none_are_one_line(tmp_path: Path, broken: str):
    (tmp_path / "broken").write_text(broken)
    (tmp_path / "other").write_text("{}")
    with pytest.raises(errors.KubeError, match="not usable") as refused:
        credentials.load(None, {"KUBECONFIG": f"{tmp_path}/broken:{tmp_path}/other"})
    assert "\n" not in str(refused.value)


async def test_kubeconfig_with_an_oidc_provider(tmp_path: Path):
    """A token that is still good is shown as it is; the package renews one that is not."""
    claims = base64.urlsafe_b64encode(b'{"exp": 9999999999}').decode().rstrip("=")
    token = f"e30.{claims}.c2ln"
    provider = {"name": "oidc", "config": {"id-token": token, "idp-issuer-url": "https://idp"}}
    access = credentials.from_kubeconfig(kubeconfig(tmp_path, {"auth-provider": provider}))
    assert await access.authorization() == f"Bearer {token}"


async def test_several_kubeconfigs_with_a_password(tmp_path: Path):
    one = kubeconfig(tmp_path, {"username": "u", "password": "p"})
    (tmp_path / "other").write_text("{}")
    access = credentials.load(None, {"KUBECONFIG": f"{one}:{tmp_path}/other"})
    assert await access.authorization() == "Basic " + base64.b64encode(b"u:p").decode()


async def test_a_client_certificate_that_was_renewed_is_shown_by_the_next_request(tmp_path: Path):
    folders = {name: tmp_path / name for name in ("server", "january", "february")}
    for name, folder in folders.items():
        folder.mkdir()
        certify(folder, name)
    files = {"client-certificate": "crt.pem", "client-key": "key.pem"}

    async def who(request: web.Request) -> web.Response:
        shown = request.transport.get_extra_info("ssl_object").getpeercert()
        return web.json_response(shown["subject"][0][0][1])

    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(folders["server"] / "crt.pem", folders["server"] / "key.pem")
    tls.verify_mode = ssl.CERT_REQUIRED
    for name in ("january", "february"):
        tls.load_verify_locations(folders[name] / "crt.pem")
    app = web.Application()
    app.router.add_get("/", who)
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0, ssl_context=tls).start()
    server = f"https://127.0.0.1:{runner.addresses[0][1]}"

    def put(part: str, name: str) -> None:
        (tmp_path / "new").write_bytes((folders[name] / part).read_bytes())
        (tmp_path / "new").replace(tmp_path / part)

    for part in ("crt.pem", "key.pem"):
        put(part, "january")
    access = credentials.load(
        kubeconfig(tmp_path, files, **{"server": server, "insecure-skip-tls-verify": True}), {}
    )
    async with Client(access) as client:
        assert await client.get("/") == "january"
        put("crt.pem", "february")
        assert await client.get("/") == "january"  # its key is still to come
        put("key.pem", "february")
        assert await client.get("/") == "february"
    await runner.cleanup()
