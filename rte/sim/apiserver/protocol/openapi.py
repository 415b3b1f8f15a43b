"""The OpenAPI documents that ``kubectl explain`` and ``kubectl apply`` read."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import orjson

from rte.sim.apiserver.protocol.discovery import by_group
from rte.sim.apiserver.schema import openapi

if TYPE_CHECKING:
    from collections.abc import Iterable

    from rte.reader.json import JsonObject
    from rte.sim.apiserver.kinds.resource import ServedResource

_META = "meta/v1.ObjectMeta"


def index(served: Iterable[ServedResource]) -> JsonObject:
    """``/openapi/v3``."""
    paths = {f"apis/{r.group_version}" if r.group else f"api/{r.version}" for r in served}
    return {"paths": {path: {"serverRelativeURL": f"/openapi/v3/{path}"} for path in sorted(paths)}}


def document(served: Iterable[ServedResource], group_name: str, version_name: str) -> JsonObject:
    """``/openapi/v3/...``: what can be called, and the schemas of what is sent and answered."""
    paths: JsonObject = {}
    rows = by_group(served).get(group_name, {}).get(version_name, [])
    for item in rows:
        base = f"/apis/{item.group_version}" if item.group else f"/api/{item.version}"
        scope = "/namespaces/{namespace}" if item.namespaced else ""
        kind = {"group": item.group, "version": item.version, "kind": item.kind}
        parameters = [
            {"name": name, "in": "query", "schema": {"type": "string", "uniqueItems": True}}
            for name in ("dryRun", "fieldManager", "fieldValidation")
        ]
        operation = {
            "parameters": parameters,
            "responses": {"200": {"description": "OK"}},
            "x-kubernetes-group-version-kind": kind,
        }
        paths[f"{base}{scope}/{item.plural}/{{name}}"] = {
            "get": operation,
            "put": {**operation, "x-kubernetes-action": "put"},
            "patch": {**operation, "x-kubernetes-action": "patch"},
        }
        paths[f"{base}{scope}/{item.plural}"] = {
            "post": {**operation, "x-kubernetes-action": "post"}
        }
    return {
        "openapi": "3.0.0",
        "info": {"title": "Kubernetes", "version": "unversioned"},
        "paths": paths,
        "components": {"schemas": _schemas(rows)},
    }


def _schemas(rows: Iterable[ServedResource]) -> JsonObject:
    """The schemas of resources, and all that these refer to."""
    out: JsonObject = {}
    left = [openapi.component(_META)]
    for item in rows:
        if item.definition is None:
            left.append(openapi.component(item.struct))
        else:
            name = ".".join([*reversed(item.group.split(".")), item.version, item.kind])
            out[name] = _custom(item)
    known = openapi.components()
    while left:
        name = left.pop()
        if name in known and name not in out:
            out[name] = known[name]
            text = orjson.dumps(known[name]).decode()
            left += re.findall(rf"{openapi.PREFIX}([\w.-]+)", text)
    return out


def _custom(item: ServedResource) -> JsonObject:
    """The schema of a custom resource as the API server publishes it."""
    schema = dict(item.definition.schema if item.definition else {})
    pod = openapi.components()[openapi.component("core/v1.Pod")]["properties"]
    common = {name: pod[name] for name in ("apiVersion", "kind", "metadata")}
    kind = {"group": item.group, "version": item.version, "kind": item.kind}
    return {
        **schema,
        "properties": {**(schema.get("properties") or {}), **common},
        "x-kubernetes-group-version-kind": [kind],
    }
