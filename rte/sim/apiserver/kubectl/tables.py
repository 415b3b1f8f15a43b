"""Table output: what ``kubectl get`` prints (meta.k8s.io/v1 Table).

Pod status text follows kubernetes ``pkg/printers/internalversion/printers.go``.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, NamedTuple

from rte.sim.apiserver.storage import selectors

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from rte.sim.apiserver.kinds.resource import ServedResource
    from rte.sim.apiserver.storage.store import Obj


class Column(NamedTuple):
    """One column: how to fill it from an object. Priority above 0 shows only with ``-o wide``."""

    name: str
    value: Callable[[Obj], Any]
    priority: int = 0
    type: str = "string"


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


def _name(obj: Obj) -> str:
    return str(obj["metadata"]["name"])


def _path(*keys: str) -> Callable[[Obj], Any]:
    def read(obj: Obj) -> Any:
        value: Any = obj
        for key in keys:
            value = value.get(key) if isinstance(value, dict) else None
        return "<none>" if value in (None, "") else value

    return read


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


def _address(kind: str) -> Callable[[Obj], str]:
    def read(node: Obj) -> str:
        found = node["status"].get("addresses") or ()
        return next((str(item["address"]) for item in found if item["type"] == kind), "<none>")

    return read


def _event_source(event: Obj) -> str:
    source = event.get("source") or {}
    parts = (source.get("component") or event.get("reportingComponent"), source.get("host"))
    return ", ".join(part for part in parts if part)


def _event_object(event: Obj) -> str:
    target = event.get("involvedObject") or {}
    return f"{target.get('kind', '').lower()}/{target.get('name', '')}"


def _event_seen(event: Obj) -> str:
    return since(event.get("lastTimestamp") or event.get("eventTime"))


def _containers(field: str) -> Callable[[Obj], str]:
    def read(obj: Obj) -> str:
        return ",".join(each[field] for each in obj["spec"]["template"]["spec"]["containers"])

    return read


def _selector(obj: Obj) -> str:
    return selectors.text(selectors.from_label_selector(obj["spec"].get("selector")) or ())


def _count(*keys: str) -> Callable[[Obj], int]:
    def read(obj: Obj) -> int:
        return int(obj[keys[0]].get(keys[1]) or 0)

    return read


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


def _bound(name: str) -> Callable[[Obj], str]:
    def read(obj: Obj) -> str:
        return str(obj["spec"].get(name, "N/A"))

    return read


def _ready_of_wanted(obj: Obj) -> str:
    return f"{obj['status'].get('readyReplicas', 0)}/{obj['spec']['replicas']}"


_TEMPLATE = (
    Column("Containers", _containers("name"), 1),
    Column("Images", _containers("image"), 1),
    Column("Selector", _selector, 1),
)
_INFO = ("status", "nodeInfo")
_NAME, _AGE = Column("Name", _name), Column("Age", age)

_COLUMNS: dict[str, tuple[Column, ...]] = {
    "pods": (
        _NAME,
        Column("Ready", _pod_ready),
        Column("Status", pod_status),
        Column("Restarts", _pod_restarts),
        _AGE,
        Column("IP", _path("status", "podIP"), 1),
        Column("Node", _path("spec", "nodeName"), 1),
        Column("Nominated Node", _path("status", "nominatedNodeName"), 1),
        Column("Readiness Gates", lambda _: "<none>", 1),
    ),
    "nodes": (
        _NAME,
        Column("Status", _node_status),
        Column("Roles", _node_roles),
        _AGE,
        Column("Version", _path(*_INFO, "kubeletVersion")),
        Column("Internal-IP", _address("InternalIP"), 1),
        Column("External-IP", _address("ExternalIP"), 1),
        Column("OS-Image", _path(*_INFO, "osImage"), 1),
        Column("Kernel-Version", _path(*_INFO, "kernelVersion"), 1),
        Column("Container-Runtime", _path(*_INFO, "containerRuntimeVersion"), 1),
    ),
    "namespaces": (_NAME, Column("Status", _path("status", "phase")), _AGE),
    "events": (
        Column("Last Seen", _event_seen),
        Column("Type", _path("type")),
        Column("Reason", _path("reason")),
        Column("Object", _event_object),
        Column("Subobject", _path("involvedObject", "fieldPath"), 1),
        Column("Source", _event_source, 1),
        Column("Message", lambda event: str(event.get("message", "")).strip()),
        Column("First Seen", lambda event: since(event.get("firstTimestamp")), 1),
        Column("Count", lambda event: event.get("count", 1), 1, "integer"),
        Column("Name", _name, 1),
    ),
    "deployments.apps": (
        _NAME,
        Column("Ready", _ready_of_wanted),
        Column("Up-to-date", _count("status", "updatedReplicas"), 0, "integer"),
        Column("Available", _count("status", "availableReplicas"), 0, "integer"),
        _AGE,
        *_TEMPLATE,
    ),
    "replicasets.apps": (
        _NAME,
        Column("Desired", _count("spec", "replicas"), 0, "integer"),
        Column("Current", _count("status", "replicas"), 0, "integer"),
        Column("Ready", _count("status", "readyReplicas"), 0, "integer"),
        _AGE,
        *_TEMPLATE,
    ),
    "jobs.batch": (
        _NAME,
        Column("Status", _job_status),
        Column("Completions", _job_completions),
        Column("Duration", _job_duration),
        _AGE,
        *_TEMPLATE,
    ),
    "poddisruptionbudgets.policy": (
        _NAME,
        Column("Min Available", _bound("minAvailable")),
        Column("Max Unavailable", _bound("maxUnavailable")),
        Column("Allowed Disruptions", _count("status", "disruptionsAllowed"), 0, "integer"),
        _AGE,
    ),
    "leases.coordination.k8s.io": (
        _NAME,
        Column("Holder", _path("spec", "holderIdentity")),
        _AGE,
    ),
    "configmaps": (_NAME, Column("Data", lambda o: len(o.get("data") or ()), 0, "integer"), _AGE),
    "secrets": (
        _NAME,
        Column("Type", _path("type")),
        Column("Data", lambda o: len(o.get("data") or ()), 0, "integer"),
        _AGE,
    ),
    "priorityclasses.scheduling.k8s.io": (
        _NAME,
        Column("Value", _path("value"), 0, "integer"),
        Column("Global-Default", lambda o: bool(o.get("globalDefault")), 0, "boolean"),
        _AGE,
        Column("PreemptionPolicy", _path("preemptionPolicy")),
    ),
    "customresourcedefinitions.apiextensions.k8s.io": (
        _NAME,
        Column("Created At", lambda obj: obj["metadata"].get("creationTimestamp"), 0, "date"),
    ),
}


def columns(kind: ServedResource) -> tuple[Column, ...]:
    """The columns of a resource."""
    if kind.definition is None:
        return _COLUMNS.get(kind.table, (_NAME, _AGE))
    extra = [
        Column(
            str(item["name"]),
            _from_path(str(item["jsonPath"]), str(item["type"])),
            int(item.get("priority") or 0),
            str(item["type"]),
        )
        for item in kind.definition.columns
    ]
    return (_NAME, *(extra or [_AGE]))


def _from_path(path: str, kind: str) -> Callable[[Obj], Any]:
    steps = parse_path(path)

    def read(obj: Obj) -> Any:
        found = list(walk(obj, steps))
        if not found:
            return None
        if kind == "date":
            return since(str(found[0]))
        if kind in ("integer", "number", "boolean"):
            return found[0]
        return found[0] if isinstance(found[0], str) else str(found[0])

    return read


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


def walk(value: Any, steps: Sequence[tuple[str, str, str]]) -> Iterable[Any]:
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


def table(
    kind: ServedResource,
    items: Sequence[Obj],
    metadata: Obj,
    *,
    include: str = "Metadata",
    header: bool = True,
) -> Obj:
    """A Table of objects. ``include`` says what each row carries: None, Metadata or Object."""
    shown = columns(kind)
    return {
        "kind": "Table",
        "apiVersion": "meta.k8s.io/v1",
        "metadata": metadata,
        **(
            {
                "columnDefinitions": [
                    {
                        "name": column.name,
                        "type": column.type if column.type != "date" else "string",
                        "format": "name" if column is _NAME else "",
                        "description": "",
                        "priority": column.priority,
                    }
                    for column in shown
                ]
            }
            if header
            else {"columnDefinitions": None}
        ),
        "rows": [
            {"cells": [column.value(obj) for column in shown], "object": _carried(obj, include)}
            for obj in items
        ],
    }


def _carried(obj: Obj, include: str) -> Obj | None:
    if include == "None":
        return None
    return obj if include == "Object" else partial(obj)


def partial(obj: Obj) -> Obj:
    """PartialObjectMetadata of an object."""
    return {
        "kind": "PartialObjectMetadata",
        "apiVersion": "meta.k8s.io/v1",
        "metadata": obj["metadata"],
    }
