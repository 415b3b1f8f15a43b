"""``rte doctor``: what is wrong with rte on a cluster, and what to do about it; changes nothing."""

from __future__ import annotations

import asyncio
import json
import os
import time
from collections import defaultdict
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from enum import StrEnum
from typing import TYPE_CHECKING, Final

from rte import __version__, config, errors
from rte.cli import inputs, live
from rte.kube.resources import LEASES, PODS, Resource
from rte.model.words import counted
from rte.placement.kubelet import releases
from rte.scheduler.cache.intake import AGENT_DEAD_S

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterator, Mapping

    from rte.kube.client import Client
    from rte.model.node import NodeState
    from rte.reader.json import Json, JsonObject
    from rte.scheduler.framework.node import NodeEntry

POLICY: Final = "rte-agent-own-node-only"
_ADMISSION = "admissionregistration.k8s.io"
_POLICIES = Resource(_ADMISSION, "v1", "validatingadmissionpolicies")
_BINDINGS = Resource(_ADMISSION, "v1", "validatingadmissionpolicybindings")
_CRDS = Resource("apiextensions.k8s.io", "v1", "customresourcedefinitions")
_CRD = "noderesourcetopologies.topology.node.k8s.io"
_REVIEWS = Resource("authorization.k8s.io", "v1", "subjectaccessreviews")
_AGENT, _SCHEDULER = "rte-agent", "rte-scheduler"
#: What an agent may do (docs/operations.md): group, resource, subresource, verbs. Of Leases: in
#: the agents' namespace.
_RIGHTS: Final = (
    ("topology.node.k8s.io", "noderesourcetopologies", "", "get list watch create update"),
    ("", "nodes", "", "get"),
    ("", "nodes", "configz", "get"),
    ("", "pods", "", "list watch"),
    ("coordination.k8s.io", "leases", "", "create patch"),
)
#: Where the kubelet says something about an image.
_IMAGE_TODO = (
    "the node cannot get the image: `rte install` builds the images and pushes or loads them under "
    "the names that the manifests ask for"
)
#: Names that are written out, of more nodes that have the same.
_MOST_NAMES = 5
#: Programs whose metrics are read at once.
_AT_ONCE = 16


class Level(StrEnum):
    """How bad it is; with ``failed`` ones the exit code is 1."""

    OK = "ok"
    WARNING = "warning"
    FAILED = "failed"


@dataclass(frozen=True)
class Finding:
    """One thing that was looked at.

    Attributes:
        what: was looked at.
        says: how it is.
        todo: what to do, empty where all is well.
        nodes: that have it; empty: it is the cluster's.
    """

    level: Level
    what: str
    says: str
    todo: str = ""
    nodes: tuple[str, ...] = ()


@dataclass
class Facts:
    """What a cluster tells.

    Attributes:
        now: Unix time.
        nodes: node -> its record, with report and Node.
        kernels: node -> operating system.
        ready: nodes whose kubelet says Ready.
        leases: node -> when its agent's Lease was renewed (Unix time); None: it was given back.
        pods: pods of agents and schedulers.
        metrics: pod -> its metrics as text; absent where it could not be asked.
        there: name of an object -> whether the cluster has it; None: who asks may not read it.
        refused: rights that an agent's account lacks.
        unread: one line for each thing that could not be looked at.
    """

    now: float
    nodes: Mapping[str, NodeEntry] = field(default_factory=dict)
    kernels: dict[str, str] = field(default_factory=dict)
    ready: set[str] = field(default_factory=set)
    leases: dict[str, float | None] = field(default_factory=dict)
    pods: list[JsonObject] = field(default_factory=list)
    metrics: dict[str, str] = field(default_factory=dict)
    there: dict[str, bool | None] = field(default_factory=dict)
    refused: list[str] = field(default_factory=list)
    unread: list[str] = field(default_factory=list)


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    config.add_arguments(parser, "doctor")
    parser.add_argument("-o", "--output", choices=("text", "json"), default="text")


