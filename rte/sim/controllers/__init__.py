"""Stands in for kube-controller-manager: what of it a demo or a test needs."""

from rte.sim.controllers.run import run

__all__ = ["run"]
