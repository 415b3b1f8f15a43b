"""What a program of yours needs to predict a kubelet's answer; docs/library.md shows it at work.

The values are those of :mod:`rte.model`; here they have constructors that read what people have at
hand: a manifest, a NodeResourceTopology, a machine's ``/sys``.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from rte import errors, nrt, sysfs
from rte.k8s import podspec
from rte.model import node, pod
from rte.placement import Admission, Verdict, admit, execute, initial_state, remove

if TYPE_CHECKING:
    from collections.abc import Mapping

    from rte.model.machine import Machine

__all__ = [
    "Admission",
    "NodeState",
    "Pod",
    "Verdict",
    "admit",
    "execute",
    "initial_state",
    "read_machine",
    "remove",
]


class Pod(pod.Pod):
    """A pod as the kubelet's admission sees it."""

    @staticmethod
    def from_manifest(manifest: Mapping[str, Any]) -> pod.Pod:
        """Read a Pod, from the API or from YAML, with the API server's defaults for resources.

        A pod that no server has stored has no UID; it gets ``namespace/name`` for one.

        Raises:
            errors.ParseError: it is not a Pod, or a field of it is malformed.
        """
        if not isinstance(manifest, dict) or manifest.get("kind", "Pod") != "Pod":
            raise errors.ParseError("Pod", manifest, "expected an object of kind Pod")
        read = podspec.parse_pod(manifest)
        if not read.containers:
            raise errors.ParseError("Pod", read.name, "spec.containers: Required value")
        if read.uid:
            return read
        return pod.Pod(
            uid=f"{read.namespace}/{read.name}",
            namespace=read.namespace,
            name=read.name,
            qos=read.qos,
            containers=read.containers,
            overhead=read.overhead,
            pod_requests=read.pod_requests,
            pod_limits=read.pod_limits,
        )


class NodeState(node.NodeState):
    """All that prediction needs of one node."""

    @staticmethod
    def from_nrt(obj: Mapping[str, Any]) -> node.NodeState:
        """Read the state that rte's agent publishes in a NodeResourceTopology.

        Raises:
            errors.ParseError: it is none, or another exporter's, which tells zones only.
        """
        report = nrt.decode(obj)
        if report.state is None:
            why = "; ".join(report.problems) or f"no annotation {nrt.NODE_STATE_ANNOTATION}"
            raise errors.ParseError("NodeResourceTopology", report.name, why)
        return report.state


def read_machine(root: str | Path = "/") -> Machine:
    """Read the hardware below ``root/sys`` and ``root/proc``: this host's, or a capture's.

    Raises:
        errors.SysfsError: there is no machine to be read.
    """
    return sysfs.read_machine(Path(root) / "sys", Path(root) / "proc")
