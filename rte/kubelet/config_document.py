"""``KubeletConfiguration`` v1beta1 as a document: what is read of it, and how it is put together.

Keys that are not read are passed over, as releases differ in them.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Annotated, TypeAlias

import msgspec
from msgspec import Meta, Struct, field, structs

from rte import errors

if TYPE_CHECKING:
    from pathlib import Path

    from rte.reader.json import Json, JsonObject, JsonValue

KIND = "KubeletConfiguration"
API_VERSION = "kubelet.config.k8s.io/v1beta1"

#: Larger than any configuration; a guard against a wrong path.
_MAX_FILE_BYTES = 4 << 20

#: A text, which YAML takes for a number or a truth value where it looks like one.
Scalar: TypeAlias = str | Annotated[int, Meta(ge=-(1 << 63), le=(1 << 63) - 1)] | bool | None
Table: TypeAlias = dict[str, Scalar] | None


class ReservedMemoryRow(Struct, rename="camel"):
    """A row of ``reservedMemory``."""

    numa_node: Scalar = 0
    limits: Table = None


class Document(Struct, rename="camel"):
    """The keys that admission depends on; None where a key is left out."""

    topology_manager_policy: Scalar = None
    topology_manager_scope: Scalar = None
    topology_manager_policy_options: Table = None
    cpu_manager_policy: Scalar = None
    cpu_manager_policy_options: Table = None
    memory_manager_policy: Scalar = None
    reserved_memory: list[ReservedMemoryRow] | None = None
    reserved_system_cpus: Scalar = field(default=None, name="reservedSystemCPUs")
    system_reserved: Table = None
    kube_reserved: Table = None
    eviction_hard: Table = None
    merge_default_eviction_settings: Scalar = None
    feature_gates: Table = None
    max_pods: Scalar = None


KEYS = tuple(key.encode_name for key in structs.fields(Document))

#: How msgspec words a fault: what was expected, whether of the keys of a mapping, and where.
_FAULT = re.compile(r"Expected `([^`]+)`.* - at (`key` in )?`\$\.?(.*)`")
_WORDS = {"object": "a mapping", "array": "a list"}


def read(config: Json, where: str) -> Document:
    """The typed document.

    Raises:
        errors.KubeletError: a value of another type; the message is ``where``, key, and what to do.
    """
    known = {key: config[key] for key in KEYS if key in config}
    try:
        return msgspec.convert(known, Document)
    except (msgspec.ValidationError, UnicodeEncodeError) as error:
        raise errors.KubeletError(f"{where}: {_fault(known, str(error))}") from error


def load(path: Path) -> JsonObject:
    """Read a file that must hold one KubeletConfiguration.

    Raises:
        errors.KubeletError: it cannot be read, or holds something else, or a key of another type.
    """
    where = f"kubelet configuration {path}"
    try:
        with path.open("rb") as file:
            text = file.read(_MAX_FILE_BYTES + 1)
    except OSError as error:
        raise errors.KubeletError(f"{where}: cannot be read: {error.strerror}") from error
    if len(text) > _MAX_FILE_BYTES:
        raise errors.KubeletError(f"{where}: too large for a configuration")
    config = parse(text, where)
    read(config, where)
    return config


def parse(text: str | bytes, where: str) -> JsonObject:
    """Parse YAML or JSON text that must hold one KubeletConfiguration.

    Raises:
        errors.KubeletError: other text; the message starts with ``where``.
    """
    # Here: a megabyte that an agent which asks the kubelet itself does without.
    from rte.reader import jsontext, yamltext

    try:
        config = yamltext.load(text, where, jsontext.FILE)
    except errors.MalformedError as error:
        raise errors.KubeletError(f"{where}: {error.why}") from error
    if not isinstance(config, dict):
        raise errors.KubeletError(f"{where}: not a {KIND}")
    for key, wanted in (("kind", KIND), ("apiVersion", API_VERSION)):
        if config.get(key) != wanted:
            raise errors.KubeletError(
                f"{where}: {key}: expected {wanted}, not {shown(config.get(key))}"
            )
    return config


def merge_patch(target: object, patch: Json) -> JsonObject:
    """RFC 7386."""
    merged = dict(target) if isinstance(target, dict) else {}
    for key, value in patch.items():
        if value is None:
            merged.pop(key, None)
        elif isinstance(value, dict):
            merged[key] = merge_patch(merged.get(key), value)
        else:
            merged[key] = value
    return merged


def shown(value: object) -> str:
    """A value within a message."""
    try:
        text = repr(value)
    except ValueError:  # Python writes no number of thousands of digits
        return "a very large number"
    return text if len(text) <= 60 else text[:57] + "..."


def _fault(config: JsonValue, message: str) -> str:
    """A fault that msgspec found, with the entry of a mapping by name and the value itself."""
    match = _FAULT.fullmatch(message)
    if match is None:
        return message
    wanted, of_keys, path = match.groups()
    value = config
    for step in re.findall(r"\w+|\.\.\.", path):
        if step == "...":
            name, value = next(item for item in value.items() if not _is_scalar(item[1]))
            path = path.replace("[...]", f".{name}")
        else:
            value = value[int(step) if isinstance(value, list) else step]
    kind = "names that are text" if of_keys else _WORDS.get(wanted.removesuffix(" | null"), "text")
    return f"{path}: expected {kind}, not {shown(value)}"


def _is_scalar(value: object) -> bool:
    try:
        msgspec.convert(value, Scalar)
    except msgspec.ValidationError:
        return False
    return True
