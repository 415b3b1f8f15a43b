"""The published schemas of built-in types: descriptions, and how lists and maps merge.

``openapi.json.gz`` holds them (:mod:`rte.sim.apiserver.schema.generate_openapi`).
"""

from __future__ import annotations

import gzip
from functools import lru_cache
from importlib import resources

import orjson

from rte.reader.json import Json, JsonObject

PREFIX = "#/components/schemas/"
Schema = JsonObject


@lru_cache(maxsize=1)
def components() -> dict[str, Schema]:
    """All schemas by name (``io.k8s.api.core.v1.Pod``)."""
    text = resources.files(__package__).joinpath("openapi.json.gz").read_bytes()
    loaded: dict[str, Schema] = orjson.loads(gzip.decompress(text))
    return loaded


def component(struct: str) -> str:
    """The published name of a struct: ``core/v1.Pod`` -> ``io.k8s.api.core.v1.Pod``."""
    package, _, name = struct.rpartition(".")
    group, _, version = package.partition("/")
    if group == "meta":
        return f"io.k8s.apimachinery.pkg.apis.meta.{version}.{name}"
    if group == "apiextensions":
        return f"io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.{version}.{name}"
    return f"io.k8s.api.{group}.{version}.{name}"


def resolved(schema: Json) -> Json:
    """A schema with its reference followed; what stands beside the reference counts."""
    target = schema.get("$ref")
    if target is None and len(schema.get("allOf") or ()) == 1:
        target = schema["allOf"][0].get("$ref")
    if target is None:
        return schema
    return {**components()[str(target).removeprefix(PREFIX)], **schema}
