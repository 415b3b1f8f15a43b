"""One picture without a server: what a simulation left, or a machine."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from rte import accounting
from rte.model.node import KubeletConfig, NodeState
from rte.model.quantity import ResourceList
from rte.scheduler.cache.cluster import Cluster
from rte.scheduler.framework import objects
from rte.scheduler.framework.node import Report
from rte.scheduler.loop.cycle import Cycle
from rte.view import hardware
from rte.view.source import ViewSource

if TYPE_CHECKING:
    from rte.model.node import NodeReading
    from rte.reader.json import JsonObject
    from rte.view.drawing.words import Names


class Still:
    """A cluster that does not change any more, as a source of the page reads it."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self.cycle = Cycle(cluster)


def picture(cluster: Cluster) -> JsonObject:
    """Everything that the page shows of a cluster that does not change any more."""
    source = ViewSource(Still(cluster), clock=time.time)
    source.look()
    return {**source.snapshot(), "live": False}


def picture_of(reading: NodeReading, names: Names | None = None) -> JsonObject:
    """A machine as a cluster of one node, with its drawing.

    Without a kubelet nobody holds anything. ``names``: of PCI devices.
    """
    state = reading.state
    if state is None:
        topology = accounting.kubelet_topology(reading.machine)
        state = NodeState(topology=topology, config=KubeletConfig(), shared=topology.all_cpus)
    cluster = Cluster()
    name = reading.node_name or reading.machine.model or "machine"
    cluster.set_node(
        objects.NodeInfo(
            name=name,
            uid="",
            labels={},
            taints=(),
            unschedulable=False,
            allocatable=ResourceList({}),
        )
    )
    cluster.set_report(name, Report(state=state), 0.0)
    for pod in reading.pods:
        obj = {
            "metadata": {"name": pod.name, "namespace": pod.namespace, "uid": pod.uid},
            "spec": {"nodeName": name, "containers": []},
        }
        cluster.set_pod(objects.read_pod(obj, cluster.shapes), 0.0)
    return {**picture(cluster), "hardware": {name: hardware.describe(reading, names)}}
