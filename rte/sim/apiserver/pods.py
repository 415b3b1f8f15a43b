"""Pods: defaults, admission and validation as far as the programs of this project can meet them.

Sources: kubernetes ``pkg/apis/core/v1/defaults.go``, ``pkg/apis/core/validation/validation.go``,
``pkg/registry/core/pod/strategy.go``, ``plugin/pkg/admission/{priority,defaulttolerationseconds}``.
Not checked: security contexts, probes, affinity terms, most volume sources, ephemeral containers.
"""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING, Any

from rte import errors
from rte.model import podspec
from rte.sim.apiserver import meta, status, typed

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from rte.sim.apiserver.status import Cause
    from rte.sim.apiserver.store import Obj

_VOLUME_MODE = 0o644
_POD_LEVEL = ("cpu", "memory")


def set_defaults(pod: Obj) -> None:
    """Fill in what the API server defaults, in place."""
    spec = pod["spec"]
    set_spec_defaults(spec)
    containers = [*(spec.get("containers") or ()), *spec.get("initContainers", ())]
    for container in containers:
        resources = container["resources"]
        if resources.get("limits"):
            resources["requests"] = {**resources["limits"], **resources.get("requests", {})}
        if spec.get("hostNetwork"):
            for port in container.get("ports", ()):
                port.setdefault("hostPort", port["containerPort"])
    if spec["terminationGracePeriodSeconds"] < 0:
        spec["terminationGracePeriodSeconds"] = 1
    spec.setdefault("enableServiceLinks", True)


def set_spec_defaults(spec: Obj) -> None:
    """Defaults that also apply to pod templates."""
    spec.setdefault("dnsPolicy", "ClusterFirst")
    spec.setdefault("restartPolicy", "Always")
    spec.setdefault("securityContext", {})
    spec.setdefault("terminationGracePeriodSeconds", 30)
    spec.setdefault("schedulerName", "default-scheduler")
    if spec.get("serviceAccountName"):
        spec["serviceAccount"] = spec["serviceAccountName"]
    elif spec.get("serviceAccount"):
        spec["serviceAccountName"] = spec["serviceAccount"]
    for container in [*(spec.get("containers") or ()), *spec.get("initContainers", ())]:
        _default_container(container)
    for volume in spec.get("volumes", ()):
        _default_volume(volume)


def _default_container(container: Obj) -> None:
    if not container.get("imagePullPolicy"):
        image = container.get("image", "")
        last = image.rpartition("/")[2]
        latest = "@" not in last and (":" not in last or last.endswith(":latest"))
        container["imagePullPolicy"] = "Always" if latest else "IfNotPresent"
    container.setdefault("terminationMessagePath", "/dev/termination-log")
    container.setdefault("terminationMessagePolicy", "File")
    for port in container.get("ports", ()):
        port.setdefault("protocol", "TCP")
    for name in ("livenessProbe", "readinessProbe", "startupProbe"):
        probe = container.get(name)
        if probe is not None:
            probe.setdefault("timeoutSeconds", 1)
            probe.setdefault("periodSeconds", 10)
            probe.setdefault("successThreshold", 1)
            probe.setdefault("failureThreshold", 3)
            if probe.get("httpGet") is not None:
                probe["httpGet"].setdefault("path", "/")
                probe["httpGet"].setdefault("scheme", "HTTP")
    for variable in container.get("env", ()):
        reference = (variable.get("valueFrom") or {}).get("fieldRef")
        if reference is not None:
            reference.setdefault("apiVersion", "v1")


def _default_volume(volume: Obj) -> None:
    if len(volume) == 1:
        volume["emptyDir"] = {}
    for source in ("secret", "configMap", "downwardAPI", "projected"):
        if volume.get(source) is not None:
            volume[source].setdefault("defaultMode", _VOLUME_MODE)
    if volume.get("hostPath") is not None:
        volume["hostPath"].setdefault("type", "")
    for item in (volume.get("downwardAPI") or {}).get("items", ()):
        if item.get("fieldRef") is not None:
            item["fieldRef"].setdefault("apiVersion", "v1")


