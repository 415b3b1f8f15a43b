"""Write ``kinds.json`` and ``openapi.json.gz``: what a real API server serves, as it says itself.

Usage: ``python -m rte.sim.apiserver.schema.generate_api URL`` with the address of ``kubectl proxy``
before a kube-apiserver that serves PodGroups as well. ``kinds.json`` has its discovery, a row for
each resource in the version that its group prefers; ``openapi.json.gz`` the schemas of those and of
what they refer to, which ``kubectl explain`` and ``kubectl apply`` read.
"""

from __future__ import annotations

import gzip
import json
import re
import sys
import urllib.request
from pathlib import Path
from typing import TYPE_CHECKING

from rte.sim.apiserver.schema import openapi

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rte.reader.json import JsonObject, JsonValue

#: Beside the preferred versions.
_MORE = ("scheduling.k8s.io/v1beta1",)
#: What a server has for itself alone: not served here.
_LEFT_OUT = (
    "apiregistration.k8s.io", "flowcontrol.apiserver.k8s.io", "storagemigration.k8s.io",
    "bindings", "componentstatuses", "tokenreviews", "workloads",
)  # fmt: skip
#: Types of bodies and answers that are no resources.
_OTHERS = ("core.v1.Binding", "policy.v1.Eviction", "autoscaling.v1.Scale")
_OPTIONS = "io.k8s.apimachinery.pkg.apis.meta.v1.DeleteOptions"


def main(url: str) -> None:
    """Ask the server and write the files beside this one."""

    def read(path: str) -> JsonValue:
        with urllib.request.urlopen(f"{url}{path}") as answer:  # noqa: S310 (a developer's own)
            return json.load(answer)

    groups = [
        group["preferredVersion"]["groupVersion"]
        for group in read("/apis")["groups"]
        if group["name"] not in _LEFT_OUT
    ]
    schemas: JsonObject = {}
    kinds: list[JsonObject] = []
    for base in ("/api/v1", *(f"/apis/{name}" for name in (*groups, *_MORE))):
        document = read(f"/openapi/v3{base}")
        schemas |= document["components"]["schemas"]
        kinds += _rows(read(base)["resources"], base, document)
    here = Path(__file__).parent
    (here / "kinds.json").write_text("[\n" + ",\n".join(map(json.dumps, kinds)) + "\n]\n")
    left = [_OPTIONS, *(f"io.k8s.api.{name}" for name in _OTHERS)]
    left += [openapi.component(row["struct"]) for row in kinds]
    kept: JsonObject = {}
    while left:
        name = left.pop()
        if name in schemas and name not in kept:
            kept[name] = schemas[name]
            left += re.findall(rf"{openapi.PREFIX}([\w.-]+)", json.dumps(schemas[name]))
    text = json.dumps(dict(sorted(kept.items())), separators=(",", ":")).encode()
    (here / "openapi.json.gz").write_bytes(gzip.compress(text, 9, mtime=0))


def _rows(resources: list[JsonObject], base: str, document: JsonValue) -> Iterator[JsonObject]:
    group, _, version = base.removeprefix("/apis/").removeprefix("/api/").rpartition("/")
    for one in resources:
        if "/" in one["name"] or one["name"] in _LEFT_OUT:
            continue
        scope = "/namespaces/{namespace}" if one["namespaced"] else ""
        calls = document["paths"].get(f"{base}{scope}/{one['name']}/{{name}}", {})
        deleted = json.dumps(calls.get("delete", {}).get("responses", {}).get("200", {}))
        yield {
            "group": group,
            "version": version,
            "plural": one["name"],
            "kind": one["kind"],
            "singular": one["singularName"],
            "namespaced": one["namespaced"],
            "short_names": one.get("shortNames", []),
            "categories": one.get("categories", []),
            "verbs": one["verbs"],
            "subresources": {
                sub["name"].partition("/")[2]: [
                    sub.get("group", ""), sub.get("version", ""), sub["kind"], sub["verbs"],
                ]
                for sub in resources
                if sub["name"].startswith(f"{one['name']}/")
            },
            "struct": _struct(document, group, version, one["kind"]),
            "returns_object": bool(calls.get("delete")) and ".Status" not in deleted,
        }  # fmt: skip


def _struct(document: JsonValue, group: str, version: str, kind: str) -> str:
    """``io.k8s.api.core.v1.Pod`` -> ``core/v1.Pod``."""
    named = {"group": group, "version": version, "kind": kind}
    for name, schema in document["components"]["schemas"].items():
        if named in schema.get("x-kubernetes-group-version-kind", ()):
            *_, package, number, last = name.split(".")
            return f"{package}/{number}.{last}"
    return ""


if __name__ == "__main__":
    main(*sys.argv[1:])
