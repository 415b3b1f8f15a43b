"""Traces of real clusters as pods that come and go: Alibaba's GPU traces, as CSV.

Source of the format: alibaba/clusterdata, cluster-trace-gpu-v2023, ``openb_pod_list_*.csv``. A
share of a GPU (``gpu_milli`` below 1000) counts as a whole one: device plugins hand out no parts.
"""

from __future__ import annotations

import csv
import math
from collections import Counter
from typing import TYPE_CHECKING, NamedTuple

from rte import errors
from rte.reader import files

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from rte.reader.json import JsonObject

#: Resource that a GPU of a trace asks for.
GPU = "nvidia.com/gpu"
#: Classes of the trace whose pods are promised what they ask for.
_GUARANTEED = frozenset({"LS", "Guaranteed"})
_NEEDED = ("name", "cpu_milli", "memory_mib", "num_gpu", "qos", "creation_time")
#: Of any number: more than a century in seconds, more memory than there is.
_MOST = 1 << 40


class TracedPod(NamedTuple):
    """A pod of a trace; ``arrives`` and ``runs`` are seconds (None: it never ends)."""

    manifest: JsonObject
    arrives: float
    runs: float | None


def read(file: Path, most: int | None = None) -> list[TracedPod]:
    """The first ``most`` pods of a trace, in the order in which they come.

    Raises:
        errors.UsageError: the file cannot be read, or is no such trace; the line is named.
    """
    rows = csv.DictReader(files.read_text(file).splitlines())
    out: list[TracedPod] = []
    try:
        missing = [name for name in _NEEDED if name not in (rows.fieldnames or ())]
        if not missing:
            out = [_pod(row) for row in rows]
    except (csv.Error, ValueError) as error:
        raise errors.UsageError(f"{file}, line {rows.line_num}: {error}") from None
    if missing:
        raise errors.UsageError(
            f"{file} is no GPU trace of Alibaba's: its first line has no {missing[0]}"
        )
    names = Counter(pod.manifest["metadata"]["name"] for pod in out)
    if len(names) < len(out):
        raise errors.UsageError(f"{file}: two pods are named {names.most_common(1)[0][0]}")
    out.sort(key=lambda pod: pod.arrives)
    return out[:most]


def _pod(row: Mapping[str, str | None]) -> TracedPod:
    asked = {
        "cpu": f"{_amount(row, 'cpu_milli'):.0f}m",
        "memory": f"{_amount(row, 'memory_mib'):.0f}Mi",
    }
    gpus = {GPU: f"{number:.0f}"} if (number := _amount(row, "num_gpu")) else {}
    resources = {"requests": asked | gpus, "limits": gpus}
    if row["qos"] in _GUARANTEED:
        resources["limits"] = asked | gpus
    arrives = _amount(row, "creation_time")
    runs = None
    if row.get("deletion_time"):
        started = _amount(row, "scheduled_time") if row.get("scheduled_time") else arrives
        runs = max(0.0, _amount(row, "deletion_time") - started)
    manifest: JsonObject = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": row["name"]},
        "spec": {"containers": [{"name": "main", "resources": resources}]},
    }
    return TracedPod(manifest, arrives, runs)


def _amount(row: Mapping[str, str | None], column: str) -> float:
    text = row[column] or ""
    try:
        amount = float(text)
    except ValueError:
        amount = math.nan
    if not 0 <= amount <= _MOST:
        raise ValueError(f"{column} {text[:40]!r} is no amount")
    return amount