def _default_pod_resources(spec: Obj) -> None:
    """The pod-level stanza as Kubernetes 1.37 completes it (KEP-2837; podutil
    DefaultPodLevelResources): limits on huge pages, requests, and limits that all containers have.
    """
    stanza = spec["resources"]
    limits, requests = dict(stanza.get("limits") or {}), dict(stanza.get("requests") or {})
    if not limits and not requests:
        return
    container_limits = aggregate(spec, "limits")
    for name, total in container_limits.items():
        if name.startswith("hugepages-") and name not in requests:
            limits.setdefault(name, total)
    for name, total in aggregate(spec, "requests").items():
        if name in _POD_LEVEL:
            requests.setdefault(name, total)
    for name, limit in limits.items():
        if _is_pod_level(name):
            requests.setdefault(name, limit)
    for name in _limited_everywhere(spec) & requests.keys() - limits.keys():
        texts = (container_limits[name], requests[name])
        limits[name] = max(texts, key=lambda text: typed.amount(name, text))
    if limits:
        stanza["limits"] = limits
    if requests:
        stanza["requests"] = requests


def _limited_everywhere(spec: Obj) -> set[str]:
    """Pod-level resources that every container limits."""
    limited = [set(item["resources"].get("limits") or ()) for _, item in _containers(spec)]
    return {name for names in limited for name in names if _is_pod_level(name)}.intersection(
        *limited
    )


def _is_pod_level(name: str) -> bool:
    return name in _POD_LEVEL or name.startswith("hugepages-")


def aggregate(spec: Mapping[str, Any], which: str) -> dict[str, str]:
    """Requests or limits of all containers together, as the API server sums them: app containers
    and sidecars add up, an ordinary init container counts with the sidecars started before it.
    """
    total: dict[str, int] = {}
    for container in spec.get("containers") or ():
        for name, value in (container["resources"].get(which) or {}).items():
            total[name] = total.get(name, 0) + typed.amount(name, value)
    sidecars: dict[str, int] = {}
    peak: dict[str, int] = {}
    for container in spec.get("initContainers") or ():
        wanted = {
            name: typed.amount(name, value)
            for name, value in (container["resources"].get(which) or {}).items()
        }
        if container.get("restartPolicy") == "Always":
            for name, value in wanted.items():
                total[name] = total.get(name, 0) + value
                sidecars[name] = sidecars.get(name, 0) + value
            wanted = {}
        for name in {*wanted, *sidecars}:
            peak[name] = max(peak.get(name, 0), wanted.get(name, 0) + sidecars.get(name, 0))
    for name, value in peak.items():
        total[name] = max(total.get(name, 0), value)
    texts = {
        (name, typed.amount(name, text)): text
        for container in (*(spec.get("containers") or ()), *(spec.get("initContainers") or ()))
        for name, text in (container["resources"].get(which) or {}).items()
    }
    # What comes from one container alone keeps the form that it was written in.
    return {name: texts.get((name, value)) or _text(name, value) for name, value in total.items()}


def _text(name: str, value: int) -> str:
    if name == "cpu":
        return typed.canonical_quantity(f"{value}m")
    return typed.canonical_quantity(f"{value // 1024}Ki" if value % 1024 == 0 else str(value))


def prepare_create(pod: Obj) -> None:
    """What a client cannot choose on create."""
    pod["metadata"]["generation"] = 1
    if pod["spec"].get("resources"):
        _default_pod_resources(pod["spec"])
    try:
        qos = str(podspec.parse_pod(pod).qos)
    except errors.ParseError:
        qos = "BestEffort"
    pod["status"] = {"phase": "Pending", "qosClass": qos}
    if pod["spec"].get("schedulingGates"):
        pod["status"]["conditions"] = [
            {
                "type": "PodScheduled",
                "status": "False",
                "lastProbeTime": None,
                "lastTransitionTime": pod["metadata"]["creationTimestamp"],
                "reason": "SchedulingGated",
                "message": "Scheduling is blocked due to non-empty scheduling gates",
            }
        ]


_NOT_READY = ("node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable")


