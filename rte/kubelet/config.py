"""The kubelet's effective configuration: from configz, from its file and drop-ins, from its flags.

All three end in one dictionary in the shape of ``KubeletConfiguration`` v1beta1, which
:func:`effective` reads; defaults are those of pkg/kubelet/apis/config/v1beta1/defaults.go.
"""

from __future__ import annotations

import struct
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rte import errors
from rte.kubelet import DEFAULT_ROOT_DIR
from rte.model import bits, quantity
from rte.model.node import KubeletConfig

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

TOPOLOGY_POLICIES = ("none", "best-effort", "restricted", "single-numa-node")
TOPOLOGY_SCOPES = ("container", "pod")
CPU_POLICIES = ("none", "static")
MEMORY_POLICIES = ("None", "Static")

#: pkg/kubelet/eviction/defaults_linux.go; only memory counts against allocatable memory. A kubelet
#: without any file has no thresholds at all (loadConfigFile in cmd/kubelet/app/server.go).
_DEFAULT_EVICTION_HARD = {"memory.available": "100Mi"}

#: Larger than any configuration; a guard against a wrong path.
_MAX_FILE_BYTES = 4 << 20

_KIND = "KubeletConfiguration"
_API_VERSION = "kubelet.config.k8s.io/v1beta1"

#: Flag -> key of KubeletConfiguration, for flags whose value is the key's.
_TEXT_FLAGS = {
    "topology-manager-policy": "topologyManagerPolicy",
    "topology-manager-scope": "topologyManagerScope",
    "cpu-manager-policy": "cpuManagerPolicy",
    "memory-manager-policy": "memoryManagerPolicy",
    "reserved-cpus": "reservedSystemCPUs",
    "max-pods": "maxPods",
}
#: Flag -> (key, separator of key and value, whether commas separate several pairs).
_TABLE_FLAGS = {
    "topology-manager-policy-options": ("topologyManagerPolicyOptions", "=", True),
    "cpu-manager-policy-options": ("cpuManagerPolicyOptions", "=", False),
    "system-reserved": ("systemReserved", "=", True),
    "kube-reserved": ("kubeReserved", "=", True),
    "eviction-hard": ("evictionHard", "<", True),
    "feature-gates": ("featureGates", "=", True),
}
_FLAGS = frozenset({*_TEXT_FLAGS, *_TABLE_FLAGS, "reserved-memory", "config", "config-dir"})


def from_configz(document: Mapping[str, Any], *, memory_bytes: int) -> KubeletConfig:
    """Read the answer of ``nodes/NAME/proxy/configz``: ``{"kubeletconfig": {...}}``.

    ``memory_bytes`` is the node's memory (MemTotal), for eviction thresholds in per cent.

    Raises:
        errors.KubeletError: not such an answer, or a bad value; the message names the key.
    """
    config = document.get("kubeletconfig")
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
    config: dict[str, Any] = {}
    where = "kubelet flags"
    if config_file is not None:
        where = f"kubelet configuration {config_file}"
        config = _load(config_file)
        config["evictionHard"] = _eviction_hard(config, where)
    if drop_in_dir is not None:
        for path in _drop_ins(drop_in_dir):
            try:
                config = _merge_patch(config, _load(path))
            except RecursionError as error:
                raise errors.KubeletError(
                    f"kubelet configuration {path}: an alias refers to what contains it"
                ) from error
            where = f"{where} + {path.name}"
    _apply_flags(config, flags)
    return effective(config, memory_bytes=memory_bytes, where=where)


def from_flags(flags: Sequence[str], *, memory_bytes: int, root: Path = Path("/")) -> KubeletConfig:
    """Read a kubelet's command line, following ``--config`` and ``--config-dir`` below ``root``.

    Raises:
        errors.KubeletError: as :func:`from_files`.
    """
    given = dict(_pairs(flags))
    config_file, drop_in_dir = given.get("config"), given.get("config-dir")
    return from_files(
        root / config_file.lstrip("/") if config_file else None,
        root / drop_in_dir.lstrip("/") if drop_in_dir else None,
        flags=flags,
        memory_bytes=memory_bytes,
    )


