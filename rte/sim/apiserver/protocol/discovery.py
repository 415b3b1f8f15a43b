"""What clients read to learn which resources exist: discovery and version."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable

    from rte.sim.apiserver.kinds.resource import ServedResource

_VERBS = ["create", "delete", "deletecollection", "get", "list", "patch", "update", "watch"]
_SUB_VERBS = {
    "status": ["get", "patch", "update"],
    "binding": ["create"],
    "eviction": ["create"],
    "finalize": ["update"],
    "scale": ["get", "patch", "update"],
    "log": ["get"],
    "exec": ["create", "get"],
    "attach": ["create", "get"],
    "portforward": ["create", "get"],
}
_SUB_KINDS = {
    "binding": ("", "v1", "Binding"),
    "eviction": ("policy", "v1", "Eviction"),
    "scale": ("autoscaling", "v1", "Scale"),
    "exec": ("", "v1", "PodExecOptions"),
    "attach": ("", "v1", "PodAttachOptions"),
    "portforward": ("", "v1", "PodPortForwardOptions"),
}
AGGREGATED = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"


def by_group(served: Iterable[ServedResource]) -> dict[str, dict[str, list[ServedResource]]]:
    """Resources by group and version, the newest version first."""
    groups: dict[str, dict[str, list[ServedResource]]] = {}
    for item in sorted(served, key=lambda r: r.plural):
        groups.setdefault(item.group, {}).setdefault(item.version, []).append(item)
    return {
        group: dict(sorted(versions.items(), key=lambda row: row[0], reverse=True))
        for group, versions in groups.items()
    }


def _verbs(item: ServedResource) -> list[str]:
    if not item.is_stored:
        return ["create"]
    return [v for v in _VERBS if not (item.table == "namespaces" and v == "deletecollection")]


def resource_list(served: Iterable[ServedResource], group: str, version: str) -> dict[str, Any]:
    """``/api/v1`` or ``/apis/GROUP/VERSION``."""
    rows: list[dict[str, Any]] = []
    for item in by_group(served).get(group, {}).get(version, []):
        rows.append(
            {
                "name": item.plural,
                "singularName": item.singular or item.kind.lower(),
                "namespaced": item.namespaced,
                "kind": item.kind,
                "verbs": _verbs(item),
                **({"shortNames": list(item.short_names)} if item.short_names else {}),
                **({"categories": list(item.categories)} if item.categories else {}),
            }
        )
        for sub in item.subresources:
            other = _SUB_KINDS.get(sub)
            rows.append(
                {
                    "name": f"{item.plural}/{sub}",
                    "singularName": "",
                    "namespaced": item.namespaced,
                    **({"group": other[0], "version": other[1]} if other and other[0] else {}),
                    "kind": other[2] if other else item.kind,
                    "verbs": _SUB_VERBS[sub],
                }
            )
    return {
        "kind": "APIResourceList",
        **({"apiVersion": "v1"} if group else {}),
        "groupVersion": f"{group}/{version}" if group else version,
        "resources": rows,
    }


def group(served: Iterable[ServedResource], name: str) -> dict[str, Any] | None:
    """``/apis/GROUP``."""
    versions = by_group(served).get(name)
    if versions is None:
        return None
    rows = [{"groupVersion": f"{name}/{version}", "version": version} for version in versions]
    return {
        "kind": "APIGroup",
        "apiVersion": "v1",
        "name": name,
        "versions": rows,
        "preferredVersion": rows[0],
    }


def group_list(served: Iterable[ServedResource]) -> dict[str, Any]:
    """``/apis``."""
    served = list(served)
    groups = (group(served, name) for name in by_group(served) if name)
    rows = [
        {k: v for k, v in row.items() if k not in ("kind", "apiVersion")} for row in groups if row
    ]
    return {"kind": "APIGroupList", "apiVersion": "v1", "groups": rows}


def aggregated(served: Iterable[ServedResource], *, core: bool) -> dict[str, Any]:
    """``/api`` and ``/apis`` as one document each (apidiscovery.k8s.io/v2)."""
    items = [
        {
            "metadata": {"name": name} if name else {},
            "versions": [
                {
                    "version": version,
                    "resources": [_aggregated_row(item) for item in rows],
                    "freshness": "Current",
                }
                for version, rows in versions.items()
            ],
        }
        for name, versions in by_group(served).items()
        if bool(name) != core
    ]
    return {
        "kind": "APIGroupDiscoveryList",
        "apiVersion": "apidiscovery.k8s.io/v2",
        "metadata": {},
        "items": items,
    }


def _aggregated_row(item: ServedResource) -> dict[str, Any]:
    subresources = []
    for sub in item.subresources:
        name, version, kind = _SUB_KINDS.get(sub, ("", "", item.kind))
        subresources.append(
            {
                "subresource": sub,
                "responseKind": {"group": name, "version": version, "kind": kind},
                "verbs": _SUB_VERBS[sub],
            }
        )
    return {
        "resource": item.plural,
        "responseKind": {"group": item.group, "version": item.version, "kind": item.kind},
        "scope": "Namespaced" if item.namespaced else "Cluster",
        "singularResource": item.singular or item.kind.lower(),
        "verbs": _verbs(item),
        **({"shortNames": list(item.short_names)} if item.short_names else {}),
        **({"categories": list(item.categories)} if item.categories else {}),
        **({"subresources": subresources} if subresources else {}),
    }


def version(git_version: str) -> dict[str, str]:
    """``/version``."""
    major, minor, *_ = git_version.removeprefix("v").split(".")
    return {
        "major": major,
        "minor": minor,
        "gitVersion": git_version,
        "gitCommit": "",
        "gitTreeState": "clean",
        "buildDate": "1970-01-01T00:00:00Z",
        "goVersion": "",
        "compiler": "",
        "platform": "",
    }