def add_tolerations(pod: Obj) -> None:
    """Admission plugin DefaultTolerationSeconds."""
    tolerations = list(pod["spec"].get("tolerations") or ())
    for key in _NOT_READY:
        if not any(
            t.get("key", "") in (key, "") and t.get("effect", "") in ("NoExecute", "")
            for t in tolerations
        ):
            tolerations.append(
                {
                    "key": key,
                    "operator": "Exists",
                    "effect": "NoExecute",
                    "tolerationSeconds": 300,
                }
            )
    pod["spec"]["tolerations"] = tolerations


def admit_priority(pod: Obj, classes: Iterable[Obj]) -> None:
    """Admission plugin Priority.

    Raises:
        status.StatusError: 403, the class is unknown or the priority is not the class's.
    """
    spec = pod["spec"]
    table = {item["metadata"]["name"]: item for item in classes}
    name = spec.get("priorityClassName", "")
    if not name:
        defaults = [item for item in table.values() if item.get("globalDefault")]
        chosen = min(defaults, key=lambda item: item["value"]) if defaults else None
        if chosen is not None:
            name = spec["priorityClassName"] = chosen["metadata"]["name"]
    else:
        chosen = table.get(name)
        if chosen is None:
            raise denied(pod, f"no PriorityClass with name {name} was found")
    value = chosen["value"] if chosen else 0
    given = spec.get("priority")
    if given is not None and given != value:
        raise denied(
            pod,
            f"the integer value of priority ({given}) must not be provided in pod spec; priority "
            f"admission controller computed {value} from the given PriorityClass name",
        )
    spec["priority"] = value
    policy = (chosen or {}).get("preemptionPolicy", "PreemptLowerPriority")
    spec.setdefault("preemptionPolicy", policy)


def admit_overhead(pod: Obj, classes: Iterable[Obj]) -> None:
    """Admission plugin RuntimeClass: the overhead of the pod is that of its class.

    Raises:
        status.StatusError: 403, unknown class or an overhead that is not the class's.
    """
    spec = pod["spec"]
    name = spec.get("runtimeClassName")
    chosen = next((item for item in classes if item["metadata"]["name"] == name), None)
    if name and chosen is None:
        raise denied(pod, f'pod rejected: RuntimeClass "{name}" not found')
    wanted = ((chosen or {}).get("overhead") or {}).get("podFixed") or {}
    given = spec.get("overhead") or {}
    if chosen is None and given:
        raise denied(
            pod,
            "pod rejected: Pod Overhead set without corresponding RuntimeClass defined Overhead",
        )
    if wanted and given and given != wanted:
        raise denied(
            pod, "pod rejected: Pod's Overhead doesn't match RuntimeClass's defined Overhead"
        )
    if wanted:
        spec["overhead"] = dict(wanted)


def denied(pod: Obj, why: str) -> status.StatusError:
    """403 by an admission plugin."""
    name = pod["metadata"].get("name", "")
    return status.StatusError(
        403, f'pods "{name}" is forbidden: {why}', details={"name": name, "kind": "pods"}
    )


def validate_create(pod: Obj) -> list[Cause]:
    """Rules for a new pod."""
    out = validate(pod)
    if pod["spec"].get("nodeName") and pod["spec"].get("schedulingGates"):
        text = "cannot be set until all schedulingGates have been cleared"
        out.append(status.forbidden("spec.nodeName", text))
    return out


