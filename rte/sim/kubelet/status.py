"""Pod and Node objects as a kubelet writes them."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING, Any

from rte.model import quantity

if TYPE_CHECKING:
    from collections.abc import Mapping

    from rte.model.machine import Machine
    from rte.model.node import DevicePool, KubeletConfig

Obj = dict[str, Any]
HOST = "127.0.0.1"
RUNTIME = "simulated"


@dataclass
class ContainerRun:
    """One container: times are RFC 3339 texts, "" while it has not come to that."""

    started: str = ""
    finished: str = ""
    code: int = 0
    restarts: int = 0


@dataclass
class PodRun:
    """What has happened to a pod on this node."""

    start_time: str
    containers: dict[str, ContainerRun] = field(default_factory=dict)

    def age(self, now: datetime) -> float:
        """Seconds since the last container was started."""
        started = max((run.started for run in self.containers.values()), default="")
        return (now - datetime.fromisoformat(started)).total_seconds() if started else 0.0


def restored(pod: Mapping[str, Any]) -> PodRun | None:
    """What the API remembers of a pod that ran before the kubelet was restarted."""
    shown = pod.get("status") or {}
    if shown.get("phase") != "Running":
        return None
    run = PodRun(shown["startTime"])
    for key in ("initContainerStatuses", "containerStatuses"):
        for item in shown.get(key) or ():
            state = item["state"]
            ended = state.get("terminated") or {}
            begun = state.get("running") or ended
            run.containers[item["name"]] = ContainerRun(
                started=begun.get("startedAt", ""),
                finished=ended.get("finishedAt", ""),
                code=ended.get("exitCode", 0),
            )
    return run


def pod_status(pod: Mapping[str, Any], run: PodRun, phase: str, now: str) -> Obj:
    """``status`` of an admitted pod in ``phase`` Pending, Running, Succeeded or Failed."""
    spec, generation = pod["spec"], pod["metadata"].get("generation", 1)
    old = {c["type"]: c for c in (pod.get("status") or {}).get("conditions") or ()}
    done = phase in ("Succeeded", "Failed")
    begun = any(item.started for item in run.containers.values())
    ready = phase == "Running"
    ended = "PodCompleted" if phase == "Succeeded" else "PodFailed"
    waiting = ended if done else "ContainersNotReady"
    initialized = all(
        run.containers[c["name"]].started
        if c.get("restartPolicy") == "Always"
        else run.containers[c["name"]].finished
        for c in spec.get("initContainers") or ()
    )
    flags = (
        ("PodReadyToStartContainers", begun and not done, ""),
        ("Initialized", initialized or done, "" if initialized else "ContainersNotInitialized"),
        ("Ready", ready, waiting),
        ("ContainersReady", ready, waiting),
        ("PodScheduled", True, ""),
    )
    conditions = []
    for kind, flag, reason in flags:
        text = "True" if flag else "False"
        before = old.get(kind)
        changed = before is None or before["status"] != text
        since = now if before is None or changed else before.get("lastTransitionTime") or now
        conditions.append(
            {
                "type": kind,
                "observedGeneration": generation,
                "status": text,
                "lastProbeTime": None,
                "lastTransitionTime": since,
                **({"reason": reason} if reason and not flag else {}),
            }
        )
    shown: Obj = {
        "observedGeneration": generation,
        "phase": phase,
        "conditions": conditions,
        "hostIP": HOST,
        "hostIPs": [{"ip": HOST}],
        "startTime": run.start_time,
    }
    if begun:
        shown |= {"podIP": HOST, "podIPs": [{"ip": HOST}]}
    for key, group in (
        ("initContainerStatuses", spec.get("initContainers") or ()),
        ("containerStatuses", spec["containers"]),
    ):
        if group:
            shown[key] = [_container(item, run.containers[item["name"]], pod) for item in group]
    return shown


def _container(container: Mapping[str, Any], run: ContainerRun, pod: Mapping[str, Any]) -> Obj:
    made = f"{pod['metadata']['uid']}/{container['name']}/{run.restarts}"
    uid = f"{RUNTIME}://{hashlib.sha256(made.encode()).hexdigest()}"
    if run.finished:
        state: Obj = {
            "terminated": {
                "exitCode": run.code,
                "reason": "Completed" if run.code == 0 else "Error",
                "startedAt": run.started or run.finished,
                "finishedAt": run.finished,
                "containerID": uid,
            }
        }
    elif run.started:
        state = {"running": {"startedAt": run.started}}
    else:
        initialising = bool(pod["spec"].get("initContainers"))
        state = {"waiting": {"reason": "PodInitializing" if initialising else "ContainerCreating"}}
    alive = bool(run.started and not run.finished)
    resources = container.get("resources") or {}
    requests = resources.get("requests")
    return {
        "name": container["name"],
        "state": state,
        "lastState": {},
        "ready": alive or bool(run.finished and run.code == 0 and _is_init(container, pod)),
        "restartCount": run.restarts,
        "image": container["image"],
        "imageID": container["image"] if run.started else "",
        **({"containerID": uid} if run.started else {}),
        "started": alive,
        **({"allocatedResources": requests, "resources": resources} if requests and alive else {}),
    }


def _is_init(container: Mapping[str, Any], pod: Mapping[str, Any]) -> bool:
    inits = pod["spec"].get("initContainers") or ()
    return any(item["name"] == container["name"] for item in inits)


def rejected(pod: Mapping[str, Any], reason: str, message: str, now: str) -> Obj:
    """``status`` of a pod that the kubelet did not admit."""
    return {
        "observedGeneration": pod["metadata"].get("generation", 1),
        "phase": "Failed",
        "reason": reason,
        "message": f"Pod was rejected: {message}",
        "startTime": now,
        "conditions": None,
    }


def totals(
    machine: Machine, config: KubeletConfig, devices: Mapping[str, DevicePool]
) -> tuple[dict[str, int], dict[str, int]]:
    """Capacity and allocatable of the node: millicores and base units."""
    huge: dict[str, int] = {}
    for zone in machine.zones:
        for size, pages in zone.hugepages.items():
            name = quantity.hugepage_resource(size)
            huge[name] = huge.get(name, 0) + size * pages
    memory = machine.memory_bytes or sum(zone.memory_bytes for zone in machine.zones)
    capacity = {
        "cpu": machine.online.bit_count() * 1000,
        "memory": memory,
        "pods": config.max_pods,
        **huge,
    }
    reserved = config.node_reserved
    allocatable = {
        **capacity,
        "cpu": max(0, capacity["cpu"] - reserved.get("cpu", 0)),
        "memory": max(0, memory - reserved.get("memory", 0) - sum(huge.values())),
    }
    for name, pool in devices.items():
        capacity[name] = len(pool.ids)
        allocatable[name] = pool.healthy.bit_count()
    return capacity, allocatable


def quantities(amounts: Mapping[str, int]) -> dict[str, str]:
    """Amounts as quantities of the API."""
    return {
        name: f"{amount}m" if name == "cpu" else str(amount)
        for name, amount in sorted(amounts.items())
    }


_CONDITIONS = (
    ("MemoryPressure", "KubeletHasSufficientMemory", "kubelet has sufficient memory available"),
    ("DiskPressure", "KubeletHasNoDiskPressure", "kubelet has no disk pressure"),
    ("PIDPressure", "KubeletHasSufficientPID", "kubelet has sufficient PID available"),
)


def node_status(
    capacity: Mapping[str, int], allocatable: Mapping[str, int], version: str, port: int, now: str
) -> Obj:
    """``status`` of the Node."""
    conditions = [
        {
            "type": kind,
            "status": "False",
            "lastHeartbeatTime": now,
            "lastTransitionTime": now,
            "reason": reason,
            "message": message,
        }
        for kind, reason, message in _CONDITIONS
    ]
    conditions.append(
        {
            "type": "Ready",
            "status": "True",
            "lastHeartbeatTime": now,
            "lastTransitionTime": now,
            "reason": "KubeletReady",
            "message": "kubelet is posting ready status",
        }
    )
    return {
        "capacity": quantities(capacity),
        "allocatable": quantities(allocatable),
        "conditions": conditions,
        "addresses": [{"type": "InternalIP", "address": HOST}],
        "daemonEndpoints": {"kubeletEndpoint": {"Port": port}},
        "nodeInfo": {
            "machineID": "",
            "systemUUID": "",
            "bootID": "",
            "kernelVersion": "simulated",
            "osImage": "simulated",
            "containerRuntimeVersion": f"{RUNTIME}://1",
            "kubeletVersion": version,
            "kubeProxyVersion": "",
            "operatingSystem": "linux",
            "architecture": "amd64",
        },
    }
