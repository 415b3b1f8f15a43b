"""The last release beside this one on real kubelets under load: every mixture of an upgrade.

Agents and schedulers are changed one by one, up and down again, while pods come and go. Nobody
re-creates a pod that a kubelet has refused, each pod is bound once, and no report is more than
seconds behind its kubelet but that of the node whose agent is being changed. ``RTE_ROUNDS``: how
often up and down, some 45 s each.
"""

from __future__ import annotations

import os
import random
import sys
import time
import zipfile
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pytest

from rte import nrt
from tests.cluster import agents
from tests.cluster.kubelet_config import kubelet_config
from tests.cluster.test_scheduler import PODS, Jobs, Schedulers, random_pod
from tests.cluster.test_scheduler import schedulers as schedulers  # noqa: PLC0414 - a fixture

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from tests.cluster.cluster import Cluster
    from tests.cluster.node import Node

pytestmark = pytest.mark.cluster

#: fixtures/releases/README.md
(LAST,) = (agents.MANIFESTS.parent / "fixtures/releases").glob("*.whl")
#: Pods that are done before each next change, and pods that come with it.
BETWEEN, MORE = 6, 8
ROUNDS = int(os.environ.get("RTE_ROUNDS", "1"))
#: Seconds that a report may be behind its kubelet.
BEHIND = 5.0


@pytest.fixture(scope="module")
def last(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, str]:
    """What Python runs in the place of this tree's ``rte``."""
    folder = tmp_path_factory.mktemp("last")
    with zipfile.ZipFile(LAST) as wheel:
        wheel.extractall(folder)
    code = (
        f"import sys; sys.path.insert(0, {str(folder)!r})\n"
        "import rte, rte.cli\n"
        f"assert rte.__file__.startswith({str(folder)!r}), rte.__file__\n"
        "sys.exit(rte.cli.main())\n"
    )
    return ("-c", code)


THIS = ("-m", "rte")


@dataclass
class Reports:
    """How far each node's report is behind its kubelet; asked again and again."""

    cluster: Cluster
    nodes: Sequence[Node]
    worst: dict[str, float] = field(default_factory=dict)
    compared: int = 0
    """Pods with CPUs of their own that were found both at a kubelet and in its report."""
    unsynced: dict[str, int] = field(default_factory=dict)
    """Node -> version of the report that its former agent left."""
    _since: dict[tuple[str, str], float] = field(default_factory=dict)

    def changing(self, node: Node) -> None:
        """Its agent is stopped now: it counts again from its next synced report on."""
        report = self.cluster.api.get(f"{agents.NRT}/{node.name}")
        self.unsynced[node.name] = int(report["metadata"]["resourceVersion"])
        self._since = {key: at for key, at in self._since.items() if key[0] != node.name}

    def look(self) -> None:
        """What a kubelet says is read before its report, so the report cannot be ahead."""
        now = time.monotonic()
        kubelets = {node.name: self._held(node) for node in self.nodes}
        alive = {
            each["metadata"]["uid"]
            for each in self.cluster.api.get(PODS)["items"]
            if each["status"].get("phase") in ("Pending", "Running")
            and "deletionTimestamp" not in each["metadata"]
        }
        for name, held in kubelets.items():
            report = self.cluster.api.get(f"{agents.NRT}/{name}")
            state = nrt.decode(report).state
            if int(report["metadata"]["resourceVersion"]) > self.unsynced.get(name, 0) and (
                state is not None and state.synced
            ):
                self.unsynced.pop(name, None)
            if state is None or name in self.unsynced:
                continue
            told = {uid for uid, of in state.holdings.items() if any(c.cpus for c in of.values())}
            self.compared += len(told & held)
            # A kubelet's file keeps who has ended until its next look at them.
            wrong = (held & alive) - told | told - held
            for uid in wrong:
                since = self._since.setdefault((name, uid), now)
                self.worst[name] = max(self.worst.get(name, 0.0), now - since)
            for key in [key for key in self._since if key[0] == name and key[1] not in wrong]:
                since = self._since.pop(key)
                self.worst[name] = max(self.worst.get(name, 0.0), now - since)

    @staticmethod
    def _held(node: Node) -> set[str]:
        return set(node.state_file("cpu_manager_state").get("entries", {}))


