"""A DRA driver for simulated machines, on the kubelet's real gRPC interfaces.

``slices`` says what devices a machine has; ``driver`` publishes and registers them, and prepares
what claims were given.
"""
