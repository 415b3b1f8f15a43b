"""Alert rules and dashboard, asked of a real Prometheus that scrapes an agent and a scheduler.

Both run in this process, on the embedded API server and a simulated kubelet: what they expose does
not depend on what is below them.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import re
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import aiohttp
import pytest
import yaml

from rte.kube import credentials
from rte.kube.client import Client
from rte.scheduler.settings import SchedulerSettings
from rte.scheduler.shell.service import Scheduler
from rte.sim.apiserver import APIServer, DeleteOptions
from rte.sim.kubelet import Kubelet, kubelet_document
from rte.sysfs import read_machine
from rte.telemetry import health
from tests.cluster import processes
from tests.unit.agent.test_daemon import MACHINE, World

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

pytestmark = pytest.mark.cluster

MANIFESTS = Path(__file__).parents[2] / "manifests"
RULES = yaml.safe_load((MANIFESTS / "monitoring/rules.yaml").read_text())
DASHBOARD = json.loads((MANIFESTS / "monitoring/dashboard.json").read_text())

#: A condition without its verdict: 0 or 1 where there is data, nothing where there is none.
_COMPARED = re.compile(r" (==|>|<) (?=[0-9])")


def queries() -> list[str]:
    """Every query of the rules and of the dashboard."""
    alerts = [rule["expr"] for group in RULES["spec"]["groups"] for rule in group["rules"]]
    panels = [target["expr"] for panel in DASHBOARD["panels"] for target in panel["targets"]]
    return [_COMPARED.sub(r" \1 bool ", alert) for alert in alerts] + panels


@contextlib.asynccontextmanager
async def agent_and_scheduler(folder: Path) -> AsyncIterator[tuple[World, dict[str, int]]]:
    """Both at work on one node; and name -> port of its metrics."""
    machine = read_machine(MACHINE / "sys", MACHINE / "proc")
    (folder / "kubelet").mkdir()
    async with APIServer() as server, contextlib.AsyncExitStack() as stack:
        crd = MANIFESTS / "crd/noderesourcetopologies.yaml"
        server.api.create("customresourcedefinitions", yaml.safe_load(crd.read_text()))
        for name in ("rte-agents", "kube-system"):
            with contextlib.suppress(Exception):
                server.api.create("namespaces", {"metadata": {"name": name}})
        kubelet = Kubelet(
            server.api, "n0", machine, kubelet_document(machine), root=folder / "kubelet"
        )
        await stack.enter_async_context(kubelet)
        world = World(server, kubelet, folder)
        await stack.enter_async_context(world.agent())
        client = await stack.enter_async_context(
            Client(credentials.load(folder / "kubeconfig", {}))
        )
        scheduler = Scheduler(client, SchedulerSettings(scheduler_name="rte-scheduler"))
        port: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        tasks = [
            asyncio.create_task(scheduler.run()),
            asyncio.create_task(
                health.serve(
                    "127.0.0.1:0",
                    scheduler.metrics.exposition,
                    scheduler.readiness,
                    started=port.set_result,
                )
            ),
        ]
        try:
            yield world, {"rte-agent": await world.port, "rte-scheduler": await port}
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)


async def place_a_pod(world: World) -> None:
    """One comes, is pinned, and goes."""
    amounts = {"cpu": "2", "memory": "64Mi"}
    resources = {"requests": amounts, "limits": amounts}
    body = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "p"},
        "spec": {
            "schedulerName": "rte-scheduler",
            "containers": [{"name": "c", "image": "pause", "resources": resources}],
        },
    }
    uid = world.server.api.create("pods", body, "default")["metadata"]["uid"]
    await world.until(lambda state: uid in state.admitted)
    world.server.api.delete("pods", "p", "default", DeleteOptions(grace=0))
    await world.until(lambda state: uid not in state.holdings)


class Prometheus:
    """Debian's, with our rules."""

    def __init__(self, folder: Path, targets: dict[str, int]) -> None:
        self.port = processes.free_port()
        rules = folder / "rules.yaml"
        rules.write_text(yaml.safe_dump(RULES["spec"]))
        config = {
            "global": {"scrape_interval": "200ms", "evaluation_interval": "1s"},
            "rule_files": [str(rules)],
            "scrape_configs": [
                {
                    "job_name": job,
                    "scrape_timeout": "200ms",
                    "static_configs": [
                        {"targets": [f"127.0.0.1:{port}"], "labels": {"node": "n0"}}
                    ],
                }
                for job, port in targets.items()
            ],
        }
        self.config = folder / "prometheus.yaml"
        self.config.write_text(yaml.safe_dump(config))
        self.folder = folder

    async def __aenter__(self) -> Self:
        self._process = await asyncio.create_subprocess_exec(
            "prometheus", f"--config.file={self.config}",
            f"--storage.tsdb.path={self.folder / 'data'}",
            f"--web.listen-address=127.0.0.1:{self.port}",
            stdout=asyncio.subprocess.DEVNULL, stderr=asyncio.subprocess.DEVNULL,
        )  # fmt: skip
        return self

    async def __aexit__(self, *_: object) -> None:
        self._process.terminate()
        await self._process.wait()

    async def get(self, path: str, **params: str) -> dict[str, Any]:
        async with (
            aiohttp.ClientSession() as session,
            session.get(f"http://127.0.0.1:{self.port}{path}", params=params) as answer,
        ):
            return dict(await answer.json())

    async def finds(self, query: str) -> list[Any]:
        """What a query gives, as numbers."""
        answer = await self.get("/api/v1/query", query=query)
        assert answer["status"] == "success", (query, answer)
        values = [sample["value"][1] for sample in answer["data"]["result"]]
        return [value for value in values if value != "NaN"]


async def test_every_query_of_rules_and_dashboard_finds_data(
    tmp_path: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    async with (
        agent_and_scheduler(tmp_path_factory.mktemp("m")) as (world, targets),
        Prometheus(tmp_path, targets) as prometheus,
    ):
        missing = set(queries())
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(30):
                while missing:
                    await place_a_pod(world)
                    await asyncio.sleep(0.3)
                    with contextlib.suppress(aiohttp.ClientError):
                        missing = {query for query in missing if not await prometheus.finds(query)}
        assert not missing
        groups = (await prometheus.get("/api/v1/rules"))["data"]["groups"]
        rules = [rule for group in groups for rule in group["rules"]]
        assert {rule["name"] for rule in rules} == {
            rule["alert"] for group in RULES["spec"]["groups"] for rule in group["rules"]
        }
        assert not [rule["name"] for rule in rules if rule["state"] == "firing"]


def test_promtool_accepts_the_rules(tmp_path: Path) -> None:
    rules = tmp_path / "rules.yaml"
    rules.write_text(yaml.safe_dump(RULES["spec"]))
    done = subprocess.run(
        ["promtool", "check", "rules", rules], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
