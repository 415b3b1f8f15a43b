"""What clients read to learn which resources exist: discovery and version."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

    from rte.reader.json import JsonObject
    from rte.sim.apiserver.kinds.resource import ServedResource

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


def resource_list(served: Iterable[ServedResource], group: str, version: str) -> JsonObject:
    """``/api/v1`` or ``/apis/GROUP/VERSION``."""
    rows: list[JsonObject] = []
    for item in by_group(served).get(group, {}).get(version, []):
        rows.append(
            {
                "name": item.plural,
                "singularName": item.singular or item.kind.lower(),
                "namespaced": item.namespaced,
                "kind": item.kind,
                "verbs": list(item.verbs),
                **({"shortNames": list(item.short_names)} if item.short_names else {}),
                **({"categories": list(item.categories)} if item.categories else {}),
            }
        )
        rows += [
            {
                "name": f"{item.plural}/{name}",
                "singularName": "",
                "namespaced": item.namespaced,
                **({"group": sub.group, "version": sub.version} if sub.group else {}),
                "kind": sub.kind,
                "verbs": list(sub.verbs),
            }
            for name, sub in item.subresources.items()
        ]
    return {
        "kind": "APIResourceList",
        **({"apiVersion": "v1"} if group else {}),
        "groupVersion": f"{group}/{version}" if group else version,
        "resources": rows,
    }


def group(served: Iterable[ServedResource], name: str) -> JsonObject | None:
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


def group_list(served: Iterable[ServedResource]) -> JsonObject:
    """``/apis``."""
    served = list(served)
    groups = (group(served, name) for name in by_group(served) if name)
    rows = [
        {k: v for k, v in row.items() if k not in ("kind", "apiVersion")} for row in groups if row
    ]
    return {"kind": "APIGroupList", "apiVersion": "v1", "groups": rows}


def aggregated(served: Iterable[ServedResource], *, core: bool) -> JsonObject:
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


def _aggregated_row(item: ServedResource) -> JsonObject:
    subresources = [
        {
            "subresource": name,
            "responseKind": {"group": sub.group, "version": sub.version, "kind": sub.kind},
            "verbs": list(sub.verbs),
        }
        for name, sub in item.subresources.items()
    ]
    return {
        "resource": item.plural,
        "responseKind": {"group": item.group, "version": item.version, "kind": item.kind},
        "scope": "Namespaced" if item.namespaced else "Cluster",
        "singularResource": item.singular or item.kind.lower(),
        "verbs": list(item.verbs),
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
