"""Kubernetes objects as typed values with the fields that rte reads, and the rules that all share.

``wire`` is the form of the API; ``selectors``, ``tolerations`` and ``requests`` are the rules over
it, once for the scheduler, the simulated kubelet and offline tools (pure).
"""
