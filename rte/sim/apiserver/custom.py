"""Custom resources: definitions, structural schemas (pruning, defaults, validation), columns.

Covered of OpenAPI v3: type, properties, additionalProperties, items, required, nullable, enum,
pattern, minimum/maximum, min/max lengths and counts, default, x-kubernetes-int-or-string,
x-kubernetes-preserve-unknown-fields. Not covered: CEL rules, list-map keys, combinators.
"""

from __future__ import annotations

import copy
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from rte.sim.apiserver import resources, status, typed

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from rte.sim.apiserver.resources import Resource
    from rte.sim.apiserver.status import Cause
    from rte.sim.apiserver.store import Obj

_TYPES: dict[str, tuple[type, ...]] = {
    "object": (dict,),
    "array": (list,),
    "string": (str,),
    "boolean": (bool,),
    "integer": (int,),
    "number": (int, float),
}
_BASE = frozenset(("apiVersion", "kind", "metadata"))


@dataclass(frozen=True, kw_only=True)
class Definition:
    """One served version of a CRD."""

    schema: Mapping[str, Any]
    columns: tuple[Mapping[str, Any], ...]
    has_status: bool

    def decode(self, body: Obj) -> tuple[Obj, list[str]]:
        """Prune unknown fields and apply defaults; returns also the pruned paths.

        Raises:
            status.DecodeError: metadata is not ObjectMeta.
        """
        metadata, unknown = typed.decode("meta/v1.ObjectMeta", body.get("metadata"))
        unknown = [f"metadata.{path}" for path in unknown]
        rest = {key: value for key, value in body.items() if key not in _BASE}
        pruned = _prune(rest, self.schema, "", unknown)
        _default(pruned, self.schema)
        return {"metadata": metadata, **pruned}, unknown

    def validate(self, obj: Obj) -> list[Cause]:
        """Complaints of the schema."""
        body = {key: value for key, value in obj.items() if key not in _BASE}
        out: list[Cause] = []
        _validate(body, self.schema, "", out)
        return [cause for cause in out if cause.field not in _BASE]


def _prune(value: Any, schema: Mapping[str, Any], path: str, unknown: list[str]) -> Any:
    if isinstance(value, dict):
        if schema.get("x-kubernetes-preserve-unknown-fields") and not schema.get("properties"):
            return value
        properties = schema.get("properties") or {}
        extra = schema.get("additionalProperties")
        out: Obj = {}
        for key, item in value.items():
            where = f"{path}.{key}" if path else key
            if key in properties:
                out[key] = _prune(item, properties[key], where, unknown)
            elif isinstance(extra, dict):
                out[key] = _prune(item, extra, where, unknown)
            elif extra or schema.get("x-kubernetes-preserve-unknown-fields"):
                out[key] = item
            else:
                unknown.append(where)
        return out
    if isinstance(value, list):
        inner = schema.get("items") or {}
        return [_prune(item, inner, f"{path}[{i}]", unknown) for i, item in enumerate(value)]
    return value


def _default(value: Any, schema: Mapping[str, Any]) -> None:
    if isinstance(value, dict):
        for key, inner in (schema.get("properties") or {}).items():
            if value.get(key) is None and key in value and not inner.get("nullable"):
                del value[key]
            if key not in value and "default" in inner:
                value[key] = copy.deepcopy(inner["default"])
            if key in value:
                _default(value[key], inner)
    elif isinstance(value, list):
        for item in value:
            _default(item, schema.get("items") or {})


