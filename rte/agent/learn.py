"""What is learnt once per start of the kubelet: its configuration, version and Node."""

from __future__ import annotations

import logging
from dataclasses import replace
from datetime import datetime
from typing import TYPE_CHECKING

from rte import errors, nrt
from rte.agent.observer.messages import NodeObjectFacts
from rte.agent.publisher.machine import NO_SUCH_NODE
from rte.kube import retry
from rte.kubelet import config as kubelet_config
from rte.kubelet import config_flags
from rte.model import quantity
from rte.model.node import ConfigSource
from rte.nrt import koordinator

if TYPE_CHECKING:
    from collections.abc import Callable

    from rte.agent.settings import AgentSettings
    from rte.kube.client import Client
    from rte.model.node import KubeletConfig, NodeState
    from rte.reader.json import Json

logger = logging.getLogger(__name__)

#: The kubelet's serving certificate, below its directory.
_KUBELET_CERTIFICATE = "pki/kubelet.crt"
#: Its configuration file, where kubeadm and most installers put it.
_KUBELET_CONFIG = "config.yaml"


def no_such_node(name: str, error: errors.KubeError) -> errors.KubeError:
    """What to say of a Node that is not there (yet)."""
    return errors.KubeError(
        f"the API server knows no node {name!r}: give its name with --node-name",
        status=error.status,
        reason=NO_SUCH_NODE,
    )


def node_facts(node: Json) -> NodeObjectFacts:
    """Read a Node object.

    Raises:
        errors.ParseError: a capacity is not a quantity, or a time is none.
    """
    status, metadata = node.get("status") or {}, node.get("metadata") or {}
    capacity, annotations = status.get("capacity") or {}, metadata.get("annotations") or {}
    return NodeObjectFacts(
        uid=str(metadata.get("uid") or ""),
        version=str((status.get("nodeInfo") or {}).get("kubeletVersion") or ""),
        capacity={name: quantity.parse_resource(name, text) for name, text in capacity.items()},
        annotations={key: annotations[key] for key in koordinator.COPIED if key in annotations},
        heard=max(
            (
                _unix_time(condition["lastHeartbeatTime"])
                for condition in status.get("conditions") or ()
                if condition.get("type") == "Ready" and condition.get("lastHeartbeatTime")
            ),
            default=None,
        ),
    )


def _unix_time(text: str) -> float:
    try:
        return datetime.fromisoformat(text).timestamp()
    except ValueError as error:
        raise errors.ParseError("time of a Node", text, str(error)) from error


