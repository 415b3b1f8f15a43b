"""The kubelet's effective configuration: from configz, from its file and drop-ins, from its flags.

All three end in one document in the shape of ``KubeletConfiguration`` v1beta1, which
:func:`effective` reads; defaults are those of pkg/kubelet/apis/config/v1beta1/defaults.go.
"""

from __future__ import annotations

import struct
from pathlib import Path
from typing import TYPE_CHECKING

from rte import errors
from rte.kubelet import config_document as document
from rte.kubelet import config_flags
from rte.kubelet.config_document import shown
from rte.model import bits, quantity
from rte.model.node import KubeletConfig

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from rte.kubelet.config_document import Document, ReservedMemoryRow, Scalar, Table
    from rte.reader.json import Json, JsonObject

TOPOLOGY_POLICIES = ("none", "best-effort", "restricted", "single-numa-node")
TOPOLOGY_SCOPES = ("container", "pod")
CPU_POLICIES = ("none", "static")
MEMORY_POLICIES = ("None", "Static")

#: pkg/kubelet/eviction/defaults_linux.go; only memory counts against allocatable memory. A kubelet
#: without any file has no thresholds at all (loadConfigFile in cmd/kubelet/app/server.go).
_DEFAULT_EVICTION_HARD = {"memory.available": "100Mi"}


def from_configz(answer: Json, *, memory_bytes: int) -> KubeletConfig:
    """Read the answer of ``nodes/NAME/proxy/configz``: ``{"kubeletconfig": {...}}``.

    ``memory_bytes`` is the node's memory (MemTotal), for eviction thresholds in per cent.

    Raises:
        errors.KubeletError: not such an answer, or a bad value; the message names the key.
    """
    config = answer.get("kubeletconfig")
    if not isinstance(config, dict):
        raise errors.KubeletError("kubelet configz: no kubeletconfig in the answer")
    return effective(config, memory_bytes=memory_bytes, where="kubelet configz")


def from_files(
    config_file: Path | None,
    drop_in_dir: Path | None = None,
    *,
    flags: Sequence[str] = (),
    memory_bytes: int,
) -> KubeletConfig:
    """Read a configuration file, its drop-ins and flags, in the kubelet's order of precedence.

    Drop-ins (``*.conf`` below ``drop_in_dir``, in lexical order) are merged as JSON merge patches
    over the file with its eviction defaults; flags win over both (KEP-3983,
    mergeKubeletConfigurations and kubeletConfigFlagPrecedence in cmd/kubelet/app/server.go).

    Raises:
        errors.KubeletError: a file cannot be read or is no KubeletConfiguration, or a bad value;
            the message names file and key.
    """
    config: JsonObject = {}
    where = "kubelet flags"
    if config_file is not None:
        where = f"kubelet configuration {config_file}"
        config = document.load(config_file)
        config["evictionHard"] = _eviction_hard(document.read(config, where), where)
    for path in _drop_ins(drop_in_dir) if drop_in_dir is not None else ():
        try:
            config = document.merge_patch(config, document.load(path))
        except RecursionError as error:
            raise errors.KubeletError(
                f"kubelet configuration {path}: an alias refers to what contains it"
            ) from error
        where = f"{where} + {path.name}"
    return effective(config_flags.apply(config, flags), memory_bytes=memory_bytes, where=where)


def from_document(config: Json, *, memory_bytes: int, where: str) -> KubeletConfig:
    """Read a ``KubeletConfiguration`` as :func:`from_files` reads the one of a file.

    Raises:
        errors.KubeletError: a bad value; the message starts with ``where`` and names the key.
    """
    hard = _eviction_hard(document.read(config, where), where)
    return effective({**config, "evictionHard": hard}, memory_bytes=memory_bytes, where=where)


def from_flags(flags: Sequence[str], *, memory_bytes: int, root: Path = Path("/")) -> KubeletConfig:
    """Read a kubelet's command line, following ``--config`` and ``--config-dir`` below ``root``.

    Raises:
        errors.KubeletError: as :func:`from_files`.
    """
    given = dict(config_flags.pairs(flags))
    config_file, drop_in_dir = given.get("config"), given.get("config-dir")
    return from_files(
        root / config_file.lstrip("/") if config_file else None,
        root / drop_in_dir.lstrip("/") if drop_in_dir else None,
        flags=flags,
        memory_bytes=memory_bytes,
    )


def effective(config: Json, *, memory_bytes: int, where: str) -> KubeletConfig:
    """Read a ``KubeletConfiguration`` and apply the kubelet's defaults.

    Raises:
        errors.KubeletError: a bad value; the message starts with ``where`` and names the key.
    """
    given = document.read(config, where)
    try:
        return _effective(given, memory_bytes)
    except errors.KubeletError as error:
        raise errors.KubeletError(f"{where}: {error}") from error


