"""Several pods at once (pure): gangs, how many fit, and the smallest move that makes room.

A set of pods has a place when each has a node and every kubelet admits its pods in any order of
arrival (:mod:`rte.placement.inflight.orders`), within the node's totals. The public names are here;
docs/fit.md shows them at work.
"""