def find_command_line(procfs_root: Path, root_dir: Path) -> tuple[str, ...] | None:
    """The arguments of the kubelet of that ``--root-dir``; None where none such is visible.

    There may be several, and other processes of that name, so one of another root is none of ours.
    """
    for comm in sorted(procfs_root.glob("[0-9]*/comm")):
        try:
            if comm.read_text().strip() != "kubelet":
                continue
            words = comm.with_name("cmdline").read_bytes().split(b"\0")
        except OSError:  # the process has ended, or is not ours to read
            continue
        flags = tuple(word.decode(errors="replace") for word in words[1:] if word)
        given = dict(_pairs(flags, frozenset({"root-dir"})))
        if flags and Path(given.get("root-dir") or DEFAULT_ROOT_DIR) == root_dir:
            return flags
    return None


def effective(config: Mapping[str, Any], *, memory_bytes: int, where: str) -> KubeletConfig:
    """Read a ``KubeletConfiguration`` and apply the kubelet's defaults.

    Raises:
        errors.KubeletError: a bad value; the message starts with ``where`` and names the key.
    """
    keys = _Keys(config, where)
    system, kube = keys.amounts("systemReserved"), keys.amounts("kubeReserved")
    reserved_text = keys.text("reservedSystemCPUs")
    reserved = keys.cpus("reservedSystemCPUs") if reserved_text else None
    cpu_milli = system.get("cpu", 0) + kube.get("cpu", 0)
    if reserved:
        cpu_milli = reserved.bit_count() * 1000  # the list replaces both amounts (server.go)
    memory = system.get("memory", 0) + kube.get("memory", 0)
    memory += _eviction_bytes(keys, memory_bytes)
    return KubeletConfig(
        topology_policy=keys.one_of("topologyManagerPolicy", TOPOLOGY_POLICIES),
        topology_scope=keys.one_of("topologyManagerScope", TOPOLOGY_SCOPES),
        topology_options=keys.texts("topologyManagerPolicyOptions"),
        cpu_policy=keys.one_of("cpuManagerPolicy", CPU_POLICIES),
        cpu_options=keys.texts("cpuManagerPolicyOptions"),
        reserved_cpus=reserved or None,
        cpu_reservation_milli=cpu_milli,
        memory_policy=keys.one_of("memoryManagerPolicy", MEMORY_POLICIES),
        reserved_memory=_reserved_memory(keys),
        node_reserved={
            name: amount for name, amount in (("cpu", cpu_milli), ("memory", memory)) if amount
        },
        feature_gates={
            name: keys.boolean(f"featureGates.{name}", value)
            for name, value in sorted(keys.table("featureGates").items())
        },
        max_pods=keys.count("maxPods", default=110),
    )


class _Keys:
    """Typed access to one configuration; every error names the key."""

    def __init__(self, config: Mapping[str, Any], where: str) -> None:
        self._config = config
        self._where = where

    def bad(self, key: str, why: str) -> errors.KubeletError:
        return errors.KubeletError(f"{self._where}: {key}: {why}")

    def table(self, key: str) -> Mapping[str, Any]:
        value = self._config.get(key)
        if value is None:
            return {}
        if not isinstance(value, dict) or not all(isinstance(name, str) for name in value):
            raise self.bad(key, f"expected a mapping, not {_short(value)}")
        return value

    def rows(self, key: str) -> Sequence[Any]:
        value = self._config.get(key)
        if value is None:
            return []
        if not isinstance(value, list):
            raise self.bad(key, f"expected a list, not {_short(value)}")
        return value

    def text(self, key: str) -> str:
        return self.as_text(key, self._config.get(key))

    def as_text(self, key: str, value: object) -> str:
        if value is None:
            return ""
        if isinstance(value, bool):
            return "true" if value else "false"
        if not isinstance(value, str | int):
            raise self.bad(key, f"expected text, not {_short(value)}")
        return str(value)

    def texts(self, key: str) -> dict[str, str]:
        return {
            name: self.as_text(f"{key}.{name}", value)
            for name, value in sorted(self.table(key).items())
        }

    def one_of(self, key: str, allowed: Sequence[str]) -> str:
        value = self.text(key) or allowed[0]
        if value not in allowed:
            raise self.bad(key, f"{_short(value)} is none of {', '.join(allowed)}")
        return value

    def boolean(self, key: str, value: object) -> bool:
        text = self.as_text(key, value)
        if text in ("1", "t", "T", "true", "TRUE", "True"):  # strconv.ParseBool
            return True
        if text in ("0", "f", "F", "false", "FALSE", "False"):
            return False
        raise self.bad(key, f"expected true or false, not {_short(value)}")

    def count(self, key: str, *, default: int) -> int:
        text = self.text(key)
        if not text or text == "0":
            return default
        if not (text.isascii() and text.isdigit() and len(text) <= 9):
            raise self.bad(key, f"expected a number, not {_short(text)}")
        return int(text)

    def cpus(self, key: str) -> int:
        try:
            return bits.parse_list(self.text(key))
        except errors.ParseError as error:
            raise self.bad(key, str(error)) from error

    def amounts(self, key: str) -> dict[str, int]:
        return {name: self.amount(key, name, value) for name, value in self.table(key).items()}

    def amount(self, key: str, resource: str, value: object) -> int:
        path = f"{key}.{resource}"
        try:
            amount = quantity.parse_resource(resource, self.as_text(path, value))
        except errors.ParseError as error:
            raise self.bad(path, str(error)) from error
        if amount < 0:
            raise self.bad(path, f"negative: {_short(value)}")
        return amount


