"""Kueue's objects that nobody expects, against the machine that judges Workloads."""

from __future__ import annotations

import gc
import random
import time
from typing import Any

from rte.scheduler.kueue.messages import CHECKS, FLAVORS, TEMPLATES, WORKLOADS
from rte.scheduler.loop import messages
from rte.telemetry.effects import Said
from tests.fuzz import memory, objects
from tests.fuzz.scheduler import CPU_S, Finding
from tests.fuzz.values import varied
from tests.unit.scheduler.kueue.quota import CHECK, CONTROLLER, Quota, pod_set

BATCH = 20


def run(cases: int, seed: int, most: int = 1) -> list[Finding]:
    """Play so many cases; the first findings."""
    found: list[Finding] = []
    for first in range(0, cases, BATCH):
        found += _batch(seed, first, min(BATCH, cases - first))
        if len(found) >= most:
            break
    return found


def _batch(seed: int, first: int, count: int) -> list[Finding]:
    quota = Quota()
    quota.desk.node("a")
    quota.check()
    quota.loses_checks = True  # nobody keeps what is written about odd checks
    for case in range(first, first + count):
        rng = random.Random(seed * 1_000_003 + case)
        subject = _draw(rng, quota, case)
        with memory.bounded():
            cpu = _play(quota, *subject)
        for _ in range(3):
            if cpu <= CPU_S:
                break
            # Once more, so that neither a collection nor a first time counts, nor what others do
            # on the same processor.
            gc.collect()
            cpu = min(cpu, _play(quota, *subject))
        faults = [
            each.text
            for each in quota.effects
            if isinstance(each, Said) and (each.error is not None or each.level == "error")
        ]
        if cpu > CPU_S:
            faults.append(f"{cpu * 1000:.0f} ms of CPU")
        if faults:
            return [Finding(seed, case, faults[0], subject)]
    quota.desk.node("fresh")
    key = quota.workload("good", pod_set(cpu="1"))
    quota.pass_time(90)
    if quota.state(key)["state"] != "Ready":
        return [Finding(seed, first, "an ordinary Workload is not judged", quota.state(key))]
    return []


def _play(quota: Quota, collection: str, key: str, obj: dict[str, Any]) -> float:
    began = time.process_time()
    quota.desk.version += 1
    metadata = {**obj["metadata"], "resourceVersion": str(quota.desk.version)}
    quota.handle(messages.Seen(collection, {**obj, "metadata": metadata}))
    cpu = time.process_time() - began
    for _ in range(20):
        if not quota.machine.has_work(quota.desk.now):
            break
        began = time.process_time()
        quota.handle(messages.Turn())
        cpu = max(cpu, time.process_time() - began)
    # Kueue's own part is not played for what no Kueue makes.
    quota.pending.clear()
    quota.desk.now += 1.0
    quota.handle(messages.Tick())
    return cpu


def _draw(rng: random.Random, quota: Quota, number: int) -> tuple[str, str, dict[str, Any]]:
    """(collection, key, object) of one case."""
    collection = rng.choice((WORKLOADS, WORKLOADS, WORKLOADS, CHECKS, FLAVORS, TEMPLATES))
    name = f"odd-{number}"
    if collection == CHECKS:
        body: dict[str, Any] = {"spec": {"controllerName": CONTROLLER, "retryDelayMinutes": 1}}
    elif collection == FLAVORS:
        taint = {"key": "k", "operator": "Exists"}
        body = {"spec": {"nodeLabels": {"a": "b"}, "tolerations": [taint]}}
    elif collection == TEMPLATES:
        body = {"spec": objects.SOUND["device-claims"]}
    else:
        pod = objects.pod(rng, number)
        template = {"metadata": pod["metadata"], "spec": pod["spec"]}
        sets = [{"name": "main", "count": rng.choice((1, 2, 50)), "template": template}]
        topology = {
            "levels": ["zone", "kubernetes.io/hostname"],
            "slices": [
                {
                    "domainCount": 1,
                    "valuesPerLevel": [{"universal": "z"}, {"individual": {"roots": ["a"]}}],
                    "podCounts": {"universal": 1},
                }
            ],
        }
        given = {"name": "main", "count": 1, "flavors": {"cpu": "f"}}
        if rng.random() < 0.5:
            given["topologyAssignment"] = topology
        body = {
            "spec": {"podSets": sets, "active": True, "priority": 0},
            "status": {
                "admission": {"podSetAssignments": [given]},
                "conditions": [quota.condition("QuotaReserved")],
                "admissionChecks": [{"name": CHECK, "state": "Pending", "retryCount": 1}],
            },
        }
    obj = varied(rng, body)
    obj["metadata"] = {"name": name, "namespace": "default", "uid": f"uid-{name}"}
    return collection, f"default/{name}", obj
