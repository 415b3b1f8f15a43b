"""What can be set for the scheduler."""

from dataclasses import dataclass
from typing import Annotated

from rte import errors
from rte.k8s.selectors import NodeTerm, parse_text
from rte.options import Amount, File, Flag, Folder, Listen, Seconds, Switch, Syntax, Text

#: Carried by the Leases by which agents show that they live.
AGENT_LEASE_LABELS = "app.kubernetes.io/name=rte-agent"

_ASKED = ("scheduler", "explain")


def parse_selector(value: str) -> NodeTerm:
    """A label selector that asks for something."""
    try:
        found = parse_text(value)
    except errors.ParseError as error:
        raise ValueError(str(error)) from None
    if not found.expressions:
        raise ValueError("expected a label selector, for example pool=a")
    return found


@dataclass(frozen=True, kw_only=True)
class SchedulerSettings:
    """Settings of the scheduler: what each means is said by its flag."""

    kubeconfig: Annotated[
        File,
        Flag(
            "credentials for the API server",
            default="in-cluster, else $KUBECONFIG, else ~/.kube/config",
        ),
    ] = None
    scheduler_name: Annotated[
        Text, Flag("pods with this spec.schedulerName are placed", commands=_ASKED)
    ] = "rte-scheduler"
    also_for: Annotated[
        tuple[Text, ...],
        Flag("further spec.schedulerNames whose pods are placed (several)", commands=_ASKED),
    ] = ()
    nodes: Annotated[
        NodeTerm | None,
        Syntax(parse_selector, "SELECTOR"),
        Flag(
            "pods are placed on nodes with these labels only (as kubectl -l takes them)",
            default="all nodes",
        ),
    ] = None
    listen: Annotated[
        Listen, Flag("address of /metrics, /healthz, /readyz, /explain, /fit, /groups and /view")
    ] = "127.0.0.1:10260"
    listen_tls: Annotated[Switch, Flag("serve that over TLS, with the files below")] = False
    extender_listen: Annotated[
        Listen, Flag("address of the extender's verbs, for kube-scheduler")
    ] = ""
    tls_cert_file: Annotated[
        File,
        Flag(
            "certificate of the extender's address, and of --listen with --listen-tls",
            default="none: plain HTTP, the extender on a loopback address only",
        ),
    ] = None
    tls_private_key_file: Annotated[File, Flag("key of that certificate")] = None
    client_ca_file: Annotated[
        File,
        Flag("authority of the client certificates that kube-scheduler and others may show there"),
    ] = None
    extender_profiles: Annotated[
        tuple[Text, ...],
        Flag("pods with this spec.schedulerName are bound through the extender (several)"),
    ] = ("default-scheduler",)
    leader_elect: Annotated[Switch, Flag("bind only as the holder of a Lease")] = True
    lease_namespace: Annotated[
        Text, Flag("where that Lease is", "NAMESPACE", key="scheduler-lease-namespace")
    ] = "kube-system"
    lease_name: Annotated[
        Text,
        Flag("name of that Lease", default="rte-scheduler; with --nodes that of --scheduler-name"),
    ] = ""
    lease_seconds: Annotated[
        Seconds, Flag("a holder that has not renewed for this long is replaced")
    ] = 3.0
    renew_seconds: Annotated[
        Seconds, Flag("time between renewals, half of --lease-seconds at most")
    ] = 1.0
    agent_namespace: Annotated[
        Text,
        Flag(
            "where the agents' Leases are (their lease-namespace)",
            "NAMESPACE",
            commands=("scheduler", "view", "explain", "doctor"),
        ),
    ] = "rte-agents"
    bind_timeout: Annotated[
        Seconds, Flag("a bind without an answer is read back after this long")
    ] = 2.0
    reserve_after: Annotated[
        Amount, Flag("a pod that has waited for this long gets a node reserved; 0: never")
    ] = 60.0
    align_patience: Annotated[
        Amount,
        Flag(
            "a pod that another node would take waits this long for one where its DRA devices are "
            "aligned; 0: not at all"
        ),
    ] = 30.0
    gang_timeout: Annotated[
        Amount,
        Flag("a gang in part that finds no more places is deleted after this long; 0: never"),
    ] = 60.0
    preemption: Annotated[Switch, Flag("evict pods of lower priority where that makes room")] = True
    move_every: Annotated[
        Amount,
        Flag(
            "for pods that have waited this long, move others that carry the label "
            "topology.rte.dev/may-move=true, one pod in this many seconds; 0: none"
        ),
    ] = 0.0
    clean_refused: Annotated[
        Amount,
        Flag(
            "delete a ReplicaSet's pods this long after a kubelet has refused them, and all others "
            "with the label topology.rte.dev/clean-refused=true; 0: never"
        ),
    ] = 0.0
    collect_reports: Annotated[
        Amount,
        Flag(
            "delete NodeResourceTopologies whose Node has been gone for this long, as nfd-gc does; "
            "0: never"
        ),
    ] = 0.0
    shared_limit: Annotated[
        Amount,
        Flag("most CPU limits of sharing pods per CPU of the shared pool; 0: no bound", "RATIO"),
    ] = 0.0
    resource_status: Annotated[
        Switch, Flag("write Koordinator's resource-status where no CPU manager assigns CPUs")
    ] = False
    fit_shapes: Annotated[
        File, Flag("pods (YAML) of which it is measured how many fit: rte_fit_pods{shape}")
    ] = None
    kueue_controller_name: Annotated[
        Text,
        Flag(
            "decide about Kueue's AdmissionChecks with this controllerName: a Workload may start "
            "when its pods fit into zones",
            default="none: about no AdmissionCheck",
        ),
    ] = ""
    kueue_hold: Annotated[
        Amount,
        Flag(
            "a Workload that does not fit keeps its quota this long, for room that may come; then "
            "its check says Retry"
        ),
    ] = 30.0
    device_share: Annotated[
        Switch,
        Flag("choose GPUs, RDMA NICs and FPGAs by Koordinator's Device objects and annotations"),
    ] = False
    groups_policy: Annotated[
        File,
        Flag(
            "rules of processing groups by class of node (docs/groups.md)",
            "FILE",
            default="none: the defaults",
        ),
    ] = None
    scores: Annotated[
        File,
        Flag(
            "what the pods of each schedulerName prefer: scoringStrategy, weights "
            "(docs/scheduler.md)",
            "FILE",
            default="none: the defaults",
        ),
    ] = None
    stats_listen: Annotated[Listen, Flag("address of NHD's gRPC statistics, over TLS")] = ""
    stats_cert: Annotated[File, Flag("certificates of the statistics' server, in PEM", "FILE")] = (
        None
    )
    stats_key: Annotated[File, Flag("its private key", "FILE")] = None
    stats_client_ca: Annotated[
        File,
        Flag(
            "only clients with a certificate of this authority are served",
            "FILE",
            default="none: anybody may ask",
        ),
    ] = None
    case_dir: Annotated[
        Folder,
        Flag(
            "where the drift alarm keeps cases, for rte explain --case",
            default="none: they are logged, not kept",
        ),
    ] = None

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