class Learner:
    """Asks for configuration and Node, once at a time.

    Args:
        settings: where the configuration may be.
        client: the API server; None: it is not asked.
        must_know: a configuration that nobody can tell is an error, and not None.
    """

    def __init__(
        self, settings: AgentSettings, client: Client | None, *, must_know: bool = True
    ) -> None:
        self._settings = settings
        self._client = client
        self._must_know = must_know
        self._told = ""
        self._is_first = True

    async def learn(
        self, memory_bytes: int, patient: bool
    ) -> tuple[KubeletConfig | None, NodeObjectFacts, NodeState | None]:
        """Configuration, Node, and the first time what is published; ``patient`` as in
        :func:`read_kubelet_config`.

        Raises:
            errors.RteError: one of them cannot be known (yet).
        """
        node = await self._get_node()
        if not self._settings.asks_kubelet:
            return None, node_facts(node or {}), None
        config = await read_kubelet_config(
            self._settings, memory_bytes, self._client, node, patient=patient, tell=self._tell
        )
        if config is None and self._must_know:
            # A guess would be published as the truth, and pods placed by it.
            raise errors.KubeletError(
                "the kubelet's configuration is unknown: allow get on nodes/configz, or "
                "give --kubelet-config-file"
            )
        reported = await self._get_reported() if self._is_first else None
        self._is_first = False
        return config, node_facts(node or {}), reported

    async def owner_uid(self) -> str:
        """UID of the Node as it is now; empty where it is not known.

        Raises:
            errors.KubeError: the API server does not tell.
        """
        return node_facts(await self._get_node() or {}).uid

    async def owners(self) -> list[dict[str, str]]:
        """Owner references to the Node as it is now; as :meth:`owner_uid`."""
        uid, name = await self.owner_uid(), self._settings.node_name
        return [{"apiVersion": "v1", "kind": "Node", "name": name, "uid": uid}] if uid else []

    def _tell(self, problem: str) -> None:
        """A line that is told again when it is another one: a better source is asked for long."""
        if problem != self._told:
            self._told = problem
            logger.warning("%s", problem)

    async def _get_reported(self) -> NodeState | None:
        """What is published of this node; None: nothing that could be read."""
        if self._client is None:
            return None
        from rte.kube.resources import NRTS  # without an API server no HTTP client is loaded

        try:
            obj = await self._client.get(NRTS.path(self._settings.node_name))
            return nrt.decode(obj).state
        except errors.KubeError as error:
            if error.status not in (403, 404):
                raise
        except errors.ParseError as error:
            logger.warning("what is published of this node cannot be read: %s", error)
        return None

    async def _get_node(self) -> Json | None:
        """The Node; None where the API is not asked, or does not let us see it."""
        if self._client is None:
            return None
        from rte.kube.resources import NODES  # without an API server no HTTP client is loaded

        try:
            node: Json = await self._client.get(NODES.path(self._settings.node_name))
        except errors.KubeError as error:
            if error.status == 404:
                raise no_such_node(self._settings.node_name, error) from error
            if error.status != 403:
                raise
            logger.warning("the Node may not be read, so the object has no owner: %s", error)
            return None
        return node


async def read_kubelet_config(
    settings: AgentSettings,
    memory_bytes: int,
    client: Client | None = None,
    node: Json | None = None,
    *,
    patient: bool = False,
    tell: Callable[[str], None] = logger.warning,
) -> KubeletConfig | None:
    """From the named file; else the kubelet itself, by the API; else this host; None: unknown.

    ``tell`` hears why the kubelet itself gave no answer.

    Raises:
        errors.KubeletError: the configuration found cannot be used.
        errors.KubeError: ``patient``, and the kubelet does not answer (yet).
    """
    if settings.kubelet_config_file or settings.kubelet_config_dir:
        named = kubelet_config.from_files(
            settings.kubelet_config_file, settings.kubelet_config_dir, memory_bytes=memory_bytes
        )
        return replace(named, source=ConfigSource.NAMED_FILE)
    if client is not None and node is not None:
        from rte.kube.node import read_configz  # without an API server no HTTP client is loaded

        certificate = settings.state_dir / _KUBELET_CERTIFICATE if settings.state_dir else None
        try:
            answer = await read_configz(client, node, kubelet_certificate=certificate)
            asked = kubelet_config.from_configz(answer, memory_bytes=memory_bytes)
            return replace(asked, source=ConfigSource.CONFIGZ)
        except errors.KubeError as error:
            if patient and retry.is_transient(error):
                raise
            tell(f"the kubelet's configuration is looked for on this host: {error}")
    return _host_config(settings, memory_bytes)


def _host_config(settings: AgentSettings, memory_bytes: int) -> KubeletConfig | None:
    if settings.sysfs_root is None and settings.state_dir is not None:
        flags = config_flags.find_command_line(settings.procfs, settings.state_dir)
        if flags is not None:
            started = kubelet_config.from_flags(flags, memory_bytes=memory_bytes)
            return replace(started, source=ConfigSource.COMMAND_LINE)
    usual = settings.state_dir / _KUBELET_CONFIG if settings.state_dir else None
    if usual is not None and usual.is_file():
        assumed = kubelet_config.from_files(usual, memory_bytes=memory_bytes)
        return replace(assumed, source=ConfigSource.USUAL_FILE)
    return None
