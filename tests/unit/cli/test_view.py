"""``rte view`` follows a cluster, serves its page, and writes nothing."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import socket
import sys
from typing import TYPE_CHECKING

import aiohttp

from rte.cli import main
from rte.sim import demo

if TYPE_CHECKING:
    from pathlib import Path

    import pytest


async def test_a_running_cluster_is_served_and_left_as_it_is() -> None:
    async with demo.DemoCluster(demo.Settings(nodes=2, shapes=("2x8",))) as cluster:
        await cluster.served()
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "rte", "view", "--listen", "127.0.0.1:0",
            "--kubeconfig", str(cluster.kubeconfig),
            stderr=asyncio.subprocess.PIPE, env=dict(os.environ),
        )  # fmt: skip
        assert process.stderr is not None
        async with asyncio.timeout(20):
            url = (await process.stderr.readline()).decode().split()[0]
            async with aiohttp.ClientSession() as session:
                nodes = []
                while not all(node["zones"] for node in nodes) or len(nodes) < 2:
                    async with session.get(f"{url}/data") as answer:
                        nodes = (await answer.json())["nodes"]
                async with session.get(url) as answer:
                    assert "rte view" in await answer.text()
            assert [node["name"] for node in nodes] == ["node-a", "node-b"]
            assert nodes[0]["trust"] == ""
            process.send_signal(signal.SIGTERM)
            assert await process.wait() == 0


def kubeconfig(folder: Path, port: int) -> str:
    """Of a server at this port."""
    path = folder / "kubeconfig"
    path.write_text(
        json.dumps(
            {
                "clusters": [{"name": "c", "cluster": {"server": f"http://127.0.0.1:{port}"}}],
                "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
                "users": [{"name": "u", "user": {}}],
                "current-context": "c",
            }
        )
    )
    return str(path)


def test_an_address_that_is_none_is_told(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        port = silent.getsockname()[1]
        for address in ("here", "203.0.113.1:80", f"127.0.0.1:{port}"):
            words = ["--kubeconfig", kubeconfig(tmp_path, port), "--listen", address]
            assert main(["view", *words]) == 2
            line = capsys.readouterr().err
            assert line.startswith("rte view: ")
            assert line.count("\n") == 1


def test_a_cluster_that_does_not_answer_is_told_in_one_line(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    words = ["--kubeconfig", kubeconfig(tmp_path, 1), "--listen", "127.0.0.1:0"]
    assert main(["view", *words]) == 1
    assert capsys.readouterr().err == (
        "rte view: no answer from http://127.0.0.1:1: Connection refused\n"
    )
