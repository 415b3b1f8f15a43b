"""A simulated kubelet: the admission, files, sockets and API writes of a real one."""

from rte.sim.kubelet.kubelet import Kubelet
from rte.sim.kubelet.workers import Timing
from rte.sim.kubelet_document import kubelet_document

__all__ = ["Kubelet", "Timing", "kubelet_document"]
