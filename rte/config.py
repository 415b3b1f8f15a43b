"""Settings from flags, environment and a YAML file, merged into one frozen Config.

Precedence: defaults < file < environment < flags; a source counts only for what it really sets.
The components own their settings; here is one table row for each that can be set from outside:
flag ``--log-level``, variable ``RTE_LOG_LEVEL`` and file key ``log-level`` are derived from it. One
file and one environment may serve several commands: each takes what is its own.
"""

from __future__ import annotations

import argparse
import math
import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rte import errors
from rte.accounting import globs
from rte.agent.settings import AgentSettings, Output, Sink, SinkKind
from rte.k8s.selectors import parse_text
from rte.nrt import Method
from rte.scheduler.settings import SchedulerSettings
from rte.telemetry.logs import Format, Level, LogSettings

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from enum import StrEnum

    from rte.k8s.selectors import NodeTerm

#: Names the file; itself not a key of it.
FILE_OPTION = "config"
_YES = ("true", "yes", "on", "1")
_NO = ("false", "no", "off", "0")


@dataclass(frozen=True, kw_only=True)
class Config:
    """The settings of all components."""

    agent: AgentSettings = field(default_factory=AgentSettings)
    scheduler: SchedulerSettings = field(default_factory=SchedulerSettings)
    log: LogSettings = field(default_factory=LogSettings)


@dataclass(frozen=True, kw_only=True)
class Option:
    """One setting.

    Attributes:
        name: of the flag, without dashes, and of the key in the file unless ``key`` differs.
        field: ``component.attribute`` in Config.
        parse: from text; raises ValueError saying what was expected.
        value: what the value is called in ``--help``; a flag without value is empty.
        help: one line.
        default: shown in the documentation.
        commands: the commands that have it.
        short: one-letter flag.
        variables: further environment variables, weaker than the derived one.
        several: may be given more than once; separated by commas in one text.
        switches: the flag takes no value and has a counterpart ``--no-...``.
        key: in the file, and for the variable, where the flag means something else elsewhere.
    """

    name: str
    field: str
    parse: Callable[[str], object]
    value: str
    help: str
    default: str
    commands: tuple[str, ...] = ("run",)
    short: str = ""
    variables: tuple[str, ...] = ()
    several: bool = False
    switches: bool = False
    key: str = ""

    @property
    def file_key(self) -> str:
        """The key in the file."""
        return self.key or self.name

    @property
    def variable(self) -> str:
        """The environment variable."""
        return "RTE_" + self.file_key.upper().replace("-", "_")


def text(value: str) -> str:
    """Any text."""
    return value


def path(value: str) -> Path:
    """A path, not empty."""
    if not value or "\0" in value:
        raise ValueError("expected a path")
    return Path(value)


def switch(value: str) -> bool:
    """On or off."""
    if value.lower() in _YES:
        return True
    if value.lower() in _NO:
        return False
    raise ValueError("expected true or false")


def seconds(value: str) -> float:
    """A positive number of seconds."""
    try:
        number = float(value)
    except ValueError:
        number = math.nan
    if not (0 < number < math.inf):
        raise ValueError("expected a positive number of seconds")
    return number


def amount(value: str) -> float:
    """A number, not negative."""
    try:
        number = float(value)
    except ValueError:
        number = math.nan
    if not (0 <= number < math.inf):
        raise ValueError("expected 0 or a positive number")
    return number


def name(value: str) -> str:
    """Any text but none."""
    if not value:
        raise ValueError("expected a name")
    return value


def node(value: str) -> str:
    """The name of a Node: a DNS subdomain (RFC 1123), as the API server asks."""
    if len(value) > 253 or not re.fullmatch(r"[a-z0-9]([-.a-z0-9]*[a-z0-9])?", value):
        raise ValueError("expected the name of a Node: lower-case letters, digits, '-' and '.'")
    return value


def selector(value: str) -> NodeTerm:
    """A label selector that asks for something."""
    try:
        found = parse_text(value)
    except errors.ParseError as error:
        raise ValueError(str(error)) from None
    if not found.expressions:
        raise ValueError("expected a label selector, for example pool=a")
    return found