def run(args: argparse.Namespace) -> int:
    """Look at everything; 0 where nothing has failed, else 1."""
    namespace = config.load("doctor", vars(args), os.environ).scheduler.agent_namespace
    findings = examine(asyncio.run(_read(args, namespace)))
    if args.output == "json":
        print(json.dumps([asdict(each) for each in findings], indent=2))
    else:
        print("\n".join(_lines(findings)))
    return int(any(each.level is Level.FAILED for each in findings))


def _lines(findings: list[Finding]) -> Iterator[str]:
    for each in findings:
        yield f"{each.level:<8}{each.what}: {each.says}{_of(each.nodes)}"
        if each.todo:
            yield f"        do: {each.todo}"
    counts = (sum(each.level is level for each in findings) for level in Level)
    ok, warnings, failed = counts
    yield f"{ok} ok, {counted(warnings, 'warning')}, {failed} failed"


def _of(nodes: tuple[str, ...]) -> str:
    if not nodes:
        return ""
    more = len(nodes) - _MOST_NAMES
    return f" ({', '.join(nodes[:_MOST_NAMES])}{f' and {more} more' if more > 0 else ''})"


# --- what is wrong ------------------------------------------------------------------------------


def examine(facts: Facts) -> list[Finding]:
    """All findings (pure): the cluster's first, then those of nodes, equal ones as one."""
    found = [*_of_cluster(facts), *_of_pods(facts), *_drift(facts)]
    same: dict[Finding, list[str]] = defaultdict(list)
    for name in sorted(facts.nodes):
        if facts.nodes[name].info is not None and facts.kernels.get(name) in ("linux", None):
            for each in _of_node(name, facts):
                same[each].append(name)
    for each, names in same.items():
        found.append(Finding(each.level, each.what, each.says, each.todo, tuple(names)))
    return found


def _of_cluster(facts: Facts) -> Iterator[Finding]:
    for what, name, todo in (
        ("CRD", _CRD, "kubectl create -k manifests/crd"),
        ("admission policy", POLICY, "rte install applies it, on Kubernetes 1.32 or newer"),
    ):
        if facts.there.get(name):
            yield Finding(Level.OK, what, f"{name} is there")
        elif facts.there.get(name) is False:
            level = Level.FAILED if name == _CRD else Level.WARNING
            yield Finding(level, what, f"{name} is missing", todo)
    if facts.refused:
        yield Finding(
            Level.FAILED,
            "rights",
            f"the agent may not {'; '.join(facts.refused)}",
            "apply its rights again (manifests/agent/rbac.yaml)",
        )
    for line in facts.unread:
        yield Finding(Level.WARNING, "not looked at", line, "ask with the rights of an operator")


def _of_pods(facts: Facts) -> Iterator[Finding]:
    agents = [pod for pod in facts.pods if _program(pod) == _AGENT]
    schedulers = [pod for pod in facts.pods if _program(pod) == _SCHEDULER]
    if not agents:
        yield Finding(
            Level.WARNING,
            "agents",
            "no pod of an agent (label app.kubernetes.io/name=rte-agent)",
            "rte install prints how it is installed",
        )
    if agents and not schedulers:
        yield Finding(
            Level.OK, "scheduler", "not installed: reports serve rte explain, fit and view"
        )
    for title, pods in (("agents", agents), ("scheduler", schedulers)):
        waits = [(pod, why) for pod in pods if (why := _not_ready(pod))]
        if pods and not waits:
            yield Finding(Level.OK, title, f"{counted(len(pods), 'pod')}, all ready")
        for pod, why in waits:
            metadata = pod["metadata"]
            todo = f"kubectl describe pod -n {metadata['namespace']} {metadata['name']}"
            node = (pod.get("spec") or {}).get("nodeName")
            yield Finding(
                Level.FAILED,
                title,
                f"pod {metadata['name']} is not ready: {why}",
                _IMAGE_TODO if "Image" in why else todo,
                (node,) if node else (),
            )
    yield from _versions(facts)


