"""``rte doctor`` names what is wrong with a cluster, and what to do about it."""

from __future__ import annotations

import asyncio
import json
import sys
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import aiohttp.web
import pytest

from rte import __version__
from rte.cli import doctor, inputs
from rte.cli.doctor import Finding, Severity, examine, facts
from rte.cli.doctor.facts import Facts
from rte.model.node import ConfigSource
from rte.sim import demo
from tests.unit.cli.objects import node_objects
from tests.unit.cli.test_view import kubeconfig

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

NOW = 1_800_000_000.0
READY = {"conditions": [{"type": "Ready", "status": "True"}]}


def program(name: str, node: str = "n", **status: Any) -> dict[str, Any]:
    """A pod of the agent or of the scheduler."""
    metadata = {
        "name": f"{name}-{node}",
        "namespace": "rte-system",
        "labels": {"app.kubernetes.io/name": name},
    }
    spec = {"nodeName": node, "serviceAccountName": name}
    return {"metadata": metadata, "spec": spec, "status": status or READY}


def healthy(*names: str) -> Facts:
    """What a cluster tells in which all is well."""
    items = [each for name in names for each in node_objects(name)]
    return Facts(
        now=NOW,
        nodes=inputs.build_cluster(items)[0].nodes,
        kernels=dict.fromkeys(names, "linux"),
        ready=set(names),
        leases=dict.fromkeys(names, NOW - 5),
        pods=[*(program("rte-agent", name) for name in names), program("rte-scheduler")],
        metrics={f"rte-agent-{name}": build_info(__version__) for name in names},
        there=dict.fromkeys((facts.CRD, facts.POLICY), True),
    )


def build_info(version: str) -> str:
    return f'# TYPE rte_build_info gauge\nrte_build_info{{version="{version}"}} 1.0\n'


def wrong(facts: Facts) -> list[Finding]:
    return [each for each in examine(facts) if each.level is not Severity.OK]


def the_one(facts: Facts) -> Finding:
    (found,) = wrong(facts)
    assert found.todo, found
    return found


def configured(facts: Facts, name: str, **settings: Any) -> None:
    """The node's kubelet has these settings."""
    entry = facts.nodes[name]
    assert entry.report
    assert entry.report.state
    state = replace(entry.report.state, config=replace(entry.report.state.config, **settings))
    entry.report = replace(entry.report, state=state)


def test_where_all_is_well_nothing_is_to_be_done() -> None:
    findings = examine(healthy("a", "b"))
    assert {each.level for each in findings} == {Severity.OK}
    assert not any(each.todo for each in findings)
    looked_at = {each.what for each in findings}
    assert looked_at == {
        "CRD", "admission policy", "agents", "scheduler", "versions", "drift", "agent",
        "kubelet configuration",
    }  # fmt: skip


def test_nodes_that_have_the_same_are_one_line() -> None:
    names = [f"n-{number}" for number in range(8)]
    facts = healthy(*names)
    facts.leases = dict.fromkeys(names, NOW - 200)
    found = the_one(facts)
    assert found.nodes == tuple(names)
    assert found.says == "its last sign of life is 3 minutes old"
    lines = list(doctor._lines([found]))
    assert lines[0].endswith("(n-0, n-1, n-2, n-3, n-4 and 3 more)")
    assert lines[-1] == "0 ok, 0 warnings, 1 failed"


@pytest.mark.parametrize(
    ("settings", "told"),
    [
        ({"cpu_policy": "none"}, "cpuManagerPolicy none: no pod gets CPUs of its own"),
        ({"topology_policy": "none"}, "topologyManagerPolicy none: no pod is kept in one zone"),
        ({"topology_policy": "best-effort"}, "topologyManagerPolicy best-effort: "),
    ],
)
def test_a_kubelet_that_aligns_nothing(settings: dict[str, str], told: str) -> None:
    facts = healthy("a", "b")
    configured(facts, "b", **settings)
    found = the_one(facts)
    assert (found.level, found.nodes) == (Severity.WARNING, ("b",))
    assert found.says.startswith(told)
    assert "restart the kubelet" in found.todo


def test_a_kubelet_whose_flags_are_not_known() -> None:
    facts = healthy("a")
    configured(facts, "a", source=ConfigSource.USUAL_FILE)
    assert "nodes/configz" in the_one(facts).todo


def test_a_kubelet_without_rules() -> None:
    facts = healthy("a")
    entry = facts.nodes["a"]
    assert entry.report
    assert entry.report.state
    state = replace(entry.report.state, kubelet_version="v1.20.0")
    entry.report = replace(entry.report, state=state)
    found = the_one(facts)
    assert found.level is Severity.FAILED
    assert "no rules for kubelet v1.20.0" in found.says


@pytest.mark.parametrize(
    ("renewed", "told"),
    [
        (NOW - 41, "its last sign of life is 41 seconds old"),
        (NOW - 90_000, "its last sign of life is 25 hours old"),
        (None, "it gave its Lease back"),
    ],
)
def test_an_agent_that_is_silent(renewed: float | None, told: str) -> None:
    facts = healthy("a", "b")
    facts.leases["a"] = renewed
    found = the_one(facts)
    assert (found.level, found.nodes) == (Severity.FAILED, ("a",))
    assert told in found.says


def test_a_node_without_report_lease_or_kubelet() -> None:
    facts = healthy("a", "b")
    facts.nodes["a"].report = None
    facts.ready = {"a"}
    del facts.leases["b"]
    found = {each.what: each.nodes for each in wrong(facts)}
    assert found == {"report": ("a",), "node": ("b",), "agent": ("b",)}


def test_windows_nodes_have_no_agent() -> None:
    facts = healthy("a", "w")
    facts.nodes["w"].report = None
    facts.kernels["w"] = "windows"
    assert wrong(facts) == []


