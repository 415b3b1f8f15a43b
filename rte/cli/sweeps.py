"""``rte simulate --sweep``: one load under many settings, as a table and a picture."""

from __future__ import annotations

import argparse
import itertools
import json
import multiprocessing
import os
import re
import statistics
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING

from rte import errors
from rte.cli import inputs, machines
from rte.library import manifests, traces
from rte.reader import files
from rte.sim import offline, sweep
from rte.view.drawing import bars

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

    from rte.reader.json import JsonObject

#: What may vary, and its values where they are known.
_KEYS: dict[str, Sequence[str]] = {
    "policy": ("none", "best-effort", "restricted", "single-numa-node"),
    "scope": ("container", "pod"),
    "score": offline.STRATEGIES,
    "machine": (),
    "kubelet-version": (),
    "seed": (),
}
_MOST_SETTINGS = 10_000


@dataclass(frozen=True, kw_only=True)
class SweepSetting:
    """One point of the sweep: what varies, by its key, and the seed of the order."""

    values: tuple[tuple[str, str], ...]
    seed: int = 0

    @property
    def name(self) -> str:
        """In words; a seed is no part of it."""
        return ", ".join(value for _, value in self.values) or "as given"


@dataclass(frozen=True, kw_only=True)
class SweepRow:
    """A setting, averaged over its seeds; ``waited`` are seconds, None where no pod can end."""

    name: str
    seeds: int
    placed: float
    unplaced: float
    rejections: float
    utilisation: float
    waited: float | None
    problem: str = ""

    def as_json(self) -> JsonObject:
        """The row as it is printed."""
        return {key: getattr(self, key) for key in self.__dataclass_fields__}


def settings(given: Sequence[str]) -> list[SweepSetting]:
    """All combinations of what ``--sweep`` names.

    Raises:
        errors.UsageError: a key or a value is unknown, or there are too many combinations.
    """
    axes: dict[str, list[str]] = {}
    for text in given:
        key, _, values = text.partition("=")
        if key not in _KEYS or not values or key in axes:
            raise errors.UsageError(
                f"--sweep {text}: give KEY=VALUE,... once for a KEY of {', '.join(_KEYS)}"
            )
        axes[key] = _seeds(text, values) if key == "seed" else values.split(",")
        for value in axes[key]:
            if _KEYS[key] and value not in _KEYS[key]:
                raise errors.UsageError(f"--sweep {text}: {key} is one of {', '.join(_KEYS[key])}")
    seeds = axes.pop("seed", ["0"])
    product = itertools.product(*([(key, value) for value in axes[key]] for key in axes))
    points = list(itertools.islice(product, _MOST_SETTINGS + 1))
    if len(points) * len(seeds) > _MOST_SETTINGS:
        raise errors.UsageError(f"--sweep: more than {_MOST_SETTINGS} settings")
    return [SweepSetting(values=point, seed=int(seed)) for point in points for seed in seeds]


def _seeds(text: str, values: str) -> list[str]:
    found = re.fullmatch(r"(\d{1,6})(?:-(\d{1,6}))?", values)
    if not found:
        raise errors.UsageError(f"--sweep {text}: seeds are a number, or FIRST-LAST")
    first, last = int(found[1]), int(found[2] or found[1])
    return [str(seed) for seed in range(first, last + 1)]


def run(args: argparse.Namespace) -> int:
    """Play the load under each setting; 0 when under one of them every pod has run."""
    wanted = settings(args.sweep)
    sweeper = _Sweeper(args)
    sweeper.arrivals()  # what is wrong with the load is told once
    if args.jobs == 1:
        found = [sweeper.play(setting) for setting in wanted]
    else:
        jobs = args.jobs or len(os.sched_getaffinity(0))
        context = multiprocessing.get_context("spawn")
        with ProcessPoolExecutor(jobs, context, _begin, (args,)) as pool:
            found = list(pool.map(_play, wanted))
    rows = rows_of(wanted, found)
    print(_OUTPUTS[args.output](rows))
    return 0 if any(not row.unplaced and not row.problem for row in rows) else 1