def _validate(value: Any, schema: Mapping[str, Any], path: str, out: list[Cause]) -> None:
    if value is None and schema.get("nullable"):
        return
    if schema.get("x-kubernetes-int-or-string"):
        if isinstance(value, bool) or not isinstance(value, int | str):
            _mistyped(value, path, "integer,string", out)
        else:
            _validate_scalar(value, schema, path, out)
        return
    wanted = schema.get("type")
    if wanted and not _is(value, wanted):
        _mistyped(value, path, wanted, out)
        return
    if isinstance(value, dict):
        _validate_object(value, schema, path, out)
    elif isinstance(value, list):
        for name, bad in (
            ("minItems", lambda limit: len(value) < limit),
            ("maxItems", lambda limit: len(value) > limit),
        ):
            if schema.get(name) is not None and bad(schema[name]):
                out.append(status.invalid(path, len(value), f"{path} in body: {name}"))
        for index, item in enumerate(value):
            _validate(item, schema.get("items") or {}, f"{path}[{index}]", out)
    else:
        _validate_scalar(value, schema, path, out)


def _validate_object(value: Obj, schema: Mapping[str, Any], path: str, out: list[Cause]) -> None:
    for name in schema.get("required") or ():
        if name not in value and not (not path and name in _BASE):
            out.append(status.required(f"{path}.{name}" if path else name))
    properties = schema.get("properties") or {}
    extra = schema.get("additionalProperties")
    for key, item in value.items():
        where = f"{path}.{key}" if path else key
        if key in properties:
            _validate(item, properties[key], where, out)
        elif isinstance(extra, dict):
            _validate(item, extra, where, out)


def _is(value: Any, wanted: str) -> bool:
    if wanted == "integer" and isinstance(value, float):
        return value.is_integer()
    if isinstance(value, bool):
        return wanted == "boolean"
    return isinstance(value, _TYPES.get(wanted, (object,)))


def _mistyped(value: Any, path: str, wanted: str, out: list[Cause]) -> None:
    found = next(
        (
            name
            for name, kinds in _TYPES.items()
            if isinstance(value, kinds) and isinstance(value, bool) == (name == "boolean")
        ),
        "null",
    )
    text = f'Invalid value: "{found}": {path} in body must be of type {wanted}: "{found}"'
    out.append(status.Cause(path, "TypeInvalid", text))


def _validate_scalar(value: Any, schema: Mapping[str, Any], path: str, out: list[Cause]) -> None:
    enum = schema.get("enum")
    if enum is not None and value not in enum:
        out.append(status.unsupported(path, value, [str(item) for item in enum]))
    pattern = schema.get("pattern")
    if pattern and isinstance(value, str) and not re.search(pattern, value):
        out.append(status.invalid(path, value, f"{path} in body should match '{pattern}'"))
    if isinstance(value, str):
        size: float = len(value)
        low, high = schema.get("minLength"), schema.get("maxLength")
    else:
        size, low, high = value, schema.get("minimum"), schema.get("maximum")
    if low is not None and size < low:
        out.append(status.invalid(path, value, f"{path} in body should be at least {low}"))
    if high is not None and size > high:
        out.append(status.invalid(path, value, f"{path} in body should be at most {high}"))


def validate_definition(crd: Obj) -> list[Cause]:
    """Rules for a CustomResourceDefinition as far as a manifest of ours could break them."""
    spec = crd["spec"]
    name = f"{spec['names']['plural']}.{spec['group']}"
    out: list[Cause] = []
    if crd["metadata"].get("name") != name:
        out.append(
            status.invalid(
                "metadata.name",
                crd["metadata"].get("name", ""),
                f'must be spec.names.plural+"."+spec.group',
            )
        )
    out += [
        status.required(f"spec.{path}")
        for path, value in (
            ("group", spec["group"]),
            ("names.plural", spec["names"]["plural"]),
            ("names.kind", spec["names"]["kind"]),
            ("scope", spec["scope"]),
            ("versions", spec["versions"]),
        )
        if not value
    ]
    if sum(bool(version["storage"]) for version in spec["versions"] or ()) != 1:
        out.append(
            status.invalid(
                "spec.versions", "", "must have exactly one version marked as storage version"
            )
        )
    for index, version in enumerate(spec["versions"] or ()):
        if not (version.get("schema") or {}).get("openAPIV3Schema"):
            path = f"spec.versions[{index}].schema.openAPIV3Schema"
            out.append(status.required(path, "schemas are required"))
    group = spec["group"]
    approved = (crd["metadata"].get("annotations") or {}).get("api-approved.kubernetes.io")
    if (group.endswith((".k8s.io", ".kubernetes.io"))) and not approved:
        out.append(
            status.required(
                'metadata.annotations["api-approved.kubernetes.io"]',
                "protected groups must have approval annotation "
                '"api-approved.kubernetes.io", see https://github.com/kubernetes/enhancements/pull/1111',
            )
        )
    return out