def _versions(facts: Facts) -> Iterator[Finding]:
    by_version: dict[str, list[str]] = defaultdict(list)
    for name, text in facts.metrics.items():
        for labels, _ in _samples(text, "rte_build_info"):
            by_version[labels.get("version", "?")].append(name)
    if not by_version:
        return
    told = ", ".join(f"{version} ({counted(len(p), 'pod')})" for version, p in by_version.items())
    if by_version.keys() == {__version__}:
        yield Finding(Level.OK, "versions", f"{told}, as this command's")
    else:
        yield Finding(
            Level.WARNING,
            "versions",
            f"{told}; this command is {__version__}",
            "finish the upgrade: neighbouring releases read each other's reports, others need not",
        )


def _drift(facts: Facts) -> Iterator[Finding]:
    differences: dict[str, float] = {}
    for name, text in facts.metrics.items():
        other = sum(value for _, value in _samples(text, "rte_prediction_differences_total"))
        other += sum(
            value
            for labels, value in _samples(text, "rte_scheduler_predictions_total")
            if labels.get("result") not in ("exact", "uncertain")
        )
        if other:
            differences[name] = other
    if differences:
        pods = ", ".join(f"{name}: {count:g}" for name, count in sorted(differences.items()))
        yield Finding(
            Level.FAILED,
            "drift",
            f"kubelets did not do as predicted ({pods})",
            'read "When the drift alarm rings" in docs/operations.md',
        )
    elif facts.metrics:
        yield Finding(
            Level.OK, "drift", f"none, by the metrics of {counted(len(facts.metrics), 'pod')}"
        )


def _of_node(name: str, facts: Facts) -> Iterator[Finding]:
    entry = facts.nodes[name]
    if name not in facts.ready:
        yield Finding(Level.WARNING, "node", "not Ready", "look at its kubelet first")
    report = entry.report
    if report is None:
        yield Finding(
            Level.FAILED,
            "report",
            "none: pods go there by node totals",
            "kubectl logs -n rte-system -l app.kubernetes.io/name=rte-agent says why; does the "
            "agent's DaemonSet reach the node?",
        )
        return
    if report.broken or report.problem:
        yield Finding(
            Level.FAILED,
            "report",
            f"malformed: {report.broken or report.problem}",
            "update the exporter that writes it",
        )
    if report.table is not None:
        yield Finding(
            Level.WARNING,
            "report",
            "of another exporter: zones, but no prediction of CPUs",
            "install the agent, and stop the other exporter (docs/guides/exporters.md)",
        )
    if report.owner and entry.info and entry.info.uid and report.owner != entry.info.uid:
        yield Finding(
            Level.FAILED,
            "report",
            "it belongs to an earlier node of that name",
            f"kubectl delete noderesourcetopology {name}; the agent makes it anew",
        )
    if report.state is not None:
        yield from _agent_alive(name, facts)
        yield from _of_kubelet(report.state)


def _agent_alive(name: str, facts: Facts) -> Iterator[Finding]:
    if name not in facts.leases:
        yield Finding(
            Level.WARNING,
            "agent",
            "it shows no sign of life: no Lease",
            "give --agent-namespace, where the agents' Leases are; or allow them to write it",
        )
        return
    renewed = facts.leases[name]
    if renewed is None:
        says = "it has ended: it gave its Lease back"
    elif facts.now - renewed >= AGENT_DEAD_S:
        says = f"its last sign of life is {_age(facts.now - renewed)} old"
    else:
        yield Finding(Level.OK, "agent", "alive")
        return
    yield Finding(
        Level.FAILED,
        "agent",
        says,
        "schedulers do not trust its report: is its pod ready (/readyz says why not), the kubelet "
        "up, this machine's clock right?",
    )