class _Sweeper:
    """What a process needs to play any setting: the load and the nodes are read once."""

    def __init__(self, args: argparse.Namespace) -> None:
        self._args = args
        self._items: list[tuple[Path, JsonObject]] = [
            (file, item) for file in args.files for item in files.load_objects([file])
        ]
        self._pods = [
            traces.TracedPod(manifests.checked(pod, file), 0.0, None)
            for file, item in self._items
            for pod in manifests.pods_of([item], file)
            if not inputs.is_bound(pod)
        ]
        if args.trace:
            self._pods += [
                pod._replace(manifest=manifests.checked(pod.manifest, args.trace))
                for pod in traces.read(args.trace, args.most_pods)
            ]

    def arrivals(self) -> None:
        """Check that there is a load, and something to bear it.

        Raises:
            errors.UsageError: there is not.
        """
        if not self._pods:
            raise errors.UsageError("there is no pod to place: give Pods with -f, or --trace")

    def play(self, setting: SweepSetting) -> sweep.LoadResult | str:
        """The result, or why the setting cannot be."""
        values = dict(setting.values)
        varied = {
            "policy": values.get("policy", self._args.policy),
            "scope": values.get("scope", self._args.scope),
            "kubelet_version": values.get("kubelet-version", self._args.kubelet_version),
            "machine": values["machine"].split("+") if "machine" in values else self._args.machine,
        }
        cluster, _ = inputs.build_cluster(
            item for _, item in self._items if item["kind"] != "Pod" or inputs.is_bound(item)
        )
        try:
            for each in machines.read(argparse.Namespace(**{**vars(self._args), **varied})):
                each.add_to(cluster)
        except errors.RteError as error:
            return str(error)
        if not any(entry.info for entry in cluster.nodes.values()):
            return "there is no node: give Node objects with -f, or --machine"
        load = [
            sweep.Arrival(inputs.read_pod(cluster, pod.manifest), pod.arrives, pod.runs)
            for pod in self._pods
        ]
        strategy = values.get("score", self._args.score)
        return sweep.play(cluster, sweep.shuffled(load, setting.seed), strategy)


_mine: list[_Sweeper] = []


def _begin(args: argparse.Namespace) -> None:
    _mine.append(_Sweeper(args))


def _play(setting: SweepSetting) -> sweep.LoadResult | str:
    return _mine[0].play(setting)


def rows_of(
    wanted: Sequence[SweepSetting], found: Sequence[sweep.LoadResult | str]
) -> list[SweepRow]:
    """One row for all seeds of a setting; the best first: most pods run, fewest refused."""
    grouped: dict[str, list[sweep.LoadResult | str]] = {}
    for setting, result in zip(wanted, found, strict=True):
        grouped.setdefault(setting.name, []).append(result)
    rows = [_row(name, results) for name, results in grouped.items()]
    return sorted(
        rows,
        key=lambda row: (bool(row.problem), row.unplaced, row.rejections, row.waited or 0.0),
    )


def _row(name: str, results: Sequence[sweep.LoadResult | str]) -> SweepRow:
    problem = next((each for each in results if isinstance(each, str)), "")
    good = [each for each in results if isinstance(each, sweep.LoadResult)]

    def mean(value: Callable[[sweep.LoadResult], float]) -> float:
        return statistics.fmean(map(value, good)) if good else 0.0

    waits = [second for each in good for second in each.waited]
    return SweepRow(
        name=name,
        seeds=len(results),
        placed=mean(lambda each: each.placed),
        unplaced=mean(lambda each: each.unplaced),
        rejections=mean(lambda each: each.rejections.total()),
        utilisation=mean(lambda each: each.utilisation),
        waited=statistics.fmean(waits) if waits and any(each.timed for each in good) else None,
        problem=problem,
    )


def _text(rows: Sequence[SweepRow]) -> str:
    return "\n".join(_lines(rows))


def _lines(rows: Sequence[SweepRow]) -> Iterator[str]:
    wide = max(len("setting"), *(len(row.name) for row in rows))
    yield (
        f"{'setting':<{wide}} {'run':>8} {'left':>8} {'rejections':>11} {'CPU used':>9} "
        f"{'mean wait':>10}"
    )
    for row in rows:
        if row.problem:
            yield f"{row.name:<{wide}} {row.problem}"
            continue
        waited = "" if row.waited is None else f"{row.waited:.0f} s"
        yield (
            f"{row.name:<{wide}} {row.placed:>8.6g} {row.unplaced:>8.6g} "
            f"{row.rejections:>11.6g} {row.utilisation:>8.1%} {waited:>10}"
        )
    if rows[0].seeds > 1:
        yield f"each the mean of {rows[0].seeds} orders of arrival"


def _json(rows: Sequence[SweepRow]) -> str:
    return json.dumps([row.as_json() for row in rows], indent=2)


def _svg(rows: Sequence[SweepRow]) -> str:
    good = [row for row in rows if not row.problem]
    columns = {
        "pods left waiting": [row.unplaced for row in good],
        "rejections by kubelets": [row.rejections for row in good],
        "CPU used, %": [100 * row.utilisation for row in good],
    }
    if any(row.waited is not None for row in good):
        columns["mean wait, s"] = [row.waited or 0.0 for row in good]
    return bars.draw([row.name for row in good], columns)


_OUTPUTS = {"text": _text, "json": _json, "svg": _svg}