def validate(pod: Obj) -> list[Cause]:
    """Rules for the spec, of a new pod and of a changed one."""
    spec = pod["spec"]
    out: list[Cause] = []
    volumes = _validate_volumes(spec, out)
    names: set[str] = set()
    if not spec.get("containers"):
        out.append(status.required("spec.containers"))
    for path, container in _containers(spec):
        _validate_container(path, container, names, volumes, out)
    policy = spec.get("restartPolicy")
    if policy not in ("Always", "OnFailure", "Never"):
        out.append(
            status.unsupported("spec.restartPolicy", policy, ("Always", "OnFailure", "Never"))
        )
    if spec.get("dnsPolicy") not in _DNS:
        out.append(status.unsupported("spec.dnsPolicy", spec.get("dnsPolicy"), _DNS))
    for field in ("nodeName", "serviceAccountName"):
        if spec.get(field):
            out += [
                status.invalid(f"spec.{field}", spec[field], why)
                for why in meta.subdomain(spec[field])
            ]
    deadline = spec.get("activeDeadlineSeconds")
    if deadline is not None and not 1 <= deadline < 1 << 31:
        out.append(
            status.invalid(
                "spec.activeDeadlineSeconds",
                deadline,
                "must be between 1 and 2147483647, inclusive",
            )
        )
    for key, value in (spec.get("nodeSelector") or {}).items():
        out += [status.invalid("spec.nodeSelector", key, why) for why in meta.qualified_name(key)]
        out += [status.invalid("spec.nodeSelector", value, why) for why in meta.label_value(value)]
    _validate_tolerations(spec, out)
    if spec.get("resources"):
        _validate_pod_resources(spec, out)
    return out


_DNS = ("ClusterFirstWithHostNet", "ClusterFirst", "Default", "None")


def _containers(spec: Mapping[str, Any]) -> Iterator[tuple[str, Obj]]:
    for index, container in enumerate(spec.get("containers") or ()):
        yield f"spec.containers[{index}]", container
    for index, container in enumerate(spec.get("initContainers") or ()):
        yield f"spec.initContainers[{index}]", container


def _validate_volumes(spec: Obj, out: list[Cause]) -> set[str]:
    seen: set[str] = set()
    for index, volume in enumerate(spec.get("volumes") or ()):
        path = f"spec.volumes[{index}].name"
        if not volume["name"]:
            out.append(status.required(path))
        elif volume["name"] in seen:
            out.append(status.duplicate(path, volume["name"]))
        else:
            out += [
                status.invalid(path, volume["name"], why) for why in meta.dns_label(volume["name"])
            ]
        seen.add(volume["name"])
    return seen


def _validate_container(
    path: str, container: Obj, names: set[str], volumes: set[str], out: list[Cause]
) -> None:
    name = container["name"]
    if not name:
        out.append(status.required(f"{path}.name"))
    else:
        out += [status.invalid(f"{path}.name", name, why) for why in meta.dns_label(name)]
    if name in names:
        out.append(status.duplicate(f"{path}.name", name))
    names.add(name)
    image = container.get("image", "")
    if not image:
        out.append(status.required(f"{path}.image"))
    elif image != image.strip():
        out.append(
            status.invalid(f"{path}.image", image, "must not have leading or trailing whitespace")
        )
    policy = container["imagePullPolicy"]
    if policy not in ("Always", "IfNotPresent", "Never"):
        out.append(
            status.unsupported(
                f"{path}.imagePullPolicy", policy, ("Always", "IfNotPresent", "Never")
            )
        )
    _validate_references(path, container, volumes, out)
    _validate_resources(f"{path}.resources", container["resources"], _container_name, out)


def _validate_references(path: str, container: Obj, volumes: set[str], out: list[Cause]) -> None:
    """Ports, volume mounts and variables."""
    for index, port in enumerate(container.get("ports", ())):
        if not 1 <= port["containerPort"] <= 65535:
            out.append(
                status.invalid(
                    f"{path}.ports[{index}].containerPort",
                    port["containerPort"],
                    "must be between 1 and 65535, inclusive",
                )
            )
    for index, mount in enumerate(container.get("volumeMounts", ())):
        if mount["name"] not in volumes:
            where = f"{path}.volumeMounts[{index}].name"
            out.append(status.Cause(where, "NotFound", f'Not found: "{mount["name"]}"'))
        if not mount["mountPath"]:
            out.append(status.required(f"{path}.volumeMounts[{index}].mountPath"))
    for index, variable in enumerate(container.get("env", ())):
        if not variable["name"]:
            out.append(status.required(f"{path}.env[{index}].name"))


