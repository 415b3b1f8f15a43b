"""What ``rte doctor`` reads of a cluster."""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final

from rte import errors
from rte.cli import inputs, live
from rte.kube.resources import LEASES, PODS, Resource
from rte.model.words import counted

if TYPE_CHECKING:
    import argparse
    from collections.abc import Mapping

    from rte.kube.client import Client
    from rte.reader.json import Json, JsonObject
    from rte.scheduler.framework.node import NodeEntry

POLICY: Final = "rte-agent-own-node-only"
_ADMISSION = "admissionregistration.k8s.io"
_POLICIES = Resource(_ADMISSION, "v1", "validatingadmissionpolicies")
_BINDINGS = Resource(_ADMISSION, "v1", "validatingadmissionpolicybindings")
_CRDS = Resource("apiextensions.k8s.io", "v1", "customresourcedefinitions")
CRD = "noderesourcetopologies.topology.node.k8s.io"
_REVIEWS = Resource("authorization.k8s.io", "v1", "subjectaccessreviews")
AGENT, SCHEDULER = "rte-agent", "rte-scheduler"
#: What an agent may do (docs/operations.md): group, resource, subresource, verbs. Of Leases: in
#: the agents' namespace.
_RIGHTS: Final = (
    ("topology.node.k8s.io", "noderesourcetopologies", "", "get list watch create update"),
    ("", "nodes", "", "get"),
    ("", "nodes", "configz", "get"),
    ("", "pods", "", "list watch"),
    ("coordination.k8s.io", "leases", "", "create patch"),
)
#: Programs whose metrics are read at once.
_AT_ONCE = 16


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


async def read(args: argparse.Namespace, namespace: str) -> Facts:
    """Everything; the agents' Leases are in the namespace.

    Raises:
        errors.RteError: the cluster does not answer.
    """
    facts = Facts(now=time.time())
    async with live.connect(args) as client:
        items = await live.read_objects(client, ("nodes", "reports"))
        facts.nodes = inputs.build_cluster(items)[0].nodes
        for item in items:
            if item["kind"] == "Node":
                _note_node(facts, item)
        for name, resources in ((CRD, (_CRDS,)), (POLICY, (_POLICIES, _BINDINGS))):
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
    selector = f"app.kubernetes.io/name in ({AGENT},{SCHEDULER})"
    listed = await _try(facts, client, PODS.path(), labelSelector=selector)
    facts.pods = [
        pod
        for pod in (listed or {}).get("items") or ()
        if "deletionTimestamp" not in pod["metadata"]
    ]
    accounts = {
        (pod["metadata"]["namespace"], str((pod.get("spec") or {}).get("serviceAccountName")))
        for pod in facts.pods
        if program(pod) == AGENT
    }
    for namespace, account in sorted(accounts):
        facts.refused += await _refused(facts, client, namespace, account, leases)
    slots, silent = asyncio.Semaphore(_AT_ONCE), list[str]()

    async def ask(pod: JsonObject) -> None:
        name, namespace = pod["metadata"]["name"], pod["metadata"]["namespace"]
        port = 9101 if program(pod) == AGENT else 10260
        async with slots:
            try:
                path = PODS.path(f"{name}:{port}", namespace, "proxy") + "/metrics"
                facts.metrics[name] = str(await client.get(path))
            except errors.KubeError as error:
                silent.append(str(error))

    await asyncio.gather(*(ask(pod) for pod in facts.pods if not not_ready(pod)))
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


def program(pod: Json) -> str:
    """Which of our programs runs in the pod."""
    return str((pod["metadata"].get("labels") or {}).get("app.kubernetes.io/name"))


def not_ready(pod: Json) -> str:
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
