"""Objects of standard input as the test bed needs them, for guides that are typed: ``kubectl``'s.

``python -m tests.cluster.adapted FOLDER NODE`` with the cluster's folder; see
:mod:`tests.cluster.field` for what differs.
"""

from __future__ import annotations

import sys
from pathlib import Path

import yaml

from tests.cluster import images
from tests.cluster.cluster import Cluster
from tests.cluster.field import on_the_nodes_hardware, on_the_nodes_network
from tests.cluster.node import Node

#: Is asked for by a name in a registry that this machine does not reach.
PAUSE = "registry.k8s.io/pause:3.10"


def main(folder: str, name: str) -> None:
    cluster = Cluster.attach(Path(folder))
    node = Node(cluster, name)
    objects = [obj for obj in yaml.safe_load_all(sys.stdin) if obj]
    for place, obj in enumerate(objects):
        if obj["kind"] in ("DaemonSet", "Deployment"):
            objects[place] = on_the_nodes_network(obj, cluster)
        if obj["kind"] == "Deployment":
            # On the one node's network one of them can listen.
            objects[place]["spec"]["replicas"] = 1
        if obj["kind"] == "DaemonSet":
            objects[place] = on_the_nodes_hardware(objects[place], node)
        if obj["kind"] == "Pod":
            obj["spec"] |= {"hostNetwork": True, "terminationGracePeriodSeconds": 1}
    print(yaml.safe_dump_all(objects).replace(PAUSE, images.PAUSE_IMAGE))


if __name__ == "__main__":
    main(*sys.argv[1:])
