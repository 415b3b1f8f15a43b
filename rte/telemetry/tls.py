"""TLS of a listener: its certificate, and the authority of its clients."""

from __future__ import annotations

import asyncio
import logging
import ssl
from dataclasses import dataclass
from typing import TYPE_CHECKING

from rte import errors

if TYPE_CHECKING:
    from pathlib import Path

logger = logging.getLogger(__name__)

#: Between looks at the files; cert-manager and kubeadm renew long before the end.
_LOOK_S = 60.0


@dataclass(frozen=True, slots=True)
class TLSFiles:
    """Certificate and key in PEM, and the CA that signs client certificates (None: nobody's)."""

    certificate: Path
    key: Path
    client_ca: Path | None = None

    @classmethod
    def given(
        cls, certificate: Path | None, key: Path | None, client_ca: Path | None
    ) -> TLSFiles | None:
        """What the flags name; None where none does.

        Raises:
            errors.UsageError: one of them lacks another one.
        """
        if (certificate is None) != (key is None):
            raise errors.UsageError("--tls-cert-file and --tls-private-key-file belong together")
        if certificate is not None and key is not None:
            return cls(certificate, key, client_ca)
        if client_ca is not None:
            raise errors.UsageError("--client-ca-file needs --tls-cert-file")
        return None

    def context(self) -> ssl.SSLContext:
        """A server's context; a client certificate is verified where one is given.

        Who comes without one is anonymous: health is for everybody, and a token may do elsewhere.

        Raises:
            errors.UsageError: a file is missing, or not what it should be.
        """
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        try:
            context.load_cert_chain(self.certificate, self.key)
            if self.client_ca is not None:
                context.load_verify_locations(self.client_ca)
                context.verify_mode = ssl.CERT_OPTIONAL
        except (OSError, ssl.SSLError) as error:
            raise errors.UsageError(
                f"the TLS files {self.certificate}, {self.key}, {self.client_ca or '-'} cannot be "
                f"used: {error.strerror or error}"
            ) from error
        return context

    async def follow(self, context: ssl.SSLContext) -> None:
        """Load the files again when they change; until cancelled."""
        known = self._times()
        while True:
            await asyncio.sleep(_LOOK_S)
            if (now := self._times()) == known:
                continue
            try:
                context.load_cert_chain(self.certificate, self.key)
                if self.client_ca is not None:
                    context.load_verify_locations(self.client_ca)
            except (OSError, ssl.SSLError) as error:
                logger.warning("the new TLS files cannot be used, the old ones stay: %s", error)
            else:
                known = now
                logger.info("TLS files were loaded again")

    def _times(self) -> list[int]:
        times = []
        for path in (self.certificate, self.key, self.client_ca):
            try:
                times.append(path.stat().st_mtime_ns if path else 0)
            except OSError:
                times.append(0)
        return times
