"""Write ``types.json`` (the API's Go structs as data) from the Go modules that define them.

Usage: ``python -m rte.sim.apiserver.schema.generate_types GOMODCACHE VERSION``, e.g. with
``$(go env GOMODCACHE)`` and ``v0.37.1``. Each struct becomes a list of fields
``[json name, kind, flags]`` or ``[json name, kind, flags, merge key]``:

* kind: ``string bool int32 int64 float64 bytes time microtime quantity intstr any``, a struct's
  name, or one of those behind ``*`` (pointer), ``[]`` (list) or ``{}`` (map with string keys);
* flags: ``o`` omitempty, ``z`` omitzero, ``m`` the list merges in a strategic merge patch,
  ``k`` patch strategy retainKeys, ``r`` patch strategy replace.
"""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path

ROOTS = {
    "core/v1": (
        "Pod Node Namespace Event ConfigMap Secret ServiceAccount PersistentVolume "
        "PersistentVolumeClaim Binding"
    ),
    "coordination/v1": "Lease",
    "events/v1": "Event",
    "apps/v1": "ReplicaSet DaemonSet",
    "policy/v1": "PodDisruptionBudget Eviction",
    "storage/v1": "StorageClass CSINode CSIDriver CSIStorageCapacity",
    "scheduling/v1": "PriorityClass",
    "node/v1": "RuntimeClass",
    "resource/v1": (
        "ResourceSlice ResourceClaim ResourceClaimTemplate DeviceClass DeviceTaintRule"
    ),
    "meta/v1": "DeleteOptions",
    "apiextensions/v1": "CustomResourceDefinition",
}
_SPECIAL = {
    "Time": "time",
    "MicroTime": "microtime",
    "Quantity": "quantity",
    "IntOrString": "intstr",
    "RawExtension": "any",
    "FieldsV1": "any",
    "JSON": "any",
    "UID": "string",
    "NodeName": "string",
    "byte": "byte",
    "interface{}": "any",
    "struct{}": "any",
    "bool": "bool",
    "string": "string",
    "int32": "int32",
    "int64": "int64",
    "uint32": "int64",
    "float64": "float64",
}
_UNION = {"JSONSchemaPropsOrBool", "JSONSchemaPropsOrArray", "JSONSchemaPropsOrStringArray"}
_STRUCT = re.compile(r"^type (\w+) struct \{\n(.*?)^\}", re.MULTILINE | re.DOTALL)
_NAMED = re.compile(r"^type (\w+) (?:= )?([\w.\[\]*{}]+)$", re.MULTILINE)
_FIELD = re.compile(r"^\s+(?:(\w+)\s+)?([\w.\[\]*{}]+)\s+`json:\"([^\"]*)\"([^`]*)`", re.MULTILINE)


class _Package:
    def __init__(self, name: str, text: str) -> None:
        self.name = name
        self.structs = {match[1]: match[2] for match in _STRUCT.finditer(text)}
        self.named = {match[1]: match[2] for match in _NAMED.finditer(text)}


class _Generator:
    def __init__(self, packages: dict[str, _Package]) -> None:
        self.packages = packages
        self.out: dict[str, list[list[str]]] = {}

    def struct(self, package: _Package, name: str) -> str:
        key = f"{package.name}.{name}"
        if key not in self.out:
            self.out[key] = []
            self.out[key] = self.fields(package, name)
        return key

    def fields(self, package: _Package, name: str) -> list[list[str]]:
        rows: list[list[str]] = []
        for match in _FIELD.finditer(package.structs[name]):
            go_name, kind, tag, rest = match.groups()
            json_name, *options = tag.split(",")
            if go_name is None and not json_name:  # embedded: its fields are this struct's own
                owner, base = self.locate(package, kind)
                rows += self.fields(owner, base)
                continue
            flags = "o" * ("omitempty" in options) + "z" * ("omitzero" in options)
            strategy = re.search(r'patchStrategy:"([^"]*)"', rest)
            if strategy:
                words = strategy[1].split(",")
                flags += "m" * ("merge" in words) + "k" * ("retainKeys" in words)
                flags += "r" * ("replace" in words)
            key = re.search(r'patchMergeKey:"([^"]*)"', rest)
            rows.append([json_name, self.kind(package, kind), flags, *([key[1]] if key else [])])
        return rows

    def locate(self, package: _Package, name: str) -> tuple[_Package, str]:
        prefix, _, base = name.rpartition(".")
        if not prefix:
            return package, base
        return self.packages["meta/v1" if prefix == "metav1" else "core/v1"], base

    def kind(self, package: _Package, text: str) -> str:
        if text == "[]byte":
            return "bytes"
        for prefix, ours in (("*", "*"), ("[]", "[]")):
            if text.startswith(prefix):
                return ours + self.kind(package, text[len(prefix) :])
        if text.startswith("map["):
            return "{}" + self.kind(package, text.partition("]")[2])
        base = text.rpartition(".")[2]
        if base in _UNION:
            return "any"
        if base in _SPECIAL:
            return _SPECIAL[base]
        owner, base = self.locate(package, text)
        if base in owner.structs:
            return self.struct(owner, base)
        return self.kind(owner, owner.named[base])


def main(cache: str, version: str) -> None:
    """Read the modules below ``cache`` and write ``types.json`` beside this file."""
    root = Path(cache) / "k8s.io"
    where = {name: root / f"api@{version}" / name for name in ROOTS}
    where["meta/v1"] = root / f"apimachinery@{version}/pkg/apis/meta/v1"
    where["apiextensions/v1"] = (
        root / f"apiextensions-apiserver@{version}/pkg/apis/apiextensions/v1"
    )
    packages = {
        name: _Package(
            name,
            "".join(
                (path / file).read_text()
                for file in ("types.go", "types_jsonschema.go")
                if (path / file).is_file()
            ),
        )
        for name, path in where.items()
    }
    generator = _Generator(packages)
    for name, roots in ROOTS.items():
        for struct in roots.split():
            generator.struct(packages[name], struct)
    lines = ",\n".join(
        f"{json.dumps(name)}:{json.dumps(rows, separators=(',', ':'))}"
        for name, rows in sorted(generator.out.items())
    )
    Path(__file__).with_name("types.json").write_text("{\n" + lines + "\n}\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