class Fleet:
    """Three nodes' agents and a scheduler, each of which is of either release."""

    def __init__(self, nodes: Sequence[Node], schedulers: Schedulers) -> None:
        self.nodes = nodes
        self.reports = Reports(schedulers.cluster, nodes)
        self.schedulers = schedulers
        self.active = ""

    def agent(self, number: int, program: Sequence[str]) -> None:
        """As a DaemonSet's update does: the former one ends, the next one begins."""
        node = self.nodes[number]
        if node.cluster.api.find(f"{agents.NRT}/{node.name}") is not None:
            self.reports.changing(node)
        node.stop("agent")
        flags = agents.command(node)[3:]
        agents.start(node, argv=[sys.executable, *program, *flags])

    def scheduler(self, program: Sequence[str]) -> None:
        """As a Deployment's update does: the next one stands by before the former one ends."""
        former = self.active
        self.active = self.schedulers.start(program=program)
        if former:
            self.schedulers.cluster.stop_role(former, grace=10)


def test_an_upgrade_and_the_way_back_under_load_refuse_lose_and_double_nothing(
    cluster: Cluster,
    schedulers: Schedulers,
    fresh_nodes: Callable[[Sequence[dict[str, Any]]], list[Node]],
    last: tuple[str, str],
) -> None:
    gpus = {"example.com/gpu": [[0], [1]]}
    nodes = fresh_nodes(
        [
            {"shape": "2x8", "kubelet": kubelet_config(), "devices": gpus},
            {"shape": "2x8", "kubelet": kubelet_config(scope="pod")},
            {"shape": "2x8", "kubelet": kubelet_config(policy="restricted")},
        ]
    )
    fleet = Fleet(nodes, schedulers)
    for number, node in enumerate(nodes):
        fleet.agent(number, last)
        agents.wait_published(node)
    fleet.scheduler(last)

    # Both are of the last release before the first of these changes, and of this one at (a).
    changes: list[Callable[[], None]] = [
        lambda: fleet.agent(0, THIS),  # mixed agents, the former scheduler
        lambda: fleet.scheduler(THIS),  # mixed agents, this scheduler
        lambda: fleet.agent(1, THIS),
        lambda: fleet.agent(2, THIS),  # (a)
        lambda: fleet.scheduler(last),  # the former scheduler, this release's agents
        lambda: fleet.agent(2, last),
        lambda: fleet.agent(1, last),
        lambda: fleet.agent(0, last),  # back at the former release
        lambda: fleet.scheduler(THIS),  # this scheduler, agents of the former release
    ] * ROUNDS
    rng = random.Random(11)
    jobs = Jobs(cluster)

    def more() -> None:
        for _ in range(MORE):
            jobs.add(random_pod(rng, len(jobs.names)))

    def between(_: float) -> None:
        """One change each time some pods more have come and gone."""
        fleet.reports.look()
        made = rounds - len(changes)
        if changes and len(jobs.done) >= BETWEEN * (made + 1):
            changes.pop(0)()
            more()

    rounds = len(changes)
    more()
    jobs.run(450 * ROUNDS, 2.0, between)

    assert jobs.failed == {}
    assert not changes
    assert len(jobs.done) == MORE * (rounds + 1)
    assert all(len(where) == 1 for where in jobs.bound.values()), jobs.bound
    behind = {name: round(seconds, 1) for name, seconds in fleet.reports.worst.items()}
    print(f"{len(jobs.done)} pods; seconds that reports were behind, at most: {behind}")
    assert fleet.reports.unsynced == {}
    assert fleet.reports.compared > len(jobs.done)
    assert max(behind.values()) <= BEHIND
