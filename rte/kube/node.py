"""A Node object, and the effective configuration of its kubelet (configz)."""

from __future__ import annotations

import logging
from dataclasses import replace
from typing import TYPE_CHECKING

from rte import errors
from rte.kube.client import UNVERIFIED, Client
from rte.kube.credentials import tls_context, trust
from rte.kube.resources import NODES

if TYPE_CHECKING:
    from pathlib import Path

    from rte.reader.json import Json, JsonObject, JsonValue

logger = logging.getLogger(__name__)


async def read_configz(
    client: Client, node: Json, *, kubelet_certificate: Path | None = None
) -> JsonObject:
    """The answer of configz: ``{"kubeletconfig": {...}}``.

    The kubelet itself is asked first, on its own port with our token: that needs no more than
    ``get`` on ``nodes/configz`` (KEP-2862). Its certificate must come from the cluster's CA or be
    ``kubelet_certificate``, the one that it made for itself. Else the API server is asked to pass
    the question on, which needs ``get`` on ``nodes/proxy``.

    Raises:
        errors.KubeError: neither way gave an answer; the message tells both reasons. ``status`` is
            0 when the kubelet may only be starting.
    """
    name = str(node["metadata"]["name"])
    reasons, starting = [], False
    address = kubelet_address(node)
    if address and client.credentials.tls:
        try:
            return await _ask_kubelet(client, name, address, kubelet_certificate)
        except errors.KubeError as error:
            reasons.append(f"kubelet: {error}{_why_unverified(error, kubelet_certificate)}")
            starting = error.status == 0 and error.reason != UNVERIFIED
    try:
        answer = await client.get(f"{NODES.path(name)}/proxy/configz")
    except errors.KubeError as error:
        reasons.append(f"API server: {error}")
        raise errors.KubeError(
            f"cannot read the configuration of the kubelet of {name} (allow get on nodes/configz, "
            f"or give --kubelet-config-file): {'; '.join(reasons)}",
            status=0 if starting else error.status,
            reason=error.reason,
        ) from error
    return _table(answer)


def kubelet_address(node: Json) -> str:
    """``https://IP:PORT`` of a node's kubelet; "" while the Node does not tell.

    Of several addresses of a type the first counts: the kubelet puts its ``--node-ip`` there
    (GetPreferredNodeAddress in pkg/util/node, NodeAddress in pkg/kubelet/nodestatus).
    """
    status = node.get("status") or {}
    endpoint = (status.get("daemonEndpoints") or {}).get("kubeletEndpoint") or {}
    port = endpoint.get("Port")
    addresses: dict[str, str] = {}
    for item in status.get("addresses") or []:
        addresses.setdefault(str(item.get("type")), str(item.get("address") or ""))
    host = addresses.get("InternalIP") or addresses.get("ExternalIP")
    if not (host and port):
        return ""
    return f"https://[{host}]:{port}" if ":" in host else f"https://{host}:{port}"


async def _ask_kubelet(
    client: Client, name: str, address: str, certificate: Path | None
) -> JsonObject:
    access = client.credentials
    tls = tls_context(access.ca_file, access.ca_data)
    if certificate and certificate.is_file():
        trust(tls, str(certificate))
    # Kubelets' certificates name the node; many of them leave out its address.
    kubelet = replace(
        access, server=address, tls=tls, server_name=name, proxy="", ca_file="", certificate=None
    )
    async with Client(kubelet, timeout_s=5.0, component="rte-agent") as direct:
        return _table(await direct.get("/configz"))


def _why_unverified(error: errors.KubeError, certificate: Path | None) -> str:
    """A file that is mounted alone stays the one that was there when the container was made."""
    if error.reason != UNVERIFIED or certificate is None or not certificate.is_file():
        return ""
    is_replaced = certificate.stat().st_nlink == 0
    return f" ({certificate} was made anew since: restart this container)" if is_replaced else ""


def _table(answer: JsonValue) -> JsonObject:
    if not isinstance(answer, dict):
        raise errors.KubeError("kubelet configz: the answer is not a JSON object")
    return answer
