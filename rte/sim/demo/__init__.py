"""``rte demo``: a whole cluster in one process, shown while it lives."""

from rte.sim.demo.cluster import Cluster, Settings
from rte.sim.demo.run import live, tour

__all__ = ["Cluster", "Settings", "live", "tour"]