def _validate_resources(
    path: str,
    resources: Mapping[str, Any],
    check: Callable[[str, str], list[Cause]],
    out: list[Cause],
) -> None:
    limits, requests = resources.get("limits") or {}, resources.get("requests") or {}
    for which, table in (("limits", limits), ("requests", requests)):
        for name, value in table.items():
            where = f"{path}.{which}[{name}]"
            out += check(where, name)
            if typed.amount(name, value) < 0:
                out.append(status.invalid(where, value, "must be greater than or equal to 0"))
            if _is_extended(name) and str(value).endswith(("m", "u", "n")):
                out.append(status.invalid(where, value, "must be an integer"))
    for name, value in requests.items():
        if name not in limits:
            if not _overcommit(name):
                out.append(
                    status.required(
                        f"{path}.limits", "Limit must be set for non overcommitable resources"
                    )
                )
            continue
        wanted, limit = typed.amount(name, value), typed.amount(name, limits[name])
        if wanted != limit and not _overcommit(name):
            text = f"must be equal to {name} limit of {limits[name]}"
        elif wanted > limit:
            text = f"must be less than or equal to {name} limit of {limits[name]}"
        else:
            continue
        out.append(status.invalid(f"{path}.requests", value, text))
    names = {*limits, *requests}
    if any(name.startswith("hugepages-") for name in names) and not names & {"cpu", "memory"}:
        out.append(status.forbidden(path, "HugePages require cpu or memory"))


def _is_extended(name: str) -> bool:
    return "/" in name and "kubernetes.io/" not in name and not name.startswith("requests.")


def _overcommit(name: str) -> bool:
    native = "/" not in name or "kubernetes.io/" in name
    return native and not name.startswith("hugepages-")


def _container_name(path: str, name: str) -> list[Cause]:
    out = [status.invalid(path, name, why) for why in meta.qualified_name(name)]
    if out or "/" in name:
        return out
    if name in ("cpu", "memory", "ephemeral-storage") or name.startswith("hugepages-"):
        return []
    if name not in _STANDARD:
        out.append(
            status.invalid(path, name, "must be a standard resource type or fully qualified")
        )
    return [*out, status.invalid(path, name, "must be a standard resource for containers")]


_STANDARD = ("pods", "services", "replicationcontrollers", "resourcequotas", "secrets", "storage")


def _pod_name(path: str, name: str) -> list[Cause]:
    if _is_pod_level(name):
        return []
    return [status.unsupported(path, name, ("cpu", "hugepages-", "memory"))]


def _validate_pod_resources(spec: Obj, out: list[Cause]) -> None:
    stanza = spec["resources"]
    _validate_resources("spec.resources", stanza, _pod_name, out)
    requests = stanza.get("requests") or {}
    for name, total in aggregate(spec, "requests").items():
        if name in requests and typed.amount(name, total) > typed.amount(name, requests[name]):
            out.append(
                status.invalid(
                    f"spec.resources.requests[{name}]",
                    requests[name],
                    f"must be greater than or equal to aggregate container requests of {total}",
                )
            )
    limits = stanza.get("limits") or {}
    for name, total in aggregate(spec, "limits").items():
        if not name.startswith("hugepages-") or name not in limits:
            continue
        if typed.amount(name, total) > typed.amount(name, limits[name]):
            out.append(
                status.invalid(
                    f"spec.resources.limits[{name}]",
                    limits[name],
                    f"must be greater than or equal to aggregate container limits of {total}",
                )
            )
    for index, container in enumerate(spec.get("containers") or ()):
        for name, value in (container["resources"].get("limits") or {}).items():
            if name in limits and typed.amount(name, value) > typed.amount(name, limits[name]):
                out.append(
                    status.invalid(
                        f"spec.resources.containers[{index}][{name}].limits",
                        value,
                        f"must be less than or equal to pod limits of {limits[name]}",
                    )
                )


