"""What the drivers of GPUs tell of them.

NVIDIA: ``/proc/driver/nvidia/gpus/<address>/information``, which has no memory size; the size is
taken from the model's name where that has one (``A100-SXM4-80GB``), as users know it. AMD: the
files of ``amdgpu`` in the function's directory (Linux ``drivers/gpu/drm/amd/amdgpu``).
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from rte.sysfs.tree import parse, parse_int, text_of

if TYPE_CHECKING:
    from rte.sysfs.tree import Tree

INFORMATION = "driver/nvidia/gpus"

_DRIVERS = frozenset({"amdgpu", "i915", "nouveau", "nvidia", "radeon", "xe"})
_MEMORY = re.compile(r"\b(\d{1,4}) ?GB\b", re.ASCII)
_RENDER = re.compile(r"render[D](\d{1,4})", re.ASCII)
#: The number of the first render node (Linux ``drivers/gpu/drm/drm_drv.c``).
_FIRST_RENDER = 128


def is_driver(name: str) -> bool:
    """Whether this is a driver of GPUs."""
    return name in _DRIVERS


def read_facts(sys: Tree, proc: Tree, place: str, driver: str) -> dict[str, str]:
    """``model``, ``uuid``, ``memory_bytes``, ``index`` and ``health``, as far as they are told."""
    facts: dict[str, str] = {}
    if driver == "nvidia":
        facts = _nvidia(proc, place.rpartition("/")[2])
    elif driver == "amdgpu":
        facts = _amd(sys, place)
    return {key: value for key, value in facts.items() if value}


def _nvidia(proc: Tree, address: str) -> dict[str, str]:
    told: dict[str, str] = {}
    for line in (proc.read(f"{INFORMATION}/{address}/information") or "").splitlines():
        key, _, value = (part.strip() for part in line.partition(":"))
        if value.isprintable():
            told.setdefault(key, value)
    model, uuid = told.get("Model", ""), told.get("GPU UUID", "")
    size = _MEMORY.search(model)
    return {
        "model": model,
        # The driver fills it with question marks until the GPU was first used.
        "uuid": "" if "?" in uuid else uuid,
        "memory_bytes": str(int(size[1]) << 30) if size else "",
        "index": told.get("Device Minor", ""),
        "health": {"Yes": "excluded", "No": "ok"}.get(told.get("GPU Excluded", ""), ""),
    }


def _amd(sys: Tree, place: str) -> dict[str, str]:
    memory = parse(sys.read(f"{place}/mem_info_vram_total"), parse_int)
    numbers = [int(it[1]) for name in sys.names(f"{place}/drm") if (it := _RENDER.fullmatch(name))]
    return {
        "model": text_of(sys, f"{place}/product_name"),
        "uuid": text_of(sys, f"{place}/unique_id"),
        "memory_bytes": str(memory) if memory is not None and memory > 0 else "",
        "index": str(min(numbers) - _FIRST_RENDER) if numbers else "",
    }
