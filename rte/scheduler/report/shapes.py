"""Metrics of shapes that the operator has named: how many fit, and how scattered free CPUs are."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from rte import errors
from rte.reader import jsontext, yamltext
from rte.scheduler.framework import objects

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from pathlib import Path

    from rte.placement.joint.fit import Fit
    from rte.scheduler.framework.node import NodeEntry
    from rte.scheduler.framework.objects import PodView
    from rte.scheduler.framework.shape import Shapes
    from rte.scheduler.report.metrics import SchedulerMetrics


@dataclass(frozen=True, kw_only=True)
class Scatter:
    """How the free CPUs lie.

    Attributes:
        largest: free CPUs of the largest free zone.
        free: free CPUs of all zones.
        usable: those that copies of one named shape or another could use.
    """

    largest: int
    free: int
    usable: int

    @property
    def fragmentation(self) -> float:
        """Share of the free CPUs that no named shape can use; 0 where none is free."""
        return 1 - self.usable / self.free if self.free else 0.0


def read_shapes(path: Path) -> list[dict[str, Any]]:
    """The pods of a YAML file; each is called by its ``metadata.name``.

    Raises:
        errors.UsageError: the file cannot be read, or holds something else.
    """
    try:
        documents = yamltext.load_all(path.read_bytes(), "pods", jsontext.FILE)
    except (OSError, errors.MalformedError) as error:
        raise errors.UsageError(f"--fit-shapes {path}: {error}") from None
    found = [each for each in documents if each is not None]
    names = [_name(each) for each in found]
    if not all(names) or len(set(names)) < len(names):
        raise errors.UsageError(f"--fit-shapes {path}: expected pods with different names")
    return found


def _name(document: object) -> str:
    metadata = document.get("metadata") if isinstance(document, dict) else None
    name = metadata.get("name") if isinstance(metadata, dict) else None
    return name if isinstance(name, str) else ""


def views(shapes: Iterable[Mapping[str, Any]], known: Shapes) -> dict[str, PodView]:
    """Name -> the shape as a pod that waits.

    Raises:
        errors.ParseError: one of them is no pod.
    """
    made = {}
    for obj in shapes:
        metadata = {**obj["metadata"], "uid": f"shape/{obj['metadata']['name']}"}
        made[metadata["name"]] = objects.read_pod({**obj, "metadata": metadata}, known)
    return made


def scatter(entries: Iterable[NodeEntry], fits: Sequence[tuple[PodView, Fit]]) -> Scatter:
    """How the free CPUs of these nodes lie, for these shapes and where they fit."""
    largest = free = usable = 0
    for entry in entries:
        zones = [cpus for _, cpus, _ in entry.free_by_zone() or ()]
        if entry.info is None or not zones or entry.distrust():
            continue
        here = sum(zones)
        used = [fit.copies.get(entry.name, 0) * sum(pod.shape.exclusive_cpus) for pod, fit in fits]
        largest, free = max(largest, *zones), free + here
        usable += min(here, max(used, default=0))
    return Scatter(largest=largest, free=free, usable=usable)


def measure(
    metrics: SchedulerMetrics,
    entries: Iterable[NodeEntry],
    pods: Mapping[str, PodView],
    fits: Mapping[str, Fit],
) -> None:
    """Set the metrics anew. ``pods`` and ``fits`` are by the names of the shapes."""
    for name, fit in fits.items():
        metrics.fit_pods.labels(name).set(fit.total)
    found = scatter(entries, [(pods[name], fit) for name, fit in fits.items()])
    metrics.fit_largest_zone.set(found.largest)
    metrics.fit_fragmentation.set(found.fragmentation)
