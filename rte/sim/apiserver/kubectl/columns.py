"""The columns of ``kubectl get``, and how they are filled.

Source: kubernetes ``pkg/printers/internalversion/printers.go``.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime
from typing import TYPE_CHECKING, NamedTuple

from rte.k8s.selectors import parse_selector
from rte.sim.apiserver.storage import selectors

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from rte.reader.json import JsonValue
    from rte.sim.apiserver.storage.store import Obj


class Column(NamedTuple):
    """One column: how to fill it from an object. Priority above 0 shows only with ``-o wide``."""

    name: str
    value: Callable[[Obj], JsonValue]
    priority: int = 0
    type: str = "string"


_STEP = re.compile(
    r"\.?(?P<key>[\w-]+)|\.?\['(?P<quoted>[^']+)'\]|\.?\[(?P<index>\*|-?\d+)\]"
    r"|\[\?\(@\.(?P<field>[\w.-]+)\s*==\s*['\"](?P<value>[^'\"]*)['\"]\)\]"
)


def parse_path(path: str) -> list[tuple[str, str, str]]:
    """Parse the JSONPath subset of printer columns: keys, ``[n]``, ``[*]``, ``[?(@.a=="b")]``."""
    steps: list[tuple[str, str, str]] = []
    text = path.strip().strip("{}").replace("\\.", "\0")
    at = 0
    while at < len(text):
        match = _STEP.match(text, at)
        if match is None:
            return []
        if match["key"] or match["quoted"]:
            steps.append(("key", (match["key"] or match["quoted"]).replace("\0", "."), ""))
        elif match["index"]:
            steps.append(("index", match["index"], ""))
        else:
            steps.append(("filter", match["field"], match["value"]))
        at = match.end()
    return steps


def walk(value: JsonValue, steps: Sequence[tuple[str, str, str]]) -> Iterable[JsonValue]:
    """All values that a parsed path reaches."""
    if not steps:
        if value is not None:
            yield value
        return
    (kind, name, wanted), rest = steps[0], steps[1:]
    if kind == "key":
        if isinstance(value, dict) and name in value:
            yield from walk(value[name], rest)
    elif isinstance(value, list):
        if kind == "filter":
            chosen = [x for x in value if isinstance(x, dict) and str(x.get(name)) == wanted]
        elif name == "*":
            chosen = value
        else:
            chosen = value[int(name) :][:1]
        for item in chosen:
            yield from walk(item, rest)


def at(path: str, kind: str = "string", absent: JsonValue = "<none>") -> Callable[[Obj], JsonValue]:
    """What is found at a path first, in the form of a type of columns."""
    steps = parse_path(path)

    def read(obj: Obj) -> JsonValue:
        found = next(iter(walk(obj, steps)), None)
        if found is None or (found == "" and absent is not None):
            return absent
        if kind == "date":
            return since(str(found))
        return found if kind != "string" or isinstance(found, str) else str(found)

    return read


def _count(path: str) -> Callable[[Obj], JsonValue]:
    return at(path, "integer", 0)


def _joined(path: str) -> Callable[[Obj], str]:
    steps = parse_path(path)
    return lambda obj: ",".join(str(found) for found in walk(obj, steps))


def age(obj: Obj) -> str:
    """Time since creation."""
    return since(obj["metadata"].get("creationTimestamp"))


def since(text: str | None) -> str:
    """A time as the span since then (apimachinery ``duration.HumanDuration``)."""
    if not text:
        return "<unknown>"
    return human_span(int((datetime.now(UTC) - datetime.fromisoformat(text)).total_seconds()))


def human_span(seconds: int) -> str:
    """``duration.HumanDuration``."""
    if seconds < 0:
        return "<invalid>" if seconds < -1 else "0s"
    minutes, hours, days = seconds // 60, seconds // 3600, seconds // 86400
    for below, whole, rest in (
        (seconds < 120, f"{seconds}s", ""),
        (minutes < 10, f"{minutes}m", f"{seconds % 60}s"),
        (minutes < 180, f"{minutes}m", ""),
        (hours < 8, f"{hours}h", f"{minutes % 60}m"),
        (hours < 48, f"{hours}h", ""),
        (days < 8, f"{days}d", f"{hours % 24}h"),
    ):
        if below:
            return whole + (rest if rest and not rest.startswith("0") else "")
    return f"{days}d"


def _pod_ready(pod: Obj) -> str:
    statuses = pod["status"].get("containerStatuses") or []
    ready = sum(bool(item.get("ready")) for item in statuses)
    return f"{ready}/{len(pod['spec']['containers'])}"


def _pod_restarts(pod: Obj) -> str:
    statuses = pod["status"].get("containerStatuses") or []
    return str(sum(item.get("restartCount", 0) for item in statuses))


def pod_status(pod: Obj) -> str:
    """The STATUS column."""
    state = pod["status"]
    text = state.get("reason") or state.get("phase") or ""
    if pod["spec"].get("schedulingGates") and not state.get("reason"):
        text = "SchedulingGated"
    for item in state.get("containerStatuses") or ():
        waiting = (item.get("state") or {}).get("waiting") or {}
        ended = (item.get("state") or {}).get("terminated") or {}
        if waiting.get("reason"):
            text = waiting["reason"]
        elif ended.get("reason"):
            text = ended["reason"]
    if pod["metadata"].get("deletionTimestamp"):
        text = "Terminating"
    return str(text)


def _node_status(node: Obj) -> str:
    ready = next(
        (c for c in node["status"].get("conditions") or () if c.get("type") == "Ready"), None
    )
    text = "Unknown"
    if ready is not None:
        text = "Ready" if ready["status"] == "True" else "NotReady"
    return text + ",SchedulingDisabled" * bool(node["spec"].get("unschedulable"))


def _node_roles(node: Obj) -> str:
    prefix = "node-role.kubernetes.io/"
    labels = node["metadata"].get("labels") or {}
    return ",".join(k.removeprefix(prefix) for k in labels if k.startswith(prefix)) or "<none>"


def _event_source(event: Obj) -> str:
    source = event.get("source") or {}
    parts = (source.get("component") or event.get("reportingComponent"), source.get("host"))
    return ", ".join(part for part in parts if part)


def _event_object(event: Obj) -> str:
    target = event.get("involvedObject") or {}
    return f"{target.get('kind', '').lower()}/{target.get('name', '')}"


def _event_seen(event: Obj) -> str:
    return since(event.get("lastTimestamp") or event.get("eventTime"))


def _selector(obj: Obj) -> str:
    return selectors.text(parse_selector(obj["spec"].get("selector"), "selector"))


def _job_status(job: Obj) -> str:
    told = {one["type"] for one in job["status"].get("conditions") or () if one["status"] == "True"}
    for kind, text in _JOB_CONDITIONS[:2]:
        if kind in told:
            return text
    if job["metadata"].get("deletionTimestamp"):
        return "Terminating"
    return next((text for kind, text in _JOB_CONDITIONS[2:] if kind in told), "Running")


_JOB_CONDITIONS = (
    ("Complete", "Complete"), ("Failed", "Failed"), ("Suspended", "Suspended"),
    ("FailureTarget", "FailureTarget"), ("SuccessCriteriaMet", "SuccessCriteriaMet"),
)  # fmt: skip


def _job_completions(job: Obj) -> str:
    spec, done = job["spec"], job["status"].get("succeeded", 0)
    if "completions" in spec:
        return f"{done}/{spec['completions']}"
    several = f" of {spec['parallelism']}" if spec["parallelism"] > 1 else ""
    return f"{done}/1{several}"


def _job_duration(job: Obj) -> str:
    start, end = job["status"].get("startTime"), job["status"].get("completionTime")
    if not start or not end:
        return since(start) if start else ""
    took = datetime.fromisoformat(end) - datetime.fromisoformat(start)
    return human_span(int(took.total_seconds()))


def _pairs(path: str) -> Callable[[Obj], str]:
    """A map as ``a=b,c=d``."""
    found = at(path, "object", {})
    return lambda obj: ",".join(f"{k}={v}" for k, v in sorted(found(obj).items())) or "<none>"


def _ports(obj: Obj) -> str:
    return ",".join(
        f"{port['port']}{':' if port.get('nodePort') else ''}{port.get('nodePort') or ''}"
        f"/{port['protocol']}"
        for port in obj["spec"].get("ports") or ()
    ) or "<none>"  # fmt: skip


def _ready_of_wanted(obj: Obj) -> str:
    return f"{obj['status'].get('readyReplicas', 0)}/{obj['spec']['replicas']}"


_TEMPLATE = (
    Column("Containers", _joined(".spec.template.spec.containers[*].name"), 1),
    Column("Images", _joined(".spec.template.spec.containers[*].image"), 1),
    Column("Selector", _selector, 1),
)
NAME, AGE = Column("Name", at(".metadata.name")), Column("Age", age)

#: By table of the store.
COLUMNS: dict[str, tuple[Column, ...]] = {
    "pods": (
        NAME,
        Column("Ready", _pod_ready),
        Column("Status", pod_status),
        Column("Restarts", _pod_restarts),
        AGE,
        Column("IP", at(".status.podIP"), 1),
        Column("Node", at(".spec.nodeName"), 1),
        Column("Nominated Node", at(".status.nominatedNodeName"), 1),
        Column("Readiness Gates", lambda _: "<none>", 1),
    ),
    "nodes": (
        NAME,
        Column("Status", _node_status),
        Column("Roles", _node_roles),
        AGE,
        Column("Version", at(".status.nodeInfo.kubeletVersion")),
        Column("Internal-IP", at(".status.addresses[?(@.type=='InternalIP')].address"), 1),
        Column("External-IP", at(".status.addresses[?(@.type=='ExternalIP')].address"), 1),
        Column("OS-Image", at(".status.nodeInfo.osImage"), 1),
        Column("Kernel-Version", at(".status.nodeInfo.kernelVersion"), 1),
        Column("Container-Runtime", at(".status.nodeInfo.containerRuntimeVersion"), 1),
    ),
    "namespaces": (NAME, Column("Status", at(".status.phase")), AGE),
    "events": (
        Column("Last Seen", _event_seen),
        Column("Type", at(".type")),
        Column("Reason", at(".reason")),
        Column("Object", _event_object),
        Column("Subobject", at(".involvedObject.fieldPath"), 1),
        Column("Source", _event_source, 1),
        Column("Message", lambda event: str(event.get("message", "")).strip()),
        Column("First Seen", lambda event: since(event.get("firstTimestamp")), 1),
        Column("Count", lambda event: event.get("count", 1), 1, "integer"),
        Column("Name", at(".metadata.name"), 1),
    ),
    "deployments.apps": (
        NAME,
        Column("Ready", _ready_of_wanted),
        Column("Up-to-date", _count(".status.updatedReplicas"), 0, "integer"),
        Column("Available", _count(".status.availableReplicas"), 0, "integer"),
        AGE,
        *_TEMPLATE,
    ),
    "replicasets.apps": (
        NAME,
        Column("Desired", _count(".spec.replicas"), 0, "integer"),
        Column("Current", _count(".status.replicas"), 0, "integer"),
        Column("Ready", _count(".status.readyReplicas"), 0, "integer"),
        AGE,
        *_TEMPLATE,
    ),
    "daemonsets.apps": (
        NAME,
        Column("Desired", _count(".status.desiredNumberScheduled"), 0, "integer"),
        Column("Current", _count(".status.currentNumberScheduled"), 0, "integer"),
        Column("Ready", _count(".status.numberReady"), 0, "integer"),
        Column("Up-to-date", _count(".status.updatedNumberScheduled"), 0, "integer"),
        Column("Available", _count(".status.numberAvailable"), 0, "integer"),
        Column("Node Selector", _pairs(".spec.template.spec.nodeSelector")),
        AGE,
        *_TEMPLATE,
    ),
    "statefulsets.apps": (NAME, Column("Ready", _ready_of_wanted), AGE, *_TEMPLATE[:2]),
    "services": (
        NAME,
        Column("Type", at(".spec.type")),
        Column("Cluster-IP", at(".spec.clusterIP")),
        Column("External-IP", at(".spec.externalIPs[0]")),
        Column("Port(s)", _ports),
        AGE,
        Column("Selector", _pairs(".spec.selector"), 1),
    ),
    **dict.fromkeys(
        ("roles.rbac.authorization.k8s.io", "clusterroles.rbac.authorization.k8s.io"),
        (NAME, Column("Created At", at(".metadata.creationTimestamp"), 0, "date")),
    ),
    **dict.fromkeys(
        (
            "rolebindings.rbac.authorization.k8s.io",
            "clusterrolebindings.rbac.authorization.k8s.io",
        ),
        (
            NAME,
            Column("Role", lambda o: f"{o['roleRef']['kind']}/{o['roleRef']['name']}"),
            AGE,
        ),
    ),
    "jobs.batch": (
        NAME,
        Column("Status", _job_status),
        Column("Completions", _job_completions),
        Column("Duration", _job_duration),
        AGE,
        *_TEMPLATE,
    ),
    "poddisruptionbudgets.policy": (
        NAME,
        Column("Min Available", at(".spec.minAvailable", absent="N/A")),
        Column("Max Unavailable", at(".spec.maxUnavailable", absent="N/A")),
        Column("Allowed Disruptions", _count(".status.disruptionsAllowed"), 0, "integer"),
        AGE,
    ),
    "leases.coordination.k8s.io": (
        NAME,
        Column("Holder", at(".spec.holderIdentity")),
        AGE,
    ),
    "configmaps": (NAME, Column("Data", lambda o: len(o.get("data") or ()), 0, "integer"), AGE),
    "secrets": (
        NAME,
        Column("Type", at(".type")),
        Column("Data", lambda o: len(o.get("data") or ()), 0, "integer"),
        AGE,
    ),
    "priorityclasses.scheduling.k8s.io": (
        NAME,
        Column("Value", at(".value"), 0, "integer"),
        Column("Global-Default", lambda o: bool(o.get("globalDefault")), 0, "boolean"),
        AGE,
        Column("PreemptionPolicy", at(".preemptionPolicy")),
    ),
    "customresourcedefinitions.apiextensions.k8s.io": (
        NAME,
        Column("Created At", lambda obj: obj["metadata"].get("creationTimestamp"), 0, "date"),
    ),
}