def _validate_tolerations(spec: Obj, out: list[Cause]) -> None:
    for index, item in enumerate(spec.get("tolerations") or ()):
        path = f"spec.tolerations[{index}]"
        if item.get("key"):
            out += [
                status.invalid(f"{path}.key", item["key"], why)
                for why in meta.qualified_name(item["key"])
            ]
        operator = item.get("operator", "Equal") or "Equal"
        if not item.get("key") and operator != "Exists":
            out.append(
                status.invalid(
                    f"{path}.operator",
                    operator,
                    "operator must be Exists when `key` is empty, "
                    'which means "match all values and all keys"',
                )
            )
        if item.get("tolerationSeconds") is not None and item.get("effect") != "NoExecute":
            out.append(
                status.invalid(
                    f"{path}.effect",
                    item.get("effect", ""),
                    "effect must be 'NoExecute' when `tolerationSeconds` is set",
                )
            )


_IMMUTABLE = (
    "pod updates may not change fields other than `spec.containers[*].image`,"
    "`spec.initContainers[*].image`,`spec.activeDeadlineSeconds`,`spec.tolerations` "
    "(only additions to existing tolerations),`spec.terminationGracePeriodSeconds` "
    "(allow it to be set to 1 if it was previously negative)"
)


def prepare_update(new: Obj, old: Obj) -> None:
    """Status is out of reach of the main resource; generation counts spec changes. Clients that do
    not know the pod-level stanza do not remove it.
    """
    new["status"] = old["status"]
    if old["spec"].get("resources") is not None and new["spec"].get("resources") is None:
        new["spec"]["resources"] = copy.deepcopy(old["spec"]["resources"])
    if new["spec"] != old["spec"]:
        new["metadata"]["generation"] = old["metadata"].get("generation", 0) + 1


def validate_update(new: Obj, old: Obj) -> list[Cause]:
    """Which parts of a pod's spec may change."""
    out = validate(new)
    for field in ("containers", "initContainers"):
        before, after = old["spec"].get(field) or (), new["spec"].get(field) or ()
        if [item["name"] for item in before] != [item["name"] for item in after]:
            out.append(
                status.forbidden(f"spec.{field}", "pod updates may not add or remove containers")
            )
            return out
    _validate_deadline(new["spec"], old["spec"], out)
    gone = [
        item
        for item in old["spec"].get("tolerations") or ()
        if not any(_same_toleration(item, kept) for kept in new["spec"].get("tolerations") or ())
    ]
    if gone:
        out.append(
            status.forbidden(
                "spec.tolerations",
                "existing toleration can not be modified except its tolerationSeconds",
            )
        )
    gates = {item["name"] for item in old["spec"].get("schedulingGates") or ()}
    added = [
        item["name"]
        for item in new["spec"].get("schedulingGates") or ()
        if item["name"] not in gates
    ]
    if added:
        out.append(
            status.forbidden(
                "spec.schedulingGates",
                f"only deletion is allowed, but found new scheduling gate '{added[0]}'",
            )
        )
    if _frozen(new, old) != old["spec"]:
        out.append(status.forbidden("spec", _IMMUTABLE))
    return out


def _validate_deadline(new: Obj, old: Obj, out: list[Cause]) -> None:
    """The deadline may be set once and only come closer."""
    before, after = old.get("activeDeadlineSeconds"), new.get("activeDeadlineSeconds")
    if before is None or after == before:
        return
    text = "must be less than or equal to previous value"
    if after is None:
        text = "must not update from a positive integer to nil value"
    if after is None or after > before:
        out.append(status.invalid("spec.activeDeadlineSeconds", after, text))


def _same_toleration(left: Mapping[str, Any], right: Mapping[str, Any]) -> bool:
    return all(left.get(f) == right.get(f) for f in ("key", "operator", "value", "effect"))


def _frozen(new: Obj, old: Obj) -> Obj:
    spec: Obj = copy.deepcopy(new["spec"])
    for field in ("containers", "initContainers"):
        for after, before in zip(spec.get(field) or (), old["spec"].get(field) or (), strict=False):
            after["image"] = before.get("image", "")
    for field in ("activeDeadlineSeconds", "schedulingGates", "tolerations"):
        spec.pop(field, None)
        if field in old["spec"]:
            spec[field] = old["spec"][field]
    if old["spec"].get("terminationGracePeriodSeconds", 0) < 0:
        spec["terminationGracePeriodSeconds"] = old["spec"]["terminationGracePeriodSeconds"]
    if old["spec"].get("schedulingGates"):
        selector = old["spec"].get("nodeSelector") or {}
        after = spec.get("nodeSelector") or {}
        if all(after.get(key) == value for key, value in selector.items()):
            spec.pop("nodeSelector", None)
            if "nodeSelector" in old["spec"]:
                spec["nodeSelector"] = old["spec"]["nodeSelector"]
    return spec


