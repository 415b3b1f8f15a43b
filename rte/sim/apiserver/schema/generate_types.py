"""Write ``types.json`` and ``numbers.json`` (the API's Go structs as data) from their Go modules.

Usage: ``python -m rte.sim.apiserver.schema.generate_types GOMODCACHE VERSION``, e.g. with
``$(go env GOMODCACHE)`` and ``v0.37.1``. In ``types.json`` each struct is a list of fields
``[json name, kind, flags]`` or ``[json name, kind, flags, merge key]``:

* kind: ``string bool int32 int64 float64 bytes time microtime quantity intstr any``, a struct's
  name, or one of those behind ``*`` (pointer), ``[]`` (list) or ``{}`` (map with string keys);
* flags: ``o`` omitempty, ``z`` omitzero, ``m`` the list merges in a strategic merge patch,
  ``k`` patch strategy retainKeys, ``r`` patch strategy replace.

In ``numbers.json`` each struct is a list of ``[number, json name, kind]``: its fields in protobuf.
An embedded struct, whose fields JSON shows as those of the outer one, has no name.
"""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path

#: Structs that are no resources of ``kinds.json``.
_OTHERS = (
    "core/v1.Binding", "autoscaling/v1.Scale", "policy/v1.Eviction", "meta/v1.DeleteOptions",
)  # fmt: skip
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
#: Packages whose structs others use, by the name under which they import them.
_IMPORTED = {
    "metav1": "meta/v1", "v1": "core/v1", "corev1": "core/v1", "apiv1": "core/v1",
    "schedulingv1alpha3": "scheduling/v1alpha3",
}  # fmt: skip
_UNION = {"JSONSchemaPropsOrBool", "JSONSchemaPropsOrArray", "JSONSchemaPropsOrStringArray"}
_STRUCT = re.compile(r"^type (\w+) struct \{\n(.*?)^\}", re.MULTILINE | re.DOTALL)
_NAMED = re.compile(r"^type (\w+) (?:= )?([\w.\[\]*{}]+)$", re.MULTILINE)
_NUMBER = re.compile(r'protobuf:"\w+,(\d+)')
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
        self.numbers: dict[str, list[list[int | str]]] = {}

    def struct(self, package: _Package, name: str) -> str:
        key = f"{package.name}.{name}"
        if key not in self.out:
            self.out[key] = []
            self.out[key] = self.fields(package, name)
            self.numbers[key] = [
                [int(match[1]), field, kind]
                for field, kind, rest in self._declared(package, name)
                if (match := _NUMBER.search(rest))
            ]
        return key

    def _declared(self, package: _Package, name: str) -> list[tuple[str, str, str]]:
        """JSON name ("" if embedded), kind and further tags of the fields as they are declared."""
        rows = []
        for match in _FIELD.finditer(package.structs[name]):
            kind, tag, rest = match[2], match[3].split(",")[0], match[4]
            if match[1] is None and not tag:
                owner, base = self.locate(package, kind)
                rows.append(("", self.struct(owner, base) if _NUMBER.search(rest) else "", rest))
            else:
                rows.append((tag, self.kind(package, kind), rest))
        return rows

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
        return self.packages[_IMPORTED[prefix]], base

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
    """Read the modules below ``cache`` and write the two files beside this one."""
    root, here = Path(cache) / "k8s.io", Path(__file__).parent
    kinds = json.loads((here / "kinds.json").read_text())
    roots = sorted({*(row["struct"] for row in kinds), *_OTHERS})
    names = {*_IMPORTED.values(), *(name.rpartition(".")[0] for name in roots)}
    where = {name: root / f"api@{version}" / name for name in names}
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
    for struct in roots:
        package, _, name = struct.rpartition(".")
        generator.struct(packages[package], name)
    for file, table in (("types.json", generator.out), ("numbers.json", generator.numbers)):
        lines = ",\n".join(
            f"{json.dumps(name)}:{json.dumps(rows, separators=(',', ':'))}"
            for name, rows in sorted(table.items())
        )
        (here / file).write_text("{\n" + lines + "\n}\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
