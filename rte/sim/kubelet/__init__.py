"""A simulated kubelet: the admission, files, sockets and API writes of a real one."""

from rte.sim.kubelet.configuration import kubelet_document
from rte.sim.kubelet.kubelet import Kubelet, Timing

__all__ = ["Kubelet", "Timing", "kubelet_document"]
