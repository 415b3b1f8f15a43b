"""Rules for requests and limits, of containers and of the pod as a whole.

Source: kubernetes ``pkg/apis/core/validation/validation.go``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from rte.sim.apiserver import status
from rte.sim.apiserver.kinds import meta
from rte.sim.apiserver.kinds.pods import amounts
from rte.sim.apiserver.schema import quantities

if TYPE_CHECKING:
    from collections.abc import Callable

    from rte.reader.json import Json
    from rte.sim.apiserver.status import Cause
    from rte.sim.apiserver.storage.store import Obj


def validate(
    path: str,
    resources: Json,
    check: Callable[[str, str], list[Cause]],
    out: list[Cause],
) -> None:
    """Rules for one stanza; ``check`` complains about names of resources."""
    limits, requests = resources.get("limits") or {}, resources.get("requests") or {}
    for which, table in (("limits", limits), ("requests", requests)):
        for name, value in table.items():
            where = f"{path}.{which}[{name}]"
            out += check(where, name)
            if quantities.amount(name, value) < 0:
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
        wanted, limit = quantities.amount(name, value), quantities.amount(name, limits[name])
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


def container_name(path: str, name: str) -> list[Cause]:
    """Complaints about the name of a resource in a container."""
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
    if amounts.is_pod_level(name):
        return []
    return [status.unsupported(path, name, ("cpu", "hugepages-", "memory"))]


def validate_pod(spec: Obj, out: list[Cause]) -> None:
    """Rules for the stanza of the pod, beside those of its containers."""
    stanza = spec["resources"]
    validate("spec.resources", stanza, _pod_name, out)
    requests = stanza.get("requests") or {}
    for name, total in amounts.aggregate(spec, "requests").items():
        if name in requests and quantities.amount(name, total) > quantities.amount(
            name, requests[name]
        ):
            out.append(
                status.invalid(
                    f"spec.resources.requests[{name}]",
                    requests[name],
                    f"must be greater than or equal to aggregate container requests of {total}",
                )
            )
    limits = stanza.get("limits") or {}
    for name, total in amounts.aggregate(spec, "limits").items():
        if not name.startswith("hugepages-") or name not in limits:
            continue
        if quantities.amount(name, total) > quantities.amount(name, limits[name]):
            out.append(
                status.invalid(
                    f"spec.resources.limits[{name}]",
                    limits[name],
                    f"must be greater than or equal to aggregate container limits of {total}",
                )
            )
    for index, container in enumerate(spec.get("containers") or ()):
        for name, value in (container["resources"].get("limits") or {}).items():
            if name in limits and quantities.amount(name, value) > quantities.amount(
                name, limits[name]
            ):
                out.append(
                    status.invalid(
                        f"spec.resources.containers[{index}][{name}].limits",
                        value,
                        f"must be less than or equal to pod limits of {limits[name]}",
                    )
                )
