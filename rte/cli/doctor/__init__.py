"""``rte doctor``: what is wrong with rte on a cluster, and what to do about it; changes nothing."""

from __future__ import annotations

import asyncio
import json
import os
from collections import defaultdict
from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

from rte import __version__, config
from rte.cli.doctor.facts import AGENT, CRD, POLICY, SCHEDULER, Facts, not_ready, program, read
from rte.model.words import counted
from rte.placement.kubelet import releases
from rte.scheduler.cache.intake import AGENT_DEAD_S

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterator, Mapping

    from rte.model.node import NodeState

#: Names that are written out, of more nodes that have the same.
_MOST_NAMES = 5
#: What to do where the kubelet says something about an image.
_IMAGE_TODO = (
    "the node cannot get the image: `rte install` builds the images and pushes or loads them under "
    "the names that the manifests ask for"
)


class Severity(StrEnum):
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

    level: Severity
    what: str
    says: str
    todo: str = ""
    nodes: tuple[str, ...] = ()


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    config.add_arguments(parser, "doctor")
    parser.add_argument("-o", "--output", choices=("text", "json"), default="text")


def run(args: argparse.Namespace) -> int:
    """Look at everything; 0 where nothing has failed, else 1."""
    namespace = config.load("doctor", vars(args), os.environ).scheduler.agent_namespace
    findings = examine(asyncio.run(read(args, namespace)))
    if args.output == "json":
        print(json.dumps([asdict(each) for each in findings], indent=2))
    else:
        print("\n".join(_lines(findings)))
    return int(any(each.level is Severity.FAILED for each in findings))


def _lines(findings: list[Finding]) -> Iterator[str]:
    for each in findings:
        yield f"{each.level:<8}{each.what}: {each.says}{_of(each.nodes)}"
        if each.todo:
            yield f"        do: {each.todo}"
    counts = (sum(each.level is level for each in findings) for level in Severity)
    ok, warnings, failed = counts
    yield f"{ok} ok, {counted(warnings, 'warning')}, {failed} failed"


def _of(nodes: tuple[str, ...]) -> str:
    if not nodes:
        return ""
    more = len(nodes) - _MOST_NAMES
    return f" ({', '.join(nodes[:_MOST_NAMES])}{f' and {more} more' if more > 0 else ''})"


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
        ("CRD", CRD, "kubectl create -k manifests/crd"),
        ("admission policy", POLICY, "rte install applies it, on Kubernetes 1.32 or newer"),
    ):
        if facts.there.get(name):
            yield Finding(Severity.OK, what, f"{name} is there")
        elif facts.there.get(name) is False:
            level = Severity.FAILED if name == CRD else Severity.WARNING
            yield Finding(level, what, f"{name} is missing", todo)
    if facts.refused:
        yield Finding(
            Severity.FAILED,
            "rights",
            f"the agent may not {'; '.join(facts.refused)}",
            "apply its rights again (manifests/agent/rbac.yaml)",
        )
    for line in facts.unread:
        yield Finding(
            Severity.WARNING, "not looked at", line, "run rte doctor with the rights of an operator"
        )


def _of_pods(facts: Facts) -> Iterator[Finding]:
    agents = [pod for pod in facts.pods if program(pod) == AGENT]
    schedulers = [pod for pod in facts.pods if program(pod) == SCHEDULER]
    if not agents:
        yield Finding(
            Severity.WARNING,
            "agents",
            "no pod of an agent (label app.kubernetes.io/name=rte-agent)",
            "rte install prints how it is installed",
        )
    if agents and not schedulers:
        yield Finding(
            Severity.OK, "scheduler", "not installed: reports serve rte explain, fit and view"
        )
    for title, pods in (("agents", agents), ("scheduler", schedulers)):
        waits = [(pod, why) for pod in pods if (why := not_ready(pod))]
        if pods and not waits:
            yield Finding(Severity.OK, title, f"{counted(len(pods), 'pod')}, all ready")
        for pod, why in waits:
            metadata = pod["metadata"]
            todo = f"kubectl describe pod -n {metadata['namespace']} {metadata['name']}"
            node = (pod.get("spec") or {}).get("nodeName")
            yield Finding(
                Severity.FAILED,
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
        yield Finding(Severity.OK, "versions", f"{told}, as this command's")
    else:
        yield Finding(
            Severity.WARNING,
            "versions",
            f"{told}; this command is {__version__}",
            "finish the upgrade: only neighbouring releases are sure to read each other's reports",
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
            Severity.FAILED,
            "drift",
            f"kubelets did not do as predicted ({pods})",
            'read "When the drift alarm rings" in docs/operations.md',
        )
    elif facts.metrics:
        yield Finding(
            Severity.OK, "drift", f"none, by the metrics of {counted(len(facts.metrics), 'pod')}"
        )


def _of_node(name: str, facts: Facts) -> Iterator[Finding]:
    entry = facts.nodes[name]
    if name not in facts.ready:
        yield Finding(Severity.WARNING, "node", "not Ready", "look at its kubelet first")
    report = entry.report
    if report is None:
        yield Finding(
            Severity.FAILED,
            "report",
            "none: pods go there by node totals",
            "kubectl logs -n rte-system -l app.kubernetes.io/name=rte-agent says why; does the "
            "agent's DaemonSet reach the node?",
        )
        return
    if report.broken or report.problem:
        yield Finding(
            Severity.FAILED,
            "report",
            f"malformed: {report.broken or report.problem}",
            "update the exporter that writes it",
        )
    if report.table is not None:
        yield Finding(
            Severity.WARNING,
            "report",
            "of another exporter: zones, but no prediction of CPUs",
            "install the agent, and stop the other exporter (docs/guides/exporters.md)",
        )
    if report.owner and entry.info and entry.info.uid and report.owner != entry.info.uid:
        yield Finding(
            Severity.FAILED,
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
            Severity.WARNING,
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
        yield Finding(Severity.OK, "agent", "alive")
        return
    yield Finding(
        Severity.FAILED,
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
            Severity.WARNING,
            "kubelet",
            "it has not taken up all of its pods since its start",
            "normal for some seconds; if it lasts, look at the kubelet's log",
        )
    if releases.known(state.kubelet_version) is None:
        yield Finding(
            Severity.FAILED,
            "kubelet version",
            releases.why_unknown(state.kubelet_version),
            "pods that need a zone do not go there: update rte",
        )
    elif releases.is_assumed(state.kubelet_version):
        yield Finding(Severity.OK, "kubelet version", releases.assumption(state.kubelet_version))
    if config_.is_assumed:
        yield Finding(
            Severity.WARNING,
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
            Severity.WARNING,
            "kubelet configuration",
            f"{key} {value}: {follows}",
            "set cpuManagerPolicy: static, reservedSystemCPUs and topologyManagerPolicy: "
            "single-numa-node; drain the node, delete cpu_manager_state, restart the kubelet "
            "(docs/start/cluster.md)",
        )
    if not wrong:
        yield Finding(
            Severity.OK,
            "kubelet configuration",
            f"CPU manager static, topology manager {config_.topology_policy}, "
            f"memory manager {config_.memory_policy}",
        )


def _samples(text: str, name: str) -> Iterator[tuple[Mapping[str, str], float]]:
    """Labels and value of a metric's samples."""
    from prometheus_client.parser import text_string_to_metric_families

    lines = (line for line in text.splitlines() if line.startswith((f"{name}{{", f"{name} ")))
    for family in text_string_to_metric_families("\n".join(lines)):
        for sample in family.samples:
            yield sample.labels, sample.value