def _effective(given: Document, memory_bytes: int) -> KubeletConfig:
    system = _amounts("systemReserved", given.system_reserved)
    kube = _amounts("kubeReserved", given.kube_reserved)
    reserved = _cpus("reservedSystemCPUs", given.reserved_system_cpus)
    cpu_milli = system.get("cpu", 0) + kube.get("cpu", 0)
    if reserved:
        cpu_milli = reserved.bit_count() * 1000  # the list replaces both amounts (server.go)
    memory = system.get("memory", 0) + kube.get("memory", 0)
    memory += _eviction_bytes(given.eviction_hard or {}, memory_bytes)
    return KubeletConfig(
        topology_policy=_one_of(
            "topologyManagerPolicy", given.topology_manager_policy, TOPOLOGY_POLICIES
        ),
        topology_scope=_one_of(
            "topologyManagerScope", given.topology_manager_scope, TOPOLOGY_SCOPES
        ),
        topology_options=_texts(given.topology_manager_policy_options),
        cpu_policy=_one_of("cpuManagerPolicy", given.cpu_manager_policy, CPU_POLICIES),
        cpu_options=_texts(given.cpu_manager_policy_options),
        reserved_cpus=reserved or None,
        cpu_reservation_milli=cpu_milli,
        memory_policy=_one_of("memoryManagerPolicy", given.memory_manager_policy, MEMORY_POLICIES),
        reserved_memory=_reserved_memory(given.reserved_memory or ()),
        node_reserved={
            name: amount for name, amount in (("cpu", cpu_milli), ("memory", memory)) if amount
        },
        feature_gates={
            name: _boolean(f"featureGates.{name}", value)
            for name, value in sorted((given.feature_gates or {}).items())
        },
        max_pods=_count("maxPods", given.max_pods, default=110),
    )


def _bad(key: str, why: str) -> errors.KubeletError:
    return errors.KubeletError(f"{key}: {why}")


def _text(value: Scalar) -> str:
    """What YAML took for a number or a truth value is text again."""
    if isinstance(value, bool):
        return "true" if value else "false"
    return "" if value is None else str(value)


def _texts(table: Table) -> dict[str, str]:
    return {name: _text(value) for name, value in sorted((table or {}).items())}


def _one_of(key: str, value: Scalar, allowed: Sequence[str]) -> str:
    text = _text(value) or allowed[0]
    if text not in allowed:
        raise _bad(key, f"{shown(text)} is none of {', '.join(allowed)}")
    return text


def _boolean(key: str, value: Scalar) -> bool:
    text = _text(value)
    if text in ("1", "t", "T", "true", "TRUE", "True"):  # strconv.ParseBool
        return True
    if text in ("0", "f", "F", "false", "FALSE", "False"):
        return False
    raise _bad(key, f"expected true or false, not {shown(value)}")


def _count(key: str, value: Scalar, *, default: int) -> int:
    text = _text(value)
    if not text or text == "0":
        return default
    if not (text.isascii() and text.isdigit() and len(text) <= 9):
        raise _bad(key, f"expected a number, not {shown(text)}")
    return int(text)


def _cpus(key: str, value: Scalar) -> int:
    try:
        return bits.parse_list(_text(value))
    except errors.ParseError as error:
        raise _bad(key, str(error)) from error


def _amounts(key: str, table: Table) -> dict[str, int]:
    return {name: _amount(f"{key}.{name}", name, value) for name, value in (table or {}).items()}


def _amount(key: str, resource: str, value: Scalar) -> int:
    try:
        amount = quantity.parse_resource(resource, _text(value))
    except errors.ParseError as error:
        raise _bad(key, str(error)) from error
    if amount < 0:
        raise _bad(key, f"negative: {shown(value)}")
    return amount


def _reserved_memory(rows: Sequence[ReservedMemoryRow]) -> Mapping[int, Mapping[str, int]]:
    """As convertReserved in memory_manager.go: a zone named twice keeps the later amounts."""
    reserved: dict[int, dict[str, int]] = {}
    for index, row in enumerate(rows):
        key, zone = f"reservedMemory[{index}]", _text(row.numa_node)
        if not (zone.isascii() and zone.isdigit() and len(zone) <= 5):
            raise _bad(f"{key}.numaNode", f"expected a zone id, not {shown(zone)}")
        reserved.setdefault(int(zone), {}).update(_amounts(f"{key}.limits", row.limits))
    return {zone: dict(sorted(limits.items())) for zone, limits in sorted(reserved.items())}


def _eviction_bytes(thresholds: Mapping[str, Scalar], memory_bytes: int) -> int:
    """Memory that the hard threshold takes off allocatable (hardEvictionReservation)."""
    key = "evictionHard.memory.available"
    text = _text(thresholds.get("memory.available"))
    if not text or text in ("0%", "100%"):
        return 0
    if not text.endswith("%"):
        return _amount(key, "memory", text)
    try:
        # The kubelet computes in float32, which shows in the bytes (parsePercentage).
        share = _float32(_float32(float(text.rstrip("%"))) / 100)
    except (ValueError, OverflowError) as error:
        raise _bad(key, f"bad percentage {shown(text)}") from error
    if not 0 <= share <= 1:
        raise _bad(key, f"not between 0% and 100%: {shown(text)}")
    return int(memory_bytes * share)


def _float32(value: float) -> float:
    return float(struct.unpack("f", struct.pack("f", value))[0])


def _eviction_hard(given: Document, where: str) -> Mapping[str, Scalar]:
    """The thresholds of a file, with the defaults that a kubelet adds to it."""
    thresholds = given.eviction_hard
    if thresholds is None:
        return dict(_DEFAULT_EVICTION_HARD)
    merge = given.merge_default_eviction_settings
    if merge is not None and _boolean(f"{where}: mergeDefaultEvictionSettings", merge):
        return {**_DEFAULT_EVICTION_HARD, **thresholds}
    return thresholds


def _drop_ins(directory: Path) -> Iterator[Path]:
    """Files in the order of Go's filepath.WalkDir: lexical, a directory's content in its place."""
    try:
        paths = sorted(directory.iterdir(), key=lambda path: path.name.encode())
    except OSError as error:
        raise errors.KubeletError(
            f"kubelet drop-in directory {directory}: cannot be read: {error.strerror}"
        ) from error
    for path in paths:
        if path.is_dir() and not path.is_symlink():
            yield from _drop_ins(path)
        elif path.name.endswith(".conf"):
            yield path
