"""The kubelet's command line: where it is found, and which keys its flags set."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from rte import errors
from rte.kubelet import DEFAULT_ROOT_DIR
from rte.kubelet.config_document import shown

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from rte.reader.json import Json, JsonObject

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


def find_command_line(procfs_root: Path, root_dir: Path) -> tuple[str, ...] | None:
    """The arguments of the kubelet of that ``--root-dir``; None where none such is visible.

    There may be several, and other processes of that name, so one of another root is none of ours.
    """
    import psutil  # here: 5 MiB that an agent does without where the API server tells

    usual, psutil.PROCFS_PATH = psutil.PROCFS_PATH, str(procfs_root)  # one for the whole process
    try:
        for pid in sorted(int(folder.name) for folder in procfs_root.glob("[0-9]*")):
            try:
                process = psutil.Process(pid)
                flags = tuple(process.cmdline()[1:]) if process.name() == "kubelet" else ()
            except psutil.Error:  # it has ended, or is not ours to read
                continue
            given = dict(pairs(flags, frozenset({"root-dir"})))
            if flags and Path(given.get("root-dir") or DEFAULT_ROOT_DIR) == root_dir:
                return flags
        return None
    finally:
        psutil.PROCFS_PATH = usual


def pairs(flags: Sequence[str], wanted: frozenset[str] = _FLAGS) -> Iterator[tuple[str, str]]:
    """The flags that are wanted, as name and value; both ``--a=b`` and ``--a b``."""
    words = iter(flags)
    for word in words:
        name, equals, value = word.removeprefix("--").partition("=")
        name = name.replace("_", "-")  # WordSepNormalizeFunc
        if word.startswith("--") and name in wanted:
            yield name, value if equals else next(words, "")


def apply(config: Json, flags: Sequence[str]) -> JsonObject:
    """The configuration with what the flags set.

    Later flags win; a table flag replaces the file's table, except feature gates.

    Raises:
        errors.KubeletError: a flag's value is not of its form; the message names the flag.
    """
    texts: dict[str, str] = {}
    tables: dict[str, dict[str, str]] = {}
    reservations: list[JsonObject] = []
    for name, value in pairs(flags):
        if name in _TEXT_FLAGS:
            texts[_TEXT_FLAGS[name]] = value
        elif name in _TABLE_FLAGS:
            key, separator, several = _TABLE_FLAGS[name]
            table = tables.setdefault(key, {})
            for item in value.split(",") if several else [value]:
                if item:
                    table.update([_pair(name, item, separator)])
        elif name == "reserved-memory":
            reservations += _memory_reservations(value)
    if "featureGates" in tables:
        tables["featureGates"] = {**(config.get("featureGates") or {}), **tables["featureGates"]}
    memory = {"reservedMemory": reservations} if reservations else {}
    return {**config, **texts, **tables, **memory}


def _memory_reservations(value: str) -> list[JsonObject]:
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
            f"kubelet flag --{flag}: expected key{separator}value, not {shown(item)}"
        )
    return key.strip(), value.strip()
