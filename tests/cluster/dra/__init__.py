"""A DRA driver for simulated machines, on the kubelet's real gRPC interfaces.

:mod:`~tests.cluster.dra.slices` says what devices a machine has, :mod:`~tests.cluster.dra.driver` publishes
and registers them, and prepares what claims were given.
"""
