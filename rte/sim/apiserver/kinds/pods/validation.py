"""Rules for pods as far as the programs of this project can meet them.

Source: kubernetes ``pkg/apis/core/validation/validation.go``. Not checked: security contexts,
probes, affinity terms, most volume sources, ephemeral containers.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from rte.sim.apiserver import status
from rte.sim.apiserver.kinds import meta
from rte.sim.apiserver.kinds.pods import amounts
from rte.sim.apiserver.kinds.pods import validation_of_resources as stanzas

if TYPE_CHECKING:
    from rte.sim.apiserver.status import Cause
    from rte.sim.apiserver.storage.store import Obj


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
    for path, container in amounts.containers_of(spec):
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
        stanzas.validate_pod(spec, out)
    return out


_DNS = ("ClusterFirstWithHostNet", "ClusterFirst", "Default", "None")


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
    stanzas.validate(f"{path}.resources", container["resources"], stanzas.container_name, out)


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
