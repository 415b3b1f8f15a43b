"""Where the API server is and how to prove who we are: in-cluster files or a kubeconfig."""

from __future__ import annotations

import asyncio
import base64
import binascii
import ssl
import tempfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rte import errors

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from rte.reader.json import Json, JsonObject

#: What a file of another shape leads to.
_MALFORMED = (KeyError, TypeError, AttributeError, ValueError)
SERVICE_ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")


@dataclass
class TokenFile:
    """A bearer token in a file that somebody rotates (kubelet: a symlink swap, about hourly)."""

    path: Path
    _seen: tuple[int, int] = (0, 0)
    _token: str = ""

    def __call__(self) -> str:
        """The token as it is now; the file is read only when it changed.

        Raises:
            errors.KubeError: the file is missing, unreadable or empty and was never read.
        """
        try:
            stat = self.path.stat()
            seen = (stat.st_mtime_ns, stat.st_ino)
            if seen != self._seen and (token := self.path.read_text().strip()):
                self._token, self._seen = token, seen
        except (OSError, UnicodeDecodeError) as error:
            if not self._token:
                why = errors.why_unreadable(error)
                raise errors.KubeError(f"cannot read the token file {self.path}: {why}") from None
        if not self._token:
            raise errors.KubeError(f"the token file {self.path} is empty")
        return self._token


@dataclass
class CertificateFiles:
    """A client certificate and its key in files that somebody renews (client-go, cert_rotation.go).

    ``load`` makes a context with them.
    """

    paths: tuple[Path, ...]
    load: Callable[[], ssl.SSLContext]
    _seen: tuple[tuple[int, int], ...] = ()

    def __post_init__(self) -> None:
        self._seen = self._signatures()

    def renewed(self) -> ssl.SSLContext | None:
        """A new context if the files are others; None: they are as before, or half written."""
        try:
            seen = self._signatures()
            if seen == self._seen:
                return None
            context = self.load()
        except (errors.KubeError, OSError):  # a certificate and the key of another are one too
            return None
        self._seen = seen
        return context

    def _signatures(self) -> tuple[tuple[int, int], ...]:
        return tuple((stat.st_mtime_ns, stat.st_ino) for stat in map(Path.stat, self.paths))


@dataclass(kw_only=True)
class Credentials:
    """How to reach one API server.

    Attributes:
        server: base URL without a trailing slash.
        tls: context with the CA and the client certificate; None for plain http.
        server_name: name to verify instead of the URL's host.
        token: returns the current bearer token ("" = none); called for each request.
        runs_program: ``token`` may run a program to renew it, so it is called in a thread.
        basic: user name and password, for what still uses them.
        proxy: HTTP proxy or "".
        namespace: the context's or the pod's namespace.
        ca_file: the CA, reloaded when a certificate does not verify (it may have been rotated).
        ca_data: the CA as PEM text where it is in no file.
        certificate: where ``tls`` has a client certificate of files that somebody renews.
    """

    server: str
    tls: ssl.SSLContext | None = None
    server_name: str = ""
    token: Callable[[], str] = field(default=lambda: "", repr=False)
    runs_program: bool = False
    basic: str = field(default="", repr=False)
    proxy: str = ""
    namespace: str = "default"
    ca_file: str = ""
    ca_data: str = ""
    certificate: CertificateFiles | None = field(default=None, repr=False)

    def context(self) -> ssl.SSLContext | None:
        """``tls``, another one once the client certificate is: a connection keeps what it has."""
        if self.certificate is not None:
            self.tls = self.certificate.renewed() or self.tls
        return self.tls

    async def authorization(self) -> str:
        """The ``Authorization`` header, "" for none.

        Raises:
            errors.KubeError: the token cannot be had.
        """
        if self.basic:
            return "Basic " + base64.b64encode(self.basic.encode()).decode()
        text = await asyncio.to_thread(self.token) if self.runs_program else self.token()
        return f"Bearer {text}" if text else ""

    def reload_ca(self) -> None:
        """Trust what the CA file holds now, in addition."""
        if self.tls and self.ca_file:
            trust(self.tls, self.ca_file)