def _reserved_memory(keys: _Keys) -> Mapping[int, Mapping[str, int]]:
    """As convertReserved in memory_manager.go: a zone named twice keeps the later amounts."""
    reserved: dict[int, dict[str, int]] = {}
    for row in keys.rows("reservedMemory"):
        if not isinstance(row, dict):
            raise keys.bad("reservedMemory", f"expected a list of mappings, not {_short(row)}")
        zone = keys.as_text("reservedMemory.numaNode", row.get("numaNode", 0))
        if not (zone.isascii() and zone.isdigit() and len(zone) <= 5):
            raise keys.bad("reservedMemory.numaNode", f"expected a zone id, not {_short(zone)}")
        limits = row.get("limits") or {}
        if not isinstance(limits, dict):
            raise keys.bad("reservedMemory.limits", f"expected a mapping, not {_short(limits)}")
        reserved.setdefault(int(zone), {}).update(
            {
                str(name): keys.amount("reservedMemory.limits", str(name), value)
                for name, value in limits.items()
            }
        )
    return {zone: dict(sorted(limits.items())) for zone, limits in sorted(reserved.items())}


def _eviction_bytes(keys: _Keys, memory_bytes: int) -> int:
    """Memory that the hard threshold takes off allocatable (hardEvictionReservation)."""
    key = "evictionHard.memory.available"
    text = keys.texts("evictionHard").get("memory.available", "")
    if not text or text in ("0%", "100%"):
        return 0
    if not text.endswith("%"):
        return keys.amount("evictionHard", "memory.available", text)
    try:
        # The kubelet computes in float32, which shows in the bytes (parsePercentage).
        share = _float32(_float32(float(text.rstrip("%"))) / 100)
    except (ValueError, OverflowError) as error:
        raise keys.bad(key, f"bad percentage {_short(text)}") from error
    if not 0 <= share <= 1:
        raise keys.bad(key, f"not between 0% and 100%: {_short(text)}")
    return int(memory_bytes * share)


def _float32(value: float) -> float:
    return float(struct.unpack("f", struct.pack("f", value))[0])


def _eviction_hard(config: Mapping[str, Any], where: str) -> Mapping[str, Any]:
    keys = _Keys(config, where)
    if config.get("evictionHard") is None:
        return dict(_DEFAULT_EVICTION_HARD)
    merge = config.get("mergeDefaultEvictionSettings")
    if merge is not None and keys.boolean("mergeDefaultEvictionSettings", merge):
        return {**_DEFAULT_EVICTION_HARD, **keys.table("evictionHard")}
    return keys.table("evictionHard")


def _load(path: Path) -> dict[str, Any]:
    where = f"kubelet configuration {path}"
    try:
        with path.open("rb") as file:
            text = file.read(_MAX_FILE_BYTES + 1)
    except OSError as error:
        raise errors.KubeletError(f"{where}: cannot be read: {error.strerror}") from error
    if len(text) > _MAX_FILE_BYTES:
        raise errors.KubeletError(f"{where}: too large for a configuration")
    return parse_document(text, where)