def one_of(kind: type[StrEnum]) -> Callable[[str], StrEnum]:
    """A member of an enumeration, by its value."""

    def parse(value: str) -> StrEnum:
        try:
            return kind(value)
        except ValueError:
            raise ValueError("expected one of " + ", ".join(kind)) from None

    return parse


def sink(value: str) -> Sink:
    """``kube``, ``stdout`` or ``file:PATH``."""
    kind, _, where = value.partition(":")
    if value in (SinkKind.KUBE, SinkKind.STDOUT):
        return Sink(SinkKind(value))
    if kind == SinkKind.FILE and where:
        return Sink(SinkKind.FILE, Path(where))
    raise ValueError("expected kube, stdout or file:PATH")


def fingerprint(value: str) -> Method | None:
    """A method, or ``off``."""
    if value.lower() in _NO:
        return None
    try:
        return Method(value)
    except ValueError:
        raise ValueError(f"expected one of {', '.join(Method)}, off") from None


def container(value: str) -> tuple[str, str, str]:
    """``NAMESPACE/POD/CONTAINER``."""
    parts = tuple(part.strip() for part in value.split("/"))
    if len(parts) != 3 or not all(parts):
        raise ValueError("expected NAMESPACE/POD/CONTAINER")
    return parts[0], parts[1], parts[2]


def pod_glob(value: str) -> tuple[str, str]:
    """``NAMESPACE/NAME`` with shell wildcards."""
    namespace_glob, slash, name_glob = value.partition("/")
    if not (namespace_glob and slash and name_glob) or "/" in name_glob:
        raise ValueError("expected NAMESPACE/NAME, each with wildcards * ? [...]")
    return glob(namespace_glob), glob(name_glob)


def glob(value: str) -> str:
    """Text with shell wildcards, of which ``*`` stops at a slash."""
    globs.compile_glob(value)
    return value


def nic_speed(value: str) -> tuple[str, int]:
    """``NAME=MBPS``."""
    interface, _, mbps = value.partition("=")
    if not interface or not (mbps.isascii() and mbps.isdigit() and 0 < int(mbps[:9]) < 10**8):
        raise ValueError("expected INTERFACE=MBPS, e.g. ens1f0=100000")
    return interface, int(mbps)


def listen(value: str) -> str:
    """``HOST:PORT``, ``:PORT``, or ``off``."""
    if not value or value.lower() in _NO:
        return ""
    port = value.rpartition(":")[2]
    if ":" not in value or not (port.isascii() and port.isdigit() and int(port) < 65536):
        raise ValueError("expected HOST:PORT or off")
    return value


