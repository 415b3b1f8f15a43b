"""``rte demo``: a whole cluster in one process, shown while it lives."""

from rte.sim.demo.chaos import Chaos
from rte.sim.demo.cluster import DemoCluster, Settings
from rte.sim.demo.run import live, tour

__all__ = ["Chaos", "DemoCluster", "Settings", "live", "tour"]
