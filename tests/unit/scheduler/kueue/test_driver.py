"""The controller at work on an API server of this process."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import pytest

from rte.sim.apiserver import StatusError
from tests.unit.scheduler.kueue.quota import CHECK, CONTROLLER, pod_set
from tests.unit.scheduler.town import Town, until

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

GROUP = "kueue.x-k8s.io"
ANY = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}


def by(key: str) -> dict[str, Any]:
    """A list whose items are told apart by a field."""
    item = {**ANY, "properties": {key: {"type": "string"}}, "required": [key]}
    return {
        "type": "array",
        "items": item,
        "x-kubernetes-list-type": "map",
        "x-kubernetes-list-map-keys": [key],
    }


def definition(kind: str, *, namespaced: bool = False, **status: Any) -> dict[str, Any]:
    """As much of a CustomResourceDefinition of Kueue as matters here."""
    plural = f"{kind.lower()}s"
    schema = {
        "type": "object",
        "properties": {"spec": ANY, "status": {**ANY, "properties": status}},
    }
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{plural}.{GROUP}"},
        "spec": {
            "group": GROUP,
            "scope": "Namespaced" if namespaced else "Cluster",
            "names": {"plural": plural, "singular": kind.lower(), "kind": kind},
            "versions": [
                {
                    "name": "v1beta2",
                    "served": True,
                    "storage": True,
                    "schema": {"openAPIV3Schema": schema},
                    "subresources": {"status": {}},
                }
            ],
        },
    }


@pytest.fixture
async def town(tmp_path: Path) -> AsyncIterator[Town]:
    async with Town(tmp_path) as made:
        for each in (
            definition("Workload", namespaced=True, admissionChecks=by("name")),
            definition("AdmissionCheck", conditions=by("type")),
            definition("ResourceFlavor"),
        ):
            made.api.create("customresourcedefinitions", each)
        yield made


def check(town: Town) -> None:
    body = {"metadata": {"name": CHECK}, "spec": {"controllerName": CONTROLLER}}
    town.api.create(f"admissionchecks.{GROUP}", {**head("AdmissionCheck"), **body})


def head(kind: str) -> dict[str, str]:
    return {"apiVersion": f"{GROUP}/v1beta2", "kind": kind}


def workload(town: Town, name: str, *pod_sets: dict[str, Any]) -> None:
    """A Workload that has its quota."""
    now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    body = {**head("Workload"), "metadata": {"name": name}, "spec": {"podSets": list(pod_sets)}}
    town.api.create(f"workloads.{GROUP}", body, "default")
    made = town.api.get(f"workloads.{GROUP}", name, "default")
    moment = {"lastTransitionTime": now, "message": ""}
    made["status"] = {
        "conditions": [{"type": "QuotaReserved", "status": "True", "reason": "Quota", **moment}],
        "admissionChecks": [
            {"name": CHECK, "state": "Pending", **moment},
            {"name": "other", "state": "Pending", **moment},
        ],
    }
    town.api.update(f"workloads.{GROUP}", made, subresource="status")


def state(town: Town, name: str, of: str = CHECK) -> str:
    found = town.api.get(f"workloads.{GROUP}", name, "default")
    checks = found["status"]["admissionChecks"]
    return str(next(each["state"] for each in checks if each["name"] == of))


def conditions(town: Town) -> list[str]:
    """Whether the check is active, as it is written."""
    found = town.api.get(f"admissionchecks.{GROUP}", CHECK)
    return [each["status"] for each in found.get("status", {}).get("conditions", ())]


async def test_states_are_written_and_other_checks_left_alone(town: Town) -> None:
    await town.node("a")
    async with town.scheduler(kueue_controller_name=CONTROLLER, kueue_hold=0.0) as scheduler:
        check(town)
        workload(town, "fits", pod_set(count=3))
        await until(lambda: state(town, "fits") == "Ready")
        workload(town, "wide", pod_set(cpu="10"))
        await until(lambda: state(town, "wide") == "Retry")
        assert state(town, "fits", "other") == "Pending"
        # They are counted when the answer to the write has come.
        for line in (
            "rte_scheduler_kueue_promised_pods 3.0",
            'rte_scheduler_kueue_checks_total{state="Retry"} 1.0',
        ):
            await until(lambda line=line: line in scheduler.metrics.exposition().decode())
        await until(lambda: conditions(town) == ["True"])


async def test_room_that_comes_makes_a_workload_ready(town: Town) -> None:
    await town.node("a")
    async with town.scheduler(kueue_controller_name=CONTROLLER, kueue_hold=3600.0):
        check(town)
        town.pod("large", "8")
        await until(lambda: town.phase("large") == "Running")
        workload(town, "next", pod_set(cpu="8"))
        await until(
            lambda: "find a place" in str(town.api.get(f"workloads.{GROUP}", "next", "default"))
        )
        town.end("large")
        await until(lambda: state(town, "next") == "Ready")


async def test_without_kueue_pods_are_placed_all_the_same(tmp_path: Path) -> None:
    async with Town(tmp_path) as town:
        await town.node("a")
        async with town.scheduler(kueue_controller_name=CONTROLLER):
            town.pod("p", "4")
            await until(lambda: town.phase("p") == "Running")
        with pytest.raises(StatusError):
            town.api.get(f"workloads.{GROUP}", "any", "default")