def prepare_status(new: Obj, old: Obj) -> None:
    """The status subresource: spec and owners stay."""
    new["spec"] = old["spec"]
    for field in ("deletionTimestamp", "ownerReferences"):
        new["metadata"].pop(field, None)
        if field in old["metadata"]:
            new["metadata"][field] = old["metadata"][field]
    if not new["status"].get("qosClass"):
        new["status"]["qosClass"] = old["status"].get("qosClass", "")
    if not new["status"].get("observedGeneration") and old["status"].get("observedGeneration"):
        new["status"]["observedGeneration"] = old["status"]["observedGeneration"]


def validate_status(new: Obj, old: Obj) -> list[Cause]:
    """Rules for the status subresource."""
    out: list[Cause] = []
    for index, item in enumerate(new["status"].get("conditions") or ()):
        if not item["type"]:
            out.append(status.required(f"status.conditions[{index}].type"))
    if old["spec"].get("restartPolicy") == "Always":
        return out
    terminated = {
        item["name"]
        for item in old["status"].get("containerStatuses") or ()
        if (item.get("state") or {}).get("terminated")
    }
    for index, item in enumerate(new["status"].get("containerStatuses") or ()):
        failed = old["spec"].get("restartPolicy") == "OnFailure"
        state = item.get("state") or {}
        if item["name"] in terminated and not state.get("terminated") and not failed:
            out.append(
                status.forbidden(
                    f"status.containerStatuses[{index}].state",
                    "may not be transitioned to non-terminated state",
                )
            )
    return out


def bind(pod: Obj, node: str, binding: Mapping[str, Any], now: str) -> Obj:
    """The pod after ``pods/binding``.

    Raises:
        status.StatusError: 409, the pod is bound, being deleted or gated.
    """
    name, spec, metadata = pod["metadata"]["name"], pod["spec"], dict(pod["metadata"])
    why = ""
    if metadata.get("deletionTimestamp"):
        why = f"pod {name} is being deleted, cannot be assigned to a host"
    elif spec.get("nodeName"):
        why = f'pod {name} is already assigned to node "{spec["nodeName"]}"'
    elif spec.get("schedulingGates"):
        why = f"pod {name} has non-empty .spec.schedulingGates"
    if why:
        raise status.conflict("pods/binding", name, why)
    for field in ("annotations", "labels"):
        extra = (binding.get("metadata") or {}).get(field) or {}
        if extra:
            metadata[field] = {**(metadata.get(field) or {}), **extra}
    after = {key: value for key, value in pod["status"].items() if key != "nominatedNodeName"}
    conditions = [c for c in after.get("conditions") or () if c["type"] != "PodScheduled"]
    conditions.append(
        {
            "type": "PodScheduled",
            "status": "True",
            "lastProbeTime": None,
            "lastTransitionTime": now,
        }
    )
    after["conditions"] = conditions
    return {**pod, "metadata": metadata, "spec": {**spec, "nodeName": node}, "status": after}


def disrupted(pod: Obj, now: str) -> Obj:
    """The pod once the eviction subresource has marked it."""
    mark = {
        "type": "DisruptionTarget",
        "status": "True",
        "lastProbeTime": None,
        "lastTransitionTime": now,
        "reason": "EvictionByEvictionAPI",
        "message": "Eviction API: evicting",
    }
    conditions = list(pod["status"].get("conditions") or ())
    if not any(c["type"] == mark["type"] and c["status"] == "True" for c in conditions):
        conditions = [c for c in conditions if c["type"] != mark["type"]] + [mark]
    return {**pod, "status": {**pod["status"], "conditions": conditions}}
