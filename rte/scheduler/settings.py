"""What can be set for the scheduler."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

    from rte.k8s.selectors import NodeTerm

#: Carried by the Leases by which agents show that they live.
AGENT_LEASE_LABELS = "app.kubernetes.io/name=rte-agent"


@dataclass(frozen=True, kw_only=True)
class SchedulerSettings:
    """Settings of the scheduler; docs/configuration.md says how each is given.

    Attributes:
        kubeconfig: API server credentials; None: in-cluster, ``$KUBECONFIG`` or ``~/.kube/config``.
        scheduler_name: pods with this ``spec.schedulerName`` are ours.
        also_for: further names whose pods are ours (kube-scheduler has profiles for this).
        nodes: labels of the nodes on which pods are placed; None: all.
        listen: address of health, metrics and ``/explain``; empty: none.
        listen_tls: serve it over TLS, as the extender.
        extender_listen: address of the extender verbs; empty: none.
        tls_cert_file: our certificate; None: plain HTTP, the extender on a loopback address only.
        tls_private_key_file: its key.
        client_ca_file: signs the certificates of clients.
        extender_profiles: pods with these ``spec.schedulerName`` are bound through the extender.
        leader_elect: only the holder of the Lease binds.
        lease_namespace: of the Lease.
        lease_name: of the Lease; empty: see :attr:`lease`.
        agent_namespace: where the agents' Leases are.
        lease_seconds: a holder that has not renewed for so long is replaced.
        renew_seconds: between renewals.
        bind_timeout: seconds for one bind request.
        reserve_after: seconds after which a waiting pod gets a node reserved; 0: never.
        align_patience: seconds for which a pod waits for a node where its DRA devices are aligned,
            once another node would take it.
        gang_timeout: seconds after which a gang that stays in part is released; 0: never.
        move_every: seconds between two pods that are moved so that another one gets a place; 0:
            none is.
        preemption: evict pods of lower priority where that makes room.
        shared_limit: most CPU limits of sharing pods per CPU of the shared pool; 0: no bound.
        case_dir: where cases of the drift alarm are kept; None: nowhere.
        device_share: choose devices by Koordinator's Device objects and annotations.
        groups_policy: file with the rules of processing groups; None: the defaults.
        scores: file with what the pods of each profile prefer; None: all as ever.
        stats_listen: address of NHD's gRPC statistics; empty: none.
        stats_cert: their certificates, ``stats_key`` the private key.
        stats_client_ca: authority of the clients that may ask; None: anybody may.
        fit_shapes: YAML file of pods whose number that fits is measured; None: none.
        kueue_controller_name: decide about Kueue's AdmissionChecks of this ``controllerName``;
            empty: about none.
        kueue_hold: seconds for which a Workload that does not fit keeps its quota.
        resource_status: write Koordinator's resource-status for nodes without a CPU manager.
    """

    kubeconfig: Path | None = None
    scheduler_name: str = "rte-scheduler"
    also_for: tuple[str, ...] = ()
    nodes: NodeTerm | None = None
    listen: str = "127.0.0.1:10260"
    listen_tls: bool = False
    extender_listen: str = ""
    tls_cert_file: Path | None = None
    tls_private_key_file: Path | None = None
    client_ca_file: Path | None = None
    extender_profiles: tuple[str, ...] = ("default-scheduler",)
    leader_elect: bool = True
    lease_namespace: str = "kube-system"
    lease_name: str = ""
    agent_namespace: str = "rte-agents"
    lease_seconds: float = 3.0
    renew_seconds: float = 1.0
    bind_timeout: float = 2.0
    reserve_after: float = 60.0
    align_patience: float = 30.0
    gang_timeout: float = 60.0
    move_every: float = 0.0
    preemption: bool = True
    shared_limit: float = 0.0
    case_dir: Path | None = None
    fit_shapes: Path | None = None
    kueue_controller_name: str = ""
    kueue_hold: float = 30.0
    resource_status: bool = False
    device_share: bool = False
    groups_policy: Path | None = None
    scores: Path | None = None
    stats_listen: str = ""
    stats_cert: Path | None = None
    stats_key: Path | None = None
    stats_client_ca: Path | None = None

    @property
    def profiles(self) -> tuple[str, ...]:
        """``spec.schedulerName`` of all pods about which it is asked."""
        behind = self.extender_profiles if self.extender_listen else ()
        return (self.scheduler_name, *self.also_for, *behind)

    @property
    def lease(self) -> str:
        """Name of the Lease: schedulers of pools are active side by side, others one at a time."""
        if self.lease_name:
            return self.lease_name
        return self.scheduler_name if self.nodes else "rte-scheduler"
