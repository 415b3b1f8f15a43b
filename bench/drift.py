"""What the agent's drift check costs, as a share of the agent's CPU time.

    python -m bench.drift [--pods N]

One pod after the other comes to a node and leaves it. The check is timed by itself: on the states
that an agent reads from the simulated kubelet's files. The agent's CPU time for such a pod is that
of ``bench.footprint``, two changes, measured in the same run. The bar is 5 %.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from bench import footprint
from rte import accounting, placement
from rte.accounting.liveness import PodTable
from rte.agent.drift import DriftCheck
from rte.agent.observer.messages import PodSeen
from rte.kubelet import config as kubelet_config
from rte.kubelet import statefiles
from rte.model.kubelet import StateFiles, combine
from rte.sim.kubelet import kubelet_document
from rte.sim.kubelet.files import StateDir
from rte.sim.kubelet.managers import KubeletManagers
from rte.sysfs import read_machine
from rte.telemetry.cases import CaseBook
from rte.telemetry.metrics import AgentMetrics

BAR = 0.05
VERSION = "v1.35.4"
MACHINE = "64-2s"


def pod_object(number: int, cpus: int) -> dict[str, Any]:
    amounts = {"cpu": str(cpus), "memory": "1Gi"}
    return {
        "metadata": {"uid": f"{number:036}", "name": f"pod-{number}", "namespace": "default"},
        "spec": {
            "containers": [{"name": "c", "resources": {"requests": amounts, "limits": amounts}}]
        },
        "status": {"phase": "Pending", "qosClass": "Guaranteed"},
    }


class Node:
    """A kubelet's managers with their files, and an agent's parts."""

    def __init__(self, root: Path) -> None:
        tree = footprint.ROOT / "fixtures/sysfs" / MACHINE
        self.machine = read_machine(tree / "sys", tree / "proc")
        self.state_dir = root
        document = kubelet_document(self.machine)
        self.config = kubelet_config.effective(
            document, memory_bytes=self.machine.memory_bytes, where="here"
        )
        topology = accounting.kubelet_topology(self.machine)
        self.files = StateDir(self.state_dir)
        self.managers = KubeletManagers(
            placement.initial_state(topology, self.config, {}, VERSION),
            self.files,
            placement.execute,
        )
        self.table = PodTable()
        self.table.replace([])
        self.read: StateFiles | None = None
        self.state: Any = None
        self.metrics = AgentMetrics()
        self.check = DriftCheck("n0", self.metrics, CaseBook(None))
        self.spent = 0.0

    def tell(self, obj: dict[str, Any]) -> None:
        """The API shows the pod; that costs more for a newcomer, which is parsed."""
        self.table.update(obj)
        began = time.thread_time()
        self.check.newcomers.told(PodSeen(obj))
        self.spent += time.thread_time() - began

    def observe(self) -> None:
        self.read = statefiles.read_state_files(self.state_dir, self.read)
        view = combine(self.read, config=self.config, version=VERSION, epoch="1")
        options = accounting.ReadingOptions(previous=self.state)
        built = accounting.build_reading("n0", self.machine, view, self.table.pods(), options)
        self.state = built.state
        began = time.thread_time()
        self.check.observe(self.state)
        self.spent += time.thread_time() - began

    def live(self, number: int) -> None:
        """A pod from its coming to its end."""
        obj = pod_object(number, 1 + number % 8)
        self.tell(obj)
        uid = obj["metadata"]["uid"]
        self.managers.admit(self.check.newcomers.pods[uid], frozenset())
        self.files.write_allocated_pods({uid: obj["spec"]})
        self.observe()
        self.tell({**obj, "status": {**obj["status"], "phase": "Running", "startTime": "t"}})
        self.observe()
        self.tell({**obj, "status": {"phase": "Succeeded", "startTime": "t"}})
        self.observe()


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="bench.drift", description=__doc__)
    parser.add_argument("--pods", type=int, default=300)
    pods = parser.parse_args(argv).pods
    with tempfile.TemporaryDirectory() as folder:
        node = Node(Path(folder))
        node.observe()
        for number in range(pods):
            node.live(number)
    compared = node.metrics.registry.get_sample_value("rte_predictions_total")
    if compared != pods:
        print(f"only {compared} of {pods} admissions were compared", file=sys.stderr)
        return 1
    check = 1000 * node.spent / pods
    args = argparse.Namespace(changes=2 * pods, machine=MACHINE, settle=1.0)
    name, _, command = footprint.OURS.partition("=")
    agent = 2 * asyncio.run(footprint.measure(name, command, args))["cpu_ms_per_change"]
    print(f"check {check:.2f} ms a pod, agent {agent:.1f} ms: {check / agent:.1%} (bar {BAR:.0%})")
    return 0 if check / agent <= BAR else 1


if __name__ == "__main__":
    sys.exit(main())