def default_definition(crd: Obj) -> None:
    """Names that follow from others."""
    names, spec = crd["spec"]["names"], crd["spec"]
    names.setdefault("singular", names["kind"].lower())
    names.setdefault("listKind", f"{names['kind']}List")
    spec.setdefault("conversion", {"strategy": "None"})


def create_definition(crd: Obj) -> None:
    """Status as soon as the names are accepted (the real server takes a moment)."""
    spec = crd["spec"]
    crd["metadata"]["generation"] = 1
    crd["status"] = {
        "conditions": [
            {
                "type": kind,
                "status": "True",
                "lastTransitionTime": crd["metadata"]["creationTimestamp"],
                "reason": reason,
                "message": message,
            }
            for kind, reason, message in (
                ("NamesAccepted", "NoConflicts", "no conflicts found"),
                ("Established", "InitialNamesAccepted", "the initial names have been accepted"),
            )
        ],
        "acceptedNames": dict(spec["names"]),
        "storedVersions": [v["name"] for v in spec["versions"] if v["storage"]],
    }


def _keep_status(new: Obj, old: Obj) -> None:
    new["status"] = old["status"]


def _keep_spec(new: Obj, old: Obj) -> None:
    new["spec"] = old["spec"]


DEFINITIONS = resources.Resource(
    group="apiextensions.k8s.io",
    version="v1",
    plural="customresourcedefinitions",
    kind="CustomResourceDefinition",
    struct="apiextensions/v1.CustomResourceDefinition",
    namespaced=False,
    short_names=("crd", "crds"),
    categories=("api-extensions",),
    subresources=("status",),
    rules=resources.Rules(
        default=default_definition,
        create=create_definition,
        validate=validate_definition,
        update=_keep_status,
        status=_keep_spec,
        generation=("spec",),
    ),
)


def served(crd: Obj) -> Iterator[Resource]:
    """The resources that a definition serves, one for each served version."""
    spec = crd["spec"]
    names = spec["names"]
    for version in spec["versions"]:
        if not version["served"]:
            continue
        has_status = "status" in (version.get("subresources") or {})
        definition = Definition(
            schema=(version.get("schema") or {}).get("openAPIV3Schema") or {},
            columns=tuple(version.get("additionalPrinterColumns") or ()),
            has_status=has_status,
        )
        yield resources.Resource(
            group=spec["group"],
            version=version["name"],
            plural=names["plural"],
            kind=names["kind"],
            singular=names.get("singular", ""),
            namespaced=spec["scope"] == "Namespaced",
            short_names=tuple(names.get("shortNames") or ()),
            categories=tuple(names.get("categories") or ()),
            subresources=("status",) if has_status else (),
            unconditional=False,
            definition=definition,
            rules=resources.Rules(
                validate=definition.validate,
                update=_keep_custom_status if has_status else resources.Rules().update,
                status=_only_status,
            ),
        )


def _keep_custom_status(new: Obj, old: Obj) -> None:
    new.pop("status", None)
    if "status" in old:
        new["status"] = old["status"]


def _only_status(new: Obj, old: Obj) -> None:
    for key in [key for key in new if key not in ("status", "metadata")]:
        del new[key]
    new.update({key: value for key, value in old.items() if key not in ("status", "metadata")})
    version = new["metadata"].get("resourceVersion")
    new["metadata"] = {**old["metadata"]}
    if version:
        new["metadata"]["resourceVersion"] = version