def load(kubeconfig: Path | None, environ: Mapping[str, str]) -> Credentials:
    """The named kubeconfig; else in-cluster; else ``$KUBECONFIG`` or ``~/.kube/config``.

    ``$KUBECONFIG`` may list several files, which count together as for kubectl.

    Raises:
        errors.KubeError: none of them is there, or the one found is unusable.
    """
    if kubeconfig:
        return from_kubeconfig(kubeconfig)
    if environ.get("KUBERNETES_SERVICE_HOST"):
        return in_cluster(environ)
    named = [name for name in environ.get("KUBECONFIG", "").split(":") if name]
    there = [name for name in named if Path(name).exists()]
    if len(there) > 1:
        return _by_package(":".join(there))
    usual = Path(environ.get("HOME", "/root")) / ".kube" / "config"
    path = Path([*there, *named][0]) if named else usual
    if not path.exists():
        raise errors.KubeError(
            f"no API server known: not in a pod and no kubeconfig at {path}"
            " (give --kubeconfig FILE)"
        )
    return from_kubeconfig(path)


def in_cluster(environ: Mapping[str, str], folder: Path = SERVICE_ACCOUNT) -> Credentials:
    """Credentials of the pod's service account.

    Raises:
        errors.KubeError: the environment or the mounted files are incomplete.
    """
    host = environ.get("KUBERNETES_SERVICE_HOST", "")
    port = environ.get("KUBERNETES_SERVICE_PORT", "443")
    if not host:
        raise errors.KubeError("KUBERNETES_SERVICE_HOST is not set: not inside a pod")
    token = TokenFile(folder / "token")
    token()
    namespace = folder / "namespace"
    return Credentials(
        server=f"https://{f'[{host}]' if ':' in host else host}:{port}",
        tls=tls_context(str(folder / "ca.crt")),
        token=token,
        namespace=namespace.read_text().strip() if namespace.exists() else "default",
        ca_file=str(folder / "ca.crt"),
    )


def from_kubeconfig(path: Path, context: str = "") -> Credentials:
    """Credentials of a kubeconfig's current (or the named) context.

    Raises:
        errors.KubeError: the file cannot be read, or does not say where and how to connect.
    """
    from rte.reader import jsontext, yamltext  # a pod needs no YAML

    try:
        config = _mapping(yamltext.load(path.read_bytes(), "kubeconfig", jsontext.FILE))
        current = _named(config, "contexts", "context", context or config.get("current-context"))
        cluster = _named(config, "clusters", "cluster", current.get("cluster"))
        user = _named(config, "users", "user", current.get("user")) if current.get("user") else {}
        server = str(cluster["server"]).rstrip("/")
        namespace = str(current.get("namespace") or "default")
        if user.get("exec") or user.get("auth-provider"):
            return _by_package(str(path), context)
        tls = _kubeconfig_tls(path.parent, cluster, user) if server.startswith("https") else None
        return Credentials(
            server=server,
            tls=tls,
            certificate=_certificate_files(path.parent, cluster, user) if tls else None,
            server_name=str(cluster.get("tls-server-name") or ""),
            token=_kubeconfig_token(path.parent, user),
            basic=f"{user['username']}:{user.get('password', '')}" if user.get("username") else "",
            proxy=str(cluster.get("proxy-url") or ""),
            namespace=namespace,
            ca_file=_ca_file(path.parent, cluster),
            ca_data=_ca_data(cluster),
        )
    except OSError as error:
        why = errors.why_unreadable(error)
        raise errors.KubeError(f"cannot read the kubeconfig {path}: {why}") from None
    except _MALFORMED as error:
        raise errors.KubeError(
            f"the kubeconfig {path} is not usable: {' '.join(str(error).split())}"
        ) from None


