"""What can be set for the agent."""

import re
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Annotated

from rte import accounting
from rte.accounting import globs
from rte.agent.observer.known import Scope
from rte.kubelet import DEFAULT_ROOT_DIR, PLUGIN_DIR
from rte.nrt import Method, WriterOptions
from rte.options import (
    NO,
    Bool,
    File,
    Flag,
    Folder,
    Listen,
    Presence,
    Seconds,
    Syntax,
    namespace,
    one_of,
    text,
)

#: Below the kubelet's state directory.
PODRESOURCES_SOCKET = Path("pod-resources/kubelet.sock")


class SinkKind(StrEnum):
    """Where the NodeResourceTopology goes."""

    KUBE = "kube"
    STDOUT = "stdout"
    FILE = "file"


@dataclass(frozen=True, slots=True)
class SinkSetting:
    """A kind, and for ``file`` the path."""

    kind: SinkKind
    path: Path | None = None


class Output(StrEnum):
    """Text form on the stdout and file sinks."""

    JSON = "json"
    YAML = "yaml"


def parse_node_name(value: str) -> str:
    """The name of a Node: a DNS subdomain (RFC 1123), as the API server asks."""
    if len(value) > 253 or not re.fullmatch(r"[a-z0-9]([-.a-z0-9]*[a-z0-9])?", value):
        raise ValueError("expected the name of a Node: lower-case letters, digits, '-' and '.'")
    return value


def parse_sink(value: str) -> SinkSetting:
    """``kube``, ``stdout`` or ``file:PATH``."""
    kind, _, where = value.partition(":")
    if value in (SinkKind.KUBE, SinkKind.STDOUT):
        return SinkSetting(SinkKind(value))
    if kind == SinkKind.FILE and where:
        return SinkSetting(SinkKind.FILE, Path(where))
    raise ValueError("expected kube, stdout or file:PATH")


def parse_fingerprint(value: str) -> Method | None:
    """A method, or ``off``."""
    if value.lower() in NO:
        return None
    try:
        return Method(value)
    except ValueError:
        raise ValueError(f"expected one of {', '.join(Method)}, off") from None


def parse_container(value: str) -> tuple[str, str, str]:
    """``NAMESPACE/POD/CONTAINER``."""
    parts = tuple(part.strip() for part in value.split("/"))
    if len(parts) != 3 or not all(parts):
        raise ValueError("expected NAMESPACE/POD/CONTAINER")
    return parts[0], parts[1], parts[2]


def parse_pod_glob(value: str) -> tuple[str, str]:
    """``NAMESPACE/NAME`` with shell wildcards."""
    namespace_glob, slash, name_glob = value.partition("/")
    if not (namespace_glob and slash and name_glob) or "/" in name_glob:
        raise ValueError("expected NAMESPACE/NAME, each with wildcards * ? [...]")
    return parse_glob(namespace_glob), parse_glob(name_glob)


def parse_glob(value: str) -> str:
    """Text with shell wildcards, of which ``*`` stops at a slash."""
    globs.compile_glob(value)
    return value


def parse_nic_speed(value: str) -> tuple[str, int]:
    """``NAME=MBPS``."""
    interface, _, mbps = value.partition("=")
    if not interface or not (mbps.isascii() and mbps.isdigit() and 0 < int(mbps[:9]) < 10**8):
        raise ValueError("expected INTERFACE=MBPS, e.g. ens1f0=100000")
    return interface, int(mbps)


