"""The configurations of Kubernetes' scheduler_perf, as they come with the module k8s.io/kubernetes.

A suite is a folder with a ``performance-config.yaml``: a list of cases, each with a template of
steps and several workloads (sizes). Values ``$name`` in steps are parameters of the workload
(test/integration/scheduler_perf/scheduler_perf.go).
"""

from __future__ import annotations

import json
import re
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml

from tests.cluster import builder

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

RENDERER = Path(__file__).with_name("render.go")

#: Parameters that say how many nodes there are; all amounts are scaled with the first one found.
_NODES = ("initNodes", "nodes", "nodesCount", "nodesWithDRA", "measureNodes")
#: Parameters that are no amounts of objects, so they stay as they are.
_FIXED = re.compile(r"(?i)perGroup|perNode|perPod|devices|maxClaims|multiplier|batch|duration|num")


@dataclass(frozen=True, kw_only=True)
class Workload:
    """One workload of a case.

    Attributes:
        suite: folder of the configuration, e.g. ``misc`` or ``podgroup/tas``.
        case, name: of the case and of the workload.
        gates: feature gates that it sets.
        steps: with all parameters filled in.
        folder: that paths in the steps are relative to.
        template: of pods of steps that name none; "" for the plain pod.
        nodes: how many, 0 where no parameter says it.
        scheduler_config: it asks for a configuration of kube-scheduler's own.
    """

    suite: str
    case: str
    name: str
    gates: Mapping[str, bool]
    steps: Sequence[Mapping[str, Any]]
    folder: Path
    template: str
    nodes: int
    scheduler_config: bool

    @property
    def title(self) -> str:
        """``suite/case/workload``."""
        return f"{self.suite}/{self.case}/{self.name}"

    def path(self, text: str) -> str:
        """A path of a step."""
        return str((self.folder / text).resolve())


def workloads(version: str, nodes: int, defaults: Mapping[str, bool]) -> Iterator[Workload]:
    """One workload of each case: the largest whose gates are the default ones, if there is one.

    It is scaled down to ``nodes`` (0: not at all), all amounts alike, so what depends on their
    ratio (how full the cluster is, how many pods are blocked) stays.
    """
    root = builder.kubernetes_sources(version) / "test/integration/scheduler_perf"
    for file in sorted(root.rglob("performance-config.yaml")):
        for case in yaml.safe_load(file.read_text()):
            one = max(case["workloads"], key=lambda size: _rank(case, size, defaults))
            yield _workload(root, file, case, one, nodes)


def _workload(
    root: Path, file: Path, case: Mapping[str, Any], size: Mapping[str, Any], nodes: int
) -> Workload:
    params = dict(size.get("params") or {})
    there = next((int(params[name]) for name in _NODES if name in params), 0)
    if 0 < nodes < there:
        params = {name: _scaled(name, value, nodes / there) for name, value in params.items()}
        there = nodes
    return Workload(
        suite=str(file.parent.relative_to(root)),
        case=case["name"],
        name=size["name"],
        gates=_gates(case, size),
        steps=[_filled(step, params) for step in case["workloadTemplate"]],
        folder=file.parent,
        template=size.get("defaultPodTemplatePath") or case.get("defaultPodTemplatePath") or "",
        nodes=there,
        scheduler_config=bool(case.get("schedulerConfigPath") or size.get("schedulerConfigPath")),
    )


def _gates(case: Mapping[str, Any], size: Mapping[str, Any]) -> dict[str, bool]:
    return {**(case.get("featureGates") or {}), **(size.get("featureGates") or {})}


def other_gates(gates: Mapping[str, bool], defaults: Mapping[str, bool]) -> list[str]:
    """Gates that are not as by default; those that are not listed any more are on for good."""
    return sorted(name for name, on in gates.items() if defaults.get(name, True) != on)


def _rank(
    case: Mapping[str, Any], size: Mapping[str, Any], defaults: Mapping[str, bool]
) -> tuple[bool, int, int]:
    params = size.get("params") or {}
    there = next((int(params[name]) for name in _NODES if name in params), 0)
    amounts = sum(value for value in params.values() if type(value) is int)
    return not other_gates(_gates(case, size), defaults), there, amounts


def _scaled(name: str, value: object, factor: float) -> object:
    if type(value) is not int or value <= 1 or (_FIXED.search(name) and name not in _NODES):
        return value
    return max(1, round(value * factor))


def _filled(step: Mapping[str, Any], params: Mapping[str, Any]) -> dict[str, Any]:
    """With the workload's parameters: ``countParam: $x``, ``templateParams: {a: $b|1}``."""
    out: dict[str, Any] = {}
    for key, value in step.items():
        if key == "countMultiplierParam":
            continue
        if key.endswith("Param"):
            out[key.removesuffix("Param")] = params[value.removeprefix("$")]
        elif key == "templateParams":
            out[key] = {name: _param(text, params) for name, text in value.items()}
        elif key == "createPodsOp":
            out[key] = _filled(value, params)
        else:
            out[key] = value
    if "countMultiplierParam" in step:
        out["count"] *= params[step["countMultiplierParam"].removeprefix("$")]
    return out


def _param(text: object, params: Mapping[str, Any]) -> object:
    if not isinstance(text, str) or not text.startswith("$"):
        return text
    name, bar, default = text[1:].partition("|")
    if name in params or not bar:
        return params[name]
    return yaml.safe_load(default)


def rendered(path: str, envs: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """The objects of a text template of Go, one for each environment."""
    if "{{" not in Path(path).read_text():
        one = yaml.safe_load(Path(path).read_text())
        return [json.loads(json.dumps(one)) for _ in envs]
    asked = "".join(json.dumps({"path": path, "env": env}) + "\n" for env in envs)
    done = subprocess.run(
        [builder.own_program("render", [RENDERER])],
        input=asked,
        capture_output=True,
        text=True,
        check=True,
    )
    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    return [yaml.load(json.loads(line), loader) for line in done.stdout.splitlines()]


def default_gates(help_text: str) -> dict[str, bool]:
    """Gates that a component may switch, with their defaults, from its ``--help``."""
    found = re.findall(r"kube:(\w+)=true\|false \(\w+ - default=(true|false)\)", help_text)
    return {name: value == "true" for name, value in found}
