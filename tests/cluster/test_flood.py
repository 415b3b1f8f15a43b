"""Strangers at a scheduler's door on a real API server: binds, Lease and memory do not suffer."""

from __future__ import annotations

import contextlib
import subprocess
import sys
import time
import urllib.request
from typing import TYPE_CHECKING

import psutil

from tests.cluster import agents, processes
from tests.cluster.pods import pod
from tests.cluster.test_scheduler import NAME, PODS, Schedulers, schedulers

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tests.cluster.cluster import Cluster
    from tests.cluster.node import Node

__all__ = ["schedulers"]

LEASES = f"/apis/coordination.k8s.io/v1/namespaces/{agents.NAMESPACE}/leases"
#: The bench has the bar; other tests run beside this one.
MOST_LATER_S, MOST_MORE_MIB = 1.0, 20


@contextlib.contextmanager
def flood(kind: str, port: int) -> Iterator[None]:
    """A process of :mod:`bench.flood`."""
    process = subprocess.Popen(
        [sys.executable, "-m", "bench.flood", kind, str(port)], stderr=subprocess.DEVNULL
    )
    try:
        yield
    finally:
        process.kill()
        process.wait()


def slowest_bind(cluster: Cluster, node: Node, name: str) -> float:
    """Seconds from the creation of a pod to its bind, of ten pods one after the other."""
    slowest = 0.0
    for number in range(10):
        obj = pod(
            name=f"{name}-{number}",
            scheduler=NAME,
            nodeSelector={"kubernetes.io/hostname": node.name},
        )
        began = time.monotonic()
        cluster.api.create(PODS, obj)
        cluster.api.wait(
            PODS, f"{name}-{number}", lambda found: found and found["spec"].get("nodeName")
        )
        slowest = max(slowest, time.monotonic() - began)
    return slowest


def test_a_flood_delays_no_bind_and_costs_little_memory(
    cluster: Cluster, schedulers: Schedulers, fresh_node: Callable[..., Node]
) -> None:
    node = fresh_node(shape="2x8")
    port, other = processes.free_port(), processes.free_port()
    role = schedulers.start(f"--listen=0.0.0.0:{port}")
    process = psutil.Process(next(iter(processes.find(cluster.dir, role))).pid)

    def is_ready() -> bool:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/readyz", timeout=5) as answer:
                return bool(answer.status == 200)
        except OSError:
            return False

    processes.wait_until(is_ready, 60, "the scheduler to be ready")
    slowest_bind(cluster, node, "first")
    before = process.memory_info().rss
    with flood("--swallow", other), flood("--attack", other):
        elsewhere = slowest_bind(cluster, node, "elsewhere")
    holder = cluster.api.get(f"{LEASES}/rte-scheduler")["spec"]
    with flood("--attack", port):
        here = slowest_bind(cluster, node, "here")
        assert is_ready()
        more = (process.memory_info().rss - before) >> 20
    lease = cluster.api.get(f"{LEASES}/rte-scheduler")["spec"]
    assert here < elsewhere + MOST_LATER_S, (here, elsewhere)
    assert more <= MOST_MORE_MIB
    assert (lease["holderIdentity"], lease["leaseTransitions"]) == (
        holder["holderIdentity"],
        holder["leaseTransitions"],
    )
    assert "standing by" not in schedulers.log(role).partition("is active")[2]
