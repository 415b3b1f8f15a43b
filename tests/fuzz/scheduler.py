"""The whole scheduler in this process, without a socket: intake, decisions, room making, telling, explanation."""

# ruff: noqa: E501 - documents read best in one line

from __future__ import annotations

import gc
import json
import random
import time
from dataclasses import dataclass
from typing import Any

from rte.nrt import group_inventory
from rte.scheduler.framework.objects import read_pod
from rte.scheduler.front import answers
from rte.scheduler.plugins.registry import RuleOptions
from rte.telemetry import health
from rte.telemetry.effects import Measured, Said
from tests.fuzz import memory, objects
from tests.unit.scheduler.build import machine, pod_object, state
from tests.unit.scheduler.desk import Desk, report_of

#: Of one object, in seconds of CPU.
CPU_S = 0.05

#: After so many objects an ordinary pod must find its place, and a new cluster begins.
BATCH = 20


@dataclass(frozen=True)
class Finding:
    """What went wrong with one case."""

    seed: int
    case: int
    what: str
    subject: Any

    def __str__(self) -> str:
        return f"seed {self.seed}, case {self.case}: {self.what}\n  {str(self.subject)[:2000]}"


def cluster() -> Desk:
    """Nodes with exact zones, for groups, with a driver's devices, and without anything known."""
    desk = Desk(faulty=True, options=RuleOptions(resource_status=True, device_share=True))
    desk.node("a", state(machine(cpus=8)), allocatable=dict.fromkeys(objects.DEVICE, "1000"))
    bare = state(machine(cpus=8), policy="none", cpu_policy="none", memory_policy="None")
    desk.node("b", bare, allocatable={"hugepages-1Gi": "8Gi"})
    obj = report_of("b", bare)
    obj["metadata"]["annotations"][group_inventory.ANNOTATION] = json.dumps(objects.INVENTORY)
    desk.put("reports", "b", obj)
    desk.node("ordinary", state(machine(cpus=8)))
    for name in ("slices", "device-classes", "classes", "koordinator-devices"):
        sound = objects.SOUND[name]
        desk.put(name, sound["metadata"]["name"], sound)
    return desk


def draw(rng: random.Random, number: int) -> tuple[str, str, dict[str, Any]]:
    """(collection, key, object) of one case."""
    mood = rng.random()
    if mood < 0.55:
        obj = objects.pod(rng, number)
        return "pods", obj["metadata"]["uid"], obj
    if mood < 0.85:
        name = rng.choice(("a", "b"))
        return "reports", name, objects.report(rng, name)
    return objects.other(rng)


def run(cases: int, seed: int, most: int = 1) -> list[Finding]:
    """Play so many cases; the first findings."""
    found: list[Finding] = []
    for first in range(0, cases, BATCH):
        found += _batch(seed, first, min(BATCH, cases - first))
        if len(found) >= most:
            break
    return found


def _batch(seed: int, first: int, count: int) -> list[Finding]:
    desk, played = cluster(), []
    for case in range(first, first + count):
        rng = random.Random(seed * 1_000_003 + case)
        subject = draw(rng, case)
        played.append(subject)
        said = len(desk.effects)
        try:
            with memory.bounded():
                cpu = _play(desk, *subject)
        except Exception as error:  # noqa: BLE001 - whatever is raised is what is looked for
            return [Finding(seed, case, repr(error), subject)]
        for _ in range(3):
            if cpu <= CPU_S:
                break
            # Once more with what was there: neither a collection nor a first time counts, nor what
            # others do on the same processor.
            again = cluster()
            for each in played[:-1]:
                _play(again, *each)
            gc.collect()
            cpu = min(cpu, _play(again, *subject))
        faults = _faults(desk, said)
        for what in (
            faults[0] if faults else "",
            f"{cpu * 1000:.0f} ms of CPU" if cpu > CPU_S else "",
        ):
            if what:
                return [Finding(seed, case, what, subject)]
    said = len(desk.effects)
    for collection, key, _ in played:
        if collection == "pods":
            desk.delete(collection, key)
    desk.node("fresh", state(machine(cpus=8)))
    good = desk.pod("ordinary-pod", "2")
    desk.pass_time(8)
    faults = _faults(desk, said)
    if not desk.where(good):
        faults.append("an ordinary pod finds no place")
    return [Finding(seed, first, each, played) for each in faults[:1]]


def _faults(desk: Desk, since: int) -> list[str]:
    """What was put aside, and told as an error of ours."""
    found = []
    for effect in desk.effects[since:]:
        if isinstance(effect, Said) and (effect.error is not None or effect.level == "error"):
            found.append(effect.text)
        elif isinstance(effect, Measured) and effect.metric == "faults":
            found.append(f"a fault of {effect.labels}")
    return sorted(found, key=lambda text: text.startswith("a fault of"))


def _play(desk: Desk, collection: str, key: str, obj: dict[str, Any]) -> float:
    """Seconds of CPU until the machine is at rest, and has explained a pod."""
    began = time.process_time()
    desk.put(collection, key, obj)
    cpu = time.process_time() - began
    cluster, cycle = desk.machine.cluster, desk.machine.cycle
    ordinary = read_pod(pod_object("what-if", "1"), cluster.shapes)
    for view in (cluster.pods.get(key) if collection == "pods" else None, ordinary):
        if view is not None:
            health.json_response(answers.explain_pod(cluster, cycle, view).as_json())
    desk.pass_time(0.5)
    return cpu