def namespace(value: str) -> str:
    """A namespace, or ``off``."""
    if value.lower() in _NO:
        return ""
    if not re.fullmatch(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?", value):
        raise ValueError("expected the name of a namespace or off")
    return value


_SCHEDULER = ("scheduler",)
_ALL = ("run", "scheduler")
#: Commands that read a node, and those that read a cluster.
_READERS = ("run", "topology", "snapshot")
_CLUSTER = ("run", "topology", "explain", "fit", "defrag", "simulate", "view")

#: Variables of others that begin like ours: DPDK's, those of this repository's tests, and what
#: Kubernetes tells a pod of a Service whose name begins with ``rte-``.
_FOREIGN = re.compile(
    r"RTE_(SDK|TARGET|CACHE|SEEDS?|ROUNDS|DEPTH|PICTURES"
    r"|(\w+_)?(SERVICE_HOST|SERVICE_PORT(_\w+)?|PORT(_\d+_(TCP|UDP|SCTP)(_(PROTO|PORT|ADDR))?)?))"
)

OPTIONS = (
    Option(
        name="sysfs-root",
        field="agent.sysfs_root",
        parse=path,
        value="DIR",
        help="directory that stands for /sys; then no kubelet is asked unless one is named",
        default="/sys",
        commands=_READERS,
    ),
    Option(
        name="procfs-root",
        field="agent.procfs_root",
        parse=path,
        value="DIR",
        help="directory that stands for /proc",
        default="/proc",
        commands=_READERS,
    ),
    Option(
        name="podresources-socket",
        field="agent.podresources_socket",
        parse=text,
        value="ADDR",
        help="the kubelet's podresources API, unix:///PATH or a path",
        default="unix:///var/lib/kubelet/pod-resources/kubelet.sock (not with --sysfs-root)",
        commands=_READERS,
    ),
    Option(
        name="kubelet-state-dir",
        field="agent.kubelet_state_dir",
        parse=path,
        value="DIR",
        help="the kubelet's root directory, with its state files",
        default="/var/lib/kubelet (not with --sysfs-root)",
        commands=_READERS,
    ),
    Option(
        name="device-plugin-dir",
        field="agent.device_plugin_dir",
        parse=path,
        value="DIR",
        help="the device manager's folder, with its checkpoint",
        default="/var/lib/kubelet/device-plugins, whatever the kubelet's root directory is "
        "(with --sysfs-root: device-plugins in --kubelet-state-dir)",
        commands=_READERS,
    ),
    Option(
        name="kubelet-config-file",
        field="agent.kubelet_config_file",
        parse=path,
        value="F",
        help="the kubelet's configuration file",
        default="what the kubelet itself says, else config.yaml in its root directory",
        commands=_READERS,
    ),
    Option(
        name="kubelet-config-dir",
        field="agent.kubelet_config_dir",
        parse=path,
        value="DIR",
        help="directory of drop-ins for the kubelet's configuration file",
        default="none",
        commands=_READERS,
    ),
    Option(
        name="node-name",
        field="agent.node_name",
        parse=node,
        value="N",
        help="name of the Node, and of its NodeResourceTopology",
        default="the host's name",
        variables=("NODE_NAME",),
    ),
    Option(
        name="kubeconfig",
        field="agent.kubeconfig",
        parse=path,
        value="F",
        help="credentials for the API server",
        default="in-cluster, else $KUBECONFIG, else ~/.kube/config",
        commands=_CLUSTER,
    ),
    Option(
        name="oneshot",
        field="agent.oneshot",
        parse=switch,
        value="",
        help="publish once and exit; fails when the kubelet does not answer",
        default="false",
    ),
    Option(
        name="oneshot-timeout",
        field="agent.oneshot_timeout",
        parse=seconds,
        value="SECONDS",
        help="time in which --oneshot must have read a consistent state",
        default="10",
    ),
    Option(
        name="sink",
        field="agent.sink",
        parse=sink,
        value="kube|stdout|file:PATH",
        help="where the NodeResourceTopology goes",
        default="kube",
    ),
    Option(
        name="output",
        field="agent.output",
        parse=one_of(Output),
        value="json|yaml",
        help="form of the NodeResourceTopology on stdout or in a file",
        default="json",
        short="o",
    ),
    Option(
        name="fingerprint",
        field="agent.fingerprint",
        parse=fingerprint,
        value="METHOD",
        help="pods that the fingerprint covers: with-exclusive-resources, all, or off",
        default="with-exclusive-resources",
    ),
    Option(
        name="koordinator-annotations",
        field="agent.koordinator_annotations",
        parse=switch,
        value="true|false",
        help="publish the annotations that Koordinator reads",
        default="true",
    ),
    Option(
        name="numaplacement",
        field="agent.numaplacement",
        parse=switch,
        value="true|false",
        help="publish container placement under topology policy single-numa-node",
        default="true",
    ),
    Option(
        name="group-inventory",
        field="agent.group_inventory",
        parse=switch,
        value="true|false",
        help="publish the hardware that processing groups are placed on",
        default="false",
    ),
    Option(
        name="nic-speeds",
        field="agent.nic_speeds",
        parse=nic_speed,
        value="NAME=MBPS",
        help="speeds of interfaces that tell none while their link is down (several)",
        default="none",
        several=True,
    ),
    Option(
        name="reference-container",
        field="agent.reference_container",
        parse=container,
        value="NS/POD/CONTAINER",
        help="a container without exclusive CPUs, which shows the shared pool on old kubelets",
        default="none",
    ),
    Option(
        name="exclude-pods",
        field="agent.exclude_pods",
        parse=pod_glob,
        value="NS/NAME",
        help="pods that are not accounted for (wildcards; several)",
        default="none",
        several=True,
    ),
    Option(
        name="exclude-resources",
        field="agent.exclude_resources",
        parse=glob,
        value="NAME",
        help="resources that no zone shows (wildcards; several)",
        default="none",
        several=True,
    ),
    Option(
        name="metrics-listen",
        field="agent.metrics_listen",
        parse=listen,
        value="HOST:PORT|off",
        help="address of /metrics, /healthz and /readyz",
        default=":9101",
    ),
    Option(
        name="tls-cert-file",
        field="agent.tls_cert_file",
        parse=path,
        value="F",
        help="certificate of that address",
        default="none: plain HTTP",
    ),
    Option(
        name="tls-private-key-file",
        field="agent.tls_private_key_file",
        parse=path,
        value="F",
        help="key of that certificate",
        default="none",
    ),
    Option(
        name="client-ca-file",
        field="agent.client_ca_file",
        parse=path,
        value="F",
        help="authority of the client certificates that /metrics asks for",
        default="none: anybody may read metrics",
    ),
    Option(
        name="lease-namespace",
        field="agent.lease_namespace",
        parse=namespace,
        value="NAMESPACE|off",
        help="where the Lease is kept that shows that this node's agent lives",
        default="rte-agents",
    ),
    Option(
        name="poll-interval",
        field="agent.poll_interval",
        parse=seconds,
        value="SECONDS",
        help="time between looks at everything, in case a notification was lost",
        default="60",
    ),
    Option(
        name="drift-check",
        field="agent.drift_check",
        parse=switch,
        value="true|false",
        help="compare each admission with its prediction",
        default="true",
    ),
    Option(
        name="case-dir",
        field="agent.case_dir",
        parse=path,
        value="DIR",
        help="where the drift alarm keeps cases, for rte explain --case",
        default="none: they are told, not kept",
    ),
    Option(
        name="kubeconfig",
        field="scheduler.kubeconfig",
        parse=path,
        value="F",
        help="credentials for the API server",
        default="in-cluster, else $KUBECONFIG, else ~/.kube/config",
        commands=_SCHEDULER,
    ),
    Option(
        name="scheduler-name",
        field="scheduler.scheduler_name",
        parse=name,
        value="NAME",
        help="pods with this spec.schedulerName are placed",
        default="rte-scheduler",
        commands=("scheduler", "explain"),
    ),
    Option(
        name="also-for",
        field="scheduler.also_for",
        parse=name,
        value="NAME",
        help="further spec.schedulerNames whose pods are placed (several)",
        default="none",
        commands=("scheduler", "explain"),
        several=True,
    ),
    Option(
        name="nodes",
        field="scheduler.nodes",
        parse=selector,
        value="SELECTOR",
        help="pods are placed on nodes with these labels only (as kubectl -l takes them)",
        default="all nodes",
        commands=_SCHEDULER,
    ),
    Option(
        name="listen",
        field="scheduler.listen",
        parse=listen,
        value="HOST:PORT|off",
        help="address of /metrics, /healthz, /readyz, /explain, /fit, /groups and /view",
        default="127.0.0.1:10260",
        commands=_SCHEDULER,
    ),
    Option(
        name="listen-tls",
        field="scheduler.listen_tls",
        parse=switch,
        value="",
        help="serve that over TLS, with the files below",
        default="false",
        commands=_SCHEDULER,
        switches=True,
    ),
    Option(
        name="extender-listen",
        field="scheduler.extender_listen",
        parse=listen,
        value="HOST:PORT|off",
        help="address of the extender's verbs, for kube-scheduler",
        default="off",
        commands=_SCHEDULER,
    ),
    Option(
        name="tls-cert-file",
        field="scheduler.tls_cert_file",
        parse=path,
        value="F",
        help="certificate of the extender's address, and of --listen with --listen-tls",
        default="none: plain HTTP, the extender on a loopback address only",
        commands=_SCHEDULER,
    ),
    Option(
        name="tls-private-key-file",
        field="scheduler.tls_private_key_file",
        parse=path,
        value="F",
        help="key of that certificate",
        default="none",
        commands=_SCHEDULER,
    ),
    Option(
        name="client-ca-file",
        field="scheduler.client_ca_file",
        parse=path,
        value="F",
        help="authority of the client certificates that kube-scheduler and others may show there",
        default="none",
        commands=_SCHEDULER,
    ),
    Option(
        name="extender-profiles",
        field="scheduler.extender_profiles",
        parse=name,
        value="NAME",
        help="pods with this spec.schedulerName are bound through the extender (several)",
        default="default-scheduler",
        commands=_SCHEDULER,
        several=True,
    ),
    Option(
        name="leader-elect",
        field="scheduler.leader_elect",
        parse=switch,
        value="",
        help="bind only as the holder of a Lease",
        default="true",
        commands=_SCHEDULER,
        switches=True,
    ),
    Option(
        name="lease-namespace",
        field="scheduler.lease_namespace",
        parse=name,
        value="NAMESPACE",
        help="where that Lease is",
        default="kube-system",
        commands=_SCHEDULER,
        key="scheduler-lease-namespace",
    ),
    Option(
        name="lease-name",
        field="scheduler.lease_name",
        parse=name,
        value="NAME",
        help="name of that Lease",
        default="rte-scheduler; with --nodes that of --scheduler-name",
        commands=_SCHEDULER,
    ),
    Option(
        name="lease-seconds",
        field="scheduler.lease_seconds",
        parse=seconds,
        value="SECONDS",
        help="a holder that has not renewed for so long is replaced",
        default="3",
        commands=_SCHEDULER,
    ),
    Option(
        name="renew-seconds",
        field="scheduler.renew_seconds",
        parse=seconds,
        value="SECONDS",
        help="time between renewals, half of --lease-seconds at most",
        default="1",
        commands=_SCHEDULER,
    ),
    Option(
        name="agent-namespace",
        field="scheduler.agent_namespace",
        parse=name,
        value="NAMESPACE",
        help="where the agents' Leases are (their lease-namespace)",
        default="rte-agents",
        commands=("scheduler", "view"),
    ),
    Option(
        name="bind-timeout",
        field="scheduler.bind_timeout",
        parse=seconds,
        value="SECONDS",
        help="a bind without an answer is read back after so long",
        default="2",
        commands=_SCHEDULER,
    ),
    Option(
        name="reserve-after",
        field="scheduler.reserve_after",
        parse=amount,
        value="SECONDS",
        help="a pod that has waited for so long gets a node reserved; 0: never",
        default="60",
        commands=_SCHEDULER,
    ),
    Option(
        name="align-patience",
        field="scheduler.align_patience",
        parse=amount,
        value="SECONDS",
        help="a pod that another node would take waits so long for one where its DRA devices are "
        "aligned; 0: not at all",
        default="30",
        commands=_SCHEDULER,
    ),
    Option(
        name="gang-timeout",
        field="scheduler.gang_timeout",
        parse=amount,
        value="SECONDS",
        help="a gang in part that finds no more places is deleted after so long; 0: never",
        default="60",
        commands=_SCHEDULER,
    ),
    Option(
        name="preemption",
        field="scheduler.preemption",
        parse=switch,
        value="",
        help="evict pods of lower priority where that makes room",
        default="true",
        commands=_SCHEDULER,
        switches=True,
    ),
    Option(
        name="move-every",
        field="scheduler.move_every",
        parse=amount,
        value="SECONDS",
        help="for pods that have waited so long, move others that carry the label "
        "topology.rte.dev/may-move=true, one in so many seconds; 0: none",
        default="0",
        commands=_SCHEDULER,
    ),
    Option(
        name="shared-limit",
        field="scheduler.shared_limit",
        parse=amount,
        value="RATIO",
        help="most CPU limits of sharing pods per CPU of the shared pool; 0: no bound",
        default="0",
        commands=_SCHEDULER,
    ),
    Option(
        name="resource-status",
        field="scheduler.resource_status",
        parse=switch,
        value="",
        help="write Koordinator's resource-status where no CPU manager assigns CPUs",
        default="false",
        commands=_SCHEDULER,
        switches=True,
    ),
    Option(
        name="fit-shapes",
        field="scheduler.fit_shapes",
        parse=path,
        value="F",
        help="pods (YAML) of which it is measured how many fit: rte_fit_pods{shape}",
        default="none",
        commands=_SCHEDULER,
    ),
    Option(
        name="kueue-controller-name",
        field="scheduler.kueue_controller_name",
        parse=name,
        value="NAME",
        help="decide about Kueue's AdmissionChecks with this controllerName: a Workload may start "
        "when its pods fit into zones",
        default="none: about no AdmissionCheck",
        commands=_SCHEDULER,
    ),
    Option(
        name="kueue-hold",
        field="scheduler.kueue_hold",
        parse=amount,
        value="SECONDS",
        help="a Workload that does not fit keeps its quota so long, for room that may come; then "
        "its check says Retry",
        default="30",
        commands=_SCHEDULER,
    ),
    Option(
        name="device-share",
        field="scheduler.device_share",
        parse=switch,
        value="",
        help="choose GPUs, RDMA NICs and FPGAs by Koordinator's Device objects and annotations",
        default="false",
        commands=_SCHEDULER,
        switches=True,
    ),
    Option(
        name="groups-policy",
        field="scheduler.groups_policy",
        parse=path,
        value="FILE",
        help="rules of processing groups by class of node (docs/groups.md)",
        default="none: the defaults",
        commands=_SCHEDULER,
    ),
    Option(
        name="scores",
        field="scheduler.scores",
        parse=path,
        value="FILE",
        help="what the pods of each schedulerName prefer: scoringStrategy, weights "
        "(docs/scheduler.md)",
        default="none: the defaults",
        commands=_SCHEDULER,
    ),
    Option(
        name="stats-listen",
        field="scheduler.stats_listen",
        parse=listen,
        value="HOST:PORT|off",
        help="address of NHD's gRPC statistics, over TLS",
        default="off",
        commands=_SCHEDULER,
    ),
    Option(
        name="stats-cert",
        field="scheduler.stats_cert",
        parse=path,
        value="FILE",
        help="certificates of the statistics' server, in PEM",
        default="none",
        commands=_SCHEDULER,
    ),
    Option(
        name="stats-key",
        field="scheduler.stats_key",
        parse=path,
        value="FILE",
        help="its private key",
        default="none",
        commands=_SCHEDULER,
    ),
    Option(
        name="stats-client-ca",
        field="scheduler.stats_client_ca",
        parse=path,
        value="FILE",
        help="only clients with a certificate of this authority are served",
        default="none: anybody may ask",
        commands=_SCHEDULER,
    ),
    Option(
        name="case-dir",
        field="scheduler.case_dir",
        parse=path,
        value="DIR",
        help="where the drift alarm keeps cases, for rte explain --case",
        default="none: they are told, not kept",
        commands=_SCHEDULER,
    ),
    Option(
        name="log-level",
        field="log.level",
        parse=one_of(Level),
        value="LEVEL",
        help="least severe events that are logged: debug, info, warning, error",
        default="info",
        commands=_ALL,
    ),
    Option(
        name="log-format",
        field="log.format",
        parse=one_of(Format),
        value="text|json",
        help="form of a log line",
        default="text",
        commands=_ALL,
    ),
)


def add_arguments(parser: argparse.ArgumentParser, command: str) -> None:
    """Give a command its flags; :func:`load` reads what argparse makes of them."""
    parser.add_argument(
        f"--{FILE_OPTION}", metavar="F", help="YAML file of settings (keys are the flags' names)"
    )
    for option in OPTIONS:
        if command not in option.commands:
            continue
        flags = [f"-{option.short}"] if option.short else []
        keywords: dict[str, Any] = {"dest": option.name, "help": option.help, "default": None}
        if option.switches:
            keywords |= {"action": argparse.BooleanOptionalAction}
        elif not option.value:
            keywords |= {"action": "store_const", "const": "true"}
        else:
            keywords |= {"metavar": option.value, "action": "append" if option.several else "store"}
        parser.add_argument(*flags, f"--{option.name}", **keywords)


def load(command: str, flags: Mapping[str, Any], environ: Mapping[str, str]) -> Config:
    """Merge all sources for a command; ``flags`` is what argparse made of :func:`add_arguments`.

    Raises:
        errors.UsageError: a bad value, an unknown key, or a file that cannot be read; one line that
            names every flag, variable or key that is wrong.
    """
    options = {option.name: option for option in OPTIONS if command in option.commands}
    problems: list[str] = []
    values: dict[str, object] = {}
    file = flags.get(FILE_OPTION) or environ.get("RTE_CONFIG")
    if file:
        values |= _from_file(Path(str(file)), options, problems)
    for option in options.values():
        for variable in (*reversed(option.variables), option.variable):
            if environ.get(variable):
                _set(values, option, environ[variable], variable, problems)
        given = flags.get(option.name)
        if given is not None:
            _set(values, option, given, f"--{option.name}", problems)
    if problems:
        raise errors.UsageError("; ".join(problems))
    components: dict[str, dict[str, Any]] = {"agent": {}, "scheduler": {}, "log": {}}
    for name, value in values.items():
        component, _, attribute = options[name].field.partition(".")
        components[component][attribute] = value
    return Config(
        agent=AgentSettings(**components["agent"]),
        scheduler=SchedulerSettings(**components["scheduler"]),
        log=LogSettings(**components["log"]),
    )


def unknown_variables(environ: Mapping[str, str]) -> list[str]:
    """One line for each variable that looks like a setting and is none."""
    known = {"RTE_CONFIG", *(option.variable for option in OPTIONS)}
    return [
        f"{name} is no setting of rte{errors.meant(name, known)}"
        for name in sorted(environ.keys() - known)
        if name.startswith("RTE_") and not _FOREIGN.fullmatch(name)
    ]


def reference(command: str) -> str:
    """The command's options as a Markdown table."""
    rows = ["| flag | variable | meaning | default |", "|---|---|---|---|"]
    for option in OPTIONS:
        if command not in option.commands:
            continue
        short = f"`-{option.short}`, " if option.short else ""
        negated = "[no-]" if option.switches else ""
        flag = f"{short}`--{negated}{option.name}{' ' if option.value else ''}{option.value}`"
        variables = ", ".join(f"`{name}`" for name in (option.variable, *option.variables))
        meaning, default = option.help, option.default
        rows.append(
            "| " + " | ".join((flag.replace("|", "\\|"), variables, meaning, default)) + " |"
        )
    return "\n".join(rows) + "\n"


def _set(
    values: dict[str, object], option: Option, given: object, where: str, problems: list[str]
) -> None:
    """Parse one source's value; a later source takes the place of an earlier one."""
    parts = given if isinstance(given, list) else [given]
    texts = [
        piece.strip()
        for part in parts
        for piece in (str(part).split(",") if option.several else (str(part),))
    ]
    try:
        parsed = [option.parse(piece) for piece in texts if piece or not option.several]
    except ValueError as error:
        shown = given if isinstance(given, str) else ", ".join(texts)
        problems.append(f"{where}: {error}, got {str(shown)[:60]!r}")
        return
    values[option.name] = tuple(parsed) if option.several else parsed[0]


def _from_file(file: Path, options: Mapping[str, Option], problems: list[str]) -> dict[str, object]:
    # Here: it costs start-up time, and most runs have no file.
    from rte.reader import budget, yamltext

    try:
        document = yamltext.load(file.read_bytes(), "configuration", budget.FILE)
    except OSError as error:
        raise errors.UsageError(f"config file {file}: {error.strerror}") from error
    except errors.MalformedError as error:
        raise errors.UsageError(f"config file {file}: {error.why}") from error
    if document is None:
        return {}
    if not isinstance(document, dict):
        raise errors.UsageError(f"config file {file}: expected keys and values at the top level")
    known = {option.file_key for option in OPTIONS}
    by_key = {option.file_key: option for option in options.values()}
    values: dict[str, object] = {}
    for key, given in document.items():
        where = f"config file {file}, key {str(key)[:60]!r}"
        option = by_key.get(str(key))
        if option is None:
            if key not in known:  # a key of another command is none of this one's business
                problems.append(f"{where}: unknown{errors.meant(str(key), known)}")
        elif isinstance(given, bool | int | float | str):
            spelt = ("true" if given else "false") if isinstance(given, bool) else given
            _set(values, option, str(spelt), where, problems)
        elif option.several and isinstance(given, list) and all(isinstance(x, str) for x in given):
            _set(values, option, given, where, problems)
        else:
            problems.append(
                f"{where}: expected {'a list of texts' if option.several else 'a value'}"
            )
    return values
