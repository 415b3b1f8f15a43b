"""The last release beside this one on real kubelets under load: every mixture of an upgrade.

Agents and schedulers are changed one by one, up and down again, while pods come and go. Nobody
re-creates a pod that a kubelet has refused, and each pod is bound once.
"""

from __future__ import annotations

import random
import sys
import zipfile
from typing import TYPE_CHECKING, Any

import pytest

from tests.cluster import agents
from tests.cluster.kubelet_config import kubelet_config
from tests.cluster.test_scheduler import Jobs, Schedulers, random_pod
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


class Fleet:
    """Three nodes' agents and a scheduler, each of which is of either release."""

    def __init__(self, nodes: Sequence[Node], schedulers: Schedulers) -> None:
        self.nodes = nodes
        self.schedulers = schedulers
        self.active = ""

    def agent(self, number: int, program: Sequence[str]) -> None:
        """As a DaemonSet's update does: the former one ends, the next one begins."""
        node = self.nodes[number]
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
    ]
    rng = random.Random(11)
    jobs = Jobs(cluster)

    def more() -> None:
        for _ in range(MORE):
            jobs.add(random_pod(rng, len(jobs.names)))

    def between(_: float) -> None:
        """One change each time some pods more have come and gone."""
        made = rounds - len(changes)
        if changes and len(jobs.done) >= BETWEEN * (made + 1):
            changes.pop(0)()
            more()

    rounds = len(changes)
    more()
    jobs.run(420, 2.0, between)

    assert jobs.failed == {}
    assert not changes
    assert len(jobs.done) == MORE * (rounds + 1)
    assert all(len(where) == 1 for where in jobs.bound.values()), jobs.bound