def parse_document(text: str | bytes, where: str) -> dict[str, Any]:
    """Parse YAML or JSON text that must hold one KubeletConfiguration.

    Raises:
        errors.KubeletError: other text; the message starts with ``where``.
    """
    import yaml  # here: a megabyte that an agent which asks the kubelet itself does without

    try:
        config = yaml.load(text, getattr(yaml, "CSafeLoader", yaml.SafeLoader))  # noqa: S506
    except yaml.YAMLError as error:
        why = " ".join(str(error).split())[:200]
        raise errors.KubeletError(f"{where}: not YAML: {why}") from error
    # Scalars that look like a date, a number … but are none.
    except (ValueError, OverflowError, RecursionError) as error:
        why = " ".join(str(error).split())[:200]
        raise errors.KubeletError(f"{where}: not YAML of this kind: {why}") from error
    if not isinstance(config, dict):
        raise errors.KubeletError(f"{where}: not a {_KIND}")
    for key, wanted in (("kind", _KIND), ("apiVersion", _API_VERSION)):
        if config.get(key) != wanted:
            raise errors.KubeletError(
                f"{where}: {key}: expected {wanted}, not {_short(config.get(key))}"
            )
    return config


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


def _merge_patch(target: object, patch: Mapping[str, Any]) -> dict[str, Any]:
    """RFC 7386."""
    merged = dict(target) if isinstance(target, dict) else {}
    for key, value in patch.items():
        if value is None:
            merged.pop(key, None)
        elif isinstance(value, dict):
            merged[key] = _merge_patch(merged.get(key), value)
        else:
            merged[key] = value
    return merged


def _pairs(flags: Sequence[str], wanted: frozenset[str] = _FLAGS) -> Iterator[tuple[str, str]]:
    """The flags that are wanted, as name and value; both ``--a=b`` and ``--a b``."""
    words = iter(flags)
    for word in words:
        name, equals, value = word.removeprefix("--").partition("=")
        name = name.replace("_", "-")  # WordSepNormalizeFunc
        if word.startswith("--") and name in wanted:
            yield name, value if equals else next(words, "")


def _apply_flags(config: dict[str, Any], flags: Sequence[str]) -> None:
    """Later flags win; a table flag replaces the file's table, except feature gates."""
    tables: dict[str, dict[str, str]] = {}
    reservations: list[dict[str, Any]] = []
    for name, value in _pairs(flags):
        if name in _TEXT_FLAGS:
            config[_TEXT_FLAGS[name]] = value
        elif name in _TABLE_FLAGS:
            key, separator, several = _TABLE_FLAGS[name]
            table = tables.setdefault(key, {})
            for item in value.split(",") if several else [value]:
                if item:
                    table.update([_pair(name, item, separator)])
        elif name == "reserved-memory":
            reservations += _memory_reservations(value)
    gates = tables.pop("featureGates", {})
    if gates:
        given = config.get("featureGates")
        config["featureGates"] = {**(given if isinstance(given, dict) else {}), **gates}
    config.update(tables)
    if reservations:
        config["reservedMemory"] = reservations


def _memory_reservations(value: str) -> list[dict[str, Any]]:
    """``0:memory=1Gi,hugepages-2Mi=2Gi;1:memory=2Gi`` (ReservedMemoryVar in pkg/util/flag)."""
    name = "reserved-memory"
    rows = []
    for item in value.split(";"):
        zone, colon, limits = item.partition(":")
        if not colon:
            raise errors.KubeletError(f"kubelet flag --{name}: expected zone:type=quantity: {item}")
        rows.append(
            {
                "numaNode": zone,
                "limits": dict(_pair(name, limit, "=") for limit in limits.split(",")),
            }
        )
    return rows


def _pair(flag: str, item: str, separator: str) -> tuple[str, str]:
    key, found, value = item.partition(separator)
    if not found:
        raise errors.KubeletError(
            f"kubelet flag --{flag}: expected key{separator}value, not {_short(item)}"
        )
    return key.strip(), value.strip()


def _short(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "..."
