"""Predict a kubelet's answer, and count what fits, from Python; docs/library.md shows it at work.

    from rte import library as rte

    node = rte.node("2x32", policy="single-numa-node")
    answer = rte.admit(node, "pod.yaml")
    print(answer.admitted, answer.cpus, rte.fit([node], "pod.yaml").total)

Values go in, values come out: no clock, no log, no connection. What is wrong with an argument is
one line that begins with its name (:class:`rte.errors.RteError`).
"""

from rte.library.answers import AdmitAnswer, Count, admit, fit
from rte.library.cpusets import CPUSet
from rte.library.machines import NamedMachine
from rte.library.nodes import Node, NodeStates, machine, node, read_machine
from rte.library.pods import Pods, pod
from rte.placement import Admission, Verdict, execute, initial_state, remove

#: What reads a NodeResourceTopology (``from_nrt``) and a manifest (``from_manifest``).
NodeState = NodeStates
Pod = Pods

__all__ = [
    "Admission",
    "AdmitAnswer",
    "CPUSet",
    "Count",
    "NamedMachine",
    "Node",
    "NodeState",
    "Pod",
    "Verdict",
    "admit",
    "execute",
    "fit",
    "initial_state",
    "machine",
    "node",
    "pod",
    "read_machine",
    "remove",
]