def tls_context(ca_file: str = "", ca_data: str = "", *, verify: bool = True) -> ssl.SSLContext:
    """A client context that trusts the given CA (without one: the system's).

    Raises:
        errors.KubeError: the CA is missing or not PEM.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    # As Go does: any certificate in the bundle is an anchor, self-signed or not.
    context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    if not verify:
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    elif ca_file or ca_data:
        trust(context, ca_file, ca_data)
    else:
        context.load_default_certs()
    return context


def trust(context: ssl.SSLContext, ca_file: str, ca_data: str = "") -> None:
    """Trust the certificates of a PEM file or text, in addition.

    Raises:
        errors.KubeError: it is missing or not PEM.
    """
    try:
        context.load_verify_locations(cafile=ca_file or None, cadata=ca_data or None)
    except (OSError, ValueError) as error:
        where = ca_file or "certificate-authority-data"
        raise errors.KubeError(f"cannot load the CA certificate {where}: {error}") from None


def _mapping(config: object) -> JsonObject:
    if not config:
        raise ValueError("it is empty (give --kubeconfig FILE)")
    if not isinstance(config, dict):
        raise TypeError("expected a mapping with clusters, contexts and users")
    return config


def _named(config: Json, group: str, kind: str, name: object) -> JsonObject:
    for item in config.get(group) or ():
        if item.get("name") == name:
            return dict(item[kind] or {})
    if name is None:
        raise ValueError(f"it names no {'current-' * (kind == 'context')}{kind}")
    raise ValueError(f"it has no {kind} named {name!r}")


def _kubeconfig_token(folder: Path, user: Json) -> Callable[[], str]:
    if user.get("tokenFile"):
        return TokenFile(folder / user["tokenFile"])
    token = str(user.get("token") or "")
    return lambda: token


def _kubeconfig_tls(folder: Path, cluster: Json, user: Json) -> ssl.SSLContext:
    context = tls_context(
        _ca_file(folder, cluster),
        _ca_data(cluster),
        verify=not cluster.get("insecure-skip-tls-verify"),
    )
    cert, key = user.get("client-certificate"), user.get("client-key")
    cert_data, key_data = user.get("client-certificate-data"), user.get("client-key-data")
    if (cert or cert_data) and (key or key_data):
        # OpenSSL takes certificates from files only; these live as long as the call.
        with tempfile.TemporaryDirectory(prefix="rte-") as temporary:
            names = []
            for name, file, data in (("crt", cert, cert_data), ("key", key, key_data)):
                target = Path(temporary) / name
                target.touch(mode=0o600)
                target.write_bytes(_decode(data) if data else (folder / str(file)).read_bytes())
                names.append(str(target))
            context.load_cert_chain(*names)
    return context


def _certificate_files(folder: Path, cluster: Json, user: Json) -> CertificateFiles | None:
    """The files of the client certificate; None where it has none, or their data stand here."""
    paths = tuple(
        folder / str(user[name])
        for name in ("client-certificate", "client-key")
        if user.get(name) and not user.get(f"{name}-data")
    )
    if not paths:
        return None
    return CertificateFiles(paths, lambda: _kubeconfig_tls(folder, cluster, user))


def _ca_file(folder: Path, cluster: Json) -> str:
    """The CA's file; "" where its data stand in the kubeconfig, which then win."""
    ca = cluster.get("certificate-authority")
    return str(folder / ca) if ca and not cluster.get("certificate-authority-data") else ""


def _ca_data(cluster: Json) -> str:
    data = cluster.get("certificate-authority-data")
    return _decode(data).decode("ascii") if data else ""


def _decode(data: str) -> bytes:
    try:
        return base64.b64decode(data, validate=True)
    except binascii.Error as error:
        raise ValueError(f"bad base64 in a *-data field: {error}") from None


def _by_package(paths: str, context: str = "") -> Credentials:
    """What the kubernetes package makes of one or several files: it runs and renews what plug-ins
    (exec, OIDC and other auth-providers) give, and merges files as kubectl does.
    """
    from kubernetes import client, config  # 30 MiB that a pod does not need
    from yaml import YAMLError

    configuration = client.Configuration()
    package: Any = config  # it has no types
    try:
        package.load_kube_config(paths, context or None, configuration, persist_config=False)
        contexts, current = package.list_kube_config_contexts(paths)
    except (config.ConfigException, YAMLError, OSError, *_MALFORMED) as error:
        why = " ".join(str(error).split())
        raise errors.KubeError(f"the kubeconfig {paths} is not usable: {why}") from None
    chosen = next((each for each in contexts if each["name"] == context), current)
    files = tuple(Path(name) for name in (configuration.cert_file, configuration.key_file) if name)

    def tls() -> ssl.SSLContext:
        made = tls_context(configuration.ssl_ca_cert or "", verify=configuration.verify_ssl)
        if configuration.cert_file:
            made.load_cert_chain(configuration.cert_file, configuration.key_file)
        return made

    def authorization() -> str:
        settings: Any = configuration.auth_settings()
        return str(settings.get("BearerToken", {}).get("value") or "")

    kind, _, secret = authorization().partition(" ")
    return Credentials(
        server=str(configuration.host).rstrip("/"),
        tls=tls() if str(configuration.host).startswith("https") else None,
        certificate=CertificateFiles(files, tls) if files else None,
        server_name=str(configuration.tls_server_name or ""),
        token=lambda: authorization().removeprefix("Bearer "),
        runs_program=True,
        basic=base64.b64decode(secret).decode() if kind == "Basic" else "",
        proxy=str(configuration.proxy or ""),
        namespace=str(chosen["context"].get("namespace") or "default"),
        ca_file=str(configuration.ssl_ca_cert or ""),
    )