def test_an_image_that_no_node_can_pull() -> None:
    facts = healthy("a")
    waiting = {"reason": "ErrImagePull", "message": "not found"}
    facts.pods[0] = program("rte-agent", "a", containerStatuses=[{"state": {"waiting": waiting}}])
    found = the_one(facts)
    assert found.says == "pod rte-agent-a is not ready: ErrImagePull not found"
    assert "rte install" in found.todo


def test_a_pod_that_no_node_takes() -> None:
    facts = healthy("a")
    refused = {"type": "PodScheduled", "status": "False", "message": "0/1 nodes are available"}
    facts.pods[1] = program("rte-scheduler", conditions=[refused])
    assert "0/1 nodes are available" in the_one(facts).says


def test_what_is_missing_in_the_cluster() -> None:
    facts = healthy("a")
    facts.there = dict.fromkeys(facts.there, False)
    facts.refused = ["get nodes/configz"]
    facts.unread = ["metrics of 1 pod"]
    levels = {each.what: each.level for each in wrong(facts)}
    assert levels == {
        "CRD": Severity.FAILED,
        "admission policy": Severity.WARNING,
        "rights": Severity.FAILED,
        "not looked at": Severity.WARNING,
    }


def test_versions_that_differ() -> None:
    facts = healthy("a", "b")
    facts.metrics["rte-agent-b"] = build_info("0.0.9")
    assert f"{__version__} (1 pod), 0.0.9 (1 pod)" in the_one(facts).says


@pytest.mark.parametrize(
    ("sample", "drifts"),
    [
        ('rte_prediction_differences_total{result="refused"} 2.0', True),
        ('rte_prediction_differences_total{result="refused"} 0.0', False),
        ('rte_scheduler_predictions_total{result="other_zone"} 2.0', True),
        ('rte_scheduler_predictions_total{result="exact"} 7.0', False),
    ],
)
def test_kubelets_that_do_otherwise_than_predicted(sample: str, drifts: bool) -> None:
    facts = healthy("a")
    facts.metrics["rte-agent-a"] += f"{sample}\n"
    found = [each for each in wrong(facts) if each.what == "drift"]
    assert bool(found) is drifts
    if drifts:
        assert "rte-agent-a: 2" in found[0].says


# --- as it is read ---------------------------------------------------------------------------


async def asked(path: Path) -> tuple[int, list[dict[str, Any]]]:
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "rte", "doctor", "--kubeconfig", str(path), "-o", "json",
        stdout=asyncio.subprocess.PIPE,
    )  # fmt: skip
    out, _ = await process.communicate()
    assert process.returncode is not None
    return process.returncode, json.loads(out)


async def test_the_agents_of_a_running_cluster_are_alive() -> None:
    async with demo.DemoCluster(demo.Settings(nodes=2, shapes=("2x8",))) as cluster:
        await cluster.served()
        code, findings = await asked(cluster.kubeconfig)
    assert code == 0
    (alive,) = [each for each in findings if each["what"] == "agent"]
    assert (alive["level"], alive["nodes"]) == ("ok", ["node-a", "node-b"])
    assert {each["what"] for each in findings if each["level"] == "warning"} == {
        "admission policy",
        "agents",
    }


@asynccontextmanager
async def server(lacks: str, *, forbidden: bool = False) -> AsyncIterator[int]:
    """An API server with one node, an agent, and its answers about rights."""
    node, report = node_objects("n")
    collections = {
        "/api/v1/nodes": [node],
        "/apis/topology.node.k8s.io/v1alpha2/noderesourcetopologies": [report],
        "/api/v1/pods": [program("rte-agent")],
    }
    reviewed = []

    async def answer(request: aiohttp.web.Request) -> aiohttp.web.Response:
        if request.path in collections:
            return aiohttp.web.json_response({"items": collections[request.path]})
        if forbidden:
            return aiohttp.web.json_response({"message": "no"}, status=403)
        if request.path.endswith("/subjectaccessreviews"):
            spec = (await request.json())["spec"]
            reviewed.append(spec)
            asked_for = spec["resourceAttributes"]
            may = f"{asked_for['verb']} {asked_for['resource']}" != lacks
            return aiohttp.web.json_response({"status": {"allowed": may}})
        if request.path.endswith("/pods/rte-agent-n:9101/proxy/metrics"):
            return aiohttp.web.Response(text=build_info(__version__))
        return aiohttp.web.json_response({"message": "no such object"}, status=404)

    app = aiohttp.web.Application()
    app.router.add_route("*", "/{tail:.*}", answer)
    runner = aiohttp.web.AppRunner(app)
    await runner.setup()
    site = aiohttp.web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    try:
        yield runner.addresses[0][1]
    finally:
        await runner.cleanup()
    assert forbidden or {each["user"] for each in reviewed} == {
        "system:serviceaccount:rte-system:rte-agent"
    }


async def test_the_agents_own_rights_are_asked_for(tmp_path: Path) -> None:
    async with server("create leases") as port:
        code, findings = await asked(Path(kubeconfig(tmp_path, port)))
    assert code == 1
    (rights,) = [each for each in findings if each["what"] == "rights"]
    assert rights["says"] == "the agent may not create leases"
    assert {"versions", "drift"} <= {each["what"] for each in findings if each["level"] == "ok"}


async def test_what_may_not_be_read_is_told(tmp_path: Path) -> None:
    async with server("", forbidden=True) as port:
        _, findings = await asked(Path(kubeconfig(tmp_path, port)))
    told = [each["says"] for each in findings if each["what"] == "not looked at"]
    assert any("leases" in line for line in told)
    assert any(line.startswith("metrics of 1 pod, so neither drift nor version") for line in told)