def _age(seconds: float) -> str:
    """In the largest unit of which there are two."""
    for size, unit in ((86400, "day"), (3600, "hour"), (60, "minute")):
        if seconds >= 2 * size:
            return counted(seconds // size, unit)
    return counted(seconds // 1, "second")


def _of_kubelet(state: NodeState) -> Iterator[Finding]:
    config_ = state.config
    if not state.synced:
        yield Finding(
            Level.WARNING,
            "kubelet",
            "it has not taken up all of its pods since its start",
            "for moments: none of your business; for long: look at the kubelet's log",
        )
    if releases.known(state.kubelet_version) is None:
        yield Finding(
            Level.FAILED,
            "kubelet version",
            releases.why_unknown(state.kubelet_version),
            "pods that need a zone do not go there: update rte",
        )
    elif releases.is_assumed(state.kubelet_version):
        yield Finding(Level.OK, "kubelet version", releases.assumption(state.kubelet_version))
    if config_.is_assumed:
        yield Finding(
            Level.WARNING,
            "kubelet configuration",
            "read from config.yaml alone: flags of the kubelet are not known",
            "allow the agent `get` on nodes/configz, or give it --kubelet-config-file",
        )
    wrong = []
    if config_.cpu_policy != "static":
        wrong.append(("cpuManagerPolicy", config_.cpu_policy, "no pod gets CPUs of its own"))
    if config_.topology_policy == "none":
        wrong.append(("topologyManagerPolicy", "none", "no pod is kept in one zone"))
    if config_.topology_policy == "best-effort":
        wrong.append(
            ("topologyManagerPolicy", "best-effort", "a pod may be spread over zones unasked")
        )
    for key, value, follows in wrong:
        yield Finding(
            Level.WARNING,
            "kubelet configuration",
            f"{key} {value}: {follows}",
            "set cpuManagerPolicy: static, reservedSystemCPUs and topologyManagerPolicy: "
            "single-numa-node; drain the node, delete cpu_manager_state, restart the kubelet "
            "(docs/start/cluster.md)",
        )
    if not wrong:
        yield Finding(
            Level.OK,
            "kubelet configuration",
            f"CPU manager static, topology manager {config_.topology_policy}, "
            f"memory manager {config_.memory_policy}",
        )


def _program(pod: Json) -> str:
    return str((pod["metadata"].get("labels") or {}).get("app.kubernetes.io/name"))


def _not_ready(pod: Json) -> str:
    """Why a pod is not ready, in the kubelet's words; empty where it is."""
    status = pod.get("status") or {}
    conditions = {each["type"]: each for each in status.get("conditions") or ()}
    ready = conditions.get("Ready") or {}
    if ready.get("status") == "True":
        return ""
    statuses = [
        *(status.get("initContainerStatuses") or ()),
        *(status.get("containerStatuses") or ()),
    ]
    for each in statuses:
        waiting = (each.get("state") or {}).get("waiting") or {}
        if waiting.get("reason") not in (None, "PodInitializing", "ContainerCreating"):
            return f"{waiting['reason']} {waiting.get('message') or ''}".strip()
    scheduled = conditions.get("PodScheduled") or {}
    said = scheduled if scheduled.get("status") == "False" else ready
    return str(said.get("message") or said.get("reason") or status.get("phase") or "unknown")


def _samples(text: str, name: str) -> Iterator[tuple[Mapping[str, str], float]]:
    """Labels and value of a metric's samples."""
    from prometheus_client.parser import text_string_to_metric_families

    lines = (line for line in text.splitlines() if line.startswith((f"{name}{{", f"{name} ")))
    for family in text_string_to_metric_families("\n".join(lines)):
        for sample in family.samples:
            yield sample.labels, sample.value


# --- reading ------------------------------------------------------------------------------------


async def _read(args: argparse.Namespace, namespace: str) -> Facts:
    facts = Facts(now=time.time())
    async with live.connect(args) as client:
        items = await live.read_objects(client, ("nodes", "reports"))
        facts.nodes = inputs.build_cluster(items)[0].nodes
        for item in items:
            if item["kind"] == "Node":
                _note_node(facts, item)
        for name, resources in ((_CRD, (_CRDS,)), (POLICY, (_POLICIES, _BINDINGS))):
            found = [await _try(facts, client, each.path(name)) for each in resources]
            is_unknown = any(each is None for each in found)
            facts.there[name] = None if is_unknown else all(each != {} for each in found)
        leases = await _try(facts, client, LEASES.path(namespace=namespace))
        for lease in (leases or {}).get("items") or ():
            facts.leases[lease["metadata"]["name"]] = _renewed(lease)
        # A clock that is behind would take the dead for alive.
        facts.now = max([facts.now, *(at for at in facts.leases.values() if at)])
        await _read_programs(facts, client, namespace)
    return facts


def _note_node(facts: Facts, item: Json) -> None:
    name, status = item["metadata"]["name"], item.get("status") or {}
    system = (status.get("nodeInfo") or {}).get("operatingSystem")
    if system:
        facts.kernels[name] = system
    if {"Ready": "True"}.items() <= {
        each["type"]: each["status"] for each in status.get("conditions") or ()
    }.items():
        facts.ready.add(name)


def _renewed(lease: Json) -> float | None:
    """When a Lease was renewed; None where its holder gave it back."""
    spec = lease.get("spec") or {}
    if not spec.get("holderIdentity"):
        return None
    try:
        moment = datetime.fromisoformat(str(spec.get("renewTime")))
    except ValueError:
        return 0.0
    return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()


async def _read_programs(facts: Facts, client: Client, leases: str) -> None:
    selector = f"app.kubernetes.io/name in ({_AGENT},{_SCHEDULER})"
    listed = await _try(facts, client, PODS.path(), labelSelector=selector)
    facts.pods = [
        pod
        for pod in (listed or {}).get("items") or ()
        if "deletionTimestamp" not in pod["metadata"]
    ]
    accounts = {
        (pod["metadata"]["namespace"], str((pod.get("spec") or {}).get("serviceAccountName")))
        for pod in facts.pods
        if _program(pod) == _AGENT
    }
    for namespace, account in sorted(accounts):
        facts.refused += await _refused(facts, client, namespace, account, leases)
    slots, silent = asyncio.Semaphore(_AT_ONCE), list[str]()

    async def ask(pod: JsonObject) -> None:
        name, namespace = pod["metadata"]["name"], pod["metadata"]["namespace"]
        port = 9101 if _program(pod) == _AGENT else 10260
        async with slots:
            try:
                path = PODS.path(f"{name}:{port}", namespace, "proxy") + "/metrics"
                facts.metrics[name] = str(await client.get(path))
            except errors.KubeError as error:
                silent.append(str(error))

    await asyncio.gather(*(ask(pod) for pod in facts.pods if not _not_ready(pod)))
    if silent:
        told = f"metrics of {counted(len(silent), 'pod')}, so neither drift nor version"
        facts.unread.append(f"{told}: {silent[0]}")


async def _refused(
    facts: Facts, client: Client, namespace: str, account: str, leases: str
) -> list[str]:
    """The rights that an account lacks."""
    groups = ["system:serviceaccounts", f"system:serviceaccounts:{namespace}"]
    lacks: list[str] = []
    for group, resource, subresource, verbs in _RIGHTS:
        attributes = {"group": group, "resource": resource, "subresource": subresource}
        if resource == "leases":
            attributes["namespace"] = leases
        for verb in verbs.split():
            body = {
                "apiVersion": _REVIEWS.api_version,
                "kind": "SubjectAccessReview",
                "spec": {
                    "user": f"system:serviceaccount:{namespace}:{account}",
                    "groups": [*groups, "system:authenticated"],
                    "resourceAttributes": {**attributes, "verb": verb},
                },
            }
            try:
                answer = await client.create(_REVIEWS.path(), body)
            except errors.KubeError as error:
                facts.unread.append(f"the agents' rights: {error}")
                return lacks
            if not answer["status"].get("allowed"):
                lacks.append(f"{verb} {'/'.join(filter(None, (resource, subresource)))}")
    return lacks


async def _try(facts: Facts, client: Client, path: str, **params: str) -> JsonObject | None:
    """What the API server answers; empty: there is none; None: it may not be read, which is noted.

    Raises:
        errors.KubeError: no answer.
    """
    try:
        answer: JsonObject = await client.get(path, **params)
    except errors.KubeError as error:
        if error.status == 404:
            return {}
        if error.status != 403:
            raise
        facts.unread.append(str(error))
        return None
    return answer
