"""What can be set for the agent."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from rte import accounting
from rte.agent.observer.known import Scope
from rte.kubelet import DEFAULT_ROOT_DIR, PLUGIN_DIR
from rte.nrt import Method, Options

#: Below the kubelet's state directory.
PODRESOURCES_SOCKET = Path("pod-resources/kubelet.sock")


class SinkKind(StrEnum):
    """Where the NodeResourceTopology goes."""

    KUBE = "kube"
    STDOUT = "stdout"
    FILE = "file"


@dataclass(frozen=True, slots=True)
class Sink:
    """A kind, and for ``file`` the path."""

    kind: SinkKind
    path: Path | None = None


class Output(StrEnum):
    """Text form on the stdout and file sinks."""

    JSON = "json"
    YAML = "yaml"


@dataclass(frozen=True, kw_only=True)
class AgentSettings:
    """Settings of the agent; docs/configuration.md says how each is given.

    Attributes:
        sysfs_root: stands for ``/sys``; None: the real one.
        procfs_root: stands for ``/proc``; None: the real one.
        podresources_socket: address of the kubelet's podresources API; None: see ``socket``.
        kubelet_state_dir: the kubelet's root directory; None: see ``state_dir``.
        device_plugin_dir: the device manager's folder; None: see ``plugin_dir``.
        kubelet_config_file: the kubelet's configuration file; None: from the API server, the
            kubelet's command line or its usual place.
        kubelet_config_dir: directory of drop-ins for it.
        node_name: name of the Node object and of the NRT.
        kubeconfig: API server credentials; None: in-cluster, ``$KUBECONFIG`` or ``~/.kube/config``.
        oneshot: publish once and exit.
        oneshot_timeout: seconds in which one consistent reading must succeed.
        sink: where the NRT goes.
        output: text form on stdout and in a file.
        fingerprint: which pods the published fingerprint covers; None: no fingerprint.
        koordinator_annotations: publish Koordinator's annotations.
        numaplacement: publish placement data under policy single-numa-node.
        group_inventory: publish the hardware that processing groups are placed on.
        nic_speeds: (interface, Mb/s) where its driver tells none while the link is down.
        reference_container: namespace, pod and container that show the shared pool.
        exclude_pods: (namespace glob, name glob) of pods that are not accounted for.
        exclude_resources: globs of resources that no zone shows.
        metrics_listen: address of metrics and health; empty: none.
        tls_cert_file: its certificate; None: plain HTTP.
        tls_private_key_file: the key of that.
        client_ca_file: signs the certificates of those who may read metrics; None: anybody may.
        lease_namespace: where the Lease is kept that shows that the agent lives; empty: no Lease.
        poll_interval: seconds between looks at everything, in case a notification was lost.
        drift_check: compare each admission with its prediction.
        case_dir: where cases of the drift alarm are kept; None: nowhere.
    """

    sysfs_root: Path | None = None
    procfs_root: Path | None = None
    podresources_socket: str | None = None
    kubelet_state_dir: Path | None = None
    device_plugin_dir: Path | None = None
    kubelet_config_file: Path | None = None
    kubelet_config_dir: Path | None = None
    node_name: str = ""
    kubeconfig: Path | None = None
    oneshot: bool = False
    oneshot_timeout: float = 10.0
    sink: Sink = Sink(SinkKind.KUBE)
    output: Output = Output.JSON
    fingerprint: Method | None = Method.EXCLUSIVE
    koordinator_annotations: bool = True
    numaplacement: bool = True
    group_inventory: bool = False
    nic_speeds: tuple[tuple[str, int], ...] = ()
    reference_container: tuple[str, str, str] | None = None
    exclude_pods: tuple[tuple[str, str], ...] = ()
    exclude_resources: tuple[str, ...] = ()
    metrics_listen: str = ":9101"
    tls_cert_file: Path | None = None
    tls_private_key_file: Path | None = None
    client_ca_file: Path | None = None
    lease_namespace: str = "rte-agents"
    poll_interval: float = 60.0
    drift_check: bool = True
    case_dir: Path | None = None

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
            accounting=accounting.Options(
                reference_container=self.reference_container, exclude_pods=self.exclude_pods
            ),
            publish=self.nrt_options(),
        )

    def nrt_options(self, owner_uid: str = "") -> Options:
        """What to publish; ``owner_uid`` is the Node's UID where it is known."""
        return Options(
            owner_uid=owner_uid,
            fingerprint=self.fingerprint,
            koordinator=self.koordinator_annotations,
            numaplacement=self.numaplacement,
            groups=self.group_inventory,
            nic_speeds=dict(self.nic_speeds),
            exclude_resources=self.exclude_resources,
        )
