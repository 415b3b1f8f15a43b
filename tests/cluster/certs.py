"""A certificate authority of the cluster's own, by the openssl command."""

from __future__ import annotations

import subprocess
from typing import TYPE_CHECKING

from tests.cluster.processes import ClusterError

if TYPE_CHECKING:
    from pathlib import Path

_EC = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes")


class Authority:
    """Issues certificates into one folder: ``<name>.crt`` and ``<name>.key``."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.certificate = folder / "ca.crt"

    def create(self) -> None:
        """Make the authority's own key and certificate, and the key pair of service accounts."""
        self.folder.mkdir(parents=True)
        _openssl(
            "req", "-x509", *_EC, "-days", "3650", "-subj", "/CN=rte-testbed-ca",
            "-addext", "basicConstraints=critical,CA:TRUE",
            "-addext", "keyUsage=critical,keyCertSign,cRLSign",
            "-keyout", self.folder / "ca.key", "-out", self.certificate,
        )  # fmt: skip
        secret, public = self.folder / "sa.key", self.folder / "sa.pub"
        _openssl("genrsa", "-out", secret, "2048")
        _openssl("rsa", "-in", secret, "-pubout", "-out", public)

    def issue(
        self, name: str, user: str, group: str = "", sans: str = "", folder: Path | None = None
    ) -> tuple[Path, Path]:
        """A certificate for client and server use; returns (certificate, key).

        Args:
            user: common name, the Kubernetes user.
            group: organisation, the Kubernetes group.
            sans: subject alternative names, e.g. ``IP:127.0.0.1,DNS:localhost``.
        """
        folder = folder or self.folder
        certificate, key = folder / f"{name}.crt", folder / f"{name}.key"
        request, extensions = folder / f"{name}.csr", folder / f"{name}.ext"
        subject = (f"/O={group}" if group else "") + f"/CN={user}"
        _openssl("req", "-new", *_EC, "-subj", subject, "-keyout", key, "-out", request)
        lines = [
            "basicConstraints=critical,CA:FALSE",
            "keyUsage=critical,digitalSignature",
            "extendedKeyUsage=serverAuth,clientAuth",
            "subjectKeyIdentifier=hash",
            "authorityKeyIdentifier=keyid",
        ]
        extensions.write_text(
            "\n".join(lines + ([f"subjectAltName={sans}"] if sans else [])) + "\n"
        )
        _openssl(
            "x509", "-req", "-in", request, "-days", "3650", "-CA", self.certificate,
            "-CAkey", self.folder / "ca.key", "-extfile", extensions, "-out", certificate,
        )  # fmt: skip
        request.unlink()
        extensions.unlink()
        return certificate, key


def _openssl(*args: str | Path) -> None:
    command = ["openssl", *(str(word) for word in args)]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    except FileNotFoundError as error:
        raise ClusterError("openssl is not installed: apt-get install openssl") from error
    if done.returncode:
        raise ClusterError(f"{' '.join(command)} failed: {done.stderr.strip()}")