#: Commands that read a node, and those that read a cluster.
_READERS = ("run", "topology", "snapshot")
_CLUSTER = (
    "run", "topology", "explain", "fit", "defrag", "drain", "balloon", "simulate", "snapshot",
    "view", "doctor",
)  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class AgentSettings:
    """Settings of the agent: what each means is said by its flag."""

    sysfs_root: Annotated[
        Folder,
        Flag(
            "directory that stands for /sys; then no kubelet is asked unless one is named",
            default="/sys",
            commands=_READERS,
        ),
    ] = None
    procfs_root: Annotated[
        Folder, Flag("directory that stands for /proc", default="/proc", commands=_READERS)
    ] = None
    podresources_socket: Annotated[
        str | None,
        Syntax(text, "ADDR"),
        Flag(
            "the kubelet's podresources API, unix:///PATH or a path",
            default="unix:///var/lib/kubelet/pod-resources/kubelet.sock (not with --sysfs-root)",
            commands=_READERS,
        ),
    ] = None
    kubelet_state_dir: Annotated[
        Folder,
        Flag(
            "the kubelet's root directory, with its state files",
            default="/var/lib/kubelet (not with --sysfs-root)",
            commands=_READERS,
        ),
    ] = None
    device_plugin_dir: Annotated[
        Folder,
        Flag(
            "the device manager's folder, with its checkpoint",
            default="/var/lib/kubelet/device-plugins, whatever the kubelet's root directory is "
            "(with --sysfs-root: device-plugins in --kubelet-state-dir)",
            commands=_READERS,
        ),
    ] = None
    kubelet_config_file: Annotated[
        File,
        Flag(
            "the kubelet's configuration file",
            default="what the kubelet itself says, else config.yaml in its root directory",
            commands=_READERS,
        ),
    ] = None
    kubelet_config_dir: Annotated[
        Folder,
        Flag("directory of drop-ins for the kubelet's configuration file", commands=_READERS),
    ] = None
    node_name: Annotated[
        str,
        Syntax(parse_node_name, "N"),
        Flag(
            "name of the Node, and of its NodeResourceTopology",
            default="the host's name",
            variables=("NODE_NAME",),
        ),
    ] = ""
    kubeconfig: Annotated[
        File,
        Flag(
            "credentials for the API server",
            default="in-cluster, else $KUBECONFIG, else ~/.kube/config",
            commands=_CLUSTER,
        ),
    ] = None
    oneshot: Annotated[
        Presence, Flag("publish once and exit; fails when the kubelet does not answer")
    ] = False
    oneshot_timeout: Annotated[
        Seconds, Flag("time in which --oneshot must have read a consistent state")
    ] = 10.0
    sink: Annotated[
        SinkSetting,
        Syntax(parse_sink, "kube|stdout|file:PATH"),
        Flag("where the NodeResourceTopology goes", default="kube"),
    ] = SinkSetting(SinkKind.KUBE)
    output: Annotated[
        Output,
        Syntax(one_of(Output), "json|yaml"),
        Flag("form of the NodeResourceTopology on stdout or in a file", short="o"),
    ] = Output.JSON
    fingerprint: Annotated[
        Method | None,
        Syntax(parse_fingerprint, "METHOD"),
        Flag("pods that the fingerprint covers: with-exclusive-resources, all, or off"),
    ] = Method.EXCLUSIVE
    koordinator_annotations: Annotated[
        Bool, Flag("publish the annotations that Koordinator reads")
    ] = True
    numaplacement: Annotated[
        Bool, Flag("publish container placement under topology policy single-numa-node")
    ] = True
    legacy_policies: Annotated[
        Bool, Flag("publish topologyPolicies, which consumers that know attributes complain about")
    ] = True
    group_inventory: Annotated[
        Bool, Flag("publish the hardware that processing groups are placed on")
    ] = False
    nic_speeds: Annotated[
        tuple[Annotated[tuple[str, int], Syntax(parse_nic_speed, "NAME=MBPS")], ...],
        Flag("speeds of interfaces that report none while their link is down (several)"),
    ] = ()
    reference_container: Annotated[
        tuple[str, str, str] | None,
        Syntax(parse_container, "NS/POD/CONTAINER"),
        Flag("a container without exclusive CPUs, which shows the shared pool on old kubelets"),
    ] = None
    exclude_pods: Annotated[
        tuple[Annotated[tuple[str, str], Syntax(parse_pod_glob, "NS/NAME")], ...],
        Flag("pods that are not accounted for (wildcards; several)"),
    ] = ()
    exclude_resources: Annotated[
        tuple[Annotated[str, Syntax(parse_glob, "NAME")], ...],
        Flag("resources that no zone shows (wildcards; several)"),
    ] = ()
    metrics_listen: Annotated[Listen, Flag("address of /metrics, /healthz and /readyz")] = ":9101"
    tls_cert_file: Annotated[
        File, Flag("certificate of that address", default="none: plain HTTP")
    ] = None
    tls_private_key_file: Annotated[File, Flag("key of that certificate")] = None
    client_ca_file: Annotated[
        File,
        Flag(
            "authority of the client certificates that /metrics asks for",
            default="none: anybody may read metrics",
        ),
    ] = None
    lease_namespace: Annotated[
        str,
        Syntax(namespace, "NAMESPACE|off"),
        Flag("where the Lease is kept that shows that this node's agent lives"),
    ] = "rte-agents"
    poll_interval: Annotated[
        Seconds, Flag("time between looks at everything, in case a notification was lost")
    ] = 60.0
    drift_check: Annotated[Bool, Flag("compare each admission with its prediction")] = True
    case_dir: Annotated[
        Folder,
        Flag(
            "where the drift alarm keeps cases, for rte explain --case",
            default="none: they are logged, not kept",
        ),
    ] = None

    @property
    def sysfs(self) -> Path:
        """The sysfs root to read."""
        return self.sysfs_root or Path("/sys")

    @property
    def procfs(self) -> Path:
        """The procfs root to read."""
        return self.procfs_root or Path("/proc")

    @property
    def asks_kubelet(self) -> bool:
        """False for hardware that is not this host's while no kubelet is named with it."""
        named = self.podresources_socket is not None or self.kubelet_state_dir is not None
        return named or self.sysfs_root is None

    @property
    def _host_kubelet(self) -> bool:
        return self.asks_kubelet and self.sysfs_root is None

    @property
    def state_dir(self) -> Path | None:
        """The kubelet's directory; this host's by default, None beside foreign hardware."""
        if self.kubelet_state_dir is not None:
            return self.kubelet_state_dir
        return DEFAULT_ROOT_DIR if self._host_kubelet else None

    @property
    def plugin_dir(self) -> Path | None:
        """The device manager's folder. A kubelet of this host has it in the usual place whatever
        its root directory is; a capture or a stand-in has it below the directory that is named.
        """
        if self.device_plugin_dir is not None:
            return self.device_plugin_dir
        root = DEFAULT_ROOT_DIR if self._host_kubelet else self.state_dir
        return root / PLUGIN_DIR if root is not None else None

    @property
    def socket(self) -> str | None:
        """The podresources address; below the state directory by default (this host only)."""
        if self.podresources_socket is not None:
            return self.podresources_socket
        if self._host_kubelet and self.state_dir is not None:
            return f"unix://{self.state_dir / PODRESOURCES_SOCKET}"
        return None

    def scope(self, *, pods: bool) -> Scope:
        """What the observer is about; ``pods``: the API server is asked for the node's pods."""
        return Scope(
            node_name=self.node_name,
            kubelet=self.asks_kubelet,
            files=self.state_dir is not None,
            podresources=self.socket is not None,
            pods=pods,
            accounting=accounting.ReadingOptions(
                reference_container=self.reference_container, exclude_pods=self.exclude_pods
            ),
            publish=WriterOptions(
                fingerprint=self.fingerprint,
                koordinator=self.koordinator_annotations,
                numaplacement=self.numaplacement,
                legacy_policies=self.legacy_policies,
                groups=self.group_inventory,
                nic_speeds=dict(self.nic_speeds),
                exclude_resources=self.exclude_resources,
            ),
        )
